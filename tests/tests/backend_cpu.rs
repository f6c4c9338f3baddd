//! The host's backend passes the suite of backends, on one thread and on several: so all of them
//! give the same bits.

use kvstore_core::{Backend, CpuBackend};
use kvstore_tests::reduced;
use kvstore_tests::suite::backend as suite;

fn on_every_number_of_threads(check: impl Fn(&dyn Backend)) {
    for num_threads in reduced::threads(&[1, 2, 7]) {
        println!("{num_threads} threads");
        check(&*CpuBackend::with_threads(num_threads));
    }
}

#[test]
fn sums_are_left_folds() {
    on_every_number_of_threads(suite::sums_are_left_folds);
}

#[test]
fn half_floats_are_rounded_once() {
    on_every_number_of_threads(suite::half_floats_are_rounded_once);
}

#[test]
fn integers_wrap() {
    on_every_number_of_threads(suite::integers_wrap);
}

#[test]
fn a_batch_is_its_sums() {
    on_every_number_of_threads(suite::a_batch_is_its_sums);
}

#[test]
fn long_values_agree() {
    on_every_number_of_threads(suite::long_values_agree);
}

#[test]
fn casts_agree() {
    on_every_number_of_threads(suite::casts_agree);
}

#[test]
fn fills_agree() {
    on_every_number_of_threads(suite::fills_agree);
}

#[test]
fn copies_carry_every_bit() {
    on_every_number_of_threads(suite::copies_carry_every_bit);
}

#[test]
fn arithmetic_agrees() {
    on_every_number_of_threads(suite::arithmetic_agrees);
}

#[test]
fn integer_division_by_zero_is_refused() {
    on_every_number_of_threads(suite::integer_division_by_zero_is_refused);
}

#[test]
fn steps_agree() {
    on_every_number_of_threads(suite::steps_agree);
}

#[test]
fn master_copies_keep_small_steps() {
    on_every_number_of_threads(suite::master_copies_keep_small_steps);
}

#[test]
fn a_batch_is_its_steps() {
    on_every_number_of_threads(suite::a_batch_is_its_steps);
}

#[test]
fn codes_agree() {
    on_every_number_of_threads(suite::codes_agree);
}
