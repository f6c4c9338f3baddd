//! The rules of a server under random sequences of events.

#![allow(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    reason = "a test may abort without memory"
)]
#![allow(clippy::unwrap_used, reason = "a check fails by panicking")]

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use kvstore_net::rules::placement::{home, rows_of};
use kvstore_net::rules::{
    Backoff, Begun, Calls, Clocks, Joined, Members, Quorum, Refusal, Role, Round, Versions,
};
use proptest::prelude::*;

const LEASE: Duration = Duration::from_millis(10);
const NAMES: [&str; 3] = ["a", "b", "c"];

/// What may happen to a group. The numbers are those of a name and of a process.
#[derive(Clone, Debug)]
enum Event {
    Join(usize, u64),
    /// A call or renewal with the last incarnation that the process got.
    Renew(usize, u64),
    /// The last connection of the process is lost.
    Lose(usize, u64),
    Leave(usize, u64),
    Wait(u64),
}

fn event() -> impl Strategy<Value = Event> {
    let process = || (0..NAMES.len(), 1..5u64);
    prop_oneof![
        4 => process().prop_map(|(name, process)| Event::Join(name, process)),
        3 => process().prop_map(|(name, process)| Event::Renew(name, process)),
        2 => process().prop_map(|(name, process)| Event::Lose(name, process)),
        1 => process().prop_map(|(name, process)| Event::Leave(name, process)),
        2 => (1..15u64).prop_map(Event::Wait),
    ]
}

/// A name as the test expects it: its process, and the end of the lease if it is live.
#[derive(Clone, Debug, Default)]
struct Expected {
    holder: Option<(u64, Option<Duration>)>,
    replaced: Vec<u64>,
}

impl Expected {
    fn is_live(&self, now: Duration) -> bool {
        self.holder.is_some_and(|(_, end)| end.is_some_and(|end| end > now))
    }

    fn is_held_by(&self, process: u64) -> bool {
        self.holder.is_some_and(|(holder, _)| holder == process)
    }
}

