//! The [`KvStore`] trait: a store of named tensors. [`WorkerGroup`] has the operations of several
//! processes.

mod home;
mod hooks;
mod key_push;
mod local;
mod merge_rows;
mod norms;
mod observed;
mod policy;
mod pull_rows;
mod push;
pub mod scratch;
mod shards;
mod snapshot;
mod snapshot_file;
mod table;
mod types;
mod updater;

use std::collections::BTreeMap;
use std::collections::hash_map::RandomState;
use std::fmt::{self, Debug};
use std::sync::Arc;

use crate::codec::Compression;
use crate::fallible;
use crate::optimizer::{Optimizer, OptimizerState};
use crate::rows::{RowSparse, Value};
use crate::tensor::Tensor;
use crate::types::{Error, Key, Result};

pub use local::LocalStore;
pub use snapshot::{Snapshot, SnapshotSource};
pub use snapshot_file::SnapshotFile;
pub use types::{Description, KeyStats, OnExisting, PulledValue};
pub use updater::Updater;

pub use hooks::{BlockSums, CompleteSums, OnStart, StartedPush};
pub use key_push::check_compressed;
pub use norms::{check_clip, check_clipped_dtype};
pub(crate) use policy::{ActiveOptimizer, Policy, RunId};
pub(crate) use snapshot::{HeldSnapshot, SavedPolicy, SavedSettings};
pub(crate) use snapshot_file::FileSlot;
pub(crate) use table::{KeyCopy, Progress};

/// The outputs of [`KvStore::pushpull_into`].
pub struct Outputs<'a> {
    /// The pulled keys.
    pub keys: &'a [Key],
    /// Prepares the outputs, for example reserves their memory. It gets a description of each key.
    /// The store calls it again if another process has replaced a key meanwhile.
    pub prepare: &'a mut dyn FnMut(&[Description]) -> Result<()>,
    /// Receives the value of each key.
    pub pulled: &'a mut Vec<PulledValue>,
}

impl Outputs<'_> {
    /// Pushes and pulls in two calls, for stores that cannot do both in one.
    ///
    /// # Errors
    /// - The errors of [`KvStore::pushpull_into`].
    pub fn pull_after_push(
        self,
        store: &(impl KvStore + ?Sized),
        (keys, values): (&[Key], &[Value]),
        priority: i32,
    ) -> Result<()> {
        (self.prepare)(&store.describe(self.keys)?)?;
        fallible::reserve(self.pulled, self.keys.len())?;
        store.push(keys, values, priority)?;
        store.pull_into(self.keys, priority, self.pulled)
    }
}

impl Debug for Outputs<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outputs").field("keys", &self.keys).finish_non_exhaustive()
    }
}

/// A store of named tensors that many devices share.
///
/// The lists of a call are parallel: `values[i]` belongs to `keys[i]`. A key may appear in a list
/// more than once. It then has several values.
///
/// - A call checks all its arguments before it changes anything, and a failed call changes nothing.
///   The one exception is a failing updater: earlier keys are updated, its own key and later keys
///   are not.
/// - Values are snapshots. Changing a tensor after a push does not change the store. Changing the
///   store does not change a pulled tensor.
/// - The store processes keys in the order of initialisation. Pushes to one key apply in the order
///   of the calls. Different keys are independent. Any thread may call any method.
/// - The sum of a key's values is the left fold in call order. Its bits do not depend on threads,
///   on the kind of store, or on the other keys of the call.
///
/// Besides the errors that a method lists, a call can fail with these:
///
/// - [`OutOfMemory`](crate::Error::OutOfMemory) if there is not enough memory.
/// - [`Backend`](crate::Error::Backend) if a device fails.
/// - [`Transport`](crate::Error::Transport) if a network is involved and fails.
pub trait KvStore: WorkerGroup + Send + Sync + Debug {
    /// Returns the name that the store was created with, in lower case.
    fn name(&self) -> &str;

    /// Stores a value under each key.
    ///
    /// # Errors
    /// - [`LengthMismatch`](crate::Error::LengthMismatch) if the lists differ in length.
    /// - [`KeyExists`](crate::Error::KeyExists) if a key is already initialised.
    /// - [`KeyExists`](crate::Error::KeyExists) if a key is in the list twice.
    /// - [`InvalidArgument`](crate::Error::InvalidArgument) if a value has no elements.
    /// - [`InvalidArgument`](crate::Error::InvalidArgument) if an updater of this store makes the
    ///   call.
    fn init(&self, keys: &[Key], values: &[Value]) -> Result<()> {
        self.init_with(keys, values, OnExisting::Reject)
    }

