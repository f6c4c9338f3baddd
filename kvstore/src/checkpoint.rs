//! Operations on the complete contents of a [`Store`]: snapshots, checkpoints, files of optimizer
//! states.

use std::path::Path;

use kvstore_core::{Checkpoint, Checkpoints, OptimizerStates, Result, Snapshot};

use crate::runtime::backends;
use crate::store::Store;

impl Store {
    /// Returns the complete contents of the store at one moment, without a copy: values, the
    /// optimizer with its states and counts, the compression with its residuals. The snapshot
    /// contains a concurrent push of several keys completely or not at all, unless the store has
    /// several servers.
    ///
    /// ```
    /// use kvstore::{DType, Device, create, ones, zeros};
    /// let store = create("local")?;
    /// store.init("w", &zeros([2], DType::F32, Device::cpu(0))?)?;
    /// let before = store.snapshot()?;
    /// store.push("w", &ones([2], DType::F32, Device::cpu(0))?)?;
    /// store.rollback(&before)?;
    /// assert_eq!(store.pull_new("w")?[0].to_vec::<f32>()?, [0.0, 0.0]);
    /// # Ok::<(), kvstore::Error>(())
    /// ```
    ///
    /// # Errors
    /// - The errors of [`Store::check_process`] and
    ///   [`KvStore::snapshot`](crate::KvStore::snapshot).
    pub fn snapshot(&self) -> Result<Snapshot> {
        self.inner()?.snapshot()
    }

    /// Replaces the contents of the store with the snapshot. The next steps give the same bits that
    /// they would have given when the snapshot was taken. Keys that were initialised later are
    /// removed.
    ///
    /// # Errors
    /// - The errors of [`Store::check_process`] and
    ///   [`KvStore::rollback`](crate::KvStore::rollback).
    pub fn rollback(&self, snapshot: &Snapshot) -> Result<()> {
        self.inner()?.rollback(snapshot)
    }

    /// Starts to write the complete contents of the store to a file in the background, and returns
    /// at once; see [`Checkpoint`]. A store on servers transfers all values before it returns.
    /// Later pushes are not in the file. At every moment the path has either the complete old file
    /// or the complete new one.
    ///
    /// ```
    /// use kvstore::{DType, Device, create, ones};
    /// # let folder = tempfile::tempdir().expect("a folder");
    /// # let path = folder.path().join("model.checkpoint");
    /// let store = create("local")?;
    /// store.init("w", &ones([2], DType::F32, Device::cpu(0))?)?;
    /// store.checkpoint(&path)?.wait()?;
    ///
    /// let other = create("device")?;
    /// other.restore(&path)?;
    /// assert_eq!(other.pull_new("w")?[0].to_vec::<f32>()?, [1.0, 1.0]);
    /// # Ok::<(), kvstore::Error>(())
    /// ```
    ///
    /// Neither dropping the store nor the end of the process waits for the file. Before `main`
    /// returns, call [`Checkpoint::wait`] or [`finish_checkpoints`].
    ///
    /// # Errors
    /// - The errors of [`Store::snapshot`] and [`Checkpoint::begin`]. [`Checkpoint::wait`] returns
    ///   the errors of writing the file.
    pub fn checkpoint(&self, path: impl AsRef<Path>) -> Result<Checkpoint> {
        Checkpoint::begin(&self.snapshot()?, path)
    }

    /// Starts to write a delta in the background, and returns at once: a checkpoint with only the
    /// changes since the snapshot `base`, which was written to or read from a file in the folder of
    /// `path`. [`Store::restore`] reads the delta and the files that it needs.
    ///
    /// The next delta needs a snapshot as its base. So take the snapshot, and write it with
    /// [`Checkpoint::begin_since`]:
    ///
    /// ```
    /// use kvstore::{Checkpoint, DType, Device, create, ones, zeros};
    /// # let folder = tempfile::tempdir().expect("a folder");
    /// # let path = |name| folder.path().join(name);
    /// let store = create("local")?;
    /// store.init("large", &zeros([1000, 8], DType::F32, Device::cpu(0))?)?;
    /// store.init("small", &zeros([2], DType::F32, Device::cpu(0))?)?;
    /// let mut base = store.snapshot()?;
    /// Checkpoint::begin(&base, path("0.checkpoint"))?.wait()?;
    /// for name in ["1.checkpoint", "2.checkpoint"] {
    ///     store.push("small", &ones([2], DType::F32, Device::cpu(0))?)?;
    ///     let now = store.snapshot()?;
    ///     Checkpoint::begin_since(&now, path(name), &base)?.wait()?;
    ///     base = now;
    /// }
    /// store.restore(path("2.checkpoint"))?;
    /// # Ok::<(), kvstore::Error>(())
    /// ```
    ///
    /// # Errors
    /// - The errors of [`Store::snapshot`] and [`Checkpoint::begin_since`]. [`Checkpoint::wait`]
    ///   returns the errors of writing the file.
    pub fn checkpoint_since(&self, path: impl AsRef<Path>, base: &Snapshot) -> Result<Checkpoint> {
        Checkpoint::begin_since(&self.snapshot()?, path, base)
    }

