//! The calls of a [`NetStore`].

use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use kvstore_core::key::{check_lengths, describe_call};
use kvstore_core::{
    Backends, Compression, Description, Device, Error, Key, KeyStats, KvStore, OnExisting,
    Optimizer, OptimizerState, Outputs, PulledValue, Result, RowSparse, Snapshot, Updater, Value,
    fallible,
};

use super::connection::{Answer, Call};
use super::descriptions::Descriptions;
use super::membership::Target;
use super::options::NetStoreOptions;
use super::residuals::{Encoder, Residuals, accept, positions};
use super::round_options::Rounds;
use super::servers::{Servers, missing};
use super::sharded::{Sharded, without_norm};
use super::snapshots::{NetSnapshot, SnapshotLease};
use crate::proto;
use crate::proto::change_settings::Change;
use crate::proto::request::Verb;
use crate::random::random_number;
use crate::rules::Role;
use crate::same_process::LocalMember;
use crate::server::Server;
use crate::wire::{
    Elements, compression_of, hyper_parameters_of, keys_of, parse_keys, parse_spec, spec_of,
    value_of,
};

/// A store on one or several servers that this process reaches over the network.
///
/// Each push is one step, at once. Calls of one thread take effect in their order. A call that
/// loses its connection is repeated, and takes effect once.
#[derive(Debug)]
pub struct NetStore {
    kind: String,
    pub(super) servers: Arc<Servers>,
    /// The calls on several servers. `None` with one server.
    pub(super) sharded: Option<Sharded>,
    /// What is known of the keys of one server.
    descriptions: Descriptions,
    staleness: Option<u64>,
    pub(super) rounds: Option<Rounds>,
    /// The servers, if they are in this process.
    embedded: Vec<Arc<Server>>,
    /// Registers this store, so that servers in this process pass on error objects.
    local_member: Option<LocalMember>,
    pub(super) waits_at_exit: AtomicBool,
    /// Held during a checkpoint, because servers remove the parts of a member's earlier one.
    pub(super) checkpoint: Mutex<()>,
}

impl NetStore {
    /// The name of these stores.
    pub const NAME: &'static str = "dist_async";

    /// Joins the group of one or several servers.
    ///
    /// # Errors
    /// - [`Error::Timeout`] if a server does not answer in time.
    /// - [`Error::InvalidArgument`] if another live member has this name, or other members have
    ///   another list of servers.
    /// - [`Error::Unsupported`] if a server has another version of the protocol.
    pub fn connect(backends: &Backends, options: &NetStoreOptions) -> Result<Self> {
        let (options, routes) = &options.found()?;
        let name = options.name.clone().unwrap_or_else(new_name);
        let process = random_number();
        let num_servers = u32::try_from(options.servers.len()).unwrap_or(u32::MAX);
        let targets = options.servers.iter().zip(0..).map(|(server, index)| Target {
            server: server.clone(),
            route: routes.get(index as usize).cloned(),
            place: (index, num_servers),
            name: name.clone(),
            process,
            is_reader: options.role == Role::Reader,
            timeout: options.timeout,
            connections: options.connections,
            security: options.security.clone(),
            operations: Arc::default(),
        });
        let local_member = Some(LocalMember::new(process));
        options.check()?;
        let mut store = Self::on(Servers::connect(backends, targets.collect())?, options);
        store.local_member = local_member;
        Ok(store)
    }

    /// Returns the store on servers whose groups this process has joined.
    pub(crate) fn on(servers: Servers, options: &NetStoreOptions) -> Self {
        let servers = Arc::new(servers);
        let sharded = (servers.len() > 1).then(|| Sharded::new(Arc::clone(&servers), options));
        Self {
            kind: options.kind.clone(),
            servers,
            sharded,
            descriptions: Descriptions::default(),
            staleness: options.staleness,
            rounds: options.to_rounds(),
            embedded: Vec::new(),
            local_member: None,
            waits_at_exit: AtomicBool::new(false),
            checkpoint: Mutex::default(),
        }
    }