    /// Stores a value under each key. `existing` decides what happens to keys that are already
    /// initialised.
    ///
    /// # Errors
    /// - The errors of [`KvStore::init`]. A key that is already initialised is an error only with
    ///   [`OnExisting::Reject`].
    fn init_with(&self, keys: &[Key], values: &[Value], existing: OnExisting) -> Result<()>;

    /// Sums the values of each key and passes the sum to the optimizer or updater. Without either,
    /// the sum replaces the stored value.
    ///
    /// A row-sparse value has the effect of its dense form, bit for bit, and summing it costs only
    /// its rows. The one exception is an optimizer with `lazy_update`: it changes weight and state
    /// only in the rows that at least one of the values contains.
    ///
    /// If a network is involved, values of a higher `priority` may be sent earlier. `priority`
    /// never changes a result.
    ///
    /// # Errors
    /// - [`LengthMismatch`](crate::Error::LengthMismatch) if the lists differ in length.
    /// - [`KeyNotFound`](crate::Error::KeyNotFound) if a key is not initialised.
    /// - [`SpecMismatch`](crate::Error::SpecMismatch) if a value's shape or dtype differs from the
    ///   stored one.
    /// - [`InvalidArgument`](crate::Error::InvalidArgument) if compression is on and a value is
    ///   row-sparse, has an integer dtype, or has a dtype that cannot represent the threshold.
    /// - [`InvalidArgument`](crate::Error::InvalidArgument) if an optimizer or
    ///   [`KvStore::clip_global_norm`] is set and a value has an integer dtype.
    /// - [`InvalidArgument`](crate::Error::InvalidArgument) if an updater of this store makes the
    ///   call.
    /// - [`Updater`](crate::Error::Updater) if the updater returns an error.
    /// - [`Poisoned`](crate::Error::Poisoned) if an earlier update of a key panicked.
    fn push(&self, keys: &[Key], values: &[Value], priority: i32) -> Result<()>;

    /// Appends the newest value of each key to `pulled`, in the order of `keys`. Appends nothing if
    /// the call fails.
    ///
    /// # Errors
    /// - [`KeyNotFound`](crate::Error::KeyNotFound) if a key is not initialised.
    /// - [`Poisoned`](crate::Error::Poisoned) if an earlier update of a key panicked.
    fn pull_into(&self, keys: &[Key], priority: i32, pulled: &mut Vec<PulledValue>) -> Result<()>;

    /// Returns the newest value of each key, in the order of `keys`.
    ///
    /// # Errors
    /// - The errors of [`KvStore::pull_into`].
    fn pull(&self, keys: &[Key], priority: i32) -> Result<Vec<Tensor>> {
        let mut pulled = fallible::with_capacity(keys.len())?;
        self.pull_into(keys, priority, &mut pulled)?;
        fallible::collect(pulled.into_iter().map(|pulled| pulled.value))
    }

    /// Pushes values, then pulls the outputs. Before the push, the store calls
    /// [`Outputs::prepare`]. If that fails, nothing changes.
    ///
    /// # Errors
    /// - The errors of [`KvStore::describe`] for the outputs, of [`Outputs::prepare`], and of
    ///   [`KvStore::push`]. Then [`Outputs::pulled`] is as it was.
    /// - The errors of [`KvStore::pull_into`], after the push.
    fn pushpull_into(
        &self,
        pushed: (&[Key], &[Value]),
        outputs: Outputs<'_>,
        priority: i32,
    ) -> Result<()> {
        outputs.pull_after_push(self, pushed, priority)
    }

    /// Returns the rows `ids[i]` of the newest value of `keys[i]`, for each `i`.
    ///
    /// `ids[i]` may have any order and may contain duplicates. The result contains each requested
    /// row once, in ascending order, including rows of zeros. The cost depends on the number of
    /// requested rows, not on the size of the value.
    ///
    /// # Errors
    /// - [`LengthMismatch`](crate::Error::LengthMismatch) if the lists differ in length.
    /// - [`KeyNotFound`](crate::Error::KeyNotFound) if a key is not initialised.
    /// - [`InvalidArgument`](crate::Error::InvalidArgument) if a row index is negative or too
    ///   large. The message names the index.
    /// - [`Poisoned`](crate::Error::Poisoned) if an earlier update of a key panicked.
    #[doc(alias = "row_sparse_pull")]
    fn pull_rows(&self, keys: &[Key], ids: &[&[i64]], priority: i32) -> Result<Vec<RowSparse>>;

