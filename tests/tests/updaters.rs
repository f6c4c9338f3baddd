//! Every store runs updaters in the same way.

use kvstore_tests::suite::{on_every_store, updaters};

#[test]
fn each_key_is_updated_once_in_init_order() {
    on_every_store(updaters::each_key_is_updated_once_in_init_order);
}

#[test]
fn init_and_pull_do_not_run_it() {
    on_every_store(updaters::init_and_pull_do_not_run_it);
}

#[test]
fn a_cleared_updater_runs_no_more() {
    on_every_store(updaters::a_cleared_updater_runs_no_more);
}

#[test]
fn a_failure_keeps_the_old_value() {
    on_every_store(updaters::a_failure_keeps_the_old_value);
}

#[test]
fn a_failure_comes_back_as_it_was() {
    on_every_store(updaters::a_failure_comes_back_as_it_was);
}

#[test]
fn a_panic_poisons_one_key() {
    on_every_store(updaters::a_panic_poisons_one_key);
}

#[test]
fn a_poisoned_key_fails_the_call() {
    on_every_store(updaters::a_poisoned_key_fails_the_call);
}

#[test]
fn changing_verbs_are_refused_inside() {
    on_every_store(updaters::changing_verbs_are_refused_inside);
}

#[test]
fn another_store_may_be_changed_inside() {
    on_every_store(updaters::another_store_may_be_changed_inside);
}

#[test]
fn a_pull_inside_sees_what_is_committed() {
    on_every_store(updaters::a_pull_inside_sees_what_is_committed);
}

#[test]
fn a_failure_does_not_leave_the_thread_inside() {
    on_every_store(updaters::a_failure_does_not_leave_the_thread_inside);
}

#[test]
fn every_way_of_writing_counts() {
    on_every_store(updaters::every_way_of_writing_counts);
}
