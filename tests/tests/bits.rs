//! The same bits from every store and any number of threads.

use kvstore_core::{Backends, CpuBackend, KvStore, LocalStore};
use kvstore_tests::suite::bits::{self as suite, Place};

/// The first one is what the others are compared with.
fn places() -> Vec<Place> {
    let threads = [1, 2, 7].map(|num_threads| {
        let backends = Backends::new(vec![CpuBackend::with_threads(num_threads)]);
        ["local", "device"].map(|store| Place {
            store,
            num_threads,
            backends: backends.clone(),
            create,
        })
    });
    threads.into_iter().flatten().collect()
}

fn create(name: &str, backends: &Backends) -> Box<dyn KvStore> {
    Box::new(LocalStore::new(name, backends.clone()).expect("a name that it knows"))
}

#[test]
fn sums_have_the_same_bits() {
    suite::sums_have_the_same_bits(&places());
}

#[test]
fn steps_have_the_same_bits() {
    suite::steps_have_the_same_bits(&places());
}

#[test]
fn parts_have_the_bits_of_the_whole() {
    suite::parts_have_the_bits_of_the_whole(&places());
}

#[test]
fn empty_values_are_refused() {
    suite::empty_values_are_refused(&places());
}