    /// Joins the group of servers in this process. Then [`KvStore::set_updater`] works, because the
    /// servers can run functions of this process.
    ///
    /// # Errors
    /// - The errors of [`NetStore::connect`].
    pub fn connect_to(
        backends: &Backends,
        servers: &[Arc<Server>],
        options: &NetStoreOptions,
    ) -> Result<Self> {
        let addresses = servers.iter().map(|server| server.address().to_string()).collect();
        let options = NetStoreOptions { servers: addresses, coordinator: None, ..options.clone() };
        let mut store = Self::connect(backends, &options)?;
        store.embedded = fallible::copied(servers)?;
        Ok(store)
    }

    /// Makes a call that changes nothing, on the first server.
    pub(super) fn read(&self, verb: Verb, what: &str) -> Result<Answer> {
        self.servers.call(Call::read(verb, what.to_owned()))
    }

    /// Makes a call that changes the store, on all servers.
    pub(super) fn write(&self, verb: Verb, elements: Elements, what: String) -> Result<()> {
        let call = Call { elements, ..Call::write(verb, what) };
        self.changing(&call.what, || self.servers.call_all(&call).map(drop))
    }

    /// Runs a call that changes the store. `what` begins with its verb.
    fn changing(&self, what: &str, call: impl FnOnce() -> Result<()>) -> Result<()> {
        self.servers.reject_inside_updater(what.split(' ').next().unwrap_or_default())?;
        call()
    }

    fn set(&self, change: Change, what: &str) -> Result<()> {
        let change = proto::ChangeSettings { change: Some(change) };
        self.write(Verb::ChangeSettings(change), Elements::default(), what.to_owned())
    }
}

/// Returns the messages for values, with their elements.
fn values_of(keys: &[Key], values: &[Value]) -> Result<(Vec<proto::Value>, Elements)> {
    let mut elements = Elements::default();
    let values = keys.iter().zip(values).map(|(key, value)| value_of(key, value, &mut elements));
    Ok((fallible::try_collect(values)?, elements))
}

/// Appends the values of an answer.
fn append_pulled(keys: &[Key], answer: Answer, pulled: &mut Vec<PulledValue>) -> Result<()> {
    check_lengths("pulled values for keys", keys, &answer.values)?;
    let values = answer.reply.values.iter().zip(answer.values);
    let values =
        values.map(|(head, value)| Ok(PulledValue { order: head.order, value: value.to_dense()? }));
    pulled.extend(fallible::try_collect(values)?);
    Ok(())
}

impl NetStore {
    /// Pushes to the one server, with the verb that `verb` makes of the push, until the server has
    /// taken it. Returns the answer.
    pub(super) fn push_as(
        &self,
        what: &str,
        (keys, values): (&[Key], &[Value]),
        priority: i32,
        mut verb: impl FnMut(proto::Push) -> Result<Verb>,
    ) -> Result<Option<Answer>> {
        let mut taken = None;
        self.servers.push((keys, values), |keys, values, mut encoder| {
            let compression = encoder.as_ref().map(|encoder| encoder.compression());
            let (values, elements) = match &mut encoder {
                None => values_of(keys, values)?,
                Some(encoder) => self.codes_of(keys, values, encoder)?,
            };
            let compression = compression.map(|found| compression_of(Some(found)));
            let verb = verb(proto::Push { values, priority, compression, ..Default::default() })?;
            let call = Call { elements, ..Call::write(verb, what.to_owned()) };
            let answer = self.servers.call(call);
            if let Some(encoder) = encoder {
                let described = |keys: &[Key]| self.describe(keys);
                accept(encoder, (keys, 0), &answer, described);
            }
            let answer = answer?;
            let is_pushed = !answer.is_out_of_date();
            taken = Some(answer);
            fallible::filled(is_pushed, keys.len())
        })?;
        Ok(taken)
    }

