//! Every store keeps its values independent of the arrays outside.

use kvstore_tests::suite::{on_every_store, snapshots};

#[test]
fn init_takes_a_snapshot() {
    on_every_store(snapshots::init_takes_a_snapshot);
}

#[test]
fn push_takes_a_snapshot() {
    on_every_store(snapshots::push_takes_a_snapshot);
}

#[test]
fn pull_gives_a_snapshot() {
    on_every_store(snapshots::pull_gives_a_snapshot);
}

#[test]
fn push_does_not_reach_pulled_arrays() {
    on_every_store(snapshots::push_does_not_reach_pulled_arrays);
}

#[test]
fn pulled_arrays_are_apart() {
    on_every_store(snapshots::pulled_arrays_are_apart);
}

#[test]
fn views_are_pushed_by_value() {
    on_every_store(snapshots::views_are_pushed_by_value);
}

#[test]
fn views_are_pulled_into() {
    on_every_store(snapshots::views_are_pulled_into);
}

#[test]
fn outs_may_overlap() {
    on_every_store(snapshots::outs_may_overlap);
}

#[test]
fn one_array_may_be_every_out() {
    on_every_store(snapshots::one_array_may_be_every_out);
}

#[test]
fn one_array_may_be_every_value() {
    on_every_store(snapshots::one_array_may_be_every_value);
}

#[test]
fn updater_cannot_change_the_pushed_array() {
    on_every_store(snapshots::updater_cannot_change_the_pushed_array);
}

#[test]
fn arrays_of_an_updater_are_private() {
    on_every_store(snapshots::arrays_of_an_updater_are_private);
}

#[test]
fn broadcast_takes_and_gives_snapshots() {
    on_every_store(snapshots::broadcast_takes_and_gives_snapshots);
}
