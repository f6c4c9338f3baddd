//! The simulations that tests run.

use super::schedule::Schedule;
use super::simulate;
use crate::faults::Fault;
use crate::quiet::needs_quiet;
use crate::simulation::checked::Checked;
use crate::simulation::tests::{check, check_repetition, find};

/// The number of schedules of an ordinary test run.
const NUM_SCHEDULES: u64 = 300;

#[test]
fn rounds_over_several_servers_keep_their_promises_in_every_schedule() {
    check((&[], NUM_SCHEDULES), Schedule::new, simulate);
}

#[test]
fn a_seed_repeats_a_simulation_of_rounds_over_several_servers() {
    let _quiet = needs_quiet();
    for seed in 0..30 {
        check_repetition(seed, simulate);
    }
}

#[test]
fn planted_faults_of_rounds_over_several_servers_are_found() {
    let violation = |seed| simulate(seed).violation().cloned();
    find(&Fault::OF_QUORUM, 10 * NUM_SCHEDULES, violation);
}
