//! The simulations that tests run.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::runtime::Builder;
use tokio::time::{Instant, timeout};

use super::checked::Checked;
use super::schedule::{ROUNDS, Schedule};
use super::simulate;
use crate::faults::Fault;
use crate::quiet::needs_quiet;
use crate::rules::Role;
use crate::server::access::Identity;
use crate::server::group::{Caller, Earlier, Group, MOST_CALLS};

/// The number of schedules of an ordinary test run.
const NUM_SCHEDULES: u64 = 1000;

/// A seed with a rare history, and what happens in it at least this often. A change of the
/// schedules gives the seed another history, and then the check fails.
pub(super) struct Kept(pub(super) u64, pub(super) &'static [(&'static str, usize)]);

const KEPT: [Kept; 6] = [
    // The one that finds `Fault::HoldName`.
    Kept(4232, &[("barrier acknowledged", 1)]),
    // Most calls whose replies are lost, and that are repeated.
    Kept(3984, &[("repeated call", 4), ("process", 11)]),
    // The same, and the server restarts.
    Kept(3923, &[("repeated call", 2), ("run of the server", 2), ("push in doubt", 1)]),
    // Most pushes whose outcome is not known.
    Kept(647, &[("push in doubt", 6)]),
    // Most barriers whose outcome is not known, and pulls that fail.
    Kept(494, &[("barrier in doubt", 4), ("pull failed", 2)]),
    // Most kinds of failures.
    Kept(5440, &[("pull failed", 1), ("push failed", 1), ("versions failed", 1)]),
];

/// How often a simulation may differ from what its seed gives, because the machine is busy: see
/// [`quiet`](crate::quiet). Other programs may load it, too.
const NUM_ATTEMPTS: usize = 5;

/// Prints its seed if a simulation panics.
struct SeedOnPanic(u64);

impl Drop for SeedOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("seed {}", self.0);
        }
    }
}

fn number_from(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable}: expected a number, found `{text}`")))
}

/// Runs the schedule of the seed in the environment and prints it, or runs the kept seeds and `num`
/// schedules. `KVSTORE_SIMULATION_COUNTS=1` prints what happens in each of them, to find seeds to
/// keep. Returns how often each thing happened, unless the environment has a seed.
pub(super) fn check<S: std::fmt::Debug, H: Checked>(
    (kept, num): (&[Kept], u64),
    schedule: impl Fn(u64) -> S,
    simulate: impl Fn(u64) -> H,
) -> Option<BTreeMap<String, usize>> {
    if let Some(seed) = number_from("KVSTORE_SIMULATION_SEED") {
        println!("{:#?}", schedule(seed));
        let history = simulate(seed);
        println!("{history}");
        assert_eq!(history.violation(), None, "seed {seed}");
        return None;
    }
    let num = number_from("KVSTORE_SIMULATION_SCHEDULES").unwrap_or(num);
    let prints_counts = number_from("KVSTORE_SIMULATION_COUNTS").is_some();
    let mut outcomes = BTreeMap::<String, usize>::new();
    for (seed, shown) in
        kept.iter().map(|kept| (kept.0, kept.1)).chain((0..num).map(|seed| (seed, &[][..])))
    {
        let _seed = SeedOnPanic(seed);
        let counts = || {
            let history = simulate(seed);
            if let Some(violation) = history.violation() {
                let variable = "KVSTORE_SIMULATION_SEED";
                panic!("seed {seed}: {violation}\n{variable}={seed} prints its history");
            }
            let mut counts = BTreeMap::new();
            history.count(&mut counts);
            counts
        };
        let has = |counts: &BTreeMap<String, usize>| {
            let has = |(what, least): &(&str, usize)| counts.get(*what).is_some_and(|n| n >= least);
            shown.iter().all(has)
        };
        let mut counts = (0..NUM_ATTEMPTS).map(|_| counts());
        let counts = counts.find(has);
        let counts = counts.unwrap_or_else(|| panic!("seed {seed}: keep one that has {shown:?}"));
        if prints_counts {
            println!("seed {seed}: {counts:?}");
        }
        for (what, num) in counts {
            *outcomes.entry(what).or_default() += num;
        }
    }
    println!("{num} schedules: {outcomes:?}");
    Some(outcomes)
}

/// Checks that this many servers and workers were killed in all schedules together.
pub(super) fn check_kills(happened: Option<BTreeMap<String, usize>>, least: usize) {
    if let Some(happened) = happened {
        let kills = ["killed server", "killed worker"].map(|what| happened[what]);
        assert!(kills.iter().sum::<usize>() >= least, "{kills:?}");
    }
}

#[test]
fn the_promises_hold_in_every_schedule() {
    check((&KEPT, NUM_SCHEDULES), Schedule::new, simulate);
}

/// The number of schedules with rounds.
const NUM_WITH_ROUNDS: u64 = 500;

