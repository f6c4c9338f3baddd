//! Operations of one element each pass their suite on one thread and on several.

use kvstore_core::{Backends, CpuBackend};
use kvstore_tests::reduced;
use kvstore_tests::suite::elementwise as suite;

fn on_every_number_of_threads(check: impl Fn(&Backends)) {
    for num_threads in reduced::threads(&[1, 2, 7]) {
        println!("{num_threads} threads");
        check(&Backends::new(vec![CpuBackend::with_threads(num_threads)]));
    }
}

#[test]
fn of_two_numbers() {
    on_every_number_of_threads(suite::of_two_numbers);
}

#[test]
fn of_one_number() {
    on_every_number_of_threads(suite::of_one_number);
}

#[test]
fn stretched() {
    on_every_number_of_threads(suite::stretched);
}

#[test]
fn limits() {
    on_every_number_of_threads(suite::limits);
}

#[test]
fn casts() {
    on_every_number_of_threads(suite::casts);
}
