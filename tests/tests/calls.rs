//! Every store accepts and rejects arguments in the same way.

use kvstore_tests::suite::{calls, on_every_store};

#[test]
fn values_come_in_four_shapes() {
    on_every_store(calls::values_come_in_four_shapes);
}

#[test]
fn a_repeated_key_collects_its_values() {
    on_every_store(calls::a_repeated_key_collects_its_values);
}

#[test]
fn empty_lists_do_nothing() {
    on_every_store(calls::empty_lists_do_nothing);
}

#[test]
fn lengths_must_agree() {
    on_every_store(calls::lengths_must_agree);
}

#[test]
fn any_text_is_a_key() {
    on_every_store(calls::any_text_is_a_key);
}

#[test]
fn keys_are_in_init_order() {
    on_every_store(calls::keys_are_in_init_order);
}

#[test]
fn a_call_is_checked_completely() {
    on_every_store(calls::a_call_is_checked_completely);
}

#[test]
fn errors_name_what_was_wrong() {
    on_every_store(calls::errors_name_what_was_wrong);
}

#[test]
fn zero_size_is_refused_and_rank_zero_is_not() {
    on_every_store(calls::zero_size_is_refused_and_rank_zero_is_not);
}

#[test]
fn values_may_be_on_several_devices() {
    on_every_store(calls::values_may_be_on_several_devices);
}

#[test]
fn an_optimizer_refuses_integers() {
    on_every_store(calls::an_optimizer_refuses_integers);
}

#[test]
fn one_machine_is_one_worker() {
    on_every_store(calls::one_machine_is_one_worker);
}

#[test]
fn names_are_matched_completely() {
    calls::names_are_matched_completely();
}
