//! The [`KvStore`] seam: what the verbs mean. [`WorkerGroup`] has those of many processes.

mod home;
mod local;
mod merge_rows;
mod norms;
mod policy;
mod pull_rows;
mod push;
pub mod scratch;
mod shards;
mod snapshot;
mod table;
mod types;
mod updater;

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;

use crate::codec::Compression;
use crate::fallible;
use crate::optimizer::{Optimizer, OptimizerState};
use crate::rows::{RowSparse, Value};
use crate::tensor::Tensor;
use crate::types::{Key, Result};

pub use local::LocalStore;
pub use snapshot::Snapshot;
pub use types::{Description, KeyStats, OnExisting, PulledValue};
pub use updater::Updater;

pub use norms::{check_clip, check_clipped_dtype};
pub(crate) use policy::{ActiveOptimizer, Policy, RunId};
pub(crate) use snapshot::{SavedPolicy, SavedSettings};
pub(crate) use table::{KeyCopy, Progress};

/// A store of named tensors that many devices share.
///
/// Values go in and come out; where they are put is the caller's business. Lists run in parallel,
/// and a key that stands several times in one has several values there.
///
/// - A call is checked whole before anything changes: a call that fails changes nothing. The one
///   exception is an updater that fails: keys before it are updated, its own and later ones not.
/// - Values are snapshots: nothing a caller does to a tensor afterwards reaches the store, and the
///   reverse.
/// - Keys are processed in the order in which they were initialised. Pushes of a key apply in the
///   order of their calls; different keys are independent. Every verb may be called from any
///   thread.
/// - The values of a key are summed as a left fold in call order; the bits do not depend on
///   threads, on the store's kind or on what else stands in the call.
pub trait KvStore: WorkerGroup + Send + Sync + Debug {
    /// Returns the name that the store was created with, in lower case.
    fn name(&self) -> &str;

    /// Stores a value under each key.
    ///
    /// # Errors
    /// [`LengthMismatch`](crate::Error::LengthMismatch), [`KeyExists`](crate::Error::KeyExists)
    /// also for a key that stands twice, [`InvalidArgument`](crate::Error::InvalidArgument) for a
    /// value without elements.
    fn init(&self, keys: &[Key], values: &[Value]) -> Result<()> {
        self.init_with(keys, values, OnExisting::Reject)
    }

    /// Stores a value under each key; `existing` says what becomes of those that are there already.
    ///
    /// # Errors
    /// As [`KvStore::init`].
    fn init_with(&self, keys: &[Key], values: &[Value], existing: OnExisting) -> Result<()>;

    /// Sums the values of each key and gives the sum to the optimizer or updater; without one it
    /// replaces the stored value.
    ///
    /// Values of rows give what their whole values give, bit for bit, at a cost of the rows. The one
    /// exception is an optimizer with `lazy_update`: weight and state change in nothing but the rows that
    /// any of the values has.
    ///
    /// A higher `priority` may travel earlier where a network is involved; it never changes a
    /// result.
    ///
    /// # Errors
    /// [`LengthMismatch`](crate::Error::LengthMismatch),
    /// [`KeyNotFound`](crate::Error::KeyNotFound),
    /// [`SpecMismatch`](crate::Error::SpecMismatch) when a shape or dtype is not the stored one,
    /// [`InvalidArgument`](crate::Error::InvalidArgument) when integers or rows would have to be
    /// compressed,
    /// [`Updater`](crate::Error::Updater), [`Poisoned`](crate::Error::Poisoned).
    fn push(&self, keys: &[Key], values: &[Value], priority: i32) -> Result<()>;

    /// Appends the newest value for each position of the list to `pulled`; nothing when it fails.
    ///
    /// # Errors
    /// [`KeyNotFound`](crate::Error::KeyNotFound), [`Poisoned`](crate::Error::Poisoned).
    fn pull_into(&self, keys: &[Key], priority: i32, pulled: &mut Vec<PulledValue>) -> Result<()>;

    /// Returns the newest value for each position of the list.
    ///
    /// # Errors
    /// Those of [`KvStore::pull_into`].
    fn pull(&self, keys: &[Key], priority: i32) -> Result<Vec<Tensor>> {
        let mut pulled = fallible::with_capacity(keys.len())?;
        self.pull_into(keys, priority, &mut pulled)?;
        fallible::collect(pulled.into_iter().map(|pulled| pulled.value))
    }

