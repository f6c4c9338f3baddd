//! Every store runs updaters in the same way.

use kvstore_tests::suite::{on_every_store, updaters};

#[test]
fn each_key_is_updated_once_in_init_order() {
    on_every_store(updaters::each_key_is_updated_once_in_init_order);
}

#[test]
fn init_and_pull_do_not_run_the_updater() {
    on_every_store(updaters::init_and_pull_do_not_run_the_updater);
}

#[test]
fn a_cleared_updater_does_not_run() {
    on_every_store(updaters::a_cleared_updater_does_not_run);
}

#[test]
fn a_failed_updater_keeps_the_old_value() {
    on_every_store(updaters::a_failed_updater_keeps_the_old_value);
}

#[test]
fn push_returns_the_error_of_the_updater() {
    on_every_store(updaters::push_returns_the_error_of_the_updater);
}

#[test]
fn a_panic_poisons_one_key() {
    on_every_store(updaters::a_panic_poisons_one_key);
}

#[test]
fn a_call_with_a_poisoned_key_changes_nothing() {
    on_every_store(updaters::a_call_with_a_poisoned_key_changes_nothing);
}

#[test]
fn an_updater_cannot_change_its_store() {
    on_every_store(updaters::an_updater_cannot_change_its_store);
}

#[test]
fn an_updater_may_change_another_store() {
    on_every_store(updaters::an_updater_may_change_another_store);
}

#[test]
fn a_pull_in_an_updater_returns_committed_values() {
    on_every_store(updaters::a_pull_in_an_updater_returns_committed_values);
}

#[test]
fn a_thread_may_change_the_store_after_its_updater_failed() {
    on_every_store(updaters::a_thread_may_change_the_store_after_its_updater_failed);
}

#[test]
fn writes_of_every_kind_are_committed() {
    on_every_store(updaters::writes_of_every_kind_are_committed);
}
