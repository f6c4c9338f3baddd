//! The class `Store`: the verbs. `mxkv.kvstore.KVStore` is what programs see of it.

use std::path::PathBuf;
use std::sync::{PoisonError, RwLock};

use kvstore::{Error, Existing, Key, KeyStats, NDArray, Store};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

use crate::convert;
use crate::error::{detached, invalid, to_python};
use crate::ndarray::PyArray;
use crate::optimizer::PyOptimizer;
use crate::pytorch;
use crate::rows::PyRows;
use crate::snapshot::{PyCheckpoint, PySnapshot};
use crate::updater;

/// A store with keys that are texts.
#[pyclass(frozen, name = "Store", module = "mxkv._native")]
#[derive(Debug)]
pub(crate) struct PyStore {
    store: RwLock<Option<Store>>,
}

impl PyStore {
    fn store(&self, py: Python<'_>) -> PyResult<Store> {
        let store = self.store.read().unwrap_or_else(PoisonError::into_inner);
        store.clone().ok_or_else(|| to_python(py, Error::Closed { what: "the store".to_owned() }))
    }

    fn take(&self) -> Option<Store> {
        self.store.write().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Drop for PyStore {
    /// A collector comes at another time in each process; `close` waits for the others.
    fn drop(&mut self) {
        if let Some(store) = self.take() {
            let _ = store.set_barrier_before_exit(false);
        }
    }
}

#[pymethods]
impl PyStore {
    #[new]
    fn new(py: Python<'_>, name: &str) -> PyResult<Self> {
        let store = detached(py, || kvstore::create(name))?;
        Ok(Self { store: RwLock::new(Some(store)) })
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let store = self.take();
        detached(py, move || {
            drop(store);
            Ok(())
        })
    }

    #[getter]
    fn is_closed(&self) -> bool {
        self.store.read().unwrap_or_else(PoisonError::into_inner).is_none()
    }

    #[getter]
    fn name(&self, py: Python<'_>) -> PyResult<String> {
        Ok(self.store(py)?.name().to_owned())
    }

    #[getter]
    fn rank(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.store(py)?.rank())
    }

    #[getter]
    fn num_workers(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.store(py)?.num_workers())
    }

    fn init(
        &self,
        py: Python<'_>,
        keys: &Bound<'_, PyAny>,
        values: &Bound<'_, PyAny>,
        existing: &str,
    ) -> PyResult<()> {
        let existing = match existing {
            "error" => Existing::Error,
            "keep" => Existing::Keep,
            "replace" => Existing::Replace,
            other => {
                let text =
                    format!("existing: expected `error`, `keep` or `replace`, found `{other}`");
                return Err(invalid(py, text));
            }
        };
        let (store, pairs) = (self.store(py)?, convert::values(keys, values)?);
        detached(py, move || store.init_pairs(&pairs, existing))
    }

    fn push(
        &self,
        py: Python<'_>,
        keys: &Bound<'_, PyAny>,
        values: &Bound<'_, PyAny>,
        priority: i32,
    ) -> PyResult<()> {
        let (store, pairs) = (self.store(py)?, convert::values(keys, values)?);
        detached(py, move || store.push_pairs(&pairs, priority))
    }

    fn pull(
        &self,
        py: Python<'_>,
        keys: &Bound<'_, PyAny>,
        outs: &Bound<'_, PyAny>,
        priority: i32,
    ) -> PyResult<()> {
        let (store, outs) = (self.store(py)?, convert::outs(keys, outs)?);
        let written = detached(py, move || {
            store.pull_pairs(&outs.pairs, priority)?;
            outs.deliver()
        })?;
        pytorch::note_writes(py, &written)
    }

    fn pull_new(&self, py: Python<'_>, keys: &Bound<'_, PyAny>) -> PyResult<Vec<PyArray>> {
        let (store, keys) = (self.store(py)?, convert::keys(keys)?);
        let pulled = detached(py, || store.pull_new(keys))?;
        Ok(pulled.into_iter().map(PyArray::from).collect())
    }

    fn pushpull(
        &self,
        py: Python<'_>,
        keys: &Bound<'_, PyAny>,
        values: &Bound<'_, PyAny>,
        outs: &Bound<'_, PyAny>,
        priority: i32,
    ) -> PyResult<()> {
        let (store, values) = (self.store(py)?, convert::values(keys, values)?);
        let outs = convert::outs(keys, outs)?;
        let written = detached(py, move || {
            store.pushpull_pairs(&values, &outs.pairs, priority)?;
            outs.deliver()
        })?;
        pytorch::note_writes(py, &written)
    }

    fn broadcast(
        &self,
        py: Python<'_>,
        keys: &Bound<'_, PyAny>,
        values: &Bound<'_, PyAny>,
        outs: &Bound<'_, PyAny>,
        priority: i32,
    ) -> PyResult<()> {
        let (store, values) = (self.store(py)?, convert::values(keys, values)?);
        let outs = convert::outs(keys, outs)?;
        let written = detached(py, move || {
            store.broadcast_pairs(&values, &outs.pairs, priority)?;
            outs.deliver()
        })?;
        pytorch::note_writes(py, &written)
    }

    /// Returns the rows with these numbers for each pair of a key and a list or array of numbers.
    fn pull_rows(
        &self,
        py: Python<'_>,
        keys: &Bound<'_, PyAny>,
        row_ids: Vec<Bound<'_, PyAny>>,
    ) -> PyResult<Vec<PyRows>> {
        let (store, keys) = (self.store(py)?, convert::keys(keys)?);
        let ids = row_ids.into_iter().map(|ids| convert::row_ids(&ids));
        let ids: Vec<Vec<i64>> = ids.collect::<PyResult<_>>()?;
        let pulled = detached(py, || store.pull_rows(keys, &ids))?;
        Ok(pulled.into_iter().map(PyRows::from).collect())
    }