    /// Returns rows of the newest value for each position of the list: those whose numbers stand in
    /// `ids` beside the key, in any order and any number of times. The result has each of them once,
    /// ascending, also those that are 0. It costs what those rows cost.
    ///
    /// # Errors
    /// [`LengthMismatch`](crate::Error::LengthMismatch),
    /// [`KeyNotFound`](crate::Error::KeyNotFound),
    /// [`InvalidArgument`](crate::Error::InvalidArgument) naming a row that the value cannot have,
    /// [`Poisoned`](crate::Error::Poisoned).
    #[doc(alias = "row_sparse_pull")]
    fn pull_rows(&self, keys: &[Key], ids: &[&[i64]], priority: i32) -> Result<Vec<RowSparse>>;

    /// Returns what is known of each key without its value.
    ///
    /// # Errors
    /// [`KeyNotFound`](crate::Error::KeyNotFound).
    fn describe(&self, keys: &[Key]) -> Result<Vec<Description>>;

    /// Forgets the keys with their values and optimizer state.
    ///
    /// # Errors
    /// [`KeyNotFound`](crate::Error::KeyNotFound); nothing is removed then.
    fn remove(&self, keys: &[Key]) -> Result<()>;

    /// Returns every key in the order of initialisation.
    ///
    /// # Errors
    /// - [`OutOfMemory`](crate::Error::OutOfMemory) if memory for the list is missing.
    /// - [`Transport`](crate::Error::Transport) if a network is involved and fails.
    fn keys(&self) -> Result<Vec<Key>>;

    /// Returns the statistics of every key, in the order of initialisation. An updater may call it.
    ///
    /// # Errors
    /// Those of [`KvStore::keys`].
    fn stats(&self) -> Result<Vec<KeyStats>>;

    /// Returns whether the key is initialised.
    ///
    /// # Errors
    /// - [`Transport`](crate::Error::Transport) if a network is involved and fails.
    fn contains(&self, key: &Key) -> Result<bool>;

    /// Sets what a push does from now on; none means that the sum replaces the stored value.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::Error::InvalidArgument) from inside an updater of this store.
    fn set_updater(&self, updater: Option<Arc<dyn Updater>>) -> Result<()>;

    /// Lets an optimizer run on the store from now on; the states of all keys start anew.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::Error::InvalidArgument) from inside an updater of this store.
    fn set_optimizer(&self, optimizer: Optimizer) -> Result<()>;

    /// Returns the optimizer with its current hyper-parameters, or `None` if none is set.
    ///
    /// # Errors
    /// - [`Transport`](crate::Error::Transport) if a network is involved and fails.
    fn optimizer(&self) -> Result<Option<Optimizer>>;

    /// Changes hyper-parameters of the optimizer that runs on the store, all or none; states and
    /// counts stay, and pushes that are under way keep the old ones.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::Error::InvalidArgument) when no optimizer is set, it has none of
    /// such a name, or it cannot have such a value; or from inside an updater of this store.
    fn set_hyper_parameters(&self, parameters: &[(&str, f64)]) -> Result<()>;

    /// Compresses the values of every push from now on; none pushes them whole again. What compressed values
    /// have not sent yet is kept, and is sent by later ones.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::Error::InvalidArgument) from inside an updater of this store, and while
    /// [`KvStore::clip_global_norm`] is set.
    fn set_compression(&self, compression: Option<Compression>) -> Result<()>;

    /// Returns how pushed values are compressed, or `None` if compression is off.
    ///
    /// # Errors
    /// - [`Transport`](crate::Error::Transport) if a network is involved and fails.
    fn compression(&self) -> Result<Option<Compression>>;

    /// Scales the sums of every push from now on, so that the Euclidean norm over all of its keys is at most
    /// `bound`; without a bound they are not scaled. The factor is `bound / (norm + 1e-8)`, as in
    /// `gluon.utils.clip_global_norm`.
    ///
    /// Each push has a norm of its own, so the gradients of a model belong in one push. The sums are
    /// clipped before an optimizer or updater gets them. A norm that is not finite clips nothing.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::Error::InvalidArgument) for a bound that is not a finite number above 0,
    /// with a compression, and from inside an updater of this store. While a bound is set, a push of integers
    /// fails with the same code.
    fn set_clip_global_norm(&self, bound: Option<f64>) -> Result<()>;

    /// Returns the bound of the norm of a push, or `None` if there is none.
    ///
    /// # Errors
    /// - [`Transport`](crate::Error::Transport) if a network is involved and fails.
    fn clip_global_norm(&self) -> Result<Option<f64>>;

