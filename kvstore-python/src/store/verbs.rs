//! The methods of the class `Store`, the base class of `mxkv.kvstore.KVStore`.

use std::path::PathBuf;
use std::slice::from_ref;
use std::sync::{Arc, PoisonError};

use kvstore::{Key, KeyStats, NDArray, OnExisting, fallible};
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyDict, PyList, PyTuple};

use super::checkpoint::{self, PyCheckpoint};
use super::handle::PyStore;
use super::members;
use super::optimizer::PyOptimizer;
use super::row_outputs::{pull_rows, warn_about_rows};
use super::server::{self, PyServer};
use super::snapshot::PySnapshot;
use super::stats::described;
use super::updater;
use crate::arguments::keys;
use crate::arguments::listed::{self, Keys, Place};
use crate::arguments::mapped;
use crate::arguments::values::{self, Outputs, Values};
use crate::array::classes::{PyRows, new_array};
use crate::array::operand;
use crate::convert;
use crate::interpreter::error::{about, detached, invalid, type_error};
use crate::interpreter::lists;

#[pymethods]
impl PyStore {
    #[new]
    #[pyo3(signature = (*_arguments, **_options))]
    fn new(_arguments: &Bound<'_, PyTuple>, _options: Option<&Bound<'_, PyDict>>) -> Self {
        Self::default()
    }

    /// Creates the store that the other methods use.
    #[pyo3(name = "_open")]
    fn open(
        &self,
        py: Python<'_>,
        name: &str,
        #[pyo3(from_py_with = lists::read)] options: Vec<(String, String)>,
    ) -> PyResult<()> {
        self.open_with(py, move || kvstore::create_with(name, &server::pairs(&options)?))
    }

    /// Uses the store that holds the values of a server.
    #[pyo3(name = "_open_on")]
    fn open_on(&self, py: Python<'_>, server: &Bound<'_, PyServer>) -> PyResult<()> {
        let store = server.get().store(py)?;
        self.open_with(py, || Ok(store))
    }

