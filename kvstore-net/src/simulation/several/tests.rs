//! The simulations that tests run.

use super::schedule::{SNAPSHOTS, Schedule};
use super::simulate;
use crate::faults::Fault;
use crate::quiet::needs_quiet;
use crate::simulation::checked::Checked;
use crate::simulation::tests::{Kept, check, find};

/// The number of schedules of an ordinary test run.
const NUM_SCHEDULES: u64 = 300;

const KEPT: [Kept; 0] = [];

#[test]
fn several_servers_keep_their_promises_in_every_schedule() {
    check((&KEPT, NUM_SCHEDULES), Schedule::new, simulate);
}

/// The number of schedules with snapshots.
const NUM_WITH_SNAPSHOTS: u64 = 200;

const KEPT_WITH_SNAPSHOTS: [Kept; 0] = [];

#[test]
fn snapshots_keep_their_promises_in_every_schedule() {
    let schedule = |seed| Schedule::new(seed | SNAPSHOTS);
    check((&KEPT_WITH_SNAPSHOTS, NUM_WITH_SNAPSHOTS), schedule, |seed| simulate(seed | SNAPSHOTS));
}

#[test]
fn a_seed_repeats_a_simulation_of_several_servers() {
    let _quiet = needs_quiet();
    for seed in (0..30).chain((0..30).map(|seed| seed | SNAPSHOTS)) {
        assert_eq!(simulate(seed).to_string(), simulate(seed).to_string(), "seed {seed}");
    }
}

#[test]
fn planted_faults_of_several_servers_are_found() {
    let violation = |seed| simulate(seed).violation().cloned();
    find(&Fault::OF_SEVERAL_SERVERS, 10 * NUM_SCHEDULES, violation);
    let violation = |seed| simulate(seed | SNAPSHOTS).violation().cloned();
    find(&Fault::OF_SNAPSHOTS, 10 * NUM_WITH_SNAPSHOTS, violation);
}