    /// Returns the shape, the dtype and the position in the order of initialisation of each key.
    ///
    /// # Errors
    /// - [`KeyNotFound`](crate::Error::KeyNotFound) if a key is not initialised.
    fn describe(&self, keys: &[Key]) -> Result<Vec<Description>>;

    /// Removes the keys with their values and optimizer states.
    ///
    /// # Errors
    /// - [`KeyNotFound`](crate::Error::KeyNotFound) if a key is not initialised. Then no key is
    ///   removed.
    /// - [`InvalidArgument`](crate::Error::InvalidArgument) if an updater of this store makes the
    ///   call.
    fn remove(&self, keys: &[Key]) -> Result<()>;

    /// Returns every key in the order of initialisation.
    ///
    /// # Errors
    /// - [`OutOfMemory`](crate::Error::OutOfMemory) if there is not enough memory for the list.
    /// - [`Transport`](crate::Error::Transport) if a network is involved and fails.
    fn keys(&self) -> Result<Vec<Key>>;

    /// Returns the statistics of every key, in the order of initialisation. An updater may call
    /// this.
    ///
    /// # Errors
    /// - The errors of [`KvStore::keys`].
    fn stats(&self) -> Result<Vec<KeyStats>>;

    /// Returns how many pushes have changed each key since it was initialised, in the order of
    /// `keys`.
    ///
    /// # Errors
    /// - [`KeyNotFound`](crate::Error::KeyNotFound) if a key is not initialised.
    fn versions(&self, keys: &[Key]) -> Result<Vec<u64>> {
        let stats = self.stats()?;
        let mut versions = fallible::hash_map::<_, _, RandomState>(stats.len())?;
        versions.extend(stats.iter().map(|stats| (&stats.key, stats.num_pushes)));
        let version = |key| versions.get(key).copied();
        fallible::try_collect(
            keys.iter()
                .map(|key| version(key).ok_or_else(|| Error::KeyNotFound { key: key.clone() })),
        )
    }

    /// Returns whether the key is initialised.
    ///
    /// # Errors
    /// - [`Transport`](crate::Error::Transport) if a network is involved and fails.
    fn contains(&self, key: &Key) -> Result<bool>;

    /// Sets the updater of all later pushes. With `None`, the sum of a push replaces the stored
    /// value.
    ///
    /// # Errors
    /// - [`InvalidArgument`](crate::Error::InvalidArgument) if an updater of this store makes the
    ///   call.
    fn set_updater(&self, updater: Option<Arc<dyn Updater>>) -> Result<()>;

    /// Sets the optimizer of all later pushes. The optimizer states of all keys start anew.
    ///
    /// # Errors
    /// - [`InvalidArgument`](crate::Error::InvalidArgument) if an updater of this store makes the
    ///   call.
    fn set_optimizer(&self, optimizer: Optimizer) -> Result<()>;

    /// Returns the optimizer with its current hyper-parameters, or `None` if none is set.
    ///
    /// # Errors
    /// - [`Transport`](crate::Error::Transport) if a network is involved and fails.
    fn optimizer(&self) -> Result<Option<Optimizer>>;

    /// Changes hyper-parameters of the store's optimizer, all or none. States and update counts
    /// stay. Pushes in progress use the old hyper-parameters.
    ///
    /// # Errors
    /// - [`InvalidArgument`](crate::Error::InvalidArgument) if the store has no optimizer.
    /// - [`InvalidArgument`](crate::Error::InvalidArgument) if the optimizer has no hyper-parameter
    ///   of that name.
    /// - [`InvalidArgument`](crate::Error::InvalidArgument) if the value is not valid for the
    ///   hyper-parameter.
    /// - [`InvalidArgument`](crate::Error::InvalidArgument) if an updater of this store makes the
    ///   call.
    fn set_hyper_parameters(&self, parameters: &[(&str, f64)]) -> Result<()>;

    /// Compresses the values of all later pushes. `None` turns compression off.
    ///
    /// The residuals (what compression has not sent yet) are kept, and later compressed pushes send
    /// them.
    ///
    /// # Errors
    /// - [`InvalidArgument`](crate::Error::InvalidArgument) if [`KvStore::clip_global_norm`] is
    ///   set.
    /// - [`InvalidArgument`](crate::Error::InvalidArgument) if an updater of this store makes the
    ///   call.
    fn set_compression(&self, compression: Option<Compression>) -> Result<()>;

    /// Returns how pushed values are compressed, or `None` if compression is off.
    ///
    /// # Errors
    /// - [`Transport`](crate::Error::Transport) if a network is involved and fails.
    fn compression(&self) -> Result<Option<Compression>>;

