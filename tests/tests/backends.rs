//! Every backend passes the suite of backends, the CPU backend with one thread and with several. So
//! all give the same bits.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use kvstore_core::{Backend, Backends, CpuBackend, Device, DeviceKind};
use kvstore_tests::place;
use kvstore_tests::suite::{backend as suite, norms};

fn everywhere(check: impl Fn(&dyn Backend)) {
    for (place, backends) in place::backends(&[1, 2, 7]) {
        println!("{place}");
        check(&**place::backend(&backends));
    }
}

#[test]
fn sums_are_left_folds() {
    everywhere(suite::sums_are_left_folds);
}

#[test]
fn half_floats_are_rounded_once() {
    everywhere(suite::half_floats_are_rounded_once);
}

#[test]
fn integers_wrap() {
    everywhere(suite::integers_wrap);
}

#[test]
fn a_batch_of_sums_equals_separate_sums() {
    everywhere(suite::a_batch_of_sums_equals_separate_sums);
}

#[test]
fn an_error_among_the_jobs_changes_nothing() {
    everywhere(suite::an_error_among_the_jobs_changes_nothing);
}

#[test]
fn long_values_agree_with_the_model() {
    everywhere(suite::long_values_agree_with_the_model);
}

#[test]
fn casts_agree_with_the_model() {
    everywhere(suite::casts_agree_with_the_model);
}

#[test]
fn fills_agree_with_the_model() {
    everywhere(suite::fills_agree_with_the_model);
}

#[test]
fn broadcasts_write_every_destination() {
    everywhere(suite::broadcasts_write_every_destination);
}

#[test]
fn copies_keep_every_bit() {
    everywhere(suite::copies_keep_every_bit);
}

#[test]
fn arithmetic_agrees_with_the_model() {
    everywhere(suite::arithmetic_agrees_with_the_model);
}

#[test]
fn integer_division_by_zero_is_rejected() {
    everywhere(suite::integer_division_by_zero_is_rejected);
}

#[test]
fn steps_agree_with_the_model() {
    everywhere(suite::steps_agree_with_the_model);
}

#[test]
fn master_copies_accumulate_small_steps() {
    everywhere(suite::master_copies_accumulate_small_steps);
}

#[test]
fn a_batch_of_steps_equals_separate_steps() {
    everywhere(suite::a_batch_of_steps_equals_separate_steps);
}

#[test]
fn norms_of_gradients_agree_with_the_model() {
    everywhere(norms::norms_of_gradients_agree_with_the_model);
}

#[test]
fn norms_of_steps_agree_with_the_model() {
    everywhere(norms::norms_of_steps_agree_with_the_model);
}

#[test]
fn codes_agree_with_the_model() {
    everywhere(suite::codes_agree_with_the_model);
}

#[test]
fn a_lazy_backend_is_searched_for_once_at_the_first_use_of_its_kind() {
    static NUM_SEARCHES: AtomicUsize = AtomicUsize::new(0);
    let num_searches = || NUM_SEARCHES.load(Ordering::Relaxed);
    let backends = Backends::builder()
        .with(CpuBackend::with_threads(1))
        .with_lazy(DeviceKind::Gpu, || {
            NUM_SEARCHES.fetch_add(1, Ordering::Relaxed);
            Err("it is not there".to_owned())
        })
        .build();
    assert!(backends.of(Device::cpu(0)).is_ok());
    assert_eq!((backends.initialised().count(), num_searches()), (1, 0));
    for _ in 0..2 {
        let error = backends.of(Device::gpu(1)).unwrap_err();
        assert_eq!(error.to_string(), "device gpu(1) is not available: it is not there");
    }
    assert_eq!((backends.find_all().len(), num_searches()), (2, 1));
    let none = Backends::new(Vec::new()).of(Device::gpu(0)).unwrap_err();
    assert!(none.to_string().ends_with("this build has no backend for `gpu` devices"));
}

#[test]
fn several_backends_may_be_lazy_and_the_first_of_a_kind_is_used() {
    let (first, second) = (CpuBackend::with_threads(1), CpuBackend::with_threads(2));
    let found: Arc<dyn Backend> = first.clone();
    let backends = Backends::builder()
        .with_lazy(DeviceKind::Cpu, move || Ok(Arc::clone(&found)))
        .with_lazy(DeviceKind::Gpu, || Err("no card".to_owned()))
        .with(second)
        .build();
    assert_eq!(backends.initialised().count(), 0);
    let used = backends.of(Device::cpu(0)).unwrap();
    assert!(Arc::ptr_eq(used, &(first as Arc<dyn Backend>)));
    assert_eq!(backends.initialised().count(), 1);
    let all = backends.find_all();
    assert_eq!(
        all.iter().map(|(kind, found)| (*kind, found.is_ok())).collect::<Vec<_>>(),
        [(DeviceKind::Cpu, true), (DeviceKind::Gpu, false)]
    );
}
