//! [`Servers`]: the connections of a store to the servers of its group.

use std::borrow::Cow;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kvstore_core::key::describe_call;
use kvstore_core::process::Origin;
use kvstore_core::{Backends, Compression, Error, Key, OnRewind, Result, Value};

use super::connection::{Answer, Call, Connection, is_unknown};
use super::driver::Driver;
use super::membership::Target;
use super::operations::{Operation, Operations};
use super::residuals::{Encoder, Residuals};
use crate::proto;
use crate::proto::request::Verb;
use crate::runtime;
use crate::server::store_in_this_process;
use crate::wire::to_compression;

/// How long to wait before a list of snapshots is sent again.
const SEND_AGAIN: Duration = Duration::from_secs(1);

/// The connections of a store to all servers of its group, in the order of the list of servers.
#[derive(Debug)]
pub(crate) struct Servers {
    backends: Backends,
    /// The connection to the first server, which keeps ranks, barriers and layouts.
    first: Arc<Connection>,
    all: Vec<Arc<Connection>>,
    driver: Driver,
    compression: Mutex<CachedCompression>,
    /// Locked during pushes with compression.
    residuals: Mutex<Residuals>,
    /// The snapshots that this process needs.
    snapshots: Arc<Mutex<proto::SnapshotList>>,
    operations: Arc<Operations>,
    /// The process that has the threads of the connections.
    process: Origin,
}

/// The compression of the store, which may be out of date.
#[derive(Clone, Copy, Debug)]
enum CachedCompression {
    Known(Option<Compression>),
    Unknown,
}

impl Servers {
    /// Joins the group at each server.
    ///
    /// # Errors
    /// - [`Error::InvalidArgument`] if the list is empty or has a server twice.
    /// - The errors of [`Connection::open`].
    pub(super) fn connect(backends: &Backends, targets: Vec<Target>) -> Result<Self> {
        let connections = targets.iter().map(|target| target.connections.get()).max();
        let driver = Driver::for_connections(connections.unwrap_or_default())?;
        Self::join(backends, driver, targets, Connection::open)
    }

    /// Joins the group at each server as [`Servers::connect`] does, over other connections.
    pub(crate) fn join<F>(
        backends: &Backends,
        driver: Driver,
        targets: Vec<Target>,
        open: impl Fn(Target) -> F,
    ) -> Result<Self>
    where
        F: Future<Output = Result<Arc<Connection>>> + Send + 'static,
    {
        let operations = Arc::<Operations>::default();
        let mut all: Vec<Arc<Connection>> = Vec::new();
        for mut target in targets {
            target.operations = Arc::clone(&operations);
            if all.iter().any(|known| *known.server() == *target.server) {
                let server = target.server;
                return Err(Error::invalid(format!("servers: `{server}` is in the list twice")));
            }
            // One after the other, so that two processes with one name meet at the first server.
            all.push(driver.wait(open(target))??);
        }
        if all.len() > 1 {
            for (index, connection) in all.iter().enumerate() {
                let others = all.iter().enumerate().filter(|(other, _)| *other != index);
                let others = others.map(|(_, other)| other.leaver()).collect();
                driver.spawn(connection.leave_others_if_replaced(others));
            }
        }
        let none = || Error::invalid("servers: expected at least one HOST:PORT, found none");
        let first = all.first().cloned().ok_or_else(none)?;
        let joined = first.membership().and_then(|joined| joined.compression);
        let compression = match joined {
            Some(compression) => CachedCompression::Known(to_compression(&compression)?),
            None => CachedCompression::Unknown,
        };
        Ok(Self {
            backends: backends.clone(),
            first,
            all,
            driver,
            compression: Mutex::new(compression),
            residuals: Mutex::default(),
            snapshots: Arc::default(),
            operations,
            process: Origin::current(),
        })
    }

    pub(super) fn backends(&self) -> &Backends {
        &self.backends
    }