    /// Clips the sums of all later pushes: scales them so that the Euclidean norm over all keys of
    /// a push is at most `bound`. `None` turns clipping off.
    ///
    /// The factor is `bound / (norm + 1e-8)`, as in `gluon.utils.clip_global_norm`. Each push has
    /// its own norm, so push all gradients of a model in one call. The store clips before the
    /// optimizer or updater runs. A norm that is NaN or infinite does not clip.
    ///
    /// # Errors
    /// - [`InvalidArgument`](crate::Error::InvalidArgument) if the bound is not a finite number
    ///   above 0.
    /// - [`InvalidArgument`](crate::Error::InvalidArgument) if compression is on.
    /// - [`InvalidArgument`](crate::Error::InvalidArgument) if an updater of this store makes the
    ///   call.
    fn set_clip_global_norm(&self, bound: Option<f64>) -> Result<()>;

    /// Returns the bound of the global norm, or `None` if clipping is off.
    ///
    /// # Errors
    /// - [`Transport`](crate::Error::Transport) if a network is involved and fails.
    fn clip_global_norm(&self) -> Result<Option<f64>>;

    /// Returns the complete contents of the store at one moment: every key with its optimizer
    /// state, the optimizer or updater, the compression and the bound of the global norm.
    ///
    /// The call waits for changes in progress, so the snapshot contains each of them completely or
    /// not at all, unless the store has several servers. It copies no values, and later changes of
    /// the store do not affect it. While the snapshot exists, each key that changes needs memory
    /// for its new value.
    ///
    /// A store on servers keeps the values there, until the last clone of the snapshot is dropped:
    /// see [`SnapshotSource`].
    ///
    /// # Errors
    /// - [`Poisoned`](crate::Error::Poisoned) if an earlier update of a key panicked. Removing the
    ///   key or rolling the store back clears the error.
    /// - [`InvalidArgument`](crate::Error::InvalidArgument) if an updater of this store makes the
    ///   call.
    fn snapshot(&self) -> Result<Snapshot>;

    /// Replaces the contents of the store with the snapshot. The next steps give the same bits that
    /// they would have given when the snapshot was taken.
    ///
    /// The snapshot may come from another store or from a file.
    ///
    /// # Errors
    /// - [`InvalidArgument`](crate::Error::InvalidArgument) if the snapshot comes from a file, was
    ///   taken from a store with an updater, and this store has no updater.
    /// - [`InvalidArgument`](crate::Error::InvalidArgument) if an updater of this store makes the
    ///   call.
    fn rollback(&self, snapshot: &Snapshot) -> Result<()>;

    /// Returns the snapshot that all processes roll back to. Every process must call this.
    ///
    /// `own` is the snapshot that this process has read. If it is an error, the result is the
    /// snapshot of the first process that has one.
    ///
    /// # Errors
    /// - The error in `own`, if no process has a snapshot.
    fn share_snapshot(&self, own: Result<Snapshot>) -> Result<Snapshot> {
        own
    }

    /// Sets the optimizer states of some keys, all or none. The states of the other keys start
    /// anew.
    ///
    /// `optimizer` becomes the store's optimizer. `None` keeps the current one.
    ///
    /// # Errors
    /// - [`KeyNotFound`](crate::Error::KeyNotFound) if a key is not initialised.
    /// - [`SpecMismatch`](crate::Error::SpecMismatch) if a state does not fit the shape or dtype of
    ///   its weight.
    /// - [`InvalidArgument`](crate::Error::InvalidArgument) if a state belongs to another
    ///   optimizer.
    /// - [`InvalidArgument`](crate::Error::InvalidArgument) if `optimizer` is `None` and the store
    ///   has no optimizer.
    /// - [`InvalidArgument`](crate::Error::InvalidArgument) if an updater of this store makes the
    ///   call.
    /// - [`Poisoned`](crate::Error::Poisoned) if an earlier update of a key panicked.
    fn set_optimizer_states(
        &self,
        optimizer: Option<Optimizer>,
        states: BTreeMap<Key, OptimizerState>,
    ) -> Result<()>;
}

