//! The state of the model, and the events that change it.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};
use std::time::Duration;

use kvstore_net::rules::{Begun, Calls, Clocks, Members, Refusal, Role};

/// The names of the processes. The first two take the name from each other.
pub(super) const NAMES: [&str; 3] = ["a", "a", "b"];

pub(super) const LEASE: Duration = Duration::from_millis(1);

pub(super) const ONCE: &str = "a call takes effect once";
pub(super) const FENCED: &str = "an earlier process has no effect after a later one has joined";
pub(super) const NAME: &str = "the name of a live member is not given away";
pub(super) const ACKNOWLEDGED: &str = "an acknowledged call took effect";
pub(super) const SLOWEST: &str = "the slowest worker never waits";

/// A fault of the server that tests plant into the model, to show that the exploration finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// The server accepts calls of processes that were replaced.
    SkipFence,
    /// The server forgets the calls that are finished.
    ForgetCall,
    /// A process is a member before the calls of the earlier one are done.
    AnnounceEarly,
    /// A process gets the name of a live member.
    GiveAwayName,
    /// The server replies to a call before it is made.
    ReplyEarly,
    /// A dead worker is waited for.
    AwaitDead,
}

/// A message on the network. It stays there, so it may arrive at any time, often or never.
#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Message {
    Join { process: usize },
    Joined { process: usize, incarnation: u64 },
    Call(Call),
    Done(Call),
    Leave { process: usize, incarnation: u64 },
}

#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Call {
    pub(super) process: usize,
    pub(super) incarnation: u64,
    pub(super) sequence: u64,
}

#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq)]
pub(super) enum Event {
    Arrives(Message),
    /// A process begins its next call.
    Begins(usize),
    /// A process does not wait for the reply to its call any longer.
    GivesUp(usize),
    Leaves(usize),
    /// The server has made a call.
    Made(Call),
    /// A lease may end.
    TimePasses,
    /// The connection of a process is lost.
    Loses(usize),
    Restarts,
}

/// The state of a process.
#[derive(Clone, Debug, Default, Hash, PartialEq, Eq)]
pub(super) struct Process {
    pub(super) incarnation: u64,
    pub(super) connection: u64,
    pub(super) num_calls: u64,
    pub(super) open: Option<Call>,
    pub(super) num_answers: u64,
    pub(super) has_left: bool,
}

#[derive(Clone, Debug)]
pub(super) struct State {
    pub(super) time: u32,
    pub(super) members: Members,
    pub(super) calls: BTreeMap<&'static str, Calls<()>>,
    pub(super) clocks: Clocks<(), usize>,
    /// The calls that the server makes at the moment.
    pub(super) running: BTreeSet<Call>,
    /// The joins that wait for running calls of an earlier process.
    pub(super) waiting: BTreeSet<(usize, u64)>,
    pub(super) network: BTreeSet<Message>,
    pub(super) processes: [Process; NAMES.len()],
    /// How often each call took effect, by process and number, over all runs of the server.
    pub(super) effects: BTreeMap<(usize, u64), u32>,
    /// The newest incarnation of each name whose process knows that it is a member.
    pub(super) announced: BTreeMap<&'static str, u64>,
    /// Which process holds each name, and until when.
    pub(super) leases: BTreeMap<&'static str, (usize, u32)>,
    pub(super) num_joins: u32,
    pub(super) num_losses: u32,
    pub(super) num_restarts: u32,
    pub(super) was_refused: bool,
    pub(super) was_fenced: bool,
    pub(super) was_repeated: bool,
    pub(super) broken: BTreeSet<&'static str>,
    fault: Option<Fault>,
}

impl State {
    /// Returns the state before any message has arrived.
    pub(super) fn new(num_processes: usize, fault: Option<Fault>) -> Self {
        let joins = (0..num_processes).map(|process| Message::Join { process });
        Self {
            time: 0,
            members: Members::new(LEASE, 0),
            calls: BTreeMap::new(),
            clocks: Clocks::default(),
            running: BTreeSet::new(),
            waiting: BTreeSet::new(),
            network: joins.collect(),
            processes: Default::default(),
            effects: BTreeMap::new(),
            announced: BTreeMap::new(),
            leases: BTreeMap::new(),
            num_joins: 0,
            num_losses: 0,
            num_restarts: 0,
            was_refused: false,
            was_fenced: false,
            was_repeated: false,
            broken: BTreeSet::new(),
            fault,
        }
    }

