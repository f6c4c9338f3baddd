//! Runs the test suite for stores on a store that several workers share. Every worker runs the
//! checks, and [`Spread`] distributes the values of a push among the workers.
//!
//! These checks do not apply to a distributed store:
//! - `calls::a_store_on_one_machine_has_one_worker`, because there are several workers.
//! - `calls::store_names_must_match_completely`, because it does not use a store.
//! - The checks of a panicking updater: `updaters::a_panic_poisons_one_key`,
//!   `updaters::a_call_with_a_poisoned_key_changes_nothing`,
//!   `store_snapshots::a_rollback_restores_a_poisoned_key`, and
//!   `races::a_panic_during_pushes_poisons_only_its_key`. A distributed store runs updaters in a
//!   thread that all stores of a process share, and converts the panic into an error of the push.
//! - The checks whose updater waits for another thread that calls the store:
//!   `concurrency::updaters_may_pull_each_others_keys`,
//!   `store_snapshots::a_dropped_updater_may_call_the_store`, and
//!   `store_snapshots::a_snapshot_waits_for_updaters_but_a_pull_does_not`. They would deadlock: a
//!   pull waits for the pushes to its keys, and the thread that runs updaters makes all calls.
//! - `races::a_key_may_be_initialised_again_with_another_shape`, because a push whose key another
//!   thread removes at the same time has already returned. It fails in the background.
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
    calls: keys_and_values_have_four_forms, values_of_a_repeated_key_are_summed,
        empty_lists_do_nothing, lists_of_different_lengths_are_rejected,
        any_string_without_nul_is_a_key, keys_are_in_init_order,
        a_call_with_an_invalid_item_changes_nothing, errors_name_key_expected_and_found,
        empty_arrays_are_rejected_and_scalars_are_accepted, values_may_be_on_several_devices,
        an_optimizer_rejects_integer_weights;
    snapshots: writes_after_init_do_not_change_the_store,
        writes_after_a_push_do_not_change_the_store,
        writes_to_pulled_arrays_do_not_change_the_store, a_push_does_not_change_pulled_arrays,
        pulled_arrays_are_independent, writes_after_a_push_of_a_view_do_not_change_the_store,
        a_pull_into_a_view_writes_only_its_rows, overlapping_outputs_are_written_in_init_order,
        one_array_may_be_every_output, one_array_may_be_every_value,
        an_updater_cannot_change_the_array_of_the_caller, arrays_of_an_updater_are_private,
        writes_after_a_broadcast_do_not_change_the_store;
    updaters: each_key_is_updated_once_in_init_order, init_and_pull_do_not_run_the_updater,
        a_cleared_updater_does_not_run, a_failed_updater_keeps_the_old_value,
        push_returns_the_error_of_the_updater, an_updater_cannot_change_its_store,
        an_updater_may_change_another_store, a_pull_in_an_updater_returns_committed_values,
        a_thread_may_change_the_store_after_its_updater_failed, writes_of_every_kind_are_committed;
    store_snapshots: row_sparse_and_dense_values_with_equal_bits_are_identical,
        a_rollback_restores_values_states_and_settings, a_snapshot_never_changes,
        changed_keys_returns_the_keys_that_differ, an_updater_cannot_take_a_snapshot;
    concurrency: pushes_of_one_key_are_not_lost, readers_see_complete_updates,
        a_running_updater_does_not_block_pulls_of_other_keys;
    races: readers_never_see_older_states_with_an_updater,
        readers_never_see_older_states_with_an_optimizer, readers_never_see_older_states_with_sums;
};

/// The checks for one worker, whose threads make calls in any order.
const IN_ANY_ORDER: Checks<fn(&Store)> = checks! {
    concurrency: different_keys_are_independent, only_one_concurrent_init_of_a_key_succeeds,
        opposite_orders_of_keys_do_not_deadlock, the_updater_may_change_during_pushes;
    races: hyper_parameters_change_between_pushes, rules_change_between_pushes;
    store_snapshots: a_snapshot_is_a_state_that_the_store_had,
        a_snapshot_has_value_and_state_after_the_same_push, a_rollback_restores_all_keys_together;
};

const ON_VALUES: Checks<fn(&dyn KvStore, &Backends)> = checks! {
    values: keys_and_values_are_parallel_lists, existing_keys_are_rejected_kept_or_replaced,
        later_changes_of_tensors_do_not_change_the_store, a_failed_updater_changes_nothing,
        an_updater_cannot_change_the_spec;
};

const ON_ROWS: Checks<fn(row_sparse::Create<'_>)> = checks! {
    row_sparse: row_sparse_sums_equal_dense_sums, updates_that_are_not_lazy_receive_the_dense_sum,
        clipped_rows_equal_clipped_dense_values, lazy_steps_change_only_their_rows,
        pulled_rows_equal_the_rows_of_the_dense_value;
};

const ON_INVALID_ROWS: Checks<fn(row_sparse::Create<'_>, &Backends)> = checks! {
    row_sparse: invalid_rows_are_rejected, readers_see_complete_steps;
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
    each(ON_INVALID_ROWS, |check, name| check(&|| create(name), backends()));
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