    pub(super) fn first(&self) -> &Arc<Connection> {
        &self.first
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// Returns the number of servers whose connection is lost.
    pub(super) fn num_lost(&self) -> usize {
        self.all.iter().filter(|connection| connection.is_lost()).count()
    }

    /// Records that all servers have the values.
    pub(super) fn know_runs(&self) {
        self.all.iter().for_each(|connection| connection.know_run());
    }

    /// Returns the servers that were restarted, and may have lost their values.
    pub(super) fn restarted(&self) -> Vec<Arc<str>> {
        let restarted = self.all.iter().filter(|connection| connection.is_restarted());
        restarted.map(|connection| connection.server()).collect()
    }

    /// Calls `on_rewind` when a server continues from a recovery point.
    pub(super) fn on_rewind(&self, on_rewind: &Arc<OnRewind>) -> Result<()> {
        self.all.iter().try_for_each(|connection| connection.on_rewind(Arc::clone(on_rewind)))
    }

    /// Runs a future and waits for its result.
    pub(super) fn wait<T: Send + 'static>(
        &self,
        future: impl Future<Output = T> + Send + 'static,
    ) -> Result<T> {
        self.check_process()?;
        self.driver.wait(future)
    }

    /// Returns whether the connections belong to a parent of this process.
    pub(super) fn is_inherited(&self) -> bool {
        self.process.is_inherited()
    }

    /// Makes a call on the first server.
    pub(super) fn call(&self, call: Call) -> Result<Answer> {
        let connection = Arc::clone(&self.first);
        let backends = self.backends.clone();
        self.wait(async move {
            // In the thread that receives, because each frame would wake this one.
            let made = tokio::spawn(connection.call(backends, call)).await;
            made.unwrap_or_else(|_| Err(runtime::ended()))
        })?
    }

    /// Begins an operation whose calls are made one after the other, if it changes several servers.
    pub(super) fn begin_operation(
        &self,
        servers: impl IntoIterator<Item = usize>,
    ) -> Option<Operation> {
        self.operations.begin(servers)
    }

    /// Makes calls on several servers at the same time. Each call has the index of its server.
    /// Returns their answers in the same order.
    pub(super) fn call_each(
        &self,
        calls: impl IntoIterator<Item = (usize, Call)>,
    ) -> Result<Vec<Result<Answer>>> {
        let mut calls: Vec<(usize, Call)> = calls.into_iter().collect();
        let _operation = if calls.iter().all(|(_, call)| call.changes) {
            let joint = calls.iter_mut().map(|(server, call)| (*server, &mut call.joint));
            self.operations.join(&mut joint.collect::<Vec<_>>())
        } else {
            None
        };
        let calls = calls.into_iter().filter_map(|(server, call)| {
            let connection = Arc::clone(self.all.get(server)?);
            Some(connection.call(self.backends.clone(), call))
        });
        let calls: Vec<_> = calls.collect();
        self.wait(async move {
            let tasks: Vec<_> = calls.into_iter().map(tokio::spawn).collect();
            let mut answers = Vec::new();
            for task in tasks {
                answers.push(task.await.unwrap_or_else(|_| Err(runtime::ended())));
            }
            answers
        })
    }

    /// Makes the same call on every server. Returns the answers in the order of the servers.
    ///
    /// # Errors
    /// - The error of the first server that fails. If other servers have changed something, the
    ///   error says so.
    pub(super) fn call_all(&self, call: &Call) -> Result<Vec<Answer>> {
        if self.len() == 1 {
            return Ok(Vec::from([self.call(call.clone())?]));
        }
        let answers = self.call_each((0..self.len()).map(|server| (server, call.clone())))?;
        complete(call, answers)
    }

    /// Returns the settings of the store, which are the same on all servers.
    pub(super) fn settings(&self) -> Result<proto::Settings> {
        let answer =
            self.call(Call::read(Verb::Settings(proto::Empty {}), "settings".to_owned()))?;
        answer.reply.settings.ok_or_else(|| missing("settings"))
    }

