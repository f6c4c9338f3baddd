//! The simulations that tests run.

use super::schedule::{SNAPSHOTS, Schedule};
use super::simulate;
use crate::faults::Fault;
use crate::quiet::needs_quiet;
use crate::simulation::checked::Checked;
use crate::simulation::tests::{Kept, check, check_repetition, find};

/// The number of schedules of an ordinary test run.
const NUM_SCHEDULES: u64 = 300;

const KEPT: [Kept; 3] = [
    // Most pushes whose outcome is not known, with a restart of a server.
    Kept(162, &[("push in doubt", 7), ("run of a server", 4)]),
    // The same without a restart, and pulls that fail.
    Kept(751, &[("push in doubt", 6), ("pull failed", 5)]),
    // Values are not replaced, and stay.
    Kept(88, &[("init Replace failed", 2), ("push failed", 4)]),
];

#[test]
fn several_servers_keep_their_promises_in_every_schedule() {
    check((&KEPT, NUM_SCHEDULES), Schedule::new, simulate);
}

/// The number of schedules with snapshots.
const NUM_WITH_SNAPSHOTS: u64 = 200;

const KEPT_WITH_SNAPSHOTS: [Kept; 3] = [
    // It is not known whether values are replaced.
    Kept(1232, &[("init Replace in doubt", 2), ("push in doubt", 4)]),
    // The same, and other values stay.
    Kept(2438, &[("init Replace in doubt", 1), ("init Replace failed", 1), ("snapshot failed", 4)]),
    // Most snapshots that fail.
    Kept(489, &[("snapshot failed", 7)]),
];

#[test]
fn snapshots_keep_their_promises_in_every_schedule() {
    let schedule = |seed| Schedule::new(seed | SNAPSHOTS);
    check((&KEPT_WITH_SNAPSHOTS, NUM_WITH_SNAPSHOTS), schedule, |seed| simulate(seed | SNAPSHOTS));
}

#[test]
fn a_seed_repeats_a_simulation_of_several_servers() {
    let _quiet = needs_quiet();
    for seed in (0..30).chain((0..30).map(|seed| seed | SNAPSHOTS)) {
        check_repetition(seed, simulate);
    }
}

#[test]
fn planted_faults_of_several_servers_are_found() {
    let violation = |seed| simulate(seed).violation().cloned();
    find(&Fault::OF_SEVERAL_SERVERS, 10 * NUM_SCHEDULES, violation);
    let violation = |seed| simulate(seed | SNAPSHOTS).violation().cloned();
    find(&Fault::OF_SNAPSHOTS, 10 * NUM_WITH_SNAPSHOTS, violation);
}