    fn remove(&self, py: Python<'_>, keys: &Bound<'_, PyAny>) -> PyResult<()> {
        let (store, keys) = (self.store(py)?, convert::keys(keys)?);
        detached(py, || store.remove(keys))
    }

    fn keys(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        let store = self.store(py)?;
        detached(py, || Ok(store.keys().iter().map(Key::to_string).collect()))
    }

    fn contains(&self, py: Python<'_>, key: &str) -> PyResult<bool> {
        let (store, key) = (self.store(py)?, convert::key(py, key)?);
        detached(py, || Ok(store.contains(&key)))
    }

    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let store = self.store(py)?;
        let stats = detached(py, || Ok(store.stats()))?;
        stats.iter().map(|stats| described(py, stats)).collect()
    }

    /// Lets a function change the stored value on every push: it gets the key, the sum and the stored value.
    fn set_updater(&self, py: Python<'_>, function: Py<PyAny>) -> PyResult<()> {
        let store = self.store(py)?;
        let update = move |key: &Key, pushed: &NDArray, stored: &NDArray| {
            updater::call(&function, key, pushed, stored)
        };
        detached(py, move || store.set_updater(update))
    }

    fn clear_updater(&self, py: Python<'_>) -> PyResult<()> {
        let store = self.store(py)?;
        detached(py, || store.clear_updater())
    }

    fn set_optimizer(&self, py: Python<'_>, optimizer: &Bound<'_, PyOptimizer>) -> PyResult<()> {
        let (store, optimizer) = (self.store(py)?, optimizer.get().optimizer());
        detached(py, move || store.set_optimizer(optimizer))
    }

    fn hyper_parameters(&self, py: Python<'_>) -> PyResult<Vec<(&'static str, f64)>> {
        let store = self.store(py)?;
        detached(py, || store.hyper_parameters())
    }

    fn set_hyper_parameters(&self, py: Python<'_>, changed: Vec<(String, f64)>) -> PyResult<()> {
        let store = self.store(py)?;
        detached(py, move || {
            let changed: Vec<(&str, f64)> =
                changed.iter().map(|(name, value)| (name.as_str(), *value)).collect();
            store.set_hyper_parameters(&changed)
        })
    }

    fn set_gradient_compression(
        &self,
        py: Python<'_>,
        name: &str,
        threshold: Option<f64>,
    ) -> PyResult<()> {
        let store = self.store(py)?;
        let threshold = threshold.unwrap_or(kvstore::Compression::DEFAULT_THRESHOLD);
        detached(py, || store.set_gradient_compression(name, threshold))
    }

    fn clear_gradient_compression(&self, py: Python<'_>) -> PyResult<()> {
        let store = self.store(py)?;
        detached(py, || store.clear_gradient_compression())
    }

    fn snapshot(&self, py: Python<'_>) -> PyResult<PySnapshot> {
        let store = self.store(py)?;
        detached(py, || store.snapshot()).map(PySnapshot::from)
    }

    fn rollback(&self, py: Python<'_>, snapshot: &Bound<'_, PySnapshot>) -> PyResult<()> {
        let (store, snapshot) = (self.store(py)?, snapshot.get().snapshot());
        detached(py, || store.rollback(snapshot))
    }

    fn checkpoint(&self, py: Python<'_>, file: PathBuf) -> PyResult<PyCheckpoint> {
        let store = self.store(py)?;
        detached(py, || store.checkpoint(file)).map(PyCheckpoint::from)
    }

    fn restore(&self, py: Python<'_>, file: PathBuf) -> PyResult<()> {
        let store = self.store(py)?;
        detached(py, || store.restore(file))
    }

    fn save_optimizer_states(
        &self,
        py: Python<'_>,
        file: PathBuf,
        dump_optimizer: bool,
    ) -> PyResult<()> {
        let store = self.store(py)?;
        detached(py, || store.save_optimizer_states(file, dump_optimizer))
    }

    fn load_optimizer_states(&self, py: Python<'_>, file: PathBuf) -> PyResult<()> {
        let store = self.store(py)?;
        detached(py, || store.load_optimizer_states(file))
    }

    fn barrier(&self, py: Python<'_>) -> PyResult<()> {
        let store = self.store(py)?;
        detached(py, || store.barrier())
    }

    fn set_barrier_before_exit(&self, py: Python<'_>, wait: bool) -> PyResult<()> {
        let store = self.store(py)?;
        detached(py, || store.set_barrier_before_exit(wait))
    }

    fn num_dead_node(&self, py: Python<'_>, node_id: i32) -> PyResult<usize> {
        let store = self.store(py)?;
        detached(py, || store.num_dead_node(node_id))
    }

    fn send_command_to_servers(&self, py: Python<'_>, head: i32, body: &str) -> PyResult<()> {
        let store = self.store(py)?;
        detached(py, || store.send_command_to_servers(head, body))
    }
}

/// Returns what a store or snapshot says of a key, as a `KeyStats`.
pub(crate) fn described<'py>(py: Python<'py>, stats: &KeyStats) -> PyResult<Bound<'py, PyAny>> {
    static KEY_STATS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    KEY_STATS.import(py, "mxkv.kvstore", "KeyStats")?.call1((
        stats.key.as_str(),
        convert::dims(py, stats.spec.shape())?,
        stats.spec.dtype().name(),
        convert::context(py, stats.device)?,
        stats.num_pushes,
        stats.value_bytes,
        stats.state_bytes,
    ))
}
