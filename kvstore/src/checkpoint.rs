//! What a [`Store`] does with all it holds: snapshots, checkpoints, files of optimizer states.

use std::path::Path;

use kvstore_core::{Checkpoint, Checkpoints, OptimizerStates, Result, Snapshot};

use crate::runtime::backends;
use crate::store::Store;

impl Store {
    /// Returns all that the store holds at one moment, without a copy of it: values, the optimizer with its
    /// states and counts, the compression with its residuals. A push of several keys by another thread is in it
    /// whole or not at all.
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
    /// [`Poisoned`](crate::Error::Poisoned), [`InvalidArgument`](crate::Error::InvalidArgument) from
    /// inside an updater of this store.
    pub fn snapshot(&self) -> Result<Snapshot> {
        self.inner()?.snapshot()
    }

    /// Makes the store hold what the snapshot does and nothing else: the next steps give the bits that they would
    /// have given then. Keys that were made since are gone.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::Error::InvalidArgument) from inside an updater of this store.
    pub fn rollback(&self, snapshot: &Snapshot) -> Result<()> {
        self.inner()?.rollback(snapshot)
    }

    /// Begins to write all that the store holds to a file, and returns at once: see [`Checkpoint`]. What is
    /// pushed meanwhile is not in it. At every moment the old file or the new one is there and whole.
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
    /// Those of [`Store::snapshot`] and [`Checkpoint::begin`]; what goes wrong with the file is an error of
    /// [`Checkpoint::wait`].
    pub fn checkpoint(&self, path: impl AsRef<Path>) -> Result<Checkpoint> {
        Checkpoint::begin(&self.snapshot()?, path)
    }

    /// Makes the store hold what the one did whose checkpoint the file is, and nothing else: the next steps give
    /// the same bits. When anything is wrong with the file the store is as it was.
    ///
    /// Processes that share the store all call this. Those that cannot read the file get what is in it from the first one
    /// that can, so it need not be on every machine.
    ///
    /// A file cannot hold an updater. The store of one whose checkpoint had an updater needs its own before.
    ///
    /// # Errors
    /// [`Io`](crate::Error::Io), [`Corrupt`](crate::Error::Corrupt),
    /// [`OutOfMemory`](crate::Error::OutOfMemory), [`InvalidArgument`](crate::Error::InvalidArgument)
    /// without an updater where one is needed.
    pub fn restore(&self, path: impl AsRef<Path>) -> Result<()> {
        let own = Snapshot::read(backends(), path);
        self.rollback(&self.inner()?.share_snapshot(own)?)
    }

    /// Writes the states of the optimizer to a file, and with `dump_optimizer` the optimizer with its
    /// hyper-parameters too.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::Error::InvalidArgument) when no optimizer is set,
    /// [`Io`](crate::Error::Io), and those of [`Store::snapshot`].
    pub fn save_optimizer_states(
        &self,
        path: impl AsRef<Path>,
        dump_optimizer: bool,
    ) -> Result<()> {
        self.snapshot()?.write_optimizer_states(path, dump_optimizer)
    }

    /// Gives the keys of a file the states in it, and sets the optimizer if it was dumped. Keys that are not in
    /// it begin anew. The next update of each key gives the bits that it would have given then.
    ///
    /// # Errors
    /// [`Io`](crate::Error::Io), [`Corrupt`](crate::Error::Corrupt),
    /// [`KeyNotFound`](crate::Error::KeyNotFound), [`SpecMismatch`](crate::Error::SpecMismatch),
    /// [`InvalidArgument`](crate::Error::InvalidArgument) when no optimizer is set or it is another one;
    /// nothing has changed then.
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
/// The first failure that no caller has received. Logs the others.
pub fn finish_checkpoints() -> Result<()> {
    Checkpoints::of_process().wait()
}