#[test]
fn rounds_keep_their_promises_in_every_schedule() {
    let schedule = |seed| Schedule::new(seed | ROUNDS);
    check((&[], NUM_WITH_ROUNDS), schedule, |seed| simulate(seed | ROUNDS));
}

/// How long to wait after an attempt, because other programs may load the machine for a moment.
const PAUSE: std::time::Duration = std::time::Duration::from_secs(1);

/// Checks that a seed has the same history each time.
#[allow(clippy::disallowed_methods, reason = "waits until the machine is quieter")]
pub(super) fn check_repetition<H: Checked>(seed: u64, simulate: impl Fn(u64) -> H) {
    let is_repeated = (0..NUM_ATTEMPTS).any(|attempt| {
        if attempt > 0 {
            std::thread::sleep(PAUSE);
        }
        simulate(seed).to_string() == simulate(seed).to_string()
    });
    assert!(is_repeated, "seed {seed}");
}

#[test]
fn a_seed_repeats_a_simulation() {
    let _quiet = needs_quiet();
    for seed in (0..100).chain((0..50).map(|seed| seed | ROUNDS)) {
        check_repetition(seed, simulate);
    }
}

/// Runs a future on a clock that moves only while all tasks wait.
fn in_paused_time(test: impl Future<Output = ()>) {
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(test);
}

/// The identity of every caller without a certificate.
const ANYONE: Identity = Identity::NONE;

/// Returns an empty group, and a deadline before its leases end.
fn group() -> (Group, Instant) {
    (Group::new(Duration::from_secs(10), 0), Instant::now() + Duration::from_secs(5))
}

#[test]
fn a_repeated_join_also_waits_for_the_calls_of_the_earlier_process() {
    in_paused_time(async {
        let (group, late) = group();
        let join = |process| {
            group.join("one", (process, &ANYONE), (Role::Worker, Earlier::default()), late)
        };
        let (old, _) = join(1).await.unwrap();
        let caller = Caller { name: "one".to_owned(), incarnation: old.incarnation, sequence: 1 };
        let running = group.begin(&caller, false, late).await.unwrap().unwrap();
        group.lose("one", old.connection);
        // The new process loses its connection before it has a reply, and joins again.
        for _ in 0..2 {
            let joined = timeout(Duration::from_secs(1), join(2)).await;
            assert!(joined.is_err(), "the name was given away while a call was running");
        }
        running.finish(None, &[]);
        assert!(join(2).await.is_ok());
        // The calls of a process do not delay its own join.
        let (new, _) = join(2).await.unwrap();
        let caller = Caller { incarnation: new.incarnation, ..caller };
        let _running = group.begin(&caller, false, late).await.unwrap().unwrap();
        assert!(join(2).await.is_ok());
    });
}

#[test]
fn a_call_that_waits_long_does_not_hold_up_the_others() {
    in_paused_time(async {
        let (group, late) = group();
        let (joined, _) = group
            .join("one", (1, &ANYONE), (Role::Worker, Earlier::default()), late)
            .await
            .unwrap();
        let caller =
            |sequence| Caller { name: "one".to_owned(), incarnation: joined.incarnation, sequence };
        let barrier = group.begin(&caller(1), false, late).await.unwrap().unwrap();
        for sequence in 2..3 * MOST_CALLS as u64 {
            let process = (joined.incarnation, &ANYONE);
            group.authorise("one", process, (sequence, &[1])).unwrap();
            let call = group.begin(&caller(sequence), false, late).await.unwrap().unwrap();
            call.finish(None, &[]);
        }
        barrier.finish(None, &[]);
        // The barrier is repeated, because its reply was lost.
        assert!(group.begin(&caller(1), false, late).await.unwrap().is_err());
    });
}

/// Checks that the simulation of a seed finds each fault. Otherwise tries other seeds, because each
/// change of a schedule makes other seeds find it.
pub(super) fn find(
    faults: &[(Fault, u64, &str)],
    most: u64,
    violation: impl Fn(u64) -> Option<String>,
) {
    let most = number_from("KVSTORE_SIMULATION_SCHEDULES").unwrap_or(most);
    for (fault, known, text) in faults {
        let mut seeds = std::iter::once(*known).chain(0..most);
        let expected = |seed| violation(seed).filter(|found| found.contains(text));
        let found = fault.plant(|| seeds.find_map(|seed| Some((seed, expected(seed)?))));
        match found {
            Some((seed, violation)) => println!("{fault:?}: seed {seed}: {violation}"),
            None => panic!("{most} schedules do not find {fault:?}"),
        }
    }
}

#[test]
fn planted_faults_are_found() {
    find(&Fault::OF_ONE_SERVER, 10 * NUM_SCHEDULES, |seed| simulate(seed).violation().cloned());
    let violation = |seed| simulate(seed | ROUNDS).violation().cloned();
    find(&Fault::OF_ROUNDS, 10 * NUM_WITH_ROUNDS, violation);
}
