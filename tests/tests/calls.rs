//! Every store accepts and rejects arguments in the same way.

use kvstore_tests::suite::{calls, on_every_store};

#[test]
fn keys_and_values_have_four_forms() {
    on_every_store(calls::keys_and_values_have_four_forms);
}

#[test]
fn values_of_a_repeated_key_are_summed() {
    on_every_store(calls::values_of_a_repeated_key_are_summed);
}

#[test]
fn empty_lists_do_nothing() {
    on_every_store(calls::empty_lists_do_nothing);
}

#[test]
fn lists_of_different_lengths_are_rejected() {
    on_every_store(calls::lists_of_different_lengths_are_rejected);
}

#[test]
fn any_string_without_nul_is_a_key() {
    on_every_store(calls::any_string_without_nul_is_a_key);
}

#[test]
fn keys_are_in_init_order() {
    on_every_store(calls::keys_are_in_init_order);
}

#[test]
fn a_call_with_an_invalid_item_changes_nothing() {
    on_every_store(calls::a_call_with_an_invalid_item_changes_nothing);
}

#[test]
fn errors_name_key_expected_and_found() {
    on_every_store(calls::errors_name_key_expected_and_found);
}

#[test]
fn empty_arrays_are_rejected_and_scalars_are_accepted() {
    on_every_store(calls::empty_arrays_are_rejected_and_scalars_are_accepted);
}

#[test]
fn values_may_be_on_several_devices() {
    on_every_store(calls::values_may_be_on_several_devices);
}

#[test]
fn an_optimizer_rejects_integer_weights() {
    on_every_store(calls::an_optimizer_rejects_integer_weights);
}

#[test]
fn a_store_on_one_machine_has_one_worker() {
    on_every_store(calls::a_store_on_one_machine_has_one_worker);
}

#[test]
fn store_names_must_match_completely() {
    calls::store_names_must_match_completely();
}
