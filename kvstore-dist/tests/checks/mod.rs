//! Runs the test suite for stores on a store that several workers share. Every worker runs the
//! checks, and [`Spread`] distributes the values of a push among the workers.
//!
//! These checks do not apply to a distributed store:
//! - `calls::one_machine_is_one_worker`, because there are several workers.
//! - `calls::names_are_matched_completely`, because it does not use a store.
//! - The checks of a panicking updater: `updaters::a_panic_poisons_one_key`,
//!   `updaters::a_poisoned_key_fails_the_call`, `store_snapshots::a_rollback_mends_a_poisoned_key`,
//!   and `races::a_panic_under_pushes_poisons_its_key_alone`. A distributed store runs updaters in
//!   a thread that all stores of a process share, and converts the panic into an error of the push.
//! - The checks whose updater waits for another thread that calls the store:
//!   `concurrency::updaters_may_pull_each_others_keys`,
//!   `store_snapshots::a_dropped_updater_may_call_the_store`, and
//!   `store_snapshots::a_snapshot_waits_for_updaters_and_pulls_for_nobody`. They would deadlock: a
//!   pull waits for the pushes to its keys, and the thread that runs updaters makes all calls.
//! - `races::a_key_may_come_back_with_another_shape`, because a push whose key another thread
//!   removes at the same time has already returned. It fails in the background.
//! - With several workers, checks whose threads make calls in any order ([`IN_ANY_ORDER`]), because
//!   all workers must make the same calls in the same order.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a check fails by panicking")]

use std::sync::Arc;

use kvstore::{Error, Store, backends};
use kvstore_core::{Backends, KvStore, WorkerGroup};
use kvstore_dist::{DistStore, Group};
use kvstore_tests::json::text;
use kvstore_tests::model::Model;
use kvstore_tests::operations::Operation;
use kvstore_tests::recorded::{ALSO_ON_EVERY_STORE, ON_EVERY_STORE};
use kvstore_tests::spread::Spread;
use kvstore_tests::suite::{
    calls, concurrency, races, row_sparse, snapshots, store_snapshots, updaters, values,
};
use kvstore_tests::{recorded, replay};

/// The names of the two kinds of distributed stores. The other names are aliases.
pub(crate) const NAMES: [&str; 2] = ["dist_sync", "dist_device_sync"];

/// Returns a table of checks with their names.
macro_rules! checks {
    ($($suite:ident: $($check:ident),* $(,)?;)*) => {
        &[$($((concat!(stringify!($suite), "::", stringify!($check)), $suite::$check)),*),*]
    };
}

type Checks<F> = &'static [(&'static str, F)];

/// The checks for any number of workers. If several threads make calls, their order has no effect.
const ON_STORES: Checks<fn(&Store)> = checks! {
    calls: values_come_in_four_shapes, a_repeated_key_collects_its_values, empty_lists_do_nothing,
        lengths_must_agree, any_text_is_a_key, keys_are_in_init_order, a_call_is_checked_completely,
        errors_name_what_was_wrong, zero_size_is_refused_and_rank_zero_is_not,
        values_may_be_on_several_devices, an_optimizer_refuses_integers;
    snapshots: init_takes_a_snapshot, push_takes_a_snapshot, pull_gives_a_snapshot,
        push_does_not_reach_pulled_arrays, pulled_arrays_are_apart, views_are_pushed_by_value,
        views_are_pulled_into, outs_may_overlap, one_array_may_be_every_out,
        one_array_may_be_every_value, updater_cannot_change_the_pushed_array,
        arrays_of_an_updater_are_private, broadcast_takes_and_gives_snapshots;
    updaters: each_key_is_updated_once_in_init_order, init_and_pull_do_not_run_it,
        a_cleared_updater_runs_no_more, a_failure_keeps_the_old_value,
        a_failure_comes_back_as_it_was, changing_verbs_are_refused_inside,
        another_store_may_be_changed_inside, a_pull_inside_sees_what_is_committed,
        a_failure_does_not_leave_the_thread_inside, every_way_of_writing_counts;
    store_snapshots: the_form_of_a_value_does_not_count, a_rollback_brings_everything_back,
        a_snapshot_never_changes, changed_keys_are_named, an_updater_takes_no_snapshot;
    concurrency: pushes_of_one_key_are_not_lost, readers_see_complete_updates,
        an_updater_blocks_no_readers_of_other_keys;
    races: readers_go_forward_with_an_updater, readers_go_forward_with_an_optimizer,
        readers_go_forward_with_sums;
};