proptest! {
    /// At any time, one process has a name; a replaced process is never accepted again; a live
    /// process is never replaced; live members have different ranks.
    #[test]
    fn a_name_belongs_to_one_process(events in prop::collection::vec(event(), 1..80)) {
        let mut members = Members::new(LEASE, 0);
        let mut now = Duration::ZERO;
        let mut names = vec![Expected::default(); NAMES.len()];
        let mut last: HashMap<(usize, u64), Joined> = HashMap::new();
        let mut largest = 0;
        for event in events {
            match event {
                Event::Join(name, process) => {
                    let expected = &mut names[name];
                    let joined = members.join(now, NAMES[name], process, Role::Worker);
                    if expected.is_held_by(process) {
                        let joined = joined.unwrap();
                        prop_assert!(!joined.is_new);
                        prop_assert_eq!(joined.incarnation, last[&(name, process)].incarnation);
                        last.insert((name, process), joined);
                    } else if expected.replaced.contains(&process) {
                        prop_assert_eq!(joined, Err(Refusal::Fenced));
                        continue;
                    } else if expected.is_live(now) {
                        prop_assert_eq!(joined, Err(Refusal::NameInUse));
                        continue;
                    } else {
                        let joined = joined.unwrap();
                        prop_assert!(joined.is_new && joined.incarnation > largest);
                        largest = joined.incarnation;
                        expected.replaced.extend(expected.holder.map(|(holder, _)| holder));
                        last.insert((name, process), joined);
                    }
                    expected.holder = Some((process, Some(now + LEASE)));
                }
                Event::Renew(name, process) => {
                    let Some(joined) = last.get(&(name, process)) else { continue };
                    let is_live = names[name].is_live(now);
                    let renewed = members.renew(now, NAMES[name], joined.incarnation);
                    if names[name].is_held_by(process) {
                        prop_assert_eq!(renewed, Ok(!is_live));
                        names[name].holder = Some((process, Some(now + LEASE)));
                    } else {
                        prop_assert_eq!(renewed, Err(Refusal::Fenced));
                    }
                }
                Event::Lose(name, process) => {
                    let Some(joined) = last.get(&(name, process)) else { continue };
                    members.lose(now, NAMES[name], joined.connection);
                    if names[name].is_held_by(process) {
                        names[name].holder = Some((process, None));
                    }
                }
                Event::Leave(name, process) => {
                    let Some(joined) = last.get(&(name, process)) else { continue };
                    let has_left = members.leave(NAMES[name], joined.incarnation);
                    prop_assert_eq!(has_left, names[name].is_held_by(process));
                    if has_left {
                        names[name].holder = None;
                        last.remove(&(name, process));
                    }
                }
                Event::Wait(time) => now += Duration::from_millis(time),
            }
            prop_assert!(members.end_leases(now).is_empty());
            let live = members.live();
            for (name, expected) in NAMES.iter().zip(&names) {
                let is_live = live.iter().any(|(found, _)| found == name);
                prop_assert_eq!(is_live, expected.is_live(now), "{} at {:?}", name, now);
            }
            let mut ranks: Vec<u64> = live.iter().map(|(_, member)| member.rank).collect();
            ranks.dedup();
            prop_assert_eq!(ranks.len(), live.len(), "two members have one rank");
            prop_assert!(ranks.iter().all(|rank| *rank < NAMES.len() as u64));
            let num_known = names.iter().filter(|name| name.holder.is_some()).count();
            prop_assert_eq!(members.num_dead() + live.len(), num_known);
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
            match calls.begin(sequence, true) {
                Begun::New => {
                    prop_assert!(!outcomes.contains_key(&sequence));
                    prop_assert!(!running.contains(&sequence));
                    running.push(sequence);
                }
                Begun::Running => prop_assert!(running.contains(&sequence)),
                Begun::Done(outcome) => prop_assert_eq!(outcomes.get(&sequence), Some(&outcome)),
                Begun::Answered | Begun::TooMany | Begun::Refused => {
                    prop_assert!(false, "{}", sequence);
                }
            }
            if ends && let Some(sequence) = running.pop() {
                calls.finish(sequence, number);
                outcomes.insert(sequence, number);
            }
        }
    }

    /// Confirmed outcomes are forgotten, all others are kept.
    #[test]
    fn confirmed_calls_take_no_memory(
        last in 1..50u64,
        below in 1..60u64,
        except in prop::collection::btree_set(1..60u64, 0..5),
    ) {
        let mut calls = Calls::new(64);
        for sequence in 1..=last {
            prop_assert_eq!(calls.begin(sequence, true), Begun::New);
            calls.finish(sequence, ());
        }
        calls.confirm(below, &Vec::from_iter(except.clone()));
        let is_answered = |sequence: &u64| *sequence < below && !except.contains(sequence);
        let num_kept = (1..=last).filter(|sequence| !is_answered(sequence)).count();
        prop_assert_eq!(calls.len(), num_kept);
        for sequence in 1..=last {
            let answered = is_answered(&sequence);
            let expected = if answered { Begun::Answered } else { Begun::Done(()) };
            prop_assert_eq!(calls.begin(sequence, true), expected);
        }
    }

    /// A member answers its calls in any order, and what it says about them arrives in any order.
    /// A call whose reply the member does not have is never taken for an answered one, and one that
    /// the server knows to be answered never becomes a new one.
    #[test]
    fn confirmations_arrive_in_any_order(
        answers in prop::collection::vec(0..8usize, 1..30),
        order in prop::collection::vec(any::<prop::sample::Index>(), 30),
    ) {
        let (mut next, mut open, mut messages) = (1, Vec::new(), Vec::new());
        for answer in answers {
            open.push(next);
            next += 1;
            messages.push((next, open.clone()));
            if answer < open.len() {
                open.remove(answer);
                messages.push((next, open.clone()));
            }
        }
        let mut calls = Calls::new(64);
        for sequence in 1..next {
            prop_assert_eq!(calls.begin(sequence, true), Begun::New);
            calls.finish(sequence, ());
        }
        let mut known = BTreeSet::new();
        for index in order {
            let (below, except) = index.get(&messages);
            calls.confirm(*below, except);
            for sequence in 1..next {
                let is_answered = calls.begin(sequence, true) == Begun::Answered;
                prop_assert!(!is_answered || !open.contains(&sequence));
                prop_assert!(is_answered || !known.contains(&sequence));
                if is_answered {
                    known.insert(sequence);
                }
            }
        }
        calls.confirm(next, &open);
        prop_assert_eq!(calls.len(), open.len());
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

    /// Compares with a log of pushes and removals.
    #[test]
    fn a_member_knows_how_many_pushes_it_has_missed(
        events in prop::collection::vec((0..3usize, 0..3u8), 1..60),
    ) {
        let mut versions = Versions::default();
        let (mut log, mut pulled) = (Vec::new(), HashMap::new());
        for (key, kind) in events {
            match kind {
                0 => drop(pulled.insert(key, (versions.version(&key), log.len()))),
                1 => versions.advance(&key),
                _ => versions.remove_key(&key),
            }
            log.push((key, kind));
            for key in 0..3 {
                let (seen, position) = pulled.get(&key).copied().unwrap_or_default();
                let own = log[position..].iter().filter(|(other, _)| *other == key);
                let since = own.rev().take_while(|(_, kind)| *kind != 2);
                let missed = since.filter(|(_, kind)| *kind == 1).count() as u64;
                prop_assert_eq!(versions.pushes_since(&key, seen), missed);
            }
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
fn a_dead_member_is_forgotten_although_others_are_busy() {
    let mut members = Members::new(LEASE, 0);
    let hour = Duration::from_secs(3600);
    members.join(Duration::ZERO, "a", 1, Role::Worker).unwrap();
    let busy = members.join(LEASE, "b", 2, Role::Worker).unwrap();
    for now in [LEASE, 2 * hour] {
        let _ = members.renew(now, "b", busy.incarnation);
        let _ = members.join(now, "c", 3, Role::Worker);
    }
    assert_eq!(members.end_leases(2 * hour), ["a"]);
}

#[test]
fn a_member_is_remembered_for_a_lease_after_its_death() {
    let mut members = Members::new(LEASE, 0);
    let remembered = |members: &Members, now| members.remembered(now).collect::<Vec<_>>();
    let joined = members.join(Duration::ZERO, "a", 1, Role::Worker).unwrap();
    let died = LEASE / 2;
    members.lose(died, "a", joined.connection);
    let soon = died + LEASE / 2;
    assert_eq!(remembered(&members, soon), [joined.incarnation]);
    assert!(remembered(&members, died + LEASE).is_empty());
    members.renew(died + LEASE, "a", joined.incarnation).unwrap();
    assert_eq!(remembered(&members, died + LEASE), [joined.incarnation]);
    // A later process takes the name.
    members.end_leases(3 * LEASE);
    let later = members.join(3 * LEASE, "a", 2, Role::Worker).unwrap();
    assert_eq!(remembered(&members, 3 * LEASE), [later.incarnation]);
    assert!(members.leave("a", later.incarnation));
    assert!(remembered(&members, 3 * LEASE).is_empty());
}

#[test]
fn a_call_is_refused_while_too_many_are_unconfirmed() {
    let mut calls = Calls::new(2);
    assert_eq!(calls.begin(1, true), Begun::New);
    assert_eq!(calls.begin(2, true), Begun::New);
    assert_eq!(calls.begin(3, true), Begun::TooMany);
    calls.finish(1, ());
    calls.confirm(2, &[]);
    assert_eq!(calls.begin(3, true), Begun::New);
    assert!(!calls.is_empty());
}

#[test]
fn repetitions_are_answered_when_new_calls_are_refused() {
    let mut calls = Calls::new(2);
    assert_eq!(calls.begin(1, true), Begun::New);
    calls.finish(1, "done");
    assert_eq!(calls.begin(1, false), Begun::Done("done"));
    assert_eq!(calls.begin(2, false), Begun::Refused);
}

#[test]
fn a_member_that_becomes_live_does_not_hold_up_the_others() {
    let mut clocks = Clocks::default();
    for _ in 0..10 {
        clocks.advance(&"w", &"old");
    }
    clocks.raise(&"new", &["old"], true);
    assert_eq!(clocks.awaited(&"w", &"old", 0, &["old", "new"]), None);
    clocks.advance(&"w", &"old");
    assert_eq!(clocks.awaited(&"w", &"old", 0, &["old", "new"]), Some(&"new"));
    assert_eq!(clocks.awaited(&"w", &"old", 1, &["old", "new"]), None);
    // A dead member is not waited for. When it comes back, it has missed the pushes of the others.
    assert_eq!(clocks.awaited(&"w", &"old", 0, &["old"]), None);
    for _ in 0..100 {
        clocks.advance(&"w", &"old");
    }
    clocks.raise(&"new", &["old"], false);
    assert_eq!(clocks.awaited(&"w", &"old", 0, &["old", "new"]), None);
    // A member that joins while all others are dead does not have to catch up with them.
    clocks.raise(&"third", &[], true);
    assert_eq!(clocks.clock(&"w", &"third"), 111);
    clocks.remove_member(&"old");
    assert_eq!(clocks.clock(&"w", &"old"), 0);
    clocks.remove_key(&"w");
    assert_eq!(clocks.clock(&"w", &"new"), 0);
}

#[test]
fn dead_members_are_forgotten_after_an_hour() {
    let mut members = Members::new(LEASE, 0);
    let joined = members.join(Duration::ZERO, "a", 1, Role::Worker).unwrap();
    members.join(Duration::ZERO, "r", 2, Role::Reader).unwrap();
    members.lose(Duration::ZERO, "a", joined.connection);
    assert_eq!(members.num_dead(), 1);
    let hour = Duration::from_secs(3600);
    assert_eq!(members.end_leases(hour), ["a"]);
    assert_eq!((members.num_dead(), members.get("a")), (0, None));
    assert_eq!(members.renew(hour, "a", joined.incarnation), Err(Refusal::Fenced));
    // Readers have ranks of their own.
    assert_eq!(members.join(hour, "b", 3, Role::Worker).unwrap().rank, 0);
}

#[test]
fn a_replaced_process_is_refused_after_the_later_one_has_left() {
    let mut members = Members::new(LEASE, 0);
    let old = members.join(Duration::ZERO, "a", 1, Role::Worker).unwrap();
    members.lose(Duration::ZERO, "a", old.connection);
    let new = members.join(Duration::ZERO, "a", 2, Role::Worker).unwrap();
    assert!(members.leave("a", new.incarnation));
    assert_eq!(members.join(Duration::ZERO, "a", 1, Role::Worker), Err(Refusal::Fenced));
    // A process that has left may come back.
    assert!(members.join(Duration::ZERO, "a", 2, Role::Worker).unwrap().is_new);
    // The name is forgotten after an hour without a member.
    let joined = members.join(Duration::ZERO, "a", 2, Role::Worker).unwrap();
    assert!(members.leave("a", joined.incarnation));
    members.end_leases(Duration::from_secs(1));
    let later = Duration::from_secs(3601);
    members.end_leases(later);
    assert!(members.join(later, "a", 1, Role::Worker).unwrap().is_new);
}

#[test]
fn one_more_server_takes_its_share_of_the_keys_and_moves_no_others() {
    let keys: Vec<String> = (0..10_000).map(|index| format!("layer{index}.weight")).collect();
    for num_servers in 1..8 {
        let mut counts = vec![0_usize; num_servers + 1];
        for key in &keys {
            let (before, after) = (home(key, num_servers), home(key, num_servers + 1));
            assert!(after == before || after == num_servers, "{key} moves to {after}");
            counts[after] += 1;
        }
        let share = keys.len() / counts.len();
        assert!(counts.iter().all(|count| count.abs_diff(share) < share / 5), "{counts:?}");
    }
}

#[test]
fn the_rows_of_all_servers_are_the_rows_of_the_value() {
    for (num_rows, num_servers) in (1..40).flat_map(|rows| (1..8).map(move |count| (rows, count))) {
        let all = (0..num_servers).flat_map(|server| rows_of(num_rows, server, num_servers));
        assert!(all.eq(0..num_rows), "{num_rows} rows on {num_servers} servers");
    }
}

/// What may happen to a round of up to five members.
#[derive(Clone, Debug)]
enum RoundEvent {
    Push(u8),
    Withdraw(u8),
    Wait(u64),
    /// The values are complete.
    Commit,
    Finish,
}

fn round_event() -> impl Strategy<Value = RoundEvent> {
    prop_oneof![
        4 => (0..5_u8).prop_map(RoundEvent::Push),
        2 => (0..5_u8).prop_map(RoundEvent::Withdraw),
        2 => (1..10_u64).prop_map(RoundEvent::Wait),
        2 => Just(RoundEvent::Commit),
        2 => Just(RoundEvent::Finish),
    ]
}

proptest! {
    /// Each push is withdrawn, or is in one committed list, which has enough members and does not
    /// change after it was fixed, except that failed members are removed.
    #[test]
    fn rounds_have_enough_members_and_fixed_lists(
        min in 1..4_usize, grace in 0..20_u64, num_live in 1..6_usize,
        events in prop::collection::vec(round_event(), 0..60),
    ) {
        let quorum = Quorum { min, grace: Duration::from_millis(grace) };
        let mut round = Round::new(quorum);
        let mut now = Duration::ZERO;
        // The members of the round, those of the next one, and the list since it was fixed.
        let (mut pushed, mut next) = (BTreeSet::new(), BTreeSet::new());
        let mut since = None;
        let (mut is_closed, mut is_committing) = (false, false);
        for event in events {
            let attempt = round.attempt();
            match event {
                RoundEvent::Push(member) if round.contains(&member) => {}
                RoundEvent::Push(member) => {
                    round.push(now, member);
                    if is_closed { next.insert(member) } else { pushed.insert(member) };
                }
                RoundEvent::Withdraw(member) => {
                    let may = !(is_committing && pushed.contains(&member));
                    prop_assert_eq!(round.withdraw(now, &member), may);
                    if may && !next.remove(&member) && pushed.remove(&member) && is_closed {
                        prop_assert!(round.attempt() > attempt);
                        if pushed.len() < min {
                            is_closed = false;
                            pushed.append(&mut next);
                        }
                    }
                }
                RoundEvent::Wait(millis) => now += Duration::from_millis(millis),
                RoundEvent::Commit => {
                    prop_assert!(!round.begin_commit(attempt + 1));
                    let may = is_closed && !is_committing;
                    prop_assert_eq!(round.begin_commit(attempt), may);
                    is_committing |= may;
                }
                RoundEvent::Finish if is_committing => {
                    prop_assert!(pushed.len() >= min);
                    round.finish(now);
                    pushed = std::mem::take(&mut next);
                    (is_closed, is_committing, since) = (false, false, None);
                }
                RoundEvent::Finish => {}
            }
            // Since when the open round has enough members.
            since = if pushed.len() < min { None } else { since.or(Some(now)) };
            prop_assert!(round.members().eq(&pushed));
            prop_assert_eq!(round.is_closed(), is_closed);
            prop_assert_eq!(round.is_empty(), pushed.is_empty() && next.is_empty());
            let is_complete = pushed.len() >= num_live;
            let closes_at = round.closes_at(is_complete);
            if is_closed || pushed.len() < min {
                prop_assert_eq!(closes_at, None);
            } else {
                let wait = if is_complete { Duration::ZERO } else { quorum.grace };
                prop_assert_eq!(closes_at, since.map(|since| since + wait));
                if closes_at.unwrap() <= now {
                    round.close();
                    is_closed = true;
                    prop_assert!(round.attempt() > attempt);
                }
            }
        }
    }
}

proptest! {
    /// A restarted server that gets the members of an earlier run gives no rank twice, lets only
    /// the same process continue before the lease ends, and refuses the processes before it.
    #[test]
    fn restored_members_keep_their_ranks(
        joins in proptest::collection::vec((0..20u64, 1..4u64, any::<bool>()), 0..40),
        later in proptest::collection::vec((0..30u64, 1..4u64), 0..20),
    ) {
        let mut before = Members::new(LEASE, 0);
        let mut now = Duration::ZERO;
        for (name, process, leaves) in joins {
            let name = name.to_string();
            if let Ok(joined) = before.join(now, &name, process, Role::Worker) && leaves {
                before.leave(&name, joined.incarnation);
            }
            now += LEASE / 4;
        }
        let mut after = Members::new(LEASE, 1 << 20);
        let names: Vec<String> = (0..20).map(|name| name.to_string()).collect();
        for name in &names {
            if let Some(member) = before.get(name) {
                // Every process of this test is 1, 2 or 3.
                let process = (1..4).find(|process| {
                    let mut before = before.clone();
                    let joined = before.join(now, name, *process, Role::Worker);
                    joined.is_ok_and(|joined| !joined.is_new)
                });
                let replaced = Vec::from(before.replaced(name));
                let processes = (process.unwrap(), replaced);
                after.restore_name(now, name, (member.rank, member.role), processes);
            }
        }
        for name in &names {
            let rank = |members: &Members| members.get(name).map(|member| member.rank);
            prop_assert_eq!(rank(&before), rank(&after));
        }
        for (name, process) in later {
            let name = name.to_string();
            let known = before.get(&name).map(|member| member.rank);
            match after.join(now, &name, process, Role::Worker) {
                Ok(joined) => {
                    prop_assert!(joined.incarnation > 1 << 20);
                    prop_assert!(known.is_none_or(|rank| rank == joined.rank));
                    // A name without a member is forgotten.
                    let is_replaced = before.replaced(&name).contains(&process);
                    prop_assert!(known.is_none() || !is_replaced);
                }
                Err(Refusal::Fenced) => {
                    prop_assert!(before.replaced(&name).contains(&process));
                }
                Err(Refusal::NameInUse) => prop_assert!(after.get(&name).unwrap().is_live()),
            }
        }
        let live = after.live();
        let ranks: BTreeSet<u64> = live.iter().map(|(_, member)| member.rank).collect();
        prop_assert_eq!(ranks.len(), live.len());
    }
}