    /// Returns the compression of the store. It may be out of date: see
    /// [`Servers::forget_compression`].
    pub(super) fn compression(&self) -> Result<Option<Compression>> {
        let known = || self.compression.lock().unwrap_or_else(PoisonError::into_inner);
        if let CachedCompression::Known(compression) = *known() {
            return Ok(compression);
        }
        let found = self.settings()?.compression;
        let found = found.as_ref().map_or(Ok(None), to_compression)?;
        *known() = CachedCompression::Known(found);
        Ok(found)
    }

    /// Forgets the compression, because a server has another one or it changes.
    pub(super) fn forget_compression(&self) {
        let mut known = self.compression.lock().unwrap_or_else(PoisonError::into_inner);
        *known = CachedCompression::Unknown;
    }

    /// Returns the residuals of this member.
    pub(super) fn residuals(&self) -> MutexGuard<'_, Residuals> {
        self.residuals.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the residuals, or `None` while a push with compression is running.
    pub(super) fn residuals_if_free(&self) -> Option<MutexGuard<'_, Residuals>> {
        self.residuals.try_lock().ok()
    }

    /// Makes a push with the compression of the store. `push` gets the encoder if there is one, and
    /// returns for each value whether it has been pushed. Otherwise a placement or the compression
    /// is out of date, and the value is pushed again.
    ///
    /// The residuals change only for the parts of keys that servers accept, which `push` tells the
    /// encoder, also if it fails.
    pub(super) fn push(
        &self,
        (keys, values): (&[Key], &[Value]),
        push: impl FnMut(&[Key], &[Value], Option<&mut Encoder>) -> Result<Vec<bool>>,
    ) -> Result<()> {
        let mut num_pushed = 0;
        let pushed = self.push_counting(&mut num_pushed, (keys, values), push);
        pushed.map_err(|error| match error {
            Error::Updater { .. } => error,
            error if num_pushed == 0 => error,
            error => Error::Transport {
                operation: describe_call("push", keys),
                source: format!(
                    "{num_pushed} of {} values have been pushed, but: {}",
                    keys.len(),
                    error.chain()
                )
                .into(),
            },
        })
    }

    /// Pushes as [`Servers::push`] does, and counts the values that have been pushed.
    fn push_counting(
        &self,
        num_pushed: &mut usize,
        (keys, values): (&[Key], &[Value]),
        mut push: impl FnMut(&[Key], &[Value], Option<&mut Encoder>) -> Result<Vec<bool>>,
    ) -> Result<()> {
        let (mut keys, mut values) = (Cow::Borrowed(keys), Cow::Borrowed(values));
        loop {
            let pushed = if let Some(compression) = self.compression()? {
                let mut residuals = self.residuals();
                let mut encoder = residuals.encoder(compression, &keys)?;
                let result = push(&keys, &values, Some(&mut encoder));
                residuals.commit(encoder);
                result?
            } else {
                push(&keys, &values, None)?
            };
            *num_pushed += pushed.iter().filter(|is_pushed| **is_pushed).count();
            if pushed.iter().all(|is_pushed| *is_pushed) {
                return Ok(());
            }
            self.forget_compression();
            let rest = || pushed.iter().zip(keys.iter().zip(values.iter()));
            let rest = rest().filter(|(is_pushed, _)| !**is_pushed).map(|(_, pair)| pair);
            let (rest_keys, rest_values): (Vec<Key>, Vec<Value>) =
                rest.map(|(key, value)| (key.clone(), value.clone())).unzip();
            (keys, values) = (Cow::Owned(rest_keys), Cow::Owned(rest_values));
        }
    }

    /// Returns the number of a new snapshot.
    pub(super) fn new_snapshot(&self) -> u64 {
        let mut needed = self.needed_snapshots();
        needed.change += 1;
        let number = needed.change;
        needed.snapshots.push(number);
        number
    }

    /// Returns the snapshots that this process needs.
    pub(super) fn needed_snapshots(&self) -> MutexGuard<'_, proto::SnapshotList> {
        self.snapshots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(test)]
    pub(super) fn history(&self) -> u64 {
        self.all.iter().map(|connection| connection.calls().history).max().unwrap_or(0)
    }

    /// Tells the servers that this process does not need a snapshot any more. Does not wait.
    pub(super) fn release_snapshot(&self, number: u64) {
        if self.is_inherited() {
            return;
        }
        let list = {
            let mut needed = self.needed_snapshots();
            needed.change += 1;
            needed.snapshots.retain(|needed| *needed != number);
            needed.clone()
        };
        let change = list.change;
        let call = Call::read(Verb::KeepSnapshots(list), "snapshot".to_owned());
        for connection in &self.all {
            let (connection, backends) = (Arc::clone(connection), self.backends.clone());
            let (call, newest) = (call.clone(), Arc::clone(&self.snapshots));
            self.driver.spawn(async move {
                let keep = || Arc::clone(&connection).call(backends.clone(), call.clone());
                // A server without the list keeps the snapshot. A newer list is sent by itself.
                while let Err(Error::Timeout(_)) = keep().await
                    && newest.lock().unwrap_or_else(PoisonError::into_inner).change == change
                {
                    tokio::time::sleep(SEND_AGAIN).await;
                }
            });
        }
    }

    /// # Errors
    /// - [`Error::InvalidArgument`] if this thread runs an updater of one of the servers. The call
    ///   would wait for itself.
    pub(super) fn reject_inside_updater(&self, verb: &str) -> Result<()> {
        self.all.iter().try_for_each(|connection| {
            let run = connection.membership().map(|joined| joined.server_run);
            let local = run.and_then(store_in_this_process);
            local.map_or(Ok(()), |local| local.reject_inside_updater(verb))
        })
    }

    /// Ends the membership at all servers.
    pub(super) fn leave(&self) {
        self.all.iter().for_each(|connection| connection.leave());
    }

    /// Ends the membership at all servers, and waits a moment until they know.
    pub(super) fn left(&self) -> Result<()> {
        self.leave();
        let all = self.all.clone();
        self.wait(async move {
            for connection in all {
                connection.left().await;
            }
        })
    }

    fn check_process(&self) -> Result<()> {
        self.process.check("the store", "connect in the process that uses it")
    }
}

