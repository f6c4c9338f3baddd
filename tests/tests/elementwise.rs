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
fn binary_operations_agree_for_short_and_long_values() {
    everywhere(suite::binary_operations_agree_for_short_and_long_values);
}

#[test]
fn unary_operations_agree_for_short_and_long_values() {
    everywhere(suite::unary_operations_agree_for_short_and_long_values);
}

#[test]
fn comparisons_broadcast_their_operands() {
    everywhere(suite::comparisons_broadcast_their_operands);
}

#[test]
fn clip_accepts_limits_outside_the_dtype() {
    everywhere(suite::clip_accepts_limits_outside_the_dtype);
}

#[test]
fn casts_agree_with_the_model() {
    everywhere(suite::casts_agree_with_the_model);
}
