//! The rules of a server under random sequences of events.

#![allow(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    reason = "a test may abort without memory"
)]
#![allow(clippy::unwrap_used, reason = "a check fails by panicking")]

use std::collections::HashMap;
use std::time::Duration;

use kvstore_net::rules::{Backoff, Begun, Calls, Clocks, Members, Refusal, Role};
use proptest::prelude::*;

const LEASE: Duration = Duration::from_millis(10);
const NAMES: [&str; 3] = ["a", "b", "c"];

/// What may happen to a group. The numbers are indices: of a name, and of a process of this name.
#[derive(Clone, Debug)]
enum Event {
    /// A new process joins.
    Join(usize),
    /// The process joins again.
    Rejoin(usize, usize),
    Renew(usize, usize),
    Lose(usize, usize),
    Leave(usize, usize),
    Wait(u64),
}

fn event() -> impl Strategy<Value = Event> {
    let process = || (0..NAMES.len(), 0..4usize);
    prop_oneof![
        3 => (0..NAMES.len()).prop_map(Event::Join),
        2 => process().prop_map(|(name, process)| Event::Rejoin(name, process)),
        2 => process().prop_map(|(name, process)| Event::Renew(name, process)),
        1 => process().prop_map(|(name, process)| Event::Lose(name, process)),
        1 => process().prop_map(|(name, process)| Event::Leave(name, process)),
        2 => (1..15u64).prop_map(Event::Wait),
    ]
}

/// Returns whether the lease of a name's process lasts.
fn is_live(leases: &HashMap<usize, Option<Duration>>, name: usize, now: Duration) -> bool {
    leases.get(&name).is_some_and(|end| end.is_some_and(|end| end > now))
}