    /// Calls `prepare` with the descriptions of keys, which may be out of date, and returns them.
    fn prepare(
        &self,
        keys: &[Key],
        prepare: &mut dyn FnMut(&[Description]) -> Result<()>,
    ) -> Result<Vec<Description>> {
        if let Some(known) = self.descriptions.get(keys)
            && prepare(&known).is_ok()
        {
            return Ok(known);
        }
        let newest = self.describe(keys)?;
        prepare(&newest)?;
        self.descriptions.put(keys, &newest)?;
        Ok(newest)
    }

    /// Returns the messages for values, with their codes.
    fn codes_of(
        &self,
        keys: &[Key],
        values: &[Value],
        encoder: &mut Encoder,
    ) -> Result<(Vec<proto::Value>, Elements)> {
        let backends = self.servers.backends();
        let (mut messages, mut elements) = (Vec::new(), Elements::default());
        for ((key, value), position) in keys.iter().zip(values).zip(positions(keys)) {
            let codes = encoder.encode(backends, (key, value), position, 0);
            let codes = match codes {
                Err(error @ Error::InvalidArgument(_)) => {
                    // Errors of the key come first.
                    self.check_spec(key, value)?;
                    return Err(error);
                }
                codes => codes?,
            };
            let mut message = value_of(key, &codes.into(), &mut elements)?;
            message.spec = Some(spec_of(value.spec()));
            fallible::push(&mut messages, message)?;
        }
        Ok((messages, elements))
    }

    /// # Errors
    /// - [`Error::KeyNotFound`] if the key is not initialised.
    /// - [`Error::SpecMismatch`] if the value has another type than the stored one.
    fn check_spec(&self, key: &Key, value: &Value) -> Result<()> {
        let described = self.describe(std::slice::from_ref(key))?;
        match described.first().filter(|stored| stored.spec != *value.spec()) {
            Some(stored) => Err(Error::spec_mismatch(key, &stored.spec, value.spec())),
            None => Ok(()),
        }
    }
}

impl KvStore for NetStore {
    fn name(&self) -> &str {
        &self.kind
    }

    fn init_with(&self, keys: &[Key], values: &[Value], existing: OnExisting) -> Result<()> {
        check_lengths("values for keys", keys, values)?;
        if let Some(sharded) = &self.sharded {
            self.changing("init", || sharded.init(keys, values, existing))?;
        } else {
            let (values, elements) = values_of(keys, values)?;
            let on_existing = on_existing_of(existing).into();
            let init = proto::Init { values, on_existing, continues: false };
            self.write(Verb::Init(init), elements, describe_call("init", keys))?;
        }
        if existing == OnExisting::Replace {
            self.servers.residuals().remove(keys);
            self.descriptions.forget(keys);
        }
        Ok(())
    }

    fn push(&self, keys: &[Key], values: &[Value], priority: i32) -> Result<()> {
        check_lengths("values for keys", keys, values)?;
        if let Some(rounds) = &self.rounds {
            let push = || self.push_to_round(rounds, (keys, values), priority);
            return self.changing("push", push);
        }
        if let Some(sharded) = &self.sharded {
            return self.changing("push", || sharded.push(keys, values, priority));
        }
        let what = describe_call("push", keys);
        let verb = |push| Ok(Verb::Push(push));
        self.changing("push", || self.push_as(&what, (keys, values), priority, verb).map(drop))
    }

