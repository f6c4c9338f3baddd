//! The calls of a [`NetStore`].

use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use kvstore_core::key::{check_lengths, describe_call};
use kvstore_core::process::Origin;
use kvstore_core::{
    Backends, Compression, Description, Device, Error, Key, KeyStats, KvStore, OnExisting,
    Optimizer, OptimizerState, PulledValue, Result, RowSparse, Snapshot, Updater, Value,
    WorkerGroup, fallible,
};

use super::connection::{Answer, Call, Connection};
use super::failures::{Failures, Recorded};
use super::membership::Target;
use super::options::NetStoreOptions;
use crate::proto;
use crate::proto::change_settings::Change;
use crate::proto::request::Verb;
use crate::rules::Role;
use crate::runtime;
use crate::server::{Server, store_in_this_process};
use crate::wire::{
    Elements, compression_of, hyper_parameters_of, keys_of, parse_keys, parse_spec, to_compression,
    value_of,
};

/// A live member of the group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupMember {
    /// The name of the member.
    pub name: String,
    /// Its rank among the members of its role, from 0. A name keeps its rank until it leaves.
    pub rank: u64,
    /// Whether it never pushes.
    pub is_reader: bool,
}

/// A store on a server that this process reaches over the network.
///
/// Each push is one step, at once. Calls of one thread take effect in their order. A call that
/// loses its connection is repeated, and takes effect once.
#[derive(Debug)]
pub struct NetStore {
    backends: Backends,
    connection: Arc<Connection>,
    staleness: Option<u64>,
    /// The server, if it is in this process.
    embedded: Option<Arc<Server>>,
    /// The errors of updaters that this store has set on that server.
    failures: Failures,
    waits_at_exit: AtomicBool,
    /// The process that has the threads of the connection.
    process: Origin,
}

impl NetStore {
    /// The name of these stores.
    pub const NAME: &'static str = "dist_async";

    /// Joins the group of a server.
    ///
    /// # Errors
    /// - [`Error::Timeout`] if the server does not answer in time.
    /// - [`Error::InvalidArgument`] if another live member has this name.
    /// - [`Error::Unsupported`] if the server has another version of the protocol.
    pub fn connect(backends: &Backends, options: &NetStoreOptions) -> Result<Self> {
        let target = Target {
            server: options.server.clone(),
            name: options.name.clone().unwrap_or_else(new_name),
            process: random_number(),
            is_reader: options.role == Role::Reader,
            timeout: options.timeout,
        };
        let connection = runtime::wait(Connection::open(target))??;
        Ok(Self {
            backends: backends.clone(),
            connection,
            staleness: options.staleness,
            embedded: None,
            failures: Failures::default(),
            waits_at_exit: AtomicBool::new(false),
            process: Origin::current(),
        })
    }

    /// Joins the group of a server in this process. Then [`KvStore::set_updater`] works, because
    /// the server can run functions of this process.
    ///
    /// # Errors
    /// - The errors of [`NetStore::connect`].
    pub fn connect_to(
        backends: &Backends,
        server: &Arc<Server>,
        options: &NetStoreOptions,
    ) -> Result<Self> {
        let server_address = server.address().to_string();
        let options = NetStoreOptions { server: server_address, ..options.clone() };
        let mut store = Self::connect(backends, &options)?;
        store.embedded = Some(Arc::clone(server));
        Ok(store)
    }

    /// Returns the live members: workers first, each role in the order of ranks.
    pub fn members(&self) -> Vec<GroupMember> {
        members_of(&self.connection.members())
    }

    /// Calls `on_change` with the live members each time they change, in a thread of its own.
    ///
    /// # Errors
    /// - [`Error::Transport`] if the thread cannot be started.
    pub fn on_member(&self, on_change: impl Fn(&[GroupMember]) + Send + 'static) -> Result<()> {
        self.connection.on_members(Box::new(move |members| on_change(&members_of(members))))
    }

    /// Returns how many pushes have changed each key since it was initialised.
    ///
    /// # Errors
    /// - [`Error::KeyNotFound`] if a key is not initialised.
    pub fn versions(&self, keys: &[Key]) -> Result<Vec<u64>> {
        let asked = Verb::Versions(proto::Keys { keys: keys_of(keys) });
        let answer = self.read(asked, "versions")?;
        Ok(answer.reply.values.iter().map(|value| value.version).collect())
    }