    /// Releases the values. Waits for the store's checkpoints. A ``dist_sync`` store also waits for
    /// the other workers, unless ``set_barrier_before_exit(False)`` was called; a store on servers
    /// waits for them only after ``set_barrier_before_exit(True)``. Raises the error of a
    /// checkpoint unless its ``wait`` has raised it. Does nothing when called again or in a forked
    /// child.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let finished = checkpoint::finish(py, &self.checkpoints);
        let store = self.take();
        detached(py, move || {
            drop(store);
            Ok(())
        })?;
        finished
    }

    #[getter(_is_closed)]
    fn is_closed(&self) -> bool {
        self.store.read().unwrap_or_else(PoisonError::into_inner).is_none()
    }

    #[getter(_is_inherited)]
    fn is_inherited(&self) -> bool {
        let store = self.store.read().unwrap_or_else(PoisonError::into_inner);
        store.as_ref().is_some_and(|store| store.check_process().is_err())
    }

    /// The name with which the store was created, in lower case.
    #[getter(r#type)]
    fn store_type(&self, py: Python<'_>) -> PyResult<String> {
        self.detached(py, |store| Ok(store.name().to_owned()))
    }

    /// The rank of this process among the workers, counted from 0.
    #[getter]
    fn rank(&self, py: Python<'_>) -> PyResult<usize> {
        self.detached(py, kvstore::Store::rank)
    }

    /// The number of processes that share the store.
    #[getter]
    fn num_workers(&self, py: Python<'_>) -> PyResult<usize> {
        self.detached(py, kvstore::Store::num_workers)
    }

    /// Stores a copy of a value under each key.
    ///
    /// ``on_existing`` decides what happens to keys that are already initialised: ``'reject'``
    /// fails, ``'keep'`` keeps their value, and ``'replace'`` removes them first. In a worker of a
    /// launched job, ``'reject'`` works like ``'keep'``, because every worker calls ``init``.
    ///
    /// >>> import mxkv as mx
    /// >>> kv = mx.kv.create()
    /// >>> kv.init(['a', 'b'], [mx.nd.ones(2), mx.nd.zeros(3)])
    /// >>> kv.keys()
    /// ['a', 'b']
    #[pyo3(signature = (key, value = None, on_existing = "reject"))]
    fn init(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        value: Option<&Bound<'_, PyAny>>,
        on_existing: &str,
    ) -> PyResult<()> {
        let existing = match on_existing {
            "reject" => OnExisting::Reject,
            "keep" => OnExisting::Keep,
            "replace" => OnExisting::Replace,
            other => {
                let text =
                    format!("on_existing: expected `reject`, `keep` or `replace`, found `{other}`");
                return Err(invalid(py, text));
            }
        };
        let store = self.store(py)?;
        let (key, value) = mapped::apart(key, value, "value")?;
        let values = values::values(&self.key_kind, &key, &value)?;
        let outs = Outputs::default();
        values::run(py, values, outs, move |(keys, values), _| {
            store.init_values(keys, values, existing)
        })?;
        self.key_kind.settle();
        Ok(())
    }

    /// Sums the values of each key and passes the sum to the optimizer or updater. Without either,
    /// the sum replaces the stored value. If a network is involved, values of a higher priority may
    /// be sent earlier.
    ///
    /// >>> import mxkv as mx
    /// >>> import numpy
    /// >>> kv = mx.kv.create()
    /// >>> kv.init('w', numpy.zeros(2))
    /// >>> kv.push('w', [numpy.ones(2), numpy.ones(2)])
    /// >>> kv.pull('w').tolist()
    /// [2.0, 2.0]
    #[pyo3(signature = (key, value = None, priority = 0))]
    fn push(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        value: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = convert::priority)] priority: i32,
    ) -> PyResult<()> {
        let store = self.store(py)?;
        let (key, value) = mapped::apart(key, value, "value")?;
        // Fast path: one key and one `NDArray`.
        if let Some((key, value)) = values::only(&self.key_kind, &key, &value)? {
            return detached(py, move || {
                store.push_values(from_ref(&key), &[value.into()], priority)
            });
        }
        let values = values::values(&self.key_kind, &key, &value)?;
        let outs = Outputs::default();
        values::run(py, values, outs, move |(keys, values), _| {
            store.push_values(keys, values, priority)
        })
    }

    /// Copies the newest value of each key into its outputs, cast to their dtypes. Without outputs,
    /// returns new arrays: one for a single key, a list for a list of keys.
    ///
    /// Does not change row-sparse outputs, and warns about them. With ``ignore_sparse=False``, a
    /// row-sparse output receives every row that is not all zeros.
    ///
    /// >>> import mxkv as mx
    /// >>> import numpy
    /// >>> kv = mx.kv.create()
    /// >>> kv.init('w', numpy.array([1.5, 2.5]))
    /// >>> out = numpy.zeros(2, dtype='float32')
    /// >>> kv.pull('w', out=out)
    /// >>> out
    /// array([1.5, 2.5], dtype=float32)
    #[pyo3(signature = (key, out = None, priority = 0, ignore_sparse = true))]
    fn pull<'py>(
        slf: &Bound<'py, Self>,
        key: &Bound<'py, PyAny>,
        out: Option<&Bound<'py, PyAny>>,
        #[pyo3(from_py_with = convert::priority)] priority: i32,
        #[pyo3(from_py_with = is_truthy)] ignore_sparse: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        let (key_kind, store) = (&slf.get().key_kind, slf.get().store(py)?);
        if out.is_none() && !mapped::is_map(key) {
            let keys = key_kind.keys(key)?;
            let is_one = matches!(keys, Keys::One(_));
            let keys = keys.into_list();
            let mut pulled = detached(py, move || store.pull_new(keys))?.into_iter();
            if is_one && let Some(array) = pulled.next() {
                return new_array(py, array);
            }
            return Ok(lists::try_new(py, pulled.map(|array| new_array(py, array)))?.into_any());
        }
        let (key, out) = mapped::apart(key, out, "out")?;
        // Fast path: one key and one `NDArray`.
        if let Some((key, out)) = values::only(key_kind, &key, &out)? {
            detached(py, move || store.pull_arrays(from_ref(&key), from_ref(out), priority))?;
            return Ok(py.None().into_bound(py));
        }
        let outs = values::outs(key_kind, &key, &out)?;
        if ignore_sparse && !outs.rows().is_empty() {
            warn_about_rows(py)?;
        }
        values::run(py, Values::default(), outs, move |_, outs| {
            let (keys, arrays) = outs.pairs();
            // Get the rows before any output changes, because reading them can fail.
            let rows = pull_rows(&store, outs.rows(), ignore_sparse)?;
            store.pull_arrays(keys, arrays, priority)?;
            for ((_, out), rows) in outs.rows().iter().zip(rows) {
                out.get().replace(rows);
            }
            Ok(())
        })?;
        Ok(py.None().into_bound(py))
    }

    /// Pushes the values, then pulls the same keys into ``out``. Without ``out``, pulls into the
    /// values.
    ///
    /// >>> import mxkv as mx
    /// >>> kv, gradients = mx.kv.create(), [mx.nd.ones(2), mx.nd.ones(2)]
    /// >>> kv.init('g', mx.nd.zeros(2))
    /// >>> kv.pushpull('g', gradients)
    /// >>> gradients[1].tolist()
    /// [2.0, 2.0]
    #[pyo3(signature = (key, value = None, out = None, priority = 0))]
    fn pushpull(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        value: Option<&Bound<'_, PyAny>>,
        out: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = convert::priority)] priority: i32,
    ) -> PyResult<()> {
        let store = self.store(py)?;
        let (keys, values) = mapped::apart(key, value, "value")?;
        let (outs_keys, outs) = match out {
            Some(out) => mapped::beside(key, out)?,
            None => (keys.clone(), values.clone()),
        };
        let values = values::values(&self.key_kind, &keys, &values)?;
        let outs = values::output_arrays(&self.key_kind, &outs_keys, &outs)?;
        values::run(py, values, outs, move |values, outs| {
            store.pushpull_values(values, outs.pairs(), priority)
        })
    }

    /// Initialises keys, then pulls them.
    ///
    /// >>> import mxkv as mx
    /// >>> kv, replicas = mx.kv.create(), [mx.nd.zeros(2), mx.nd.zeros(2)]
    /// >>> kv.broadcast('w', mx.nd.ones(2), out=replicas)
    /// >>> replicas[1].tolist()
    /// [1.0, 1.0]
    #[pyo3(signature = (key, value = None, out = None, priority = 0))]
    fn broadcast(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        value: Option<&Bound<'_, PyAny>>,
        out: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = convert::priority)] priority: i32,
    ) -> PyResult<()> {
        let store = self.store(py)?;
        let (keys, values) = mapped::apart(key, value, "value")?;
        let missing = "out: expected arrays to broadcast into, found None; beside a map of values, \
                       pass it by name";
        let out = out.ok_or_else(|| type_error(py, missing))?;
        let (outs_keys, outs) = mapped::beside(key, out)?;
        let values = values::values(&self.key_kind, &keys, &values)?;
        let outs = values::output_arrays(&self.key_kind, &outs_keys, &outs)?;
        values::run(py, values, outs, move |(keys, values), outs| {
            store.broadcast_values((keys, values), outs.pairs(), priority)
        })?;
        self.key_kind.settle();
        Ok(())
    }

    /// Returns the rows with these indices, for each pair of a key and a list or array of row
    /// indices. The priority has no effect, because every process has every row.
    #[pyo3(name = "_pull_rows")]
    fn pull_rows<'py>(
        &self,
        py: Python<'py>,
        keys: &Bound<'py, PyAny>,
        #[pyo3(from_py_with = lists::read)] row_ids: Vec<Bound<'py, PyAny>>,
        #[pyo3(from_py_with = convert::priority)] _priority: i32,
    ) -> PyResult<Bound<'py, PyList>> {
        let keys = self.key_kind.keys(keys)?;
        let num_lists = row_ids.len();
        let ids = row_ids.into_iter().enumerate().map(|(index, ids)| {
            let key = listed::key_at(&keys, Place::At(index));
            operand::row_ids(&ids).map_err(|error| about(py, error, key, "row_ids"))
        });
        let ids = lists::collect(py, num_lists, ids)?;
        let pulled = self.detached(py, |store| store.pull_rows(keys.into_list(), &ids))?;
        lists::new(py, pulled.into_iter().map(PyRows::from))
    }

    /// Removes keys with their values and optimizer states.
    fn remove(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<()> {
        let keys = self.key_kind.keys(key)?;
        self.detached(py, |store| store.remove(keys.into_list()))
    }

    /// Returns every key in the order of initialisation.
    fn keys<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let keys = self.detached(py, kvstore::Store::keys)?;
        lists::try_new(py, keys.iter().map(|key| self.key_kind.as_given(py, key)))
    }

    fn __contains__(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<bool> {
        let key = keys::any(key)?;
        self.detached(py, |store| store.contains(&key))
    }

    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        self.detached(py, |store| Ok(store.keys()?.len()))
    }

    /// Returns the statistics of every key, in the order of initialisation.
    ///
    /// >>> import mxkv as mx
    /// >>> kv = mx.kv.create()
    /// >>> kv.init(3, mx.nd.ones(2))
    /// >>> kv.stats()[0].shape, kv.stats()[0].num_pushes
    /// ((2,), 0)
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let stats = self.detached(py, kvstore::Store::stats)?;
        let describe = |stats: &KeyStats| described(stats, self.key_kind.as_given(py, &stats.key)?);
        lists::try_new(py, stats.iter().map(describe))
    }

    /// Sets an updater function. Each push calls it with the key, the sum and the stored value. The
    /// function changes the stored value.
    #[pyo3(name = "_set_function")]
    fn set_function(&self, py: Python<'_>, function: Py<PyAny>) -> PyResult<()> {
        let key_kind = Arc::clone(&self.key_kind);
        let update = move |key: &Key, pushed: &NDArray, stored: &NDArray| {
            updater::call(&function, &key_kind, key, pushed, stored)
        };
        self.detached(py, move |store| store.set_updater(update))
    }

    #[pyo3(name = "_clear_updater")]
    fn clear_updater(&self, py: Python<'_>) -> PyResult<()> {
        self.detached(py, kvstore::Store::clear_updater)
    }

    #[pyo3(name = "_set_optimizer")]
    fn set_optimizer(&self, py: Python<'_>, optimizer: &Bound<'_, PyOptimizer>) -> PyResult<()> {
        let optimizer = optimizer.get().optimizer(py)?;
        self.detached(py, move |store| store.set_optimizer(optimizer))
    }

    /// Returns the hyper-parameters of the store's optimizer.
    fn hyper_parameters<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.detached(py, kvstore::Store::hyper_parameters)?.into_py_dict(py)
    }

    #[pyo3(name = "_set_hyper_parameters")]
    fn set_hyper_parameters(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = lists::read)] changed: Vec<(String, f64)>,
    ) -> PyResult<()> {
        self.detached(py, move |store| {
            let changed = changed.iter().map(|(name, value)| (name.as_str(), *value));
            let changed: Vec<(&str, f64)> = fallible::collect(changed)?;
            store.set_hyper_parameters(&changed)
        })
    }

    #[pyo3(name = "_set_compression")]
    fn set_gradient_compression(
        &self,
        py: Python<'_>,
        name: &str,
        threshold: Option<f64>,
    ) -> PyResult<()> {
        let threshold = threshold.unwrap_or(kvstore::Compression::DEFAULT_THRESHOLD);
        self.detached(py, |store| store.set_gradient_compression(name, threshold))
    }

    #[pyo3(name = "_clear_compression")]
    fn clear_gradient_compression(&self, py: Python<'_>) -> PyResult<()> {
        self.detached(py, kvstore::Store::clear_gradient_compression)
    }

    #[pyo3(name = "_set_clip_global_norm")]
    fn set_clip_global_norm(&self, py: Python<'_>, bound: f64) -> PyResult<()> {
        self.detached(py, |store| store.set_clip_global_norm(bound))
    }

    #[pyo3(name = "_clear_clip_global_norm")]
    fn clear_clip_global_norm(&self, py: Python<'_>) -> PyResult<()> {
        self.detached(py, kvstore::Store::clear_clip_global_norm)
    }

    /// Returns the bound of the global norm, or ``None`` if clipping is off.
    fn clip_global_norm(&self, py: Python<'_>) -> PyResult<Option<f64>> {
        self.detached(py, kvstore::Store::clip_global_norm)
    }

    /// Returns the complete contents of the store at this moment, without copying the values.
    fn snapshot(&self, py: Python<'_>) -> PyResult<PySnapshot> {
        self.detached(py, kvstore::Store::snapshot).map(PySnapshot::from)
    }

    /// Replaces the contents of the store with the snapshot.
    fn rollback(&self, py: Python<'_>, snapshot: &Bound<'_, PySnapshot>) -> PyResult<()> {
        let snapshot = snapshot.get().snapshot();
        self.detached(py, |store| store.rollback(snapshot))
    }

    /// Starts to write the complete contents of the store to a file, and returns at once. Values
    /// that are on servers are transferred first.
    ///
    /// With ``since``, writes a delta: see :meth:`Snapshot.checkpoint
    /// <mxkv.kvstore.Snapshot.checkpoint>`.
    ///
    /// >>> import os, tempfile, mxkv as mx
    /// >>> kv, other = mx.kv.create(), mx.kv.create()
    /// >>> kv.init('w', mx.nd.ones(2))
    /// >>> with tempfile.TemporaryDirectory() as folder:
    /// ...     kv.checkpoint(os.path.join(folder, 'model')).wait()
    /// ...     other.restore(os.path.join(folder, 'model'))
    /// >>> other.pull('w').tolist()
    /// [1.0, 1.0]
    #[pyo3(signature = (fname, since=None))]
    fn checkpoint(
        &self,
        py: Python<'_>,
        fname: PathBuf,
        since: Option<&Bound<'_, PySnapshot>>,
    ) -> PyResult<PyCheckpoint> {
        let since = since.map(|since| since.get().snapshot());
        let checkpoint = self.detached(py, |store| match since {
            None => store.checkpoint(fname),
            Some(since) => store.checkpoint_since(fname, since),
        })?;
        self.checkpoints.add(&checkpoint);
        PyCheckpoint::new(py, checkpoint)
    }

    /// Replaces the contents of the store with a checkpoint file.
    fn restore(&self, py: Python<'_>, fname: PathBuf) -> PyResult<()> {
        self.detached(py, |store| store.restore(fname))
    }

    /// Writes the optimizer states to a file. With ``dump_optimizer``, also writes the
    /// hyper-parameters.
    #[pyo3(signature = (fname, dump_optimizer = false))]
    fn save_optimizer_states(
        &self,
        py: Python<'_>,
        fname: PathBuf,
        dump_optimizer: bool,
    ) -> PyResult<()> {
        self.detached(py, |store| store.save_optimizer_states(fname, dump_optimizer))
    }

    /// Sets the optimizer states of the keys in a file. The states of other keys start anew.
    fn load_optimizer_states(&self, py: Python<'_>, fname: PathBuf) -> PyResult<()> {
        self.detached(py, |store| store.load_optimizer_states(fname))
    }

    /// Waits until every worker has called this method.
    fn barrier(&self, py: Python<'_>) -> PyResult<()> {
        self.detached(py, kvstore::Store::barrier)
    }

    /// Sets whether closing the store waits for the other workers.
    #[pyo3(signature = (barrier_before_exit = true))]
    fn set_barrier_before_exit(&self, py: Python<'_>, barrier_before_exit: bool) -> PyResult<()> {
        self.detached(py, |store| store.set_barrier_before_exit(barrier_before_exit))
    }

    #[pyo3(name = "_num_dead_node")]
    fn num_dead_node(&self, py: Python<'_>, node_id: i32) -> PyResult<usize> {
        self.detached(py, |store| store.num_dead_node(node_id))
    }

    /// Sets the weight of this worker in the weighted means of the next rounds: a finite number
    /// above 0, for example the number of examples that the next push is computed from. Raises
    /// ``UnsupportedError`` if the store was created without the option ``weight``.
    ///
    /// >>> import mxkv as mx
    /// >>> server = mx.kvstore_server.KVStoreServer('127.0.0.1:0')
    /// >>> kv = mx.kv.create('dist_quorum', servers=server.address, quorum=1, weight=1)
    /// >>> kv.set_weight(128)
    /// >>> kv.close()
    /// >>> server.close()
    fn set_weight(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = convert::weight)] weight: f64,
    ) -> PyResult<()> {
        self.detached(py, |store| store.set_weight(weight))
    }

    /// Sends a command to the server processes, if there are any.
    #[pyo3(name = "_send_command_to_servers")]
    fn send_command_to_servers(&self, py: Python<'_>, head: i32, body: &str) -> PyResult<()> {
        self.detached(py, |store| store.send_command_to_servers(head, body))
    }

    /// Returns the live members: workers, then readers, each in the order of their ranks. Only
    /// stores on servers have members that come and go.
    ///
    /// >>> import mxkv as mx
    /// >>> server = mx.kvstore_server.KVStoreServer('127.0.0.1:0')
    /// >>> kv = mx.kv.create('dist_async', servers=server.address, member='trainer')
    /// >>> kv.members()
    /// [Member(name='trainer', rank=0, is_reader=False)]
    /// >>> kv.close()
    /// >>> server.close()
    fn members<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        members::to_python(py, &self.detached(py, kvstore::Store::members)?)
    }

    #[pyo3(name = "_on_member")]
    fn on_member(&self, py: Python<'_>, function: Py<PyAny>) -> PyResult<()> {
        self.detached(py, move |store| store.on_member(members::caller(function)))
    }

    #[pyo3(name = "_on_rewind")]
    fn on_rewind(&self, py: Python<'_>, function: Py<PyAny>) -> PyResult<()> {
        self.detached(py, move |store| store.on_rewind(members::rewind_caller(function)))
    }

    /// Leaves the group of the servers. Later calls raise ``ClosedError``, except ``close``.
    fn leave(&self, py: Python<'_>) -> PyResult<()> {
        self.detached(py, kvstore::Store::leave)
    }

    /// Returns the number of pushes that have changed a key since it was initialised.
    ///
    /// >>> import mxkv as mx
    /// >>> kv = mx.kv.create()
    /// >>> kv.init('w', mx.nd.ones(2))
    /// >>> kv.push('w', mx.nd.ones(2))
    /// >>> kv.version('w')
    /// 1
    fn version(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<u64> {
        let key = keys::any(key)?;
        self.detached(py, |store| store.version(&key))
    }

    /// Writes a checkpoint on the servers: each server writes its part to the folder ``name`` in
    /// its folder ``checkpoints``. ``restore`` reads the folder if it has all parts.
    fn checkpoint_on_servers(&self, py: Python<'_>, name: &str) -> PyResult<()> {
        self.detached(py, |store| store.checkpoint_on_servers(name))
    }
}

fn is_truthy(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    object.is_truthy()
}
