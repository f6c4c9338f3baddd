//! The simulations that tests run.

use super::schedule::Schedule;
use super::simulate;
use crate::faults::Fault;
use crate::simulation::checked::Checked;
use crate::simulation::tests::{check, find};

/// The number of schedules of an ordinary test run.
const NUM_SCHEDULES: u64 = 300;

/// Seeds that have found faults in the store.
const KEPT_SEEDS: [u64; 9] = [37, 513, 736, 1055, 1152, 2836, 4928, 6071, 7046];

#[test]
fn several_servers_keep_their_promises_in_every_schedule() {
    check((&KEPT_SEEDS, NUM_SCHEDULES), Schedule::new, simulate);
}

#[test]
fn a_seed_repeats_a_simulation_of_several_servers() {
    for seed in 0..30 {
        assert_eq!(simulate(seed).to_string(), simulate(seed).to_string(), "seed {seed}");
    }
}

#[test]
fn planted_faults_of_several_servers_are_found() {
    let violation = |seed| simulate(seed).violation().cloned();
    find(&Fault::OF_SEVERAL_SERVERS, 10 * NUM_SCHEDULES, violation);
}
