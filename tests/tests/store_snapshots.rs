//! Every store passes the suite of snapshots and rollbacks.

use kvstore_tests::suite::{on_every_store, store_snapshots};

#[test]
fn a_snapshot_is_a_state_that_the_store_had() {
    on_every_store(store_snapshots::a_snapshot_is_a_state_that_the_store_had);
}

#[test]
fn a_snapshot_has_value_and_state_after_the_same_push() {
    on_every_store(store_snapshots::a_snapshot_has_value_and_state_after_the_same_push);
}

#[test]
fn row_sparse_and_dense_values_with_equal_bits_are_identical() {
    on_every_store(store_snapshots::row_sparse_and_dense_values_with_equal_bits_are_identical);
}

#[test]
fn a_rollback_restores_all_keys_together() {
    on_every_store(store_snapshots::a_rollback_restores_all_keys_together);
}

#[test]
fn a_rollback_restores_values_states_and_settings() {
    on_every_store(store_snapshots::a_rollback_restores_values_states_and_settings);
}

#[test]
fn a_snapshot_never_changes() {
    on_every_store(store_snapshots::a_snapshot_never_changes);
}

#[test]
fn changed_keys_returns_the_keys_that_differ() {
    on_every_store(store_snapshots::changed_keys_returns_the_keys_that_differ);
}

#[test]
fn an_updater_cannot_take_a_snapshot() {
    on_every_store(store_snapshots::an_updater_cannot_take_a_snapshot);
}

#[test]
fn a_snapshot_waits_for_updaters_but_a_pull_does_not() {
    on_every_store(store_snapshots::a_snapshot_waits_for_updaters_but_a_pull_does_not);
}

#[test]
fn a_dropped_updater_may_call_the_store() {
    on_every_store(store_snapshots::a_dropped_updater_may_call_the_store);
}

#[test]
fn a_rollback_restores_a_poisoned_key() {
    on_every_store(store_snapshots::a_rollback_restores_a_poisoned_key);
}