/// The checks for one worker, whose threads make calls in any order.
const IN_ANY_ORDER: Checks<fn(&Store)> = checks! {
    concurrency: different_keys_are_independent, one_init_of_a_key_wins,
        opposite_orders_do_not_deadlock, the_updater_may_change_under_pushes;
    races: hyper_parameters_change_between_pushes, rules_change_between_pushes;
    store_snapshots: a_snapshot_is_a_state_that_was, a_snapshot_has_everything_of_a_key,
        a_rollback_is_complete;
};

const ON_VALUES: Checks<fn(&dyn KvStore, &Backends)> = checks! {
    values: lists_run_in_parallel, keys_that_exist, values_are_snapshots,
        a_failed_updater_has_written_nothing, an_updater_keeps_the_spec;
};

const ON_ROWS: Checks<fn(row_sparse::Create<'_>)> = checks! {
    row_sparse: sums_are_those_of_dense_values, dense_steps_are_those_of_dense_values,
        clipped_rows_are_those_of_dense_values, lazy_steps_change_nothing_but_their_rows,
        pulled_rows_are_those_of_the_value;
};

const ON_REFUSED_ROWS: Checks<fn(row_sparse::Create<'_>, &Backends)> = checks! {
    row_sparse: wrong_rows_are_refused, readers_see_complete_steps;
};

pub(crate) fn dist_store(group: &Arc<Group>, name: &str) -> Spread<DistStore> {
    Spread(DistStore::new(name, backends(), group).expect("a name that is listed"))
}

fn store(group: &Arc<Group>, name: &str) -> Store {
    Store::new(Arc::new(dist_store(group, name)))
}

fn size(group: &Arc<Group>) -> usize {
    dist_store(group, NAMES[0]).num_workers().unwrap()
}

/// Runs each check on one of the two kinds, alternately.
fn each<F: Copy>(checks: Checks<F>, run: impl Fn(F, &str)) {
    for ((check, act), name) in checks.iter().zip(NAMES.into_iter().cycle()) {
        println!("{check} on `{name}`");
        run(*act, name);
    }
}

/// Runs all suites for stores except the suite of bits.
pub(crate) fn suites(group: &Arc<Group>) {
    let create = |name: &str| Box::new(dist_store(group, name)) as Box<dyn KvStore>;
    each(ON_STORES, |check, name| check(&store(group, name)));
    each(ON_VALUES, |check, name| check(&dist_store(group, name), backends()));
    each(ON_ROWS, |check, name| check(&|| create(name)));
    each(ON_REFUSED_ROWS, |check, name| check(&|| create(name), backends()));
    if size(group) == 1 {
        each(IN_ANY_ORDER, |check, name| check(&store(group, name)));
    }
}

/// Replays the recorded programs.
pub(crate) fn recorded_programs(group: &Arc<Group>) {
    let (mut num_replayed, mut failures) = (0, Vec::new());
    for case in recorded::load() {
        // A worker compresses the sum of its values, but the recording compresses each value. One
        // worker with two values would send other codes. With more workers, each has one value.
        let is_other = text(&case["name"]) == "gc_2bit_two_values" && size(group) == 1;
        let name = text(&case["group"]);
        let is_known = ON_EVERY_STORE.contains(&name) || ALSO_ON_EVERY_STORE.contains(&name);
        if !is_known || is_other {
            continue;
        }
        num_replayed += 1;
        let created: Result<Store, Error> = Ok(store(group, NAMES[num_replayed % 2]));
        failures.extend(recorded::replay_on(&case, NAMES[0], created).err());
    }
    println!("{num_replayed} recorded programs, {} failures", failures.len());
    assert!(failures.is_empty() && num_replayed >= 284, "{num_replayed}\n{}", failures.join("\n"));
}

/// Runs a random program and compares it with a model of this number of workers.
pub(crate) fn replay_program(group: &Arc<Group>, program: &[Operation]) -> Result<(), String> {
    let model = Model::of_workers(size(group));
    replay::run_beside(model, &store(group, NAMES[program.len() % 2]), program).map(drop)
}
