//! The members of the rounds that servers of this process commit, from their events.

use std::collections::HashMap;
use std::fmt::Debug;
use std::sync::{Mutex, Once};

use kvstore_net::LatePush;
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::{Context, SubscriberExt};

/// The pushes that run, by the name of their member, and those of the committed rounds. The events
/// of a round come before its pushes return.
pub(crate) static RUNNING: Mutex<Option<Recorded>> = Mutex::new(None);

/// The quorums of random programs, and what they do with late pushes.
pub(crate) const RULES: [(usize, LatePush); 3] =
    [(1, LatePush::Next), (2, LatePush::Reject), (3, LatePush::Next)];

#[derive(Default)]
pub(crate) struct Recorded {
    pub(crate) running: HashMap<String, u32>,
    pub(crate) rounds: Vec<Vec<u32>>,
}

struct RoundEvents;

struct Names(Option<String>);

impl Visit for Names {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "members" {
            self.0 = Some(format!("{value:?}"));
        }
    }
}

impl<S: Subscriber> Layer<S> for RoundEvents {
    fn on_event(&self, event: &Event<'_>, _context: Context<'_, S>) {
        let mut names = Names(None);
        event.record(&mut names);
        let (Some(names), Some(recorded)) = (names.0, &mut *RUNNING.lock().unwrap()) else {
            return;
        };
        let names = names.trim_matches(['[', ']']).split(", ").map(|name| name.trim_matches('"'));
        // Servers of other tests have members of other names.
        if let Some(seeds) = names.map(|name| recorded.running.get(name).copied()).collect() {
            recorded.rounds.push(seeds);
        }
    }
}

/// Begins to record the members of rounds.
pub(crate) fn record() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let subscriber = tracing_subscriber::registry().with(RoundEvents);
        tracing::subscriber::set_global_default(subscriber).unwrap();
    });
    *RUNNING.lock().unwrap() = Some(Recorded::default());
}