    /// Leaves the group. Later calls fail. Dropping the store also leaves.
    pub fn leave(&self) {
        self.connection.leave();
    }

    fn call(&self, call: Call) -> Result<Answer> {
        self.process.check("the store", "connect in the process that uses it")?;
        let connection = Arc::clone(&self.connection);
        runtime::wait(connection.call(self.backends.clone(), call))?
    }

    /// Makes a call that changes nothing.
    fn read(&self, verb: Verb, what: &str) -> Result<Answer> {
        let (elements, what) = (Elements::default(), what.to_owned());
        self.call(Call { verb, elements, changes: false, what })
    }

    /// # Errors
    /// - [`Error::InvalidArgument`] if this thread runs an updater of the server's store. The call
    ///   would wait for itself.
    fn reject_inside_updater(&self, verb: &str) -> Result<()> {
        let joined = self.connection.membership();
        let local = joined.and_then(|joined| store_in_this_process(joined.server_run));
        local.map_or(Ok(()), |local| local.reject_inside_updater(verb))
    }

    /// Makes a call that changes the store or the group.
    fn write(&self, verb: Verb, elements: Elements, what: String) -> Result<()> {
        self.reject_inside_updater(what.split(' ').next().unwrap_or_default())?;
        let done = self.call(Call { verb, elements, changes: true, what }).map(drop);
        done.map_err(|error| self.failures.restore(error))
    }

    fn set(&self, change: Change, what: &str) -> Result<()> {
        let change = proto::ChangeSettings { change: Some(change) };
        self.write(Verb::ChangeSettings(change), Elements::default(), what.to_owned())
    }

    fn settings(&self) -> Result<proto::Settings> {
        let answer = self.read(Verb::Settings(proto::Empty {}), "settings")?;
        answer.reply.settings.ok_or_else(|| missing("settings"))
    }

    fn status(&self) -> Result<proto::Status> {
        let answer = self.read(Verb::Status(proto::Empty {}), "status")?;
        answer.reply.status.ok_or_else(|| missing("status"))
    }
}

/// Returns the messages for values, with their elements.
fn values_of(keys: &[Key], values: &[Value]) -> Result<(Vec<proto::Value>, Elements)> {
    let mut elements = Elements::default();
    let values = keys.iter().zip(values).map(|(key, value)| value_of(key, value, &mut elements));
    Ok((fallible::try_collect(values)?, elements))
}

impl KvStore for NetStore {
    fn name(&self) -> &str {
        Self::NAME
    }

    fn init_with(&self, keys: &[Key], values: &[Value], existing: OnExisting) -> Result<()> {
        check_lengths("values for keys", keys, values)?;
        let (values, elements) = values_of(keys, values)?;
        let on_existing = match existing {
            OnExisting::Reject => proto::OnExisting::Reject,
            OnExisting::Keep => proto::OnExisting::Keep,
            OnExisting::Replace => proto::OnExisting::Replace,
        };
        let init = proto::Init { values, on_existing: on_existing.into() };
        self.write(Verb::Init(init), elements, describe_call("init", keys))
    }

    fn push(&self, keys: &[Key], values: &[Value], priority: i32) -> Result<()> {
        check_lengths("values for keys", keys, values)?;
        let (values, elements) = values_of(keys, values)?;
        self.write(
            Verb::Push(proto::Push { values, priority }),
            elements,
            describe_call("push", keys),
        )
    }

    fn pull_into(&self, keys: &[Key], _priority: i32, pulled: &mut Vec<PulledValue>) -> Result<()> {
        let pull = proto::Pull { keys: keys_of(keys), staleness: self.staleness };
        let answer = self.read(Verb::Pull(pull), &describe_call("pull", keys))?;
        check_lengths("pulled values for keys", keys, &answer.values)?;
        let values = answer.reply.values.iter().zip(answer.values);
        let values = values
            .map(|(head, value)| Ok(PulledValue { order: head.order, value: value.to_dense()? }));
        pulled.extend(fallible::try_collect(values)?);
        Ok(())
    }