/// Returns the answers of all servers if they have all made the call.
///
/// # Errors
/// - The first error. If another server has made its part of a call that changes something, the
///   error says so, except for errors of updaters: a push that fails in an updater has changed
///   earlier keys in every store.
pub(super) fn complete(call: &Call, answers: Vec<Result<Answer>>) -> Result<Vec<Answer>> {
    let num_servers = answers.len();
    let is_made = |answer: &Answer| !answer.is_out_of_date();
    let num_made = answers.iter().filter(|answer| answer.as_ref().is_ok_and(is_made)).count();
    let result = first_error(answers);
    result.map_err(|error| match error {
        Error::Updater { .. } => error,
        error if call.changes && num_made > 0 => {
            made_in_part(&call.what, (num_made, num_servers), &error)
        }
        error => error,
    })
}

/// Returns the answers, or the first error. Prefers an error which says that the outcome of its
/// part is not known.
pub(super) fn first_error(answers: Vec<Result<Answer>>) -> Result<Vec<Answer>> {
    let is_in_doubt = |answer: &Result<Answer>| answer.as_ref().is_err_and(is_unknown);
    let (in_doubt, others): (Vec<_>, Vec<_>) = answers.into_iter().partition(is_in_doubt);
    in_doubt.into_iter().chain(others).collect()
}

/// The error of a call that some of the servers have made.
pub(super) fn made_in_part(
    what: &str,
    (num_made, num_servers): (usize, usize),
    error: &Error,
) -> Error {
    let error = error.chain();
    Error::Transport {
        operation: what.to_owned(),
        source: format!(
            "{num_made} of {num_servers} servers have made their part of the call, but: {error}"
        )
        .into(),
    }
}

/// The error for a reply without one of its fields.
pub(super) fn missing(what: &str) -> Error {
    Error::Corrupt {
        subject: "the reply of the server".to_owned(),
        reason: format!("it has no {what}"),
    }
}
