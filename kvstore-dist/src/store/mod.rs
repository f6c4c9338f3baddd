//! [`DistStore`]: a store that several processes share.

mod call;
mod clip;
mod config;
mod difference;
mod group;
mod local_stores;
mod norms;
mod operations;
mod partition;
mod push;
mod row_messages;
mod snapshots;
mod ticket;
mod wire;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kvstore_core::fallible;
use kvstore_core::key::check_lengths;
use kvstore_core::{
    Backends, Compression, Description, Error, Key, KeyStats, KvStore, LocalStore, OnExisting,
    Optimizer, OptimizerState, PulledValue, Result, RowSparse, Snapshot, Tensor, Updater, Value,
    WorkerGroup, check_clip, check_clipped_dtype, check_compressed,
};

use self::call::{Operation, SharedSnapshot, SnapshotSlot};
use self::config::Policy;
pub use self::group::Group;
use self::local_stores::Stores;
use self::ticket::Ticket;

/// A store that several processes share.
///
/// All processes must make the same calls in the same order, over all of their stores of this type.
/// Pulls and calls that only read are exempt.
///
/// A push first sums the values in each process, and then the sums of the processes in the order of
/// ranks. The result has the bits of a [`LocalStore`] that receives the sum of each process as one
/// value, in this order. `push` returns when the caller may reuse its arguments, and continues in
/// the background. A pull waits for the earlier pushes to its keys.
#[derive(Debug)]
pub struct DistStore {
    name: String,
    stores: Arc<Stores>,
    group: Arc<Group>,
    /// The last push to each key. Locked while a call is queued, so that calls are queued in the
    /// order in which they compute their local sums.
    pending: Mutex<Pending>,
    waits_at_exit: Mutex<bool>,
}

/// The pushes that pulls and barriers wait for.
#[derive(Debug, Default)]
struct Pending {
    last: HashMap<Key, Arc<Ticket>>,
    /// The pushes since the last barrier.
    all: Vec<Arc<Ticket>>,
    /// The length of `all` at which finished pushes are removed from it.
    most: usize,
}

impl Pending {
    /// Reserves memory for recording a push to this number of keys.
    fn reserve(&mut self, num_keys: usize) -> Result<()> {
        fallible::reserve_entries(&mut self.last, num_keys)?;
        fallible::reserve(&mut self.all, 1)
    }

    /// Records a push to these keys.
    fn note(&mut self, keys: Vec<Key>, ticket: &Arc<Ticket>) {
        for key in keys {
            self.last.insert(key, Arc::clone(ticket));
        }
        if self.all.len() >= self.most {
            // Keep the first failed push: the next barrier returns its error.
            let mut has_failed = false;
            self.all.retain(|ticket| match ticket.has_failed() {
                None => true,
                Some(failed) => failed && !std::mem::replace(&mut has_failed, true),
            });
            self.most = 2 * self.all.len().max(8);
        }
        self.all.push(Arc::clone(ticket));
    }

    /// Removes a push whose result the caller has received.
    fn remove_reported(&mut self, keys: &[Key], ticket: &Arc<Ticket>) {
        // It is usually the last one, so search from the end.
        if let Some(index) = self.all.iter().rposition(|other| Arc::ptr_eq(other, ticket)) {
            self.all.remove(index);
        }
        for key in keys {
            if self.last.get(key).is_some_and(|last| Arc::ptr_eq(last, ticket)) {
                self.last.remove(key);
            }
        }
    }

    /// Removes the finished pushes to these keys, because the keys have been initialised again or
    /// removed.
    fn forget(&mut self, keys: &[Key]) {
        for key in keys {
            if self.last.get(key).is_some_and(|ticket| ticket.has_failed().is_some()) {
                self.last.remove(key);
            }
        }
    }

    /// Removes the finished pushes to every key.
    fn forget_all(&mut self) {
        self.last.retain(|_, ticket| ticket.has_failed().is_none());
    }
}

