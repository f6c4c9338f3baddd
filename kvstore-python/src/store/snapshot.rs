//! The class `Snapshot`.

use std::path::PathBuf;

use kvstore::{Checkpoint, Key, KeyStats, NDArray, Snapshot, SnapshotFile, Value};
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyBytes, PyDict, PyList, PyString};

use super::checkpoint::PyCheckpoint;
use super::optimizer::PyState;
use super::stats::described;
use crate::arguments::keys;
use crate::array::classes::{PyArray, PyRows};
use crate::convert;
use crate::interpreter::error::detached;
use crate::interpreter::lists;

/// The complete contents of a store at one moment. It shares memory with the store and never
/// changes. The values of a store on servers stay there, and each call that reads or compares them
/// transfers them. The pickle of a snapshot has the contents of a checkpoint.
///
/// >>> import mxkv as mx
/// >>> kv = mx.kv.create()
/// >>> kv.init('w', mx.nd.ones(2))
/// >>> before = kv.snapshot()
/// >>> kv.push('w', mx.nd.ones(2) * 7)
/// >>> before.changed_keys(kv.snapshot())
/// ['w']
/// >>> kv.rollback(before)
/// >>> kv.pull('w').asnumpy()
/// array([1., 1.], dtype=float32)
#[pyclass(frozen, name = "Snapshot", module = "mxkv._native")]
#[derive(Debug)]
pub(crate) struct PySnapshot {
    snapshot: Snapshot,
}

impl From<Snapshot> for PySnapshot {
    fn from(snapshot: Snapshot) -> Self {
        Self { snapshot }
    }
}

impl PySnapshot {
    pub(crate) fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }
}

#[pymethods]
impl PySnapshot {
    /// Reads a checkpoint file.
    #[staticmethod]
    #[pyo3(name = "_read")]
    fn read(py: Python<'_>, fname: PathBuf) -> PyResult<Self> {
        detached(py, || Snapshot::read(kvstore::backends(), fname)).map(Self::from)
    }

    /// The name that the store was created with.
    #[getter(r#type)]
    fn store_type(&self) -> &str {
        self.snapshot.store_name()
    }