    /// Replaces the contents of the store with the checkpoint. The next steps give the same bits
    /// that the saved store would have given. If the call fails, the store is unchanged.
    ///
    /// If processes share the store, all of them must call this. Those that cannot read the file
    /// get its contents from the first process that can, so the file need not be on every machine.
    ///
    /// A file cannot contain an updater. If the saved store had one, set an updater first.
    ///
    /// # Errors
    /// - [`Io`](crate::Error::Io) if the file, or a file that a delta needs, cannot be read.
    /// - [`Corrupt`](crate::Error::Corrupt) if one of them is damaged or was replaced.
    /// - [`OutOfMemory`](crate::Error::OutOfMemory) if there is not enough memory.
    /// - [`InvalidArgument`](crate::Error::InvalidArgument) if the saved store had an updater and
    ///   this store has none.
    pub fn restore(&self, path: impl AsRef<Path>) -> Result<()> {
        let own = Snapshot::read(backends(), path);
        self.rollback(&self.inner()?.share_snapshot(own)?)
    }

    /// Writes the optimizer states of all keys to a file. `dump_optimizer` includes the optimizer
    /// with its hyper-parameters.
    ///
    /// # Errors
    /// - The errors of [`Store::snapshot`].
    /// - [`InvalidArgument`](crate::Error::InvalidArgument) if no optimizer is set.
    /// - [`Io`](crate::Error::Io) if the file cannot be written.
    pub fn save_optimizer_states(
        &self,
        path: impl AsRef<Path>,
        dump_optimizer: bool,
    ) -> Result<()> {
        self.snapshot()?.write_optimizer_states(path, dump_optimizer)
    }

    /// Sets the optimizer states of the keys in the file, and the optimizer if the file contains
    /// one. The states of other keys start anew. The next update of each key gives the same bits as
    /// in the saved store. A failed call changes nothing.
    ///
    /// # Errors
    /// - [`Io`](crate::Error::Io) if the file cannot be read.
    /// - [`Corrupt`](crate::Error::Corrupt) if the file is damaged.
    /// - [`KeyNotFound`](crate::Error::KeyNotFound) if a key of the file is not initialised.
    /// - [`SpecMismatch`](crate::Error::SpecMismatch) if a state does not fit its weight.
    /// - [`InvalidArgument`](crate::Error::InvalidArgument) if the file contains no optimizer and
    ///   the store has none, or another one.
    pub fn load_optimizer_states(&self, path: impl AsRef<Path>) -> Result<()> {
        let OptimizerStates { optimizer, states } = OptimizerStates::read(backends(), path)?;
        self.inner()?.set_optimizer_states(optimizer, states)
    }
}

/// Waits until every checkpoint of this process is written. Call it before `main` returns and
/// before `std::process::exit`, which both stop the writer threads.
///
/// ```
/// use kvstore::{DType, Device, create, finish_checkpoints, ones};
/// # let folder = tempfile::tempdir().expect("a folder");
/// # let path = folder.path().join("model.checkpoint");
/// let store = create("local")?;
/// store.init("w", &ones([2], DType::F32, Device::cpu(0))?)?;
/// drop(store.checkpoint(&path)?);
/// drop(store);
/// finish_checkpoints()?;
/// assert!(path.exists());
/// # Ok::<(), kvstore::Error>(())
/// ```
///
/// # Errors
/// - The first failure that no caller has received. The others are logged.
pub fn finish_checkpoints() -> Result<()> {
    Checkpoints::of_process().wait()
}