    fn pull_rows(&self, keys: &[Key], ids: &[&[i64]], _priority: i32) -> Result<Vec<RowSparse>> {
        check_lengths("lists of row indices for keys", keys, ids)?;
        let rows = ids.iter().map(|ids| Ok(proto::Rows { indices: fallible::copied(ids)? }));
        let rows = fallible::try_collect(rows)?;
        let pull = proto::PullRows { keys: keys_of(keys), rows, staleness: self.staleness };
        let answer = self.read(Verb::PullRows(pull), &describe_call("pull of rows", keys))?;
        let rows = answer.values.into_iter().map(|value| match value {
            Value::Rows(rows) => Ok(rows),
            Value::Dense(_) => Err(missing("row indices")),
        });
        rows.collect()
    }

    fn describe(&self, keys: &[Key]) -> Result<Vec<Description>> {
        let asked = Verb::Describe(proto::Keys { keys: keys_of(keys) });
        let answer = self.read(asked, &describe_call("describe", keys))?;
        let described = answer.reply.values.iter().map(|value| {
            Ok(Description { order: value.order, spec: parse_spec(value.spec.as_ref())? })
        });
        described.collect()
    }

    fn remove(&self, keys: &[Key]) -> Result<()> {
        let removed = Verb::Remove(proto::Keys { keys: keys_of(keys) });
        self.write(removed, Elements::default(), describe_call("remove", keys))
    }

    fn keys(&self) -> Result<Vec<Key>> {
        parse_keys(&self.read(Verb::ListKeys(proto::Empty {}), "keys")?.reply.keys)
    }

