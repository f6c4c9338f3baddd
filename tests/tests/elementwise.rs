//! Elementwise operations pass their suite with one thread, with several, and on GPUs.

use kvstore_core::Backends;
use kvstore_tests::place;
use kvstore_tests::suite::elementwise as suite;

fn everywhere(check: impl Fn(&Backends)) {
    for (place, backends) in place::backends(&[1, 2, 7]) {
        println!("{place}");
        check(&backends);
    }
}

#[test]
fn of_two_numbers() {
    everywhere(suite::of_two_numbers);
}

#[test]
fn of_one_number() {
    everywhere(suite::of_one_number);
}

#[test]
fn stretched() {
    everywhere(suite::stretched);
}

#[test]
fn limits() {
    everywhere(suite::limits);
}

#[test]
fn casts() {
    everywhere(suite::casts);
}