    fn pushpull_into(
        &self,
        (keys, values): (&[Key], &[Value]),
        outputs: Outputs<'_>,
        priority: i32,
    ) -> Result<()> {
        check_lengths("values for keys", keys, values)?;
        // A pull that waits for other workers must not keep the push open. Their pushes may wait
        // for the residuals of this one.
        let is_one_call = self.sharded.is_none()
            && self.rounds.is_none()
            && self.staleness.is_none()
            && !keys.is_empty()
            && self.servers.compression()?.is_none();
        if !is_one_call {
            return outputs.pull_after_push(self, (keys, values), priority);
        }
        let Outputs { keys: outs, prepare, pulled } = outputs;
        fallible::reserve(pulled, outs.len())?;
        let what = describe_call("push and pull", keys);
        let pull = proto::Pull { keys: keys_of(outs), ..proto::Pull::default() };
        let mut is_repeated = false;
        let both = |push: proto::Push| {
            if std::mem::replace(&mut is_repeated, true) {
                self.descriptions.forget(outs);
            }
            if push.compression.is_some() {
                // Another worker has turned it on.
                return Ok(Verb::Push(push));
            }
            let expected = self.prepare(outs, prepare)?;
            let expected = fallible::collect(expected.iter().map(|known| spec_of(&known.spec)))?;
            let (push, pull) = (Some(push), Some(pull.clone()));
            Ok(Verb::PushPull(proto::PushPull { push, pull, expected }))
        };
        let mut answer = None;
        self.changing("push", || {
            answer = self.push_as(&what, (keys, values), priority, both)?;
            Ok(())
        })?;
        match answer.filter(|answer| answer.reply.has_elements) {
            Some(answer) => append_pulled(outs, answer, pulled),
            None => self.pull_into(outs, priority, pulled),
        }
    }

    fn pull_into(&self, keys: &[Key], _priority: i32, pulled: &mut Vec<PulledValue>) -> Result<()> {
        if let Some(sharded) = &self.sharded {
            return sharded.pull_into(keys, pulled);
        }
        let (staleness, layouts) = (self.staleness, Vec::new());
        let pull = proto::Pull { keys: keys_of(keys), staleness, layouts };
        append_pulled(keys, self.read(Verb::Pull(pull), &describe_call("pull", keys))?, pulled)
    }

    fn pull_rows(&self, keys: &[Key], ids: &[&[i64]], _priority: i32) -> Result<Vec<RowSparse>> {
        check_lengths("lists of row indices for keys", keys, ids)?;
        if let Some(sharded) = &self.sharded {
            return sharded.pull_rows(keys, ids);
        }
        let (mut num_rows, mut elements) =
            (fallible::with_capacity(ids.len())?, Elements::default());
        for ids in ids {
            fallible::push(&mut num_rows, ids.len() as u64)?;
            elements.push_indices(fallible::copied(ids)?);
        }
        let (staleness, layouts) = (self.staleness, Vec::new());
        let pull = proto::PullRows { keys: keys_of(keys), num_rows, staleness, layouts };
        let call = Call::read(Verb::PullRows(pull), describe_call("pull of rows", keys));
        let answer = self.servers.call(Call { elements, ..call })?;
        let rows = answer.values.into_iter().map(|value| match value {
            Value::Rows(rows) => Ok(rows),
            Value::Dense(_) => Err(missing("row indices")),
        });
        rows.collect()
    }

    fn describe(&self, keys: &[Key]) -> Result<Vec<Description>> {
        if let Some(sharded) = &self.sharded {
            return sharded.describe(keys);
        }
        let asked = Verb::Describe(proto::Keys { keys: keys_of(keys), ..proto::Keys::default() });
        self.read(asked, &describe_call("describe", keys))?.descriptions()
    }

    fn remove(&self, keys: &[Key]) -> Result<()> {
        if let Some(sharded) = &self.sharded {
            self.changing("remove", || sharded.remove(keys))?;
        } else {
            let removed =
                Verb::Remove(proto::Keys { keys: keys_of(keys), ..proto::Keys::default() });
            self.write(removed, Elements::default(), describe_call("remove", keys))?;
        }
        self.servers.residuals().remove(keys);
        self.descriptions.forget(keys);
        Ok(())
    }

    fn keys(&self) -> Result<Vec<Key>> {
        if let Some(sharded) = &self.sharded {
            return Ok(sharded.stats()?.into_iter().map(|stats| stats.key).collect());
        }
        parse_keys(&self.read(Verb::ListKeys(proto::Empty {}), "keys")?.reply.keys)
    }