    fn stats(&self) -> Result<Vec<KeyStats>> {
        let answer = self.read(Verb::Stats(proto::Empty {}), "stats")?;
        let stats = answer.reply.stats.into_iter().map(|stats| {
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

    fn contains(&self, key: &Key) -> Result<bool> {
        match self.describe(std::slice::from_ref(key)) {
            Ok(_) => Ok(true),
            Err(Error::KeyNotFound { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn set_updater(&self, updater: Option<Arc<dyn Updater>>) -> Result<()> {
        match (updater, &self.embedded) {
            (updater, Some(server)) => {
                self.reject_inside_updater("set_updater")?;
                let record = |updater| -> Arc<dyn Updater> {
                    Arc::new(Recorded::new(updater, &self.failures))
                };
                server.store().set_updater(updater.map(record))
            }
            (None, None) => self.set(Change::Optimizer(String::new()), "set_updater"),
            (Some(_), None) => Err(Error::Unsupported(
                "an updater is a function of this process, which the server cannot call: set it \
                 in the server's process"
                    .to_owned(),
            )),
        }
    }

    fn set_optimizer(&self, optimizer: Optimizer) -> Result<()> {
        self.set(Change::Optimizer(optimizer.to_json()?), "set_optimizer")
    }

    fn optimizer(&self) -> Result<Option<Optimizer>> {
        self.settings()?.optimizer.map(|json| Optimizer::from_json(&json)).transpose()
    }

    fn set_hyper_parameters(&self, parameters: &[(&str, f64)]) -> Result<()> {
        let verb = Verb::SetHyperParameters(hyper_parameters_of(parameters));
        self.write(verb, Elements::default(), "set_hyper_parameters".to_owned())
    }

    fn set_compression(&self, compression: Option<Compression>) -> Result<()> {
        self.set(Change::Compression(compression_of(compression)), "set_compression")
    }

    fn compression(&self) -> Result<Option<Compression>> {
        self.settings()?.compression.map_or(Ok(None), |found| to_compression(&found))
    }

    fn set_clip_global_norm(&self, bound: Option<f64>) -> Result<()> {
        self.set(Change::ClipGlobalNorm(proto::Clip { bound }), "set_clip_global_norm")
    }

    fn clip_global_norm(&self) -> Result<Option<f64>> {
        Ok(self.settings()?.clip_global_norm.and_then(|found| found.bound))
    }

    fn snapshot(&self) -> Result<Snapshot> {
        self.reject_inside_updater("snapshot")?;
        let answer = self.read(Verb::Snapshot(proto::Empty {}), "snapshot")?;
        Snapshot::from_bytes(&self.backends, &answer.bytes)
    }

    fn rollback(&self, snapshot: &Snapshot) -> Result<()> {
        let (blob, elements) = blob_of(snapshot.to_bytes()?);
        self.write(Verb::Rollback(blob), elements, "rollback".to_owned())
    }

    fn set_optimizer_states(
        &self,
        optimizer: Option<Optimizer>,
        states: BTreeMap<Key, OptimizerState>,
    ) -> Result<()> {
        let optimizer = optimizer.as_ref().map(Optimizer::to_json).transpose()?;
        let mut elements = Elements::default();
        let states = states.iter().map(|(key, state)| {
            let bytes = state.to_bytes(&self.backends)?;
            let num_bytes = bytes.len() as u64;
            elements.push_bytes(Bytes::from(bytes));
            Ok(proto::KeyState { key: key.as_str().to_owned(), num_bytes })
        });
        let states = states.collect::<Result<_>>()?;
        let states = proto::SetStates { states, optimizer: optimizer.unwrap_or_default() };
        self.write(Verb::SetStates(states), elements, "set_optimizer_states".to_owned())
    }
}

impl WorkerGroup for NetStore {
    fn rank(&self) -> Result<usize> {
        let connection = Arc::clone(&self.connection);
        let joined = async move { connection.joined(connection.deadline()).await };
        Ok(usize::try_from(runtime::wait(joined)??.rank).unwrap_or(usize::MAX))
    }

    fn num_workers(&self) -> Result<usize> {
        Ok(self.members().iter().filter(|member| !member.is_reader).count())
    }

    fn barrier(&self) -> Result<()> {
        let connection = Arc::clone(&self.connection);
        let joined = async move { connection.joined(connection.deadline()).await };
        let round = self.connection.next_barrier(&runtime::wait(joined)??);
        let verb = Verb::Barrier(proto::Barrier { round });
        self.write(verb, Elements::default(), "barrier".to_owned())?;
        self.connection.pass_barrier(round);
        Ok(())
    }

    fn set_barrier_before_exit(&self, wait: bool) -> Result<()> {
        self.waits_at_exit.store(wait, Ordering::Relaxed);
        Ok(())
    }

    fn num_dead_node(&self, node_id: i32) -> Result<usize> {
        const WORKERS: i32 = 4;
        if node_id & WORKERS == 0 {
            return Ok(0);
        }
        Ok(usize::try_from(self.status()?.num_dead).unwrap_or(usize::MAX))
    }

    fn send_command_to_servers(&self, head: i32, body: &str) -> Result<()> {
        let command = proto::Command { head, body: body.to_owned() };
        self.write(Verb::Command(command), Elements::default(), "command".to_owned())
    }
}

impl Drop for NetStore {
    fn drop(&mut self) {
        if self.process.is_inherited() {
            return;
        }
        if self.waits_at_exit.load(Ordering::Relaxed)
            && let Err(error) = self.barrier()
        {
            tracing::warn!(error = error.chain(), "the barrier before the exit failed");
        }
        let connection = Arc::clone(&self.connection);
        if runtime::wait(async move { connection.left().await }).is_err() {
            self.connection.leave();
        }
    }
}

pub(super) fn members_of(members: &[proto::Member]) -> Vec<GroupMember> {
    let members = members.iter().map(|member| GroupMember {
        name: member.name.clone(),
        rank: member.rank,
        is_reader: member.is_reader,
    });
    members.collect()
}

fn blob_of(bytes: Vec<u8>) -> (proto::Blob, Elements) {
    let mut elements = Elements::default();
    let blob = proto::Blob { num_bytes: bytes.len() as u64 };
    elements.push_bytes(Bytes::from(bytes));
    (blob, elements)
}

fn missing(what: &str) -> Error {
    Error::Corrupt {
        subject: "the reply of the server".to_owned(),
        reason: format!("it has no {what}"),
    }
}

/// Returns a random number other than 0.
fn random_number() -> u64 {
    // The standard library draws the keys of hash tables from the operating system.
    RandomState::new().build_hasher().finish() | 1
}

/// Returns a name that no other member has.
fn new_name() -> String {
    format!("worker-{}-{:016x}", std::process::id(), random_number())
}
