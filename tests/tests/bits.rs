//! Every store gives the same bits with any number of threads.

use kvstore_core::{Backends, CpuBackend, Device, KvStore, LocalStore};
use kvstore_tests::place;
use kvstore_tests::suite::bits::{self as suite, Place};

/// Returns the places. The others are compared with the first.
fn places() -> Vec<Place> {
    let mut places = Vec::new();
    for num_threads in [1, 2, 7] {
        let backends = Backends::new(vec![CpuBackend::with_threads(num_threads)]);
        let device = Device::cpu;
        for store in ["local", "device"] {
            places.push(Place { store, num_threads, backends: backends.clone(), device, create });
        }
    }
    if place::is_gpu() {
        // The first place of the host, and the GPUs.
        places.truncate(1);
        for store in ["local", "device"] {
            let (backends, device) = (kvstore::backends().clone(), Device::gpu);
            places.push(Place { store, num_threads: 0, backends, device, create });
        }
    }
    places
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
fn parts_have_the_bits_of_the_complete_value() {
    suite::parts_have_the_bits_of_the_complete_value(&places());
}

#[test]
fn empty_values_are_rejected() {
    suite::empty_values_are_rejected(&places());
}