    /// Changes the state.
    pub(super) fn happen(&mut self, event: Event) {
        match event {
            Event::Arrives(message) => self.arrive(message),
            Event::Begins(number) => {
                let process = &mut self.processes[number];
                process.num_calls += 1;
                let (incarnation, sequence) = (process.incarnation, process.num_calls);
                let call = Call { process: number, incarnation, sequence };
                process.open = Some(call);
                self.network.insert(Message::Call(call));
            }
            Event::GivesUp(number) => self.processes[number].open = None,
            Event::Leaves(number) => {
                let process = &mut self.processes[number];
                process.has_left = true;
                let incarnation = process.incarnation;
                self.network.insert(Message::Leave { process: number, incarnation });
            }
            Event::Made(call) => self.make(call),
            Event::TimePasses => {
                self.time += 1;
                self.members.end_leases(self.now());
            }
            Event::Loses(number) => {
                self.num_losses += 1;
                let connection = self.processes[number].connection;
                self.members.lose(self.now(), NAMES[number], connection);
                self.leases.remove(NAMES[number]);
            }
            Event::Restarts => self.restart(),
        }
    }

    /// Returns all fields. The clocks are compared by their values.
    fn fields(&self) -> impl Hash + Eq + use<'_> {
        let clocks = [0, 1, 2].map(|process| self.clocks.clock(&(), &process));
        let rules = (self.time, &self.members, &self.calls, clocks, &self.running, &self.waiting);
        let known = (&self.network, &self.processes, &self.effects, &self.announced, &self.leases);
        let counts = (self.num_joins, self.num_losses, self.num_restarts);
        let seen = (self.was_refused, self.was_fenced, self.was_repeated, &self.broken);
        (rules, known, counts, seen)
    }

    fn has(&self, fault: Fault) -> bool {
        self.fault == Some(fault)
    }

    /// Returns the processes for whose pushes bounded pulls wait.
    pub(super) fn awaited(&self) -> Vec<usize> {
        let is_awaited = |process: &usize| {
            let is_dead = self.processes[*process].incarnation != 0;
            self.is_live(*process) || self.has(Fault::AwaitDead) && is_dead
        };
        (0..NAMES.len()).filter(is_awaited).collect()
    }

    fn now(&self) -> Duration {
        LEASE * self.time
    }

    pub(super) fn is_live(&self, process: usize) -> bool {
        let lease = self.leases.get(NAMES[process]);
        lease.is_some_and(|(holder, end)| *holder == process && *end > self.time)
    }

    fn renew_lease(&mut self, process: usize) {
        self.leases.insert(NAMES[process], (process, self.time + 1));
    }

    fn announce(&mut self, process: usize, incarnation: u64) {
        self.network.insert(Message::Joined { process, incarnation });
        let announced = self.announced.entry(NAMES[process]).or_default();
        *announced = incarnation.max(*announced);
    }

    /// Returns whether the server makes a call of an earlier process of a name.
    fn runs_earlier(&self, name: &str, incarnation: u64) -> bool {
        if self.has(Fault::AnnounceEarly) {
            return false;
        }
        let is_earlier =
            |call: &Call| NAMES[call.process] == name && call.incarnation != incarnation;
        self.running.iter().any(is_earlier)
    }

    fn join(&mut self, process: usize) {
        let name = NAMES[process];
        self.num_joins += 1;
        let others = (0..NAMES.len()).filter(|other| *other != process);
        let live: Vec<usize> = others.filter(|other| self.is_live(*other)).collect();
        let is_taken = live.iter().any(|other| NAMES[*other] == name);
        if self.has(Fault::GiveAwayName)
            && let Some(holder) = live.iter().find(|other| NAMES[**other] == name)
        {
            self.members.lose(self.now(), name, self.processes[*holder].connection);
        }
        let joined = self.members.join(self.now(), name, process as u64 + 1, Role::Worker);
        match joined {
            Ok(joined) => {
                if is_taken {
                    self.broken.insert(NAME);
                }
                self.clocks.raise(&process, &live, joined.is_new);
                self.renew_lease(process);
                self.processes[process].connection = joined.connection;
                if joined.is_new {
                    self.calls.insert(name, Calls::new(4));
                }
                if self.runs_earlier(name, joined.incarnation) {
                    self.waiting.insert((process, joined.incarnation));
                } else {
                    self.announce(process, joined.incarnation);
                }
            }
            Err(Refusal::NameInUse) => self.was_refused = true,
            Err(Refusal::Fenced) => self.was_fenced = true,
        }
    }

    fn call(&mut self, call: Call) {
        let name = NAMES[call.process];
        if self.members.renew(self.now(), name, call.incarnation).is_err() {
            self.was_fenced = true;
            if !self.has(Fault::SkipFence) {
                return;
            }
        } else {
            self.renew_lease(call.process);
        }
        if self.has(Fault::ForgetCall) && !self.running.contains(&call) {
            self.calls.insert(name, Calls::new(4));
        }
        if self.has(Fault::ReplyEarly) {
            self.network.insert(Message::Done(call));
        }
        let Some(calls) = self.calls.get_mut(name) else { return };
        // The client makes its calls one by one, so it has the replies of all earlier ones.
        calls.confirm(call.sequence, &[]);
        match calls.begin(call.sequence, true) {
            Begun::New => drop(self.running.insert(call)),
            Begun::Done(()) => {
                self.was_repeated = true;
                self.network.insert(Message::Done(call));
            }
            Begun::Running | Begun::Answered | Begun::TooMany | Begun::Refused => {}
        }
    }

    /// The server has made a call.
    fn make(&mut self, call: Call) {
        let name = NAMES[call.process];
        self.running.remove(&call);
        let count = self.effects.entry((call.process, call.sequence)).or_default();
        *count += 1;
        if *count > 1 {
            self.broken.insert(ONCE);
        }
        if self.announced.get(name).is_some_and(|newest| *newest > call.incarnation) {
            self.broken.insert(FENCED);
        }
        if self.members.get(name).is_some_and(|member| member.incarnation == call.incarnation) {
            self.clocks.advance(&(), &call.process);
            self.calls.get_mut(name).unwrap().finish(call.sequence, ());
        }
        self.network.insert(Message::Done(call));
        for (process, incarnation) in std::mem::take(&mut self.waiting) {
            if self.runs_earlier(NAMES[process], incarnation) {
                self.waiting.insert((process, incarnation));
            } else {
                self.announce(process, incarnation);
            }
        }
    }

    fn arrive(&mut self, message: Message) {
        match message {
            Message::Join { process } => self.join(process),
            Message::Joined { process, incarnation } => {
                let known = &mut self.processes[process];
                known.incarnation = known.incarnation.max(incarnation);
            }
            Message::Call(call) => self.call(call),
            Message::Done(call) => {
                let process = &mut self.processes[call.process];
                if process.open == Some(call) {
                    process.open = None;
                    process.num_answers += 1;
                    if !self.effects.contains_key(&(call.process, call.sequence)) {
                        self.broken.insert(ACKNOWLEDGED);
                    }
                }
            }
            Message::Leave { process, incarnation } => {
                if self.members.leave(NAMES[process], incarnation) {
                    self.calls.remove(NAMES[process]);
                    self.leases.remove(NAMES[process]);
                    self.clocks.remove_member(&process);
                }
            }
        }
    }

    fn restart(&mut self) {
        self.num_restarts += 1;
        self.members = Members::new(LEASE, 100 * u64::from(self.num_restarts));
        self.clocks = Clocks::default();
        self.calls.clear();
        self.running.clear();
        self.waiting.clear();
        self.announced.clear();
        self.leases.clear();
    }
}

impl Hash for State {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.fields().hash(hasher);
    }
}

impl PartialEq for State {
    fn eq(&self, other: &Self) -> bool {
        self.fields() == other.fields()
    }
}
