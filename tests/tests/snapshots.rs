//! Every store keeps its values independent of the arrays outside.

use kvstore_tests::suite::{on_every_store, snapshots};

#[test]
fn writes_after_init_do_not_change_the_store() {
    on_every_store(snapshots::writes_after_init_do_not_change_the_store);
}

#[test]
fn writes_after_a_push_do_not_change_the_store() {
    on_every_store(snapshots::writes_after_a_push_do_not_change_the_store);
}

#[test]
fn writes_to_pulled_arrays_do_not_change_the_store() {
    on_every_store(snapshots::writes_to_pulled_arrays_do_not_change_the_store);
}

#[test]
fn a_push_does_not_change_pulled_arrays() {
    on_every_store(snapshots::a_push_does_not_change_pulled_arrays);
}

#[test]
fn pulled_arrays_are_independent() {
    on_every_store(snapshots::pulled_arrays_are_independent);
}

#[test]
fn writes_after_a_push_of_a_view_do_not_change_the_store() {
    on_every_store(snapshots::writes_after_a_push_of_a_view_do_not_change_the_store);
}

#[test]
fn a_pull_into_a_view_writes_only_its_rows() {
    on_every_store(snapshots::a_pull_into_a_view_writes_only_its_rows);
}

#[test]
fn overlapping_outputs_are_written_in_init_order() {
    on_every_store(snapshots::overlapping_outputs_are_written_in_init_order);
}

#[test]
fn one_array_may_be_every_output() {
    on_every_store(snapshots::one_array_may_be_every_output);
}

#[test]
fn one_array_may_be_every_value() {
    on_every_store(snapshots::one_array_may_be_every_value);
}

#[test]
fn an_updater_cannot_change_the_array_of_the_caller() {
    on_every_store(snapshots::an_updater_cannot_change_the_array_of_the_caller);
}

#[test]
fn arrays_of_an_updater_are_private() {
    on_every_store(snapshots::arrays_of_an_updater_are_private);
}

#[test]
fn writes_after_a_broadcast_do_not_change_the_store() {
    on_every_store(snapshots::writes_after_a_broadcast_do_not_change_the_store);
}