impl DistStore {
    /// The names that [`DistStore::new`] accepts.
    pub const NAMES: [&'static str; 4] =
        ["dist", "dist_sync", "dist_device_sync", "dist_sync_device"];

    /// Creates an empty store. Returns `None` if the name is not one of [`DistStore::NAMES`], which
    /// are in lower case.
    ///
    /// If the name contains `device`, a process sums its values of a key on the device of the first
    /// value. Otherwise it sums them on the host.
    pub fn new(name: &str, backends: &Backends, group: &Arc<Group>) -> Option<Self> {
        if !Self::NAMES.contains(&name) {
            return None;
        }
        let sums = if name.contains("device") { "device" } else { "local" };
        let sums = LocalStore::new(sums, backends.clone())?;
        let collective = Arc::clone(group.collective());
        let stores = Stores::new(
            group.new_store(),
            Arc::clone(group.num_rounds()),
            backends,
            collective,
            sums,
        )?;
        Some(Self {
            name: name.to_owned(),
            stores: Arc::new(stores),
            group: Arc::clone(group),
            pending: Mutex::default(),
            waits_at_exit: Mutex::new(true),
        })
    }

    fn pending(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn reject_inside_updater(&self, verb: &str) -> Result<()> {
        if self.group.is_this_thread() {
            let text = format!("`{verb}` cannot be called from an updater of the same store");
            return Err(Error::InvalidArgument(text));
        }
        Ok(())
    }

    /// Rejects values that would fail during a call, possibly on some ranks only.
    fn check_values(&self, keys: &[Key], values: &[Value]) -> Result<()> {
        check_lengths("values for keys", keys, values)?;
        let known = self.stores.sums.describe(keys)?;
        let config = self.stores.config();
        for ((key, value), known) in keys.iter().zip(values).zip(&known) {
            if *value.spec() != known.spec {
                // The local sum reports the mismatch.
                continue;
            }
            let dtype = value.spec().dtype();
            if let Policy::Optimizer(_) = &config.policy {
                Optimizer::check_dtype(key, dtype)?;
            }
            if config.clip_global_norm.is_some() {
                check_clipped_dtype(key, dtype)?;
            }
            if let Some(compression) = &config.compression {
                check_compressed(key, value, compression)?;
            }
        }
        Ok(())
    }

    /// Makes a collective call and waits until it ends.
    fn call_collectively(&self, verb: &str, operation: Operation) -> Result<()> {
        self.reject_inside_updater(verb)?;
        let ticket = {
            let _pending = self.pending();
            self.group.call(&self.stores, operation, i32::MAX)?
        };
        ticket.wait()
    }

    /// Runs an action of this rank alone after all earlier calls, and waits until it ends.
    fn run_locally(
        &self,
        verb: &str,
        action: impl FnOnce(&Stores) -> Result<()> + Send + 'static,
    ) -> Result<()> {
        self.reject_inside_updater(verb)?;
        let ticket = {
            let _pending = self.pending();
            self.group.run_locally(&self.stores, action)?
        };
        ticket.wait()
    }

    /// Waits for the earlier pushes to these keys. Does not wait in an updater, which would wait
    /// for itself.
    fn settle(&self, keys: &[Key]) -> Result<()> {
        if self.group.is_this_thread() {
            return Ok(());
        }
        let tickets = {
            let pending = self.pending();
            fallible::gather(keys.iter().filter_map(|key| pending.last.get(key).cloned()))?
        };
        tickets.iter().try_for_each(|ticket| ticket.wait())
    }
}

impl KvStore for DistStore {
    fn name(&self) -> &str {
        &self.name
    }

    fn init_with(&self, keys: &[Key], values: &[Value], existing: OnExisting) -> Result<()> {
        check_lengths("values for keys", keys, values)?;
        let mut seen = fallible::hash_set(keys.len())?;
        if let Some(key) = keys.iter().find(|key| !seen.insert(*key)) {
            return Err(Error::KeyExists { key: key.clone() });
        }
        for (key, value) in keys.iter().zip(values) {
            if value.spec().num_elements() == 0 {
                let text = format!("key `{key}`: {} has no elements", value.spec());
                return Err(Error::InvalidArgument(text));
            }
        }
        let (new, values) = (fallible::copied(keys)?, fallible::copied(values)?);
        self.call_collectively("init", Operation::Init { keys: new, values, existing })?;
        self.pending().forget(keys);
        Ok(())
    }

    fn push(&self, keys: &[Key], values: &[Value], priority: i32) -> Result<()> {
        self.reject_inside_updater("push")?;
        let stores = &self.stores;
        let mut pending = self.pending();
        self.check_values(keys, values)?;
        // This local sum checks all arguments. Until now, no other store has changed.
        stores.sums.push(keys, values, 0)?;
        let described = stores.sums.describe(keys)?;
        let mut unique =
            fallible::collect(described.iter().map(|description| description.order).zip(keys))?;
        unique.sort_unstable();
        unique.dedup();
        let pushed = keys;
        let keys = fallible::collect(unique.into_iter().map(|(_, key)| key.clone()))?;
        if keys.is_empty() {
            return Ok(());
        }
        let sums = stores.sums.stored(&keys)?;
        let operation = Operation::Push { keys: fallible::copied(&keys)?, sums };
        pending.reserve(keys.len())?;
        // If the group has ended, the caller receives the error here, and pulls return the last
        // values.
        let ticket = self.group.call(&self.stores, operation, priority);
        let ticket = ticket.inspect_err(|_| pending.forget(&keys))?;
        pending.note(keys, &ticket);
        drop(pending);
        // The caller of `push` receives the errors of an updater. Pulls and barriers return all
        // other errors, even if the push has already failed: otherwise different calls would report
        // the error on different ranks.
        if matches!(stores.config().policy, Policy::Updater) {
            let result = ticket.wait();
            self.pending().remove_reported(pushed, &ticket);
            return result;
        }
        Ok(())
    }

    fn pull_into(&self, keys: &[Key], priority: i32, pulled: &mut Vec<PulledValue>) -> Result<()> {
        self.settle(keys)?;
        self.stores.complete.pull_into(keys, priority, pulled)
    }

    fn pull_rows(&self, keys: &[Key], ids: &[&[i64]], priority: i32) -> Result<Vec<RowSparse>> {
        self.settle(keys)?;
        self.stores.complete.pull_rows(keys, ids, priority)
    }

    fn describe(&self, keys: &[Key]) -> Result<Vec<Description>> {
        self.stores.complete.describe(keys)
    }

    fn remove(&self, keys: &[Key]) -> Result<()> {
        self.call_collectively("remove", Operation::Remove { keys: fallible::copied(keys)? })?;
        self.pending().forget(keys);
        Ok(())
    }

    fn keys(&self) -> Result<Vec<Key>> {
        self.stores.complete.keys()
    }

    fn stats(&self) -> Result<Vec<KeyStats>> {
        let stores = &self.stores;
        let parts = stores.part().stats()?;
        let mut part_bytes: HashMap<Key, usize> = fallible::hash_map(parts.len())?;
        part_bytes.extend(parts.into_iter().map(|stats| (stats.key, stats.state_bytes)));
        let mut all = stores.complete.stats()?;
        for stats in &mut all {
            let residual_bytes = stores.residuals().get(&stats.key).map_or(0, Tensor::num_bytes);
            let part_bytes = part_bytes.get(&stats.key).copied().unwrap_or_default();
            stats.state_bytes += residual_bytes + part_bytes;
        }
        Ok(all)
    }

    fn contains(&self, key: &Key) -> Result<bool> {
        self.stores.complete.contains(key)
    }

    fn set_updater(&self, updater: Option<Arc<dyn Updater>>) -> Result<()> {
        self.run_locally("set_updater", move |stores| stores.set_updater(updater))
    }

    fn set_optimizer(&self, optimizer: Optimizer) -> Result<()> {
        self.run_locally("set_optimizer", move |stores| stores.set_optimizer(optimizer))
    }

    fn optimizer(&self) -> Result<Option<Optimizer>> {
        Ok(match &self.stores.config().policy {
            Policy::Optimizer(optimizer) => Some(Optimizer::clone(optimizer)),
            Policy::Assign | Policy::Updater => None,
        })
    }

    fn set_hyper_parameters(&self, parameters: &[(&str, f64)]) -> Result<()> {
        let owned: Vec<(String, f64)> =
            parameters.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
        self.run_locally("set_hyper_parameters", move |stores| {
            let parameters: Vec<(&str, f64)> =
                owned.iter().map(|(name, value)| (name.as_str(), *value)).collect();
            stores.set_hyper_parameters(&parameters)
        })
    }

    fn set_compression(&self, compression: Option<Compression>) -> Result<()> {
        self.run_locally("set_compression", move |stores| {
            check_clip(compression.as_ref(), stores.config().clip_global_norm)?;
            stores.set_compression(compression);
            Ok(())
        })
    }

    fn set_clip_global_norm(&self, bound: Option<f64>) -> Result<()> {
        self.run_locally("set_clip_global_norm", move |stores| {
            check_clip(stores.config().compression.as_ref(), bound)?;
            stores.set_clip_global_norm(bound);
            Ok(())
        })
    }

    fn clip_global_norm(&self) -> Result<Option<f64>> {
        Ok(self.stores.config().clip_global_norm)
    }

    fn compression(&self) -> Result<Option<Compression>> {
        Ok(self.stores.config().compression)
    }

    fn snapshot(&self) -> Result<Snapshot> {
        let taken = Arc::<SnapshotSlot>::default();
        self.call_collectively(
            "snapshot",
            Operation::Snapshot(self.name.clone(), Arc::clone(&taken)),
        )?;
        let snapshot = taken.lock().unwrap_or_else(PoisonError::into_inner).take();
        snapshot.ok_or_else(|| Error::Internal("no snapshot was taken".to_owned()))
    }

    fn share_snapshot(&self, own: Result<Snapshot>) -> Result<Snapshot> {
        let (own, error) = match own {
            Ok(own) => (Some(own), None),
            Err(error) => (None, Some(error)),
        };
        let why_not = error.as_ref().map(Error::chain);
        let shared =
            SharedSnapshot { taken: SnapshotSlot::new(own), why_not, reasons: Mutex::default() };
        let shared = Arc::new(shared);
        // A failure of the call must not hide why this rank has no snapshot.
        if let Err(failure) =
            self.call_collectively("restore", Operation::Share(Arc::clone(&shared)))
        {
            return Err(match &shared.why_not {
                Some(reason) => noted(failure, &format!("this rank has no snapshot: {reason}")),
                None => failure,
            });
        }
        let taken = shared.taken.lock().unwrap_or_else(PoisonError::into_inner).take();
        let others = shared.reasons.lock().unwrap_or_else(PoisonError::into_inner);
        taken.ok_or_else(|| {
            let lost = || Error::Internal("the snapshot is missing".to_owned());
            with_reasons(error.unwrap_or_else(lost), self.stores.collective.rank(), &others)
        })
    }

    fn rollback(&self, snapshot: &Snapshot) -> Result<()> {
        // Before the ranks meet, because the values may be elsewhere.
        let snapshot = snapshot.load()?;
        self.call_collectively("rollback", Operation::Rollback(Box::new(snapshot)))?;
        self.pending().forget_all();
        Ok(())
    }

    fn set_optimizer_states(
        &self,
        optimizer: Option<Optimizer>,
        states: BTreeMap<Key, OptimizerState>,
    ) -> Result<()> {
        self.run_locally("set_optimizer_states", |stores| {
            stores.set_optimizer_states(optimizer, states)
        })
    }
}

impl WorkerGroup for DistStore {
    fn rank(&self) -> Result<usize> {
        Ok(self.stores.collective.rank())
    }

    fn num_workers(&self) -> Result<usize> {
        Ok(self.stores.collective.size())
    }

    fn barrier(&self) -> Result<()> {
        self.call_collectively("barrier", Operation::Barrier)?;
        let all = std::mem::take(&mut self.pending().all);
        all.iter().try_for_each(|ticket| ticket.wait())
    }

    fn set_barrier_before_exit(&self, wait: bool) -> Result<()> {
        *self.waits_at_exit.lock().unwrap_or_else(PoisonError::into_inner) = wait;
        Ok(())
    }

    fn num_dead_node(&self, _node_id: i32) -> Result<usize> {
        let text = "MPI does not report dead processes; a call that waits for one fails";
        Err(Error::Unsupported(text.to_owned()))
    }
}

/// Returns the error of this rank, with the reasons of the other ranks.
fn with_reasons(error: Error, own: usize, reasons: &[String]) -> Error {
    let others = reasons.iter().enumerate().filter(|(rank, _)| *rank != own);
    let others: Vec<String> =
        others.map(|(rank, reason)| format!("rank {rank}: {reason}")).collect();
    if others.is_empty() { error } else { noted(error, &others.join("; ")) }
}

/// Appends a note to the message of an error. Its kind stays.
fn noted(error: Error, note: &str) -> Error {
    match error {
        Error::InvalidArgument(text) => Error::InvalidArgument(format!("{text}; {note}")),
        Error::Unsupported(text) => Error::Unsupported(format!("{text}; {note}")),
        Error::Timeout(text) => Error::Timeout(format!("{text}; {note}")),
        Error::Internal(text) => Error::Internal(format!("{text}; {note}")),
        Error::Corrupt { subject, reason } => {
            Error::Corrupt { subject, reason: format!("{reason}; {note}") }
        }
        Error::Io { path, operation, source } => {
            let source = std::io::Error::new(source.kind(), format!("{source}; {note}"));
            Error::Io { path, operation, source }
        }
        Error::Transport { operation, source } => {
            Error::Transport { operation, source: format!("{source}; {note}").into() }
        }
        Error::Updater { key, source } => {
            Error::Updater { key, source: format!("{source}; {note}").into() }
        }
        Error::Backend { device, operation, source } => {
            Error::Backend { device, operation, source: format!("{source}; {note}").into() }
        }
        // The other kinds have no field for the note.
        other => {
            tracing::error!(error = other.chain(), note, "a call failed on several ranks");
            other
        }
    }
}

impl Drop for DistStore {
    fn drop(&mut self) {
        let waits = *self.waits_at_exit.lock().unwrap_or_else(PoisonError::into_inner);
        if waits
            && !std::thread::panicking()
            && let Err(error) = self.barrier()
        {
            tracing::warn!(%error, "the barrier before closing a store failed");
        }
    }
}
