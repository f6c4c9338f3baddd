//! Explores every order of events of a small group: two processes with one name, a third process,
//! a network that loses, repeats and reorders messages, leases that end, and a restart of the
//! server.
//!
//! The model joins the rules of the server as `server/group/mod.rs` does, and has a client that
//! follows `client/connection.rs`.

#![allow(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    reason = "a test may abort without memory"
)]
#![allow(clippy::unwrap_used, reason = "a check fails by panicking")]

mod state;

use std::collections::BTreeSet;
use std::time::Instant;

use stateright::{Checker, Expectation, HasDiscoveries, Model, Property};

use self::state::{ACKNOWLEDGED, Event, FENCED, Fault, Message, NAME, NAMES, ONCE, SLOWEST, State};

/// The bounds of the model.
#[derive(Debug)]
struct Group {
    /// The first of the processes take part.
    num_processes: usize,
    /// The number of leases that may end one after the other.
    max_time: u32,
    /// The number of joins that reach the server.
    max_joins: u32,
    /// The number of calls of each process.
    max_calls: u64,
    max_losses: u32,
    max_restarts: u32,
    /// Whether processes leave, and give up calls.
    leaves: bool,
    fault: Option<Fault>,
}

impl Model for Group {
    type State = State;
    type Action = Event;

    fn init_states(&self) -> Vec<State> {
        Vec::from([State::new(self.num_processes, self.fault)])
    }

    fn actions(&self, state: &State, events: &mut Vec<Event>) {
        for message in &state.network {
            if !matches!(message, Message::Join { .. }) || state.num_joins < self.max_joins {
                events.push(Event::Arrives(*message));
            }
        }
        for (number, process) in state.processes.iter().enumerate() {
            let is_member = process.incarnation != 0 && !process.has_left;
            match process.open {
                Some(_) if self.leaves => events.push(Event::GivesUp(number)),
                None if is_member && process.num_calls < self.max_calls => {
                    events.push(Event::Begins(number));
                }
                None if is_member && self.leaves => events.push(Event::Leaves(number)),
                Some(_) | None => {}
            }
            if state.is_live(number) && state.num_losses < self.max_losses {
                events.push(Event::Loses(number));
            }
        }
        events.extend(state.running.iter().copied().map(Event::Made));
        if state.time < self.max_time {
            events.push(Event::TimePasses);
        }
        if state.num_restarts < self.max_restarts {
            events.push(Event::Restarts);
        }
    }

    fn next_state(&self, last: &State, event: Event) -> Option<State> {
        let mut state = last.clone();
        state.happen(event);
        (state != *last).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        Vec::from([
            Property::always(ONCE, |_, state: &State| !state.broken.contains(ONCE)),
            Property::always(FENCED, |_, state: &State| !state.broken.contains(FENCED)),
            Property::always(NAME, |_, state: &State| !state.broken.contains(NAME)),
            Property::always(ACKNOWLEDGED, |_, state: &State| !state.broken.contains(ACKNOWLEDGED)),
            Property::always(SLOWEST, |_, state: &State| {
                let awaited = state.awaited();
                let waits = |own: usize| state.clocks.awaited(&(), &own, 0, &awaited).is_some();
                let mut live = (0..NAMES.len()).filter(|process| state.is_live(*process));
                live.clone().next().is_none() || !live.all(waits)
            }),
            Property::sometimes("both processes of a name complete a call", |_, state: &State| {
                state.processes[..2].iter().all(|process| process.num_answers > 0)
            }),
            Property::sometimes("all three processes complete a call", |_, state: &State| {
                state.processes.iter().all(|process| process.num_answers > 0)
            }),
            Property::sometimes("the name of a live member is refused", |_, state: &State| {
                state.was_refused
            }),
            Property::sometimes("an earlier process is refused", |_, state: &State| {
                state.was_fenced
            }),
            Property::sometimes("a repeated call gets its first outcome", |_, state: &State| {
                state.was_repeated
            }),
            Property::sometimes(
                "a process waits for calls of the earlier one",
                |_, state: &State| !state.waiting.is_empty(),
            ),
        ])
    }
}

/// Two processes of one name, which leave and lose their connections.
const TWO: Group = Group {
    num_processes: 2,
    max_time: 1,
    max_joins: 3,
    max_calls: 1,
    max_losses: 1,
    max_restarts: 0,
    leaves: true,
    fault: None,
};

/// These and a process of another name.
const THREE: Group = Group { num_processes: 3, max_losses: 0, leaves: false, ..TWO };

#[test]
fn every_order_of_events_keeps_the_promises() {
    let models = [
        Group { max_time: 0, max_joins: 4, max_losses: 0, max_restarts: 1, ..TWO },
        Group { max_joins: 2, max_calls: 2, max_losses: 0, ..TWO },
        Group { max_time: 0, max_losses: 1, ..THREE },
        TWO,
        THREE,
    ];
    let mut missing: BTreeSet<&str> = BTreeSet::new();
    let mut found: BTreeSet<&str> = BTreeSet::new();
    for model in models {
        let (start, bounds) = (Instant::now(), format!("{model:?}"));
        let checker = model.checker().threads(2).spawn_bfs().join();
        let num_states = checker.unique_state_count();
        println!("{num_states} states in {:?}: {bounds}", start.elapsed());
        for property in checker.model().properties() {
            match (property.expectation, checker.discovery(property.name)) {
                (Expectation::Sometimes, None) => drop(missing.insert(property.name)),
                (Expectation::Sometimes, Some(_)) => drop(found.insert(property.name)),
                (_, None) => {}
                (_, Some(path)) => panic!(
                    "{} does not hold in {bounds} after {:#?}",
                    property.name,
                    path.into_actions()
                ),
            }
        }
    }
    missing.retain(|name| !found.contains(name));
    assert!(missing.is_empty(), "no order of events reaches: {missing:?}");
}

#[test]
fn planted_faults_are_found() {
    for (fault, group, promise) in [
        (Fault::SkipFence, TWO, FENCED),
        (Fault::ForgetCall, TWO, ONCE),
        (Fault::AnnounceEarly, TWO, FENCED),
        (Fault::GiveAwayName, TWO, NAME),
        (Fault::ReplyEarly, TWO, ACKNOWLEDGED),
        (Fault::AwaitDead, THREE, SLOWEST),
    ] {
        let model = Group { fault: Some(fault), ..group };
        let checker = model.checker().threads(2).finish_when(HasDiscoveries::AnyFailures);
        let checker = checker.spawn_bfs().join();
        let is_always = |name: &str| {
            let properties = checker.model().properties();
            properties.iter().any(|property| {
                property.name == name && matches!(property.expectation, Expectation::Always)
            })
        };
        let broken: Vec<&str> =
            checker.discoveries().into_keys().filter(|name| is_always(name)).collect();
        println!("{fault:?}: {} states, {broken:?}", checker.unique_state_count());
        assert!(broken.contains(&promise), "{fault:?}: {broken:?}");
    }
}