    fn stats(&self) -> Result<Vec<KeyStats>> {
        let mut stats = match &self.sharded {
            Some(sharded) => sharded.stats()?,
            None => stats_in(&self.read(Verb::Stats(proto::Empty {}), "stats")?.reply.stats)?,
        };
        // An updater may call this during a push of this store, which has locked the residuals.
        if let Some(residuals) = self.servers.residuals_if_free() {
            for stats in &mut stats {
                stats.state_bytes += residuals.num_bytes(&stats.key);
            }
        }
        Ok(stats)
    }

    fn versions(&self, keys: &[Key]) -> Result<Vec<u64>> {
        if let Some(sharded) = &self.sharded {
            return sharded.versions(keys);
        }
        let asked = Verb::Versions(proto::Keys { keys: keys_of(keys), ..proto::Keys::default() });
        let answer = self.read(asked, "versions")?;
        Ok(answer.reply.values.iter().map(|value| value.version.unwrap_or_default()).collect())
    }

    fn contains(&self, key: &Key) -> Result<bool> {
        match self.describe(std::slice::from_ref(key)) {
            Ok(_) => Ok(true),
            Err(Error::KeyNotFound { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn set_updater(&self, updater: Option<Arc<dyn Updater>>) -> Result<()> {
        let Some(updater) = updater else {
            return self.set(Change::Optimizer(String::new()), "set_updater");
        };
        if self.embedded.is_empty() {
            return Err(Error::Unsupported(
                "an updater is a function of this process, which the server cannot call: set it \
                 in the server's process"
                    .to_owned(),
            ));
        }
        self.servers.reject_inside_updater("set_updater")?;
        let set = |server: &Arc<Server>| server.store().set_updater(Some(Arc::clone(&updater)));
        self.embedded.iter().try_for_each(set)
    }

    fn set_optimizer(&self, optimizer: Optimizer) -> Result<()> {
        if let Some(sharded) = &self.sharded {
            self.changing("set_optimizer", || sharded.remove_left_parts(&optimizer))?;
        }
        self.set(Change::Optimizer(optimizer.to_json()?), "set_optimizer")
    }

    fn optimizer(&self) -> Result<Option<Optimizer>> {
        self.servers.settings()?.optimizer.map(|json| Optimizer::from_json(&json)).transpose()
    }

    fn set_hyper_parameters(&self, parameters: &[(&str, f64)]) -> Result<()> {
        let verb = Verb::SetHyperParameters(hyper_parameters_of(parameters));
        self.write(verb, Elements::default(), "set_hyper_parameters".to_owned())
    }

    fn set_compression(&self, compression: Option<Compression>) -> Result<()> {
        let set = self.set(Change::Compression(compression_of(compression)), "set_compression");
        self.servers.forget_compression();
        set
    }

    fn compression(&self) -> Result<Option<Compression>> {
        self.servers.forget_compression();
        self.servers.compression()
    }

    fn set_clip_global_norm(&self, bound: Option<f64>) -> Result<()> {
        if let (Some(_), Some(bound)) = (&self.sharded, bound) {
            return Err(without_norm(bound));
        }
        self.set(Change::ClipGlobalNorm(proto::Clip { bound }), "set_clip_global_norm")
    }

    fn clip_global_norm(&self) -> Result<Option<f64>> {
        Ok(self.servers.settings()?.clip_global_norm.and_then(|found| found.bound))
    }

    fn snapshot(&self) -> Result<Snapshot> {
        self.servers.reject_inside_updater("snapshot")?;
        let residuals = self.servers.residuals();
        if let Some(sharded) = &self.sharded {
            return sharded.snapshot(&residuals);
        }
        if let [server] = self.embedded.as_slice() {
            // The values are in this process.
            return residuals.add_to(&server.contents().snapshot()?);
        }
        let (lease, answers) = SnapshotLease::take(&self.servers, "")?;
        let answer = answers.first().ok_or_else(|| missing("snapshot"))?;
        let outline = Snapshot::from_bytes(self.servers.backends(), &answer.bytes)?;
        let stats = stats_in(&answer.reply.stats)?;
        NetSnapshot::snapshot(lease, &outline, stats, HashSet::new(), &residuals)
    }

    fn rollback(&self, snapshot: &Snapshot) -> Result<()> {
        self.servers.reject_inside_updater("rollback")?;
        let here = NetSnapshot::on(snapshot, &self.servers);
        let loaded = if here.is_some() { snapshot.clone() } else { snapshot.load()? };
        let kept = here.map(|here| here.residuals().copied(snapshot.keys())).transpose()?;
        let snapshot = &loaded;
        self.changing("rollback", || {
            if let Some(sharded) = &self.sharded {
                return sharded.rollback(snapshot, here);
            }
            if let [server] = self.embedded.as_slice() {
                return server.contents().rollback(snapshot);
            }
            let mut elements = Elements::default();
            if here.is_none() {
                elements.push_bytes(Bytes::from(snapshot.to_bytes()?));
            }
            let rollback = proto::Rollback {
                num_bytes: elements.num_bytes() as u64,
                snapshot: here.map(NetSnapshot::number),
                ..proto::Rollback::default()
            };
            let call = Call::write(Verb::Rollback(rollback), "rollback".to_owned());
            self.servers.call(Call { elements, ..call }).map(drop)
        })?;
        self.servers.know_runs();
        self.servers.forget_compression();
        let residuals = match kept {
            Some(kept) => kept,
            None => Residuals::of(snapshot, |key, residual| match &self.sharded {
                Some(sharded) => sharded.split(key, residual),
                None => Ok(Vec::from([Some(residual.clone())])),
            })?,
        };
        // Locked only now, because an updater that the rollback drops may call this store.
        *self.servers.residuals() = residuals;
        Ok(())
    }

    fn set_optimizer_states(
        &self,
        optimizer: Option<Optimizer>,
        states: BTreeMap<Key, OptimizerState>,
    ) -> Result<()> {
        if let Some(sharded) = &self.sharded {
            let call = || sharded.set_optimizer_states(optimizer, &states);
            return self.changing("set_optimizer_states", call);
        }
        let optimizer = optimizer.as_ref().map(Optimizer::to_json).transpose()?;
        let mut elements = Elements::default();
        let states = states.iter().map(|(key, state)| {
            let bytes = state.to_bytes(self.servers.backends())?;
            let num_bytes = bytes.len() as u64;
            elements.push_bytes(Bytes::from(bytes));
            Ok(proto::KeyState { key: key.as_str().to_owned(), num_bytes, layout: 0 })
        });
        let states = states.collect::<Result<_>>()?;
        let states = proto::SetStates { states, optimizer: optimizer.unwrap_or_default() };
        self.write(Verb::SetStates(states), elements, "set_optimizer_states".to_owned())
    }
}

/// Returns the message for what `init` does with keys that exist.
pub(super) fn on_existing_of(existing: OnExisting) -> proto::OnExisting {
    match existing {
        OnExisting::Reject => proto::OnExisting::Reject,
        OnExisting::Keep => proto::OnExisting::Keep,
        OnExisting::Replace => proto::OnExisting::Replace,
    }
}

/// Returns the statistics in a message.
pub(super) fn stats_in(stats: &[proto::KeyStats]) -> Result<Vec<KeyStats>> {
    let stats = stats.iter().map(|stats| {
        let number = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        Ok(KeyStats {
            key: Key::new(&stats.key)?,
            spec: parse_spec(stats.spec.as_ref())?,
            device: Device::cpu(0),
            value_bytes: number(stats.value_bytes),
            num_pushes: stats.num_pushes,
            state_bytes: number(stats.state_bytes),
        })
    });
    stats.collect()
}

/// Returns a name that no other member has.
fn new_name() -> String {
    format!("worker-{}-{:016x}", std::process::id(), random_number())
}
