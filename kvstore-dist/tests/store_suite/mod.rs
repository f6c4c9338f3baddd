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
use kvstore_core::{KvStore, WorkerGroup};
use kvstore_dist::{DistStore, Group};
use kvstore_tests::json::text;
use kvstore_tests::model::Model;
use kvstore_tests::operations::Operation;
use kvstore_tests::recorded::{ALSO_ON_EVERY_STORE, ON_EVERY_STORE};
use kvstore_tests::spread::Spread;
use kvstore_tests::suite::table::{
    Checks, IN_ANY_ORDER, ON_INVALID_ROWS, ON_ROWS, ON_STORES, ON_VALUES,
};
use kvstore_tests::{recorded, replay};

/// The names of the two kinds of distributed stores. The other names are aliases.
pub(crate) const NAMES: [&str; 2] = ["dist_sync", "dist_device_sync"];

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