    /// Returns all that the store holds at one moment: every key with its optimizer state, the optimizer or
    /// updater, the compression and the bound of the norm. Nothing is copied, and later changes of the store do
    /// not affect it. A call that changes several keys is in it whole or not at all; it waits for those that are under way.
    ///
    /// A key that is changed afterwards needs memory of its own for the new value, as long as the snapshot is
    /// there.
    ///
    /// # Errors
    /// [`Poisoned`](crate::Error::Poisoned) naming a key that a panic has spoilt, until it is removed or the store
    /// goes back to a snapshot; [`InvalidArgument`](crate::Error::InvalidArgument) from inside an updater of this
    /// store.
    fn snapshot(&self) -> Result<Snapshot>;

    /// Makes the store hold what the snapshot does, and nothing else: the next steps give the bits that they
    /// would have given then. The snapshot may be another store's, or one from a file.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::Error::InvalidArgument) from inside an updater of this store, and for a file
    /// of a store with an updater, when this one has none.
    fn rollback(&self, snapshot: &Snapshot) -> Result<()>;

    /// Returns the snapshot that all processes are to go back to, given what this one could read: its own, or if it has
    /// none that of the first which has. Every process calls it.
    ///
    /// # Errors
    /// This process's own, where no process has read anything.
    fn share_snapshot(&self, own: Result<Snapshot>) -> Result<Snapshot> {
        own
    }

    /// Gives keys the states of an optimizer, all or none; states of other keys start anew. `optimizer` becomes
    /// the store's own; none stands for the one that is set.
    ///
    /// # Errors
    /// [`KeyNotFound`](crate::Error::KeyNotFound), [`SpecMismatch`](crate::Error::SpecMismatch) when a
    /// state is not one of such a weight, [`InvalidArgument`](crate::Error::InvalidArgument) when it is one of
    /// another optimizer's, there is no optimizer, or from inside an updater of this store,
    /// [`Poisoned`](crate::Error::Poisoned).
    fn set_optimizer_states(
        &self,
        optimizer: Option<Optimizer>,
        states: BTreeMap<Key, OptimizerState>,
    ) -> Result<()>;
}

/// The processes that share a store: the workers, which are numbered by rank.
///
/// The default methods describe a store of one process. A distributed store overrides them.
///
/// ```
/// use kvstore_core::{Result, WorkerGroup};
///
/// struct OneProcess;
/// impl WorkerGroup for OneProcess {}
///
/// struct Job {
///     rank: usize,
/// }
/// impl WorkerGroup for Job {
///     fn rank(&self) -> Result<usize> {
///         Ok(self.rank)
///     }
/// }
///
/// assert_eq!((OneProcess.rank()?, OneProcess.num_workers()?), (0, 1));
/// assert_eq!(Job { rank: 3 }.rank()?, 3);
/// # Ok::<(), kvstore_core::Error>(())
/// ```
pub trait WorkerGroup {
    /// Returns the rank of this process among the workers, from 0.
    ///
    /// # Errors
    /// - [`Transport`](crate::Error::Transport) if a network is involved and fails.
    fn rank(&self) -> Result<usize> {
        Ok(0)
    }

    /// Returns the number of workers.
    ///
    /// # Errors
    /// - [`Transport`](crate::Error::Transport) if a network is involved and fails.
    fn num_workers(&self) -> Result<usize> {
        Ok(1)
    }

    /// Waits until every worker has called it.
    ///
    /// # Errors
    /// - [`Timeout`](crate::Error::Timeout) if a worker does not call it in time.
    /// - [`Transport`](crate::Error::Transport) if a network is involved and fails.
    /// - The first error of an earlier push that no other call has returned.
    fn barrier(&self) -> Result<()> {
        Ok(())
    }

    /// Sets whether closing the store waits for the other workers.
    ///
    /// # Errors
    /// - [`Transport`](crate::Error::Transport) if a network is involved and fails.
    fn set_barrier_before_exit(&self, wait: bool) -> Result<()> {
        let _ = wait;
        Ok(())
    }

    /// Returns how many processes are known to be dead among those that `node_id` names: 1 is the
    /// scheduler, 2 the servers, 4 the workers, and a sum names several of them.
    ///
    /// # Errors
    /// - [`Unsupported`](crate::Error::Unsupported) if the transport cannot detect dead processes.
    fn num_dead_node(&self, node_id: i32) -> Result<usize> {
        let _ = node_id;
        Ok(0)
    }

    /// Sends a command to the servers. Does nothing if no process is only a server.
    ///
    /// # Errors
    /// - [`Transport`](crate::Error::Transport) if a network is involved and fails.
    fn send_command_to_servers(&self, head: i32, body: &str) -> Result<()> {
        let _ = (head, body);
        Ok(())
    }
}
