//! Every store passes the suite of snapshots and rollbacks.

use kvstore_tests::suite::{on_every_store, store_snapshots};

#[test]
fn a_snapshot_is_a_state_that_was() {
    on_every_store(store_snapshots::a_snapshot_is_a_state_that_was);
}

#[test]
fn a_snapshot_has_everything_of_a_key() {
    on_every_store(store_snapshots::a_snapshot_has_everything_of_a_key);
}

#[test]
fn the_form_of_a_value_does_not_count() {
    on_every_store(store_snapshots::the_form_of_a_value_does_not_count);
}

#[test]
fn a_rollback_is_complete() {
    on_every_store(store_snapshots::a_rollback_is_complete);
}

#[test]
fn a_rollback_brings_everything_back() {
    on_every_store(store_snapshots::a_rollback_brings_everything_back);
}

#[test]
fn a_snapshot_never_changes() {
    on_every_store(store_snapshots::a_snapshot_never_changes);
}

#[test]
fn changed_keys_are_named() {
    on_every_store(store_snapshots::changed_keys_are_named);
}

#[test]
fn an_updater_takes_no_snapshot() {
    on_every_store(store_snapshots::an_updater_takes_no_snapshot);
}

#[test]
fn a_snapshot_waits_for_updaters_and_pulls_for_nobody() {
    on_every_store(store_snapshots::a_snapshot_waits_for_updaters_and_pulls_for_nobody);
}

#[test]
fn a_dropped_updater_may_call_the_store() {
    on_every_store(store_snapshots::a_dropped_updater_may_call_the_store);
}

#[test]
fn a_rollback_mends_a_poisoned_key() {
    on_every_store(store_snapshots::a_rollback_mends_a_poisoned_key);
}