    /// Returns every key as a string, in the order of initialisation.
    fn keys<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        lists::new(py, self.snapshot.keys().map(Key::as_str))
    }

    /// Returns the value of a key, or ``None``.
    fn get<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let key = keys::any(key)?;
        Ok(match detached(py, || self.snapshot.get(&key))? {
            None => None,
            Some(Value::Dense(tensor)) => {
                let array = NDArray::new(tensor);
                Some(Bound::new(py, PyArray::from(array))?.into_any())
            }
            Some(Value::Rows(rows)) => Some(Bound::new(py, PyRows::from(rows))?.into_any()),
        })
    }

    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let describe =
            |stats: KeyStats| described(&stats, PyString::new(py, stats.key.as_str()).into_any());
        lists::try_new(py, self.snapshot.stats().map(describe))
    }

    /// Returns the keys whose value or optimizer state differs between the snapshots, and the keys
    /// that only one of them has.
    fn changed_keys<'py>(
        &self,
        py: Python<'py>,
        other: &Bound<'py, PySnapshot>,
    ) -> PyResult<Bound<'py, PyList>> {
        let other = &other.get().snapshot;
        let changed = detached(py, || self.snapshot.changed_keys(other))?;
        lists::new(py, changed.iter().map(Key::as_str))
    }

    /// Returns whether both snapshots have the same contents, bit for bit.
    fn is_identical(&self, py: Python<'_>, other: &Bound<'_, PySnapshot>) -> PyResult<bool> {
        let other = &other.get().snapshot;
        detached(py, || self.snapshot.is_identical(other))
    }

    /// Returns the optimizer state of a key, or ``None``.
    fn optimizer_state(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<Option<PyState>> {
        let key = keys::any(key)?;
        let state = detached(py, || self.snapshot.optimizer_state(&key))?;
        Ok(state.map(PyState::from))
    }

    /// Returns the hyper-parameters of the store's optimizer, or ``None``.
    fn hyper_parameters<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        let parameters = self.snapshot.optimizer().map(kvstore::Optimizer::hyper_parameters);
        parameters.map(|parameters| parameters.into_py_dict(py)).transpose()
    }

    /// Returns this snapshot with all values in the memory of this process. It stays valid after
    /// the store and its servers have ended.
    ///
    /// >>> import mxkv as mx
    /// >>> server = mx.kvstore_server.KVStoreServer('127.0.0.1:0')
    /// >>> with mx.kv.create('dist_async', servers=server.address) as kv:
    /// ...     kv.init('w', mx.nd.ones(2))
    /// ...     loaded = kv.snapshot().load()
    /// >>> server.close()
    /// >>> loaded.get('w').tolist()
    /// [1.0, 1.0]
    fn load(&self, py: Python<'_>) -> PyResult<Self> {
        detached(py, || self.snapshot.load()).map(Self::from)
    }

    /// Starts to write the snapshot to a checkpoint file, and returns at once. Values that are on
    /// servers are transferred first.
    ///
    /// With ``since``, writes a delta: only the changes since this snapshot, which was written to
    /// or read from a file in the same folder. ``restore`` reads the delta and this file, which
    /// can be a delta too. If ``since`` is still being written, waits for it.
    ///
    /// >>> import os, tempfile, mxkv as mx
    /// >>> kv = mx.kv.create()
    /// >>> kv.init('large', mx.nd.zeros(10000))
    /// >>> kv.init('small', mx.nd.zeros(2))
    /// >>> first = kv.snapshot()
    /// >>> kv.push('small', mx.nd.ones(2))
    /// >>> second = kv.snapshot()
    /// >>> with tempfile.TemporaryDirectory() as folder:
    /// ...     first.checkpoint(os.path.join(folder, '1')).wait()
    /// ...     second.checkpoint(os.path.join(folder, '2'), since=first).wait()
    /// ...     kv.restore(os.path.join(folder, '2'))
    /// ...     [os.path.getsize(file) > 10000 for file in second.files()]
    /// [False, True]
    #[pyo3(signature = (fname, since=None))]
    fn checkpoint(
        &self,
        py: Python<'_>,
        fname: PathBuf,
        since: Option<&Bound<'_, PySnapshot>>,
    ) -> PyResult<PyCheckpoint> {
        let since = since.map(|since| since.get().snapshot());
        let checkpoint = detached(py, || match since {
            None => Checkpoint::begin(&self.snapshot, fname),
            Some(since) => Checkpoint::begin_since(&self.snapshot, fname, since),
        })?;
        PyCheckpoint::new(py, checkpoint)
    }

    /// Returns the paths of the files that ``restore`` needs for this snapshot: the file that it
    /// was last written to or read from, and if this is a delta, the files that it needs. Returns
    /// an empty list before the file is complete.
    fn files<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let file = self.snapshot.file();
        let files = file.iter().flat_map(SnapshotFile::chain);
        lists::new(py, files.map(|file| file.path().as_os_str()))
    }

    /// Supports `pickle`: returns the contents of a checkpoint of the snapshot.
    fn __reduce__<'py>(
        slf: &Bound<'py, Self>,
    ) -> PyResult<(Bound<'py, PyAny>, (Bound<'py, PyBytes>,))> {
        let (py, snapshot) = (slf.py(), &slf.get().snapshot);
        let bytes = detached(py, || snapshot.to_bytes())?;
        Ok((slf.get_type().getattr("_of_bytes")?, (convert::bytes_of(py, &bytes)?,)))
    }

    /// Restores a pickled snapshot, with its values in the host's memory.
    #[staticmethod]
    #[pyo3(name = "_of_bytes")]
    fn of_bytes(py: Python<'_>, content: &[u8]) -> PyResult<Self> {
        detached(py, || Snapshot::from_bytes(kvstore::backends(), content)).map(Self::from)
    }

    /// Returns the snapshot itself, which never changes.
    fn __copy__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    /// Returns the snapshot itself, which never changes.
    fn __deepcopy__<'py>(slf: Bound<'py, Self>, _memo: &Bound<'py, PyAny>) -> Bound<'py, Self> {
        slf
    }

    fn __len__(&self) -> usize {
        self.snapshot.len()
    }

    fn __repr__(&self) -> String {
        format!("<Snapshot of a {} store, {} keys>", self.snapshot.store_name(), self.__len__())
    }
}