proptest! {
    /// At any time, at most one process has a name; an earlier process is never accepted again; a
    /// live process is never replaced; live members have different ranks.
    #[test]
    fn a_name_belongs_to_one_process(events in prop::collection::vec(event(), 1..60)) {
        let mut members = Members::new(LEASE, 0);
        let mut now = Duration::ZERO;
        // The incarnations of each name, in order, and the end of the lease of the current one.
        let mut processes: Vec<Vec<u64>> = vec![Vec::new(); NAMES.len()];
        let mut leases: HashMap<usize, Option<Duration>> = HashMap::new();
        for event in events {
            let known = |name: usize, process: usize| processes[name].get(process).copied();
            match event {
                Event::Join(name) => {
                    let is_live = is_live(&leases, name, now);
                    match members.join(now, NAMES[name], 0, Role::Worker) {
                        Ok(joined) => {
                            prop_assert!(!is_live, "a live process was replaced");
                            prop_assert!(joined.is_new);
                            let latest = processes.iter().flatten().max().copied();
                            prop_assert!(latest.is_none_or(|latest| latest < joined.incarnation));
                            processes[name].push(joined.incarnation);
                            leases.insert(name, Some(now + LEASE));
                        }
                        Err(refusal) => {
                            prop_assert_eq!(refusal, Refusal::NameInUse);
                            prop_assert!(is_live, "a dead process keeps its name");
                        }
                    }
                }
                Event::Rejoin(name, process) => {
                    let Some(incarnation) = known(name, process) else { continue };
                    let is_current = leases.contains_key(&name)
                        && processes[name].last() == Some(&incarnation);
                    let joined = members.join(now, NAMES[name], incarnation, Role::Worker);
                    prop_assert_eq!(joined.is_ok(), is_current);
                    if let Ok(joined) = joined {
                        prop_assert!(!joined.is_new);
                        prop_assert_eq!(joined.incarnation, incarnation);
                        leases.insert(name, Some(now + LEASE));
                    }
                }
                Event::Renew(name, process) => {
                    let Some(incarnation) = known(name, process) else { continue };
                    let is_current = leases.contains_key(&name)
                        && processes[name].last() == Some(&incarnation);
                    let renewed = members.renew(now, NAMES[name], incarnation);
                    prop_assert_eq!(renewed.is_ok(), is_current);
                    if is_current {
                        leases.insert(name, Some(now + LEASE));
                    }
                }
                Event::Lose(name, process) => {
                    let Some(incarnation) = known(name, process) else { continue };
                    members.lose(NAMES[name], incarnation);
                    if leases.contains_key(&name) && processes[name].last() == Some(&incarnation) {
                        leases.insert(name, None);
                    }
                }
                Event::Leave(name, process) => {
                    let Some(incarnation) = known(name, process) else { continue };
                    members.leave(NAMES[name], incarnation);
                    if processes[name].last() == Some(&incarnation) {
                        leases.remove(&name);
                    }
                }
                Event::Wait(time) => now += Duration::from_millis(time),
            }
            members.end_leases(now);
            let live: Vec<&str> = members.live().iter().map(|(name, _)| *name).collect();
            for (index, name) in NAMES.iter().enumerate() {
                let is_live = is_live(&leases, index, now);
                prop_assert_eq!(live.contains(name), is_live, "{} at {:?}", name, now);
            }
            let live_members = members.live().into_iter();
            let mut ranks: Vec<u64> = live_members.map(|(_, member)| member.rank).collect();
            ranks.dedup();
            prop_assert_eq!(ranks.len(), live.len(), "two members have one rank");
            prop_assert!(ranks.iter().all(|rank| *rank < NAMES.len() as u64));
            prop_assert_eq!(members.num_dead() + live.len(), leases.len());
        }
    }

    /// Each call takes effect once, whatever is repeated and in whatever order, and each repetition
    /// gets the outcome of the first attempt.
    #[test]
    fn a_call_takes_effect_once(
        attempts in prop::collection::vec((1..20u64, any::<bool>()), 1..200),
    ) {
        let mut calls = Calls::new(64);
        let mut outcomes: HashMap<u64, u64> = HashMap::new();
        let mut running = Vec::new();
        for (number, (sequence, ends)) in (0u64..).zip(attempts) {
            match calls.begin(sequence) {
                Begun::New => {
                    prop_assert!(!outcomes.contains_key(&sequence));
                    prop_assert!(!running.contains(&sequence));
                    running.push(sequence);
                }
                Begun::Running => prop_assert!(running.contains(&sequence)),
                Begun::Done(outcome) => prop_assert_eq!(outcomes.get(&sequence), Some(&outcome)),
                Begun::Answered | Begun::TooMany => prop_assert!(false, "{}", sequence),
            }
            if ends && let Some(sequence) = running.pop() {
                calls.finish(sequence, number);
                outcomes.insert(sequence, number);
            }
        }
    }

    /// Confirmed outcomes are forgotten, all others are kept.
    #[test]
    fn confirmed_calls_take_no_memory(last in 1..50u64, below in 1..60u64) {
        let mut calls = Calls::new(64);
        for sequence in 1..=last {
            prop_assert_eq!(calls.begin(sequence), Begun::New);
            calls.finish(sequence, ());
        }
        calls.confirm(below);
        prop_assert_eq!(calls.len() as u64, (last + 1).saturating_sub(below).min(last));
        for sequence in 1..=last {
            let expected = if sequence < below { Begun::Answered } else { Begun::Done(()) };
            prop_assert_eq!(calls.begin(sequence), expected);
        }
    }

    /// A pull waits exactly while a live worker is more than `staleness` pushes behind, and the
    /// member with the smallest clock never waits, so there is always one that continues.
    #[test]
    fn the_slowest_worker_never_waits(
        pushes in prop::collection::vec(0..4usize, 0..60),
        staleness in 0..4u64,
    ) {
        let live = [0, 1, 2, 3usize];
        let mut clocks = Clocks::default();
        let mut counts = [0u64; 4];
        for member in pushes {
            clocks.advance(&"w", &member);
            counts[member] += 1;
        }
        for member in live {
            prop_assert_eq!(clocks.clock(&"w", &member), counts[member]);
            let least = counts.iter().min().copied().unwrap();
            let waits = clocks.awaited(&"w", &member, staleness, &live).is_some();
            prop_assert_eq!(waits, counts[member] > least + staleness);
        }
    }

    /// A wait never exceeds a second, and no attempt begins after the deadline.
    #[test]
    fn attempts_end_at_the_deadline(deadline in 1..5000u64, jitter in 0.0..1.0f64) {
        let deadline = Duration::from_millis(deadline);
        let mut backoff = Backoff::new(deadline);
        let mut now = Duration::ZERO;
        while let Some(wait) = backoff.wait(now, jitter) {
            prop_assert!(wait <= Duration::from_secs(1) && !wait.is_zero());
            now += wait;
            prop_assert!(now < deadline);
            prop_assert_eq!(backoff.left(now), deadline.saturating_sub(now));
        }
    }
}

#[test]
fn a_call_is_refused_while_too_many_are_unconfirmed() {
    let mut calls = Calls::new(2);
    assert_eq!(calls.begin(1), Begun::New);
    assert_eq!(calls.begin(2), Begun::New);
    assert_eq!(calls.begin(3), Begun::TooMany);
    calls.finish(1, ());
    calls.confirm(2);
    assert_eq!(calls.begin(3), Begun::New);
    assert!(!calls.is_empty());
}

#[test]
fn a_new_member_does_not_hold_up_the_others() {
    let mut clocks = Clocks::default();
    for _ in 0..10 {
        clocks.advance(&"w", &"old");
    }
    clocks.start("new", &["old"]);
    assert_eq!(clocks.awaited(&"w", &"old", 0, &["old", "new"]), None);
    clocks.advance(&"w", &"old");
    assert_eq!(clocks.awaited(&"w", &"old", 0, &["old", "new"]), Some(&"new"));
    assert_eq!(clocks.awaited(&"w", &"old", 1, &["old", "new"]), None);
    // A dead member is not waited for, and a removed one is forgotten.
    assert_eq!(clocks.awaited(&"w", &"old", 0, &["old"]), None);
    clocks.remove_member(&"old");
    assert_eq!(clocks.clock(&"w", &"old"), 0);
    clocks.remove_key(&"w");
    assert_eq!(clocks.clock(&"w", &"new"), 0);
}
