//! Members and calls that a server has saved, when its next run continues with them.

#![allow(clippy::unwrap_used, reason = "a check fails by panicking")]

use std::collections::HashMap;
use std::time::Duration;

use kvstore_net::rules::{Begun, Calls, Member, Members, Refusal, Role, SavedMember};
use proptest::prelude::*;

const LEASE: Duration = Duration::from_millis(10);
const NAMES: [&str; 3] = ["a", "b", "c"];

/// What may happen to a server.
#[derive(Clone, Debug)]
enum Event {
    /// A new process takes a name from the process before, which is dead.
    Replace(usize),
    /// The process that has a name loses its connection and joins again.
    Rejoin(usize),
    /// The process that has a name leaves and joins anew.
    Return(usize),
    /// A process that was replaced wakes up and joins again. The number selects it.
    Wake(usize, usize),
    Save,
    /// The server is killed, and continues from what it has saved. Then the processes that have the
    /// names join again, in this order.
    Crash([usize; 3]),
}

fn event() -> impl Strategy<Value = Event> {
    let name = || 0..NAMES.len();
    prop_oneof![
        3 => name().prop_map(Event::Replace),
        2 => name().prop_map(Event::Rejoin),
        1 => name().prop_map(Event::Return),
        3 => (name(), 0..9usize).prop_map(|(name, process)| Event::Wake(name, process)),
        2 => Just(Event::Save),
        2 => Just([0, 1, 2]).prop_shuffle().prop_map(Event::Crash),
    ]
}

/// A process as it knows itself.
#[derive(Clone, Copy, Debug)]
struct Process {
    number: u64,
    incarnation: u64,
}

fn new_process(processes: &HashMap<usize, Vec<Process>>) -> u64 {
    1 + processes.values().map(Vec::len).sum::<usize>() as u64
}

proptest! {
    /// Whenever a server is killed, the process that has a name gets it again, with its
    /// incarnation. No process that it has replaced takes the name from it.
    #[test]
    fn a_process_keeps_name_and_incarnation(events in prop::collection::vec(event(), 1..60)) {
        let now = Duration::ZERO;
        let mut members = Members::new(LEASE, 0);
        let mut saved = None;
        let mut processes: HashMap<usize, Vec<Process>> = HashMap::new();
        for event in events {
            match event {
                Event::Replace(name) => {
                    if members.get(NAMES[name]).is_some_and(Member::is_live) {
                        // Only the connection of a member can be lost.
                        let holder = processes[&name].last().unwrap();
                        let holder = (holder.number, holder.incarnation);
                        let again = members.join_again(now, NAMES[name], holder, Role::Worker);
                        members.lose(now, NAMES[name], again.unwrap().connection);
                    }
                    let number = new_process(&processes);
                    let joined = members.join_again(now, NAMES[name], (number, 0), Role::Worker);
                    let incarnation = joined.unwrap().incarnation;
                    let largest = processes.values().flatten().map(|one| one.incarnation).max();
                    prop_assert!(largest.is_none_or(|largest| incarnation > largest));
                    processes.entry(name).or_default().push(Process { number, incarnation });
                }
                Event::Rejoin(name) => {
                    let holder = processes.get(&name).and_then(|all| all.last());
                    let Some(Process { number, incarnation }) = holder.copied() else { continue };
                    let process = (number, incarnation);
                    let joined = members.join_again(now, NAMES[name], process, Role::Worker);
                    prop_assert_eq!(joined.unwrap().incarnation, incarnation);
                }
                Event::Return(name) => {
                    let holder = processes.get_mut(&name).and_then(|all| all.last_mut());
                    let Some(holder) = holder else { continue };
                    members.leave(NAMES[name], holder.incarnation);
                    let process = (holder.number, 0);
                    let joined = members.join_again(now, NAMES[name], process, Role::Worker);
                    let joined = joined.unwrap();
                    prop_assert!(joined.is_new && joined.incarnation > holder.incarnation);
                    holder.incarnation = joined.incarnation;
                }
                Event::Wake(name, which) => {
                    let Some(all) = processes.get(&name) else { continue };
                    let Some(Process { number, incarnation }) =
                        all[..all.len() - 1].get(which).copied() else { continue };
                    let process = (number, incarnation);
                    let joined = members.join_again(now, NAMES[name], process, Role::Worker);
                    prop_assert!(matches!(joined, Err(Refusal::Fenced | Refusal::NameInUse)));
                }
                Event::Save => {
                    let members_now: Vec<_> = members.saved().collect();
                    let lost = members.lost().to_owned();
                    saved = Some((members.last_number(), lost, members_now));
                }
                Event::Crash(order) => {
                    let Some((last_number, lost, all)) = saved.clone() else { continue };
                    members = Members::new(LEASE, members.last_number() + 100);
                    members.restore(now, (last_number, lost), all.clone());
                    for name in order {
                        let holder = processes.get(&name).and_then(|all| all.last());
                        let Some(Process { number, incarnation }) = holder.copied() else {
                            continue;
                        };
                        let process = (number, incarnation);
                        let joined = members.join_again(now, NAMES[name], process, Role::Worker);
                        let joined = joined.unwrap();
                        prop_assert_eq!(joined.incarnation, incarnation);
                        // The calls of an earlier membership do not count.
                        let is_saved = |one: &SavedMember| {
                            (&*one.name, one.process, one.incarnation)
                                == (NAMES[name], number, incarnation)
                        };
                        prop_assert_eq!(joined.is_new, !all.iter().any(is_saved));
                    }
                }
            }
        }
    }

    /// Calls that have ended or taken effect are known to the next run, those that were running are
    /// not. Until a call has ended, it is running for this run.
    #[test]
    fn calls_that_have_taken_effect_are_known(
        num in 1..40u64,
        ended in prop::collection::vec(0..3u8, 40),
        answered in 0..40u64,
    ) {
        let mut calls = Calls::new(100);
        for call in 1..=num {
            prop_assert_eq!(calls.begin(call, true), Begun::New);
        }
        let state = |call: &u64| ended[usize::try_from(*call).unwrap()];
        for call in 1..=num {
            match state(&call) {
                0 => {}
                1 => calls.take_effect(call, call * 7),
                _ => calls.finish(call, call * 7),
            }
        }
        let open: Vec<u64> = (1..=num).filter(|call| state(call) < 2).collect();
        calls.confirm(answered, &open);
        let mut restored = Calls::restored(calls.saved(), 100);
        for call in 1..=num {
            let (now, later) = (calls.begin(call, true), restored.begin(call, true));
            match state(&call) {
                0 => prop_assert_eq!((now, later), (Begun::Running, Begun::New)),
                1 => prop_assert_eq!((now, later), (Begun::Running, Begun::Done(call * 7))),
                _ => prop_assert_eq!(now, later),
            }
        }
    }
}