/// The worker processes that share a store. Each has a rank.
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
    /// Returns the rank of this process among the workers, counted from 0.
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

    /// Waits until every worker has called `barrier`.
    ///
    /// # Errors
    /// - [`Timeout`](crate::Error::Timeout) if a worker does not call `barrier` in time.
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

    /// Returns the number of dead processes in the groups that `node_id` selects: 1 selects the
    /// scheduler, 2 the servers, 4 the workers. A sum of these numbers selects several groups.
    ///
    /// # Errors
    /// - [`Unsupported`](crate::Error::Unsupported) if the transport cannot detect dead processes.
    fn num_dead_node(&self, node_id: i32) -> Result<usize> {
        let _ = node_id;
        Ok(0)
    }

    /// Sends a command to the servers. Does nothing if the job has no server processes.
    ///
    /// # Errors
    /// - [`Transport`](crate::Error::Transport) if a network is involved and fails.
    fn send_command_to_servers(&self, head: i32, body: &str) -> Result<()> {
        let _ = (head, body);
        Ok(())
    }

    /// Returns the live members of a group that processes join and leave: workers first, each role
    /// in the order of ranks.
    ///
    /// # Errors
    /// - [`Unsupported`](crate::Error::Unsupported) if the processes of the store are fixed.
    fn members(&self) -> Result<Vec<GroupMember>> {
        Err(fixed("members"))
    }

    /// Calls a function with the live members each time they change, in a thread of its own.
    /// Replaces an earlier function.
    ///
    /// # Errors
    /// - [`Unsupported`](crate::Error::Unsupported) if the processes of the store are fixed.
    fn on_member(&self, on_change: Box<OnMembers>) -> Result<()> {
        let _ = on_change;
        Err(fixed("on_member"))
    }

    /// Calls a function each time a server that was killed continues from a recovery point, in a
    /// thread of its own. Pushes after the point are lost. Calls without a reply are repeated, and
    /// none takes effect twice. Replaces an earlier function.
    ///
    /// # Errors
    /// - [`Unsupported`](crate::Error::Unsupported) if the store has no servers that continue.
    fn on_rewind(&self, on_rewind: Box<OnRewind>) -> Result<()> {
        let _ = on_rewind;
        Err(fixed("on_rewind"))
    }

    /// Sets the weight of this worker in the weighted means of the next rounds.
    ///
    /// # Errors
    /// - [`Unsupported`](crate::Error::Unsupported) if the store has no rounds with weights.
    /// - [`InvalidArgument`](crate::Error::InvalidArgument) if the weight is not a finite number
    ///   above 0.
    fn set_weight(&self, weight: f64) -> Result<()> {
        let text = format!("set_weight {weight}: the store has no rounds with weights");
        Err(Error::Unsupported(text))
    }

    /// Leaves the group. Later calls of this store fail with [`Closed`](crate::Error::Closed).
    /// Dropping the store also leaves.
    ///
    /// # Errors
    /// - [`Unsupported`](crate::Error::Unsupported) if the processes of the store are fixed.
    fn leave(&self) -> Result<()> {
        Err(fixed("leave"))
    }

    /// Writes a checkpoint on the servers of the store: each writes its part to the folder `name`
    /// in its folder of checkpoints, and the first server writes the list of the parts. No values
    /// travel over the network, and pushes continue meanwhile. The parts of a later checkpoint with
    /// this name replace the earlier ones.
    ///
    /// [`Snapshot::read`] and `restore` take the folder if it has all parts, as on a shared file
    /// system. They restore to any number of servers and to a local store.
    ///
    /// # Errors
    /// - [`Unsupported`](crate::Error::Unsupported) if the store has no servers, or a server has no
    ///   folder for checkpoints.
    /// - [`InvalidArgument`](crate::Error::InvalidArgument) if `name` is not the name of a folder.
    /// - [`Transport`](crate::Error::Transport) if a server cannot write its part. The earlier
    ///   checkpoint stays.
    fn checkpoint_on_servers(&self, name: &str) -> Result<()> {
        let text = format!("checkpoint `{name}`: the store has no servers, so use `checkpoint`");
        Err(Error::Unsupported(text))
    }
}

/// A live member of a group that processes join and leave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupMember {
    /// The name of the member.
    pub name: String,
    /// Its rank among the members of its role, from 0. A name keeps its rank until it leaves.
    pub rank: u64,
    /// Whether it never pushes.
    pub is_reader: bool,
}

/// A function that is called with the live members of a group.
pub type OnMembers = dyn Fn(&[GroupMember]) + Send;

/// A server that continues from a recovery point: see [`WorkerGroup::on_rewind`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rewound {
    /// The address of the server.
    pub server: String,
    /// The highest version of a key in the recovery point. In a store with rounds, the number of
    /// the last round that is not lost.
    pub version: u64,
}

/// A function that is called when a server continues from a recovery point.
pub type OnRewind = dyn Fn(&Rewound) + Send + Sync;

fn fixed(verb: &str) -> Error {
    Error::Unsupported(format!("{verb}: no process joins or leaves this store"))
}
