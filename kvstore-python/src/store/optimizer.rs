//! The classes `Optimizer`, `OptimizerState` and `LrScheduler`.

use std::sync::{Mutex, MutexGuard, PoisonError};

use kvstore::{LrScheduler, NDArray, Optimizer, OptimizerState, Tensor, Value, Warmup, fallible};
use pyo3::exceptions::{PyAttributeError, PyIndexError};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyTuple};

use crate::arguments::keys;
use crate::array::classes::{PyArray, PyRows};
use crate::array::operand;
use crate::convert;
use crate::interpreter::error::{about, detached, invalid, to_python, wrong_class};
use crate::interpreter::{finalization, lists};

/// An optimizer: its name and its hyper-parameters. A store copies it when the optimizer is set.
#[pyclass(frozen, subclass, name = "Optimizer", module = "mxkv._native")]
#[derive(Debug)]
pub(crate) struct PyOptimizer {
    /// The optimizer without its schedule.
    optimizer: Mutex<Optimizer>,
    schedule: Mutex<Option<Py<PyScheduler>>>,
}

impl PyOptimizer {
    /// Returns the optimizer with the current `base_lr` of its schedule.
    pub(crate) fn optimizer(&self, py: Python<'_>) -> PyResult<Optimizer> {
        let mut optimizer = self.lock().clone();
        let Some(schedule) = self.schedule(py) else { return Ok(optimizer) };
        let schedule = schedule.get();
        optimizer.set("learning_rate", schedule.base_lr()).map_err(|error| to_python(py, error))?;
        Ok(optimizer.with_scheduler(schedule.schedule.clone()))
    }

    fn lock(&self) -> MutexGuard<'_, Optimizer> {
        self.optimizer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl PyOptimizer {
    #[new]
    #[pyo3(signature = (name, options, scheduler))]
    #[expect(clippy::needless_pass_by_value, reason = "PyO3 converts a Python list to a vector")]
    fn new(
        py: Python<'_>,
        name: &str,
        options: Vec<(String, f64)>,
        scheduler: Option<&Bound<'_, PyScheduler>>,
    ) -> PyResult<Self> {
        let optimizer =
            Optimizer::from_options(name, &options).map_err(|error| to_python(py, error))?;
        let schedule = Mutex::new(scheduler.map(|scheduler| scheduler.clone().unbind()));
        Ok(Self { optimizer: Mutex::new(optimizer), schedule })
    }

    #[getter(_scheduler)]
    fn schedule(&self, py: Python<'_>) -> Option<Py<PyScheduler>> {
        let schedule = self.schedule.lock().unwrap_or_else(PoisonError::into_inner);
        schedule.as_ref().map(|schedule| schedule.clone_ref(py))
    }

    #[pyo3(name = "_set_scheduler", signature = (scheduler))]
    fn set_schedule(&self, scheduler: Option<Py<PyScheduler>>) {
        let mut schedule = self.schedule.lock().unwrap_or_else(PoisonError::into_inner);
        let old = std::mem::replace(&mut *schedule, scheduler);
        // Dropping the old schedule can run Python code that uses this optimizer.
        drop(schedule);
        drop(old);
    }

    /// A schedule may refer to its optimizer: the collector must see that cycle.
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        // Waiting could block the collector for ever. An object that is in use is not garbage.
        match self.schedule.try_lock() {
            Ok(schedule) => schedule.as_ref().map_or(Ok(()), |schedule| visit.call(schedule)),
            Err(_) => Ok(()),
        }
    }

    fn __clear__(&self) {
        self.set_schedule(None);
    }

    /// The name for :func:`mxkv.optimizer.create`.
    #[getter]
    fn name(&self) -> &'static str {
        self.lock().name()
    }

    #[pyo3(name = "_hyper_parameters")]
    fn hyper_parameters(&self, py: Python<'_>) -> PyResult<Vec<(&'static str, f64)>> {
        self.optimizer(py).map(|optimizer| optimizer.hyper_parameters())
    }

    #[pyo3(name = "_set")]
    fn set(&self, py: Python<'_>, name: &str, value: f64) -> PyResult<()> {
        // Creating an exception runs Python code, so release the lock first.
        let changed = self.lock().set(name, value);
        changed.map_err(|error| to_python(py, error))
    }

    /// Multiplies the learning rate, or the weight decay, of one key.
    #[pyo3(name = "_multiply")]
    fn multiply(&self, py: Python<'_>, what: &str, key: &str, factor: f64) -> PyResult<()> {
        let key = keys::of_text(py, key)?;
        let multiply = match what {
            "lr" => Optimizer::with_lr_multiplier,
            "wd" => Optimizer::with_wd_multiplier,
            _ => return Err(invalid(py, format!("what: expected `lr` or `wd`, found `{what}`"))),
        };
        let mut optimizer = self.lock();
        let changed = multiply(optimizer.clone(), key, factor).map(|new| *optimizer = new);
        // Creating an exception runs Python code, so release the lock first.
        drop(optimizer);
        changed.map_err(|error| to_python(py, error))
    }

    #[pyo3(name = "_create_state")]
    fn create_state(&self, py: Python<'_>, weight: &Bound<'_, PyAny>) -> PyResult<PyState> {
        let optimizer = self.optimizer(py)?;
        let weight =
            operand::value(py, weight).map_err(|error| about(py, error, None, "weight"))?;
        let weight = detached(py, || weight.to_dense())?;
        detached(py, || optimizer.create_state(&weight)).map(PyState::from)
    }

    /// Updates a weight in place. Weight and gradient may be dense or row-sparse.
    #[pyo3(name = "_update")]
    fn update(
        &self,
        py: Python<'_>,
        key: &str,
        weight: &Bound<'_, PyAny>,
        gradient: &Bound<'_, PyAny>,
        state: &Bound<'_, PyState>,
    ) -> PyResult<()> {
        let (optimizer, key) = (self.optimizer(py)?, keys::of_text(py, key)?);
        let gradient = operand::value(py, gradient)
            .map_err(|error| about(py, error, Some(&key), "gradient"))?;
        let state = state.get();
        let step = |weight: &NDArray| match &gradient {
            Value::Dense(gradient) => {
                let gradient = NDArray::new(gradient.clone());
                kvstore::update(&optimizer, &key, weight, &gradient, &mut state.lock())
            }
            Value::Rows(rows) => {
                kvstore::update_rows(&optimizer, &key, weight, rows, &mut state.lock())
            }
        };
        if let Ok(weight) = weight.cast::<PyArray>() {
            let weight = weight.get().array();
            return detached(py, || step(weight));
        }
        // A row-sparse weight: update its dense form, then replace its rows.
        let Ok(rows) = weight.cast::<PyRows>() else {
            let expected = "weight: expected an `NDArray` or a `RowSparseNDArray`";
            return Err(wrong_class(weight, expected));
        };
        let value = rows.get().value();
        let stepped = detached(py, || {
            let weight = NDArray::new(value.to_dense()?);
            step(&weight)?;
            Value::Dense(weight.tensor()).into_rows()
        })?;
        rows.get().replace(stepped);
        Ok(())
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let optimizer = self.optimizer(py)?;
        let parameters: Vec<String> = optimizer
            .hyper_parameters()
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        Ok(format!("<Optimizer {}: {}>", optimizer.name(), parameters.join(", ")))
    }
}

/// The state of an optimizer for one weight.
///
/// A sequence of copies of its arrays, in the order of MXNet's ``create_state``. A state of one
/// array also has the attributes of that array, such as ``shape`` and ``asnumpy()``.
///
/// >>> from mxkv import nd, optimizer
/// >>> adam, weight = optimizer.Adam(), nd.ones(2)
/// >>> state = adam.create_state(0, weight)
/// >>> mean, variance = state
/// >>> variance.tolist(), len(state)
/// ([0.0, 0.0], 2)
#[pyclass(frozen, sequence, name = "OptimizerState", module = "mxkv._native")]
#[derive(Debug)]
pub(crate) struct PyState {
    state: Mutex<OptimizerState>,
}

impl From<OptimizerState> for PyState {
    fn from(state: OptimizerState) -> Self {
        Self { state: Mutex::new(state) }
    }
}

impl PyState {
    fn lock(&self) -> MutexGuard<'_, OptimizerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl PyState {
    /// The number of updates that the weight has had.
    #[getter]
    fn num_updates(&self) -> u64 {
        self.lock().num_updates()
    }

    /// Returns copies of the arrays. For half-precision weights the ``float32`` master copy comes
    /// first.
    fn arrays(&self) -> Vec<PyArray> {
        self.lock().tensors().iter().map(array_of).collect()
    }

    /// Returns the number of parts in MXNet's layout.
    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        self.parts(py).map(|parts| parts.len())
    }

    /// Returns a part in MXNet's layout: an array, a tuple of arrays, or ``None``. Arrays are
    /// copies.
    fn __getitem__<'py>(&self, py: Python<'py>, index: isize) -> PyResult<Bound<'py, PyAny>> {
        let parts = self.parts(py)?;
        let len = parts.len().cast_signed();
        let position = if index < 0 { index + len } else { index };
        let part = usize::try_from(position).ok().and_then(|index| parts.into_iter().nth(index));
        let missing = || {
            PyIndexError::new_err(format!(
                "index {index} is out of range for a state of {len} parts"
            ))
        };
        part.ok_or_else(missing)
    }

    /// The shape of the array, if the state is one array.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.only(py, "shape")
    }

    /// The dtype of the array, if the state is one array.
    #[getter]
    fn dtype<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.only(py, "dtype")
    }

    /// The device, if the state is one array.
    #[getter]
    fn context<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.only(py, "context")
    }

    /// Returns the array as a NumPy array, if the state is one array.
    fn asnumpy<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        finalization::call(&self.only(py, "asnumpy")?, (), None)
    }

    /// Supports `pickle` and `copy`: returns the state in the format of a state file.
    fn __reduce__<'py>(
        slf: &Bound<'py, Self>,
    ) -> PyResult<(Bound<'py, PyAny>, (Bound<'py, PyBytes>,))> {
        let (py, state) = (slf.py(), slf.get());
        let bytes = detached(py, || state.lock().to_bytes(kvstore::backends()))?;
        Ok((slf.get_type().getattr("_of_bytes")?, (convert::bytes_of(py, &bytes)?,)))
    }

    /// Restores a pickled state.
    #[staticmethod]
    #[pyo3(name = "_of_bytes")]
    fn of_bytes(py: Python<'_>, content: &[u8]) -> PyResult<Self> {
        detached(py, || OptimizerState::from_bytes(kvstore::backends(), content)).map(Self::from)
    }

    fn __repr__(&self) -> String {
        format!("<OptimizerState after {} updates>", self.num_updates())
    }
}

impl PyState {
    /// Returns an attribute of the only array, because MXNet's state is that array itself.
    fn only<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
        match self.parts(py)?.as_slice() {
            [only] => only.getattr(name),
            parts => {
                let text = format!("a state of {} parts has no `{name}`", parts.len());
                Err(PyAttributeError::new_err(text))
            }
        }
    }

    /// Returns the state in MXNet's layout. For a half-precision weight: the ``float32`` master
    /// copy, then its state; for sgd and nag: the state, then the master copy.
    fn parts<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyAny>>> {
        // Creating Python objects can run code that uses this state, so release the lock first.
        let state = self.lock().clone();
        let (master, rest) = state.split_master();
        let made = |tensor: &Tensor| Bound::new(py, array_of(tensor)).map(Bound::into_any);
        let rest: Vec<_> = rest.iter().map(made).collect::<PyResult<_>>()?;
        let Some(master) = master.map(made).transpose()? else { return Ok(rest) };
        let name = state.optimizer_name().unwrap_or_default();
        let inner = match rest.as_slice() {
            [] => py.None().into_bound(py),
            [only] if name != "rmsprop" => only.clone(),
            _ => PyTuple::new(py, rest)?.into_any(),
        };
        let is_last = matches!(name, "sgd" | "nag");
        Ok(Vec::from(if is_last { [inner, master] } else { [master, inner] }))
    }
}

fn array_of(tensor: &Tensor) -> PyArray {
    NDArray::new(tensor.clone()).into()
}

/// A schedule of the learning rate.
#[pyclass(frozen, subclass, name = "LrScheduler", module = "mxkv._native")]
#[derive(Debug)]
pub(crate) struct PyScheduler {
    schedule: LrScheduler,
    base_lr: Mutex<f64>,
    arguments: Arguments,
}

/// Kind, steps, numbers and warm-up of a schedule.
type Arguments = (String, Vec<u64>, Vec<f64>, (u64, f64, String));
/// What `__reduce__` returns: the function that restores a schedule, its arguments, its attributes.
type ReducedSchedule<'py> = (Bound<'py, PyAny>, Bound<'py, PyAny>, Option<Bound<'py, PyAny>>);

impl PyScheduler {
    fn base_lr(&self) -> f64 {
        *self.base_lr.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl PyScheduler {
    /// Creates a schedule. `numbers` depends on `kind`:
    ///
    /// - `factor`: the factor and the lowest rate
    /// - `multi_factor`: the factor
    /// - `poly`: the power and the final rate
    /// - `cosine`: the final rate
    ///
    /// `warmup` is the number of warm-up updates, the first learning rate and the mode.
    #[new]
    #[pyo3(signature = (kind, steps, numbers, base_lr, warmup))]
    #[expect(clippy::needless_pass_by_value, reason = "PyO3 converts a Python list to a vector")]
    fn new(
        py: Python<'_>,
        kind: &str,
        #[pyo3(from_py_with = lists::read)] steps: Vec<u64>,
        numbers: Vec<f64>,
        base_lr: f64,
        warmup: (u64, f64, String),
    ) -> PyResult<Self> {
        let copy = fallible::copied(&steps).map_err(|error| to_python(py, error))?;
        // Keep the arguments for `__reduce__`.
        let arguments = (kind.to_owned(), copy, numbers.clone(), warmup.clone());
        let schedule = match (kind, steps.as_slice(), numbers.as_slice()) {
            ("factor", &[step], &[factor, lowest]) => {
                LrScheduler::factor(step, factor).and_then(|schedule| schedule.with_stop(lowest))
            }
            ("multi_factor", _, &[factor]) => LrScheduler::multi_factor(steps, factor),
            ("poly", &[max_update], &[power, last]) => LrScheduler::poly(max_update, power, last),
            ("cosine", &[max_update], &[last]) => LrScheduler::cosine(max_update, last),
            _ => return Err(invalid(py, format!("no schedule `{kind}` of these numbers"))),
        };
        let (warmup_steps, begin, mode) = warmup;
        let mode = match mode.as_str() {
            "linear" => Warmup::Linear,
            "constant" => Warmup::Constant,
            _ => {
                let text = format!("warmup_mode: expected `linear` or `constant`, found `{mode}`");
                return Err(invalid(py, text));
            }
        };
        if begin > base_lr {
            let text =
                format!("warmup_begin_lr: expected at most base_lr, {base_lr}, found {begin}");
            return Err(invalid(py, text));
        }
        let warmed = schedule.and_then(|schedule| match warmup_steps {
            0 => Ok(schedule),
            steps => schedule.with_warmup(steps, begin, mode),
        });
        let schedule = warmed.map_err(|error| to_python(py, error))?;
        Ok(Self { schedule, base_lr: Mutex::new(base_lr), arguments })
    }

    /// The learning rate at the start of the schedule.
    #[getter(base_lr)]
    fn get_base_lr(&self) -> f64 {
        self.base_lr()
    }

    #[setter(base_lr)]
    fn set_base_lr(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = convert::base_lr)] base_lr: f64,
    ) -> PyResult<()> {
        // Uses the limits of `learning_rate`, which every optimizer has.
        Optimizer::sgd().set("learning_rate", base_lr).map_err(|error| to_python(py, error))?;
        *self.base_lr.lock().unwrap_or_else(PoisonError::into_inner) = base_lr;
        Ok(())
    }

    /// Supports `pickle` and `copy`: returns the arguments, and the attributes of a subclass.
    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<ReducedSchedule<'py>> {
        static RESTORED: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let restored = RESTORED.import(slf.py(), "mxkv.lr_scheduler", "_restored")?.clone();
        let (py, (kind, steps, numbers, warmup)) = (slf.py(), &slf.get().arguments);
        let steps = lists::new(py, steps)?;
        let arguments = (slf.get_type(), kind, steps, numbers, slf.get().base_lr(), warmup);
        let attributes = slf.getattr_opt("__dict__")?;
        Ok((restored, arguments.into_pyobject(py)?.into_any(), attributes))
    }

    /// Returns the learning rate of a key's update with this number, counted from 1.
    fn __call__(&self, #[pyo3(from_py_with = convert::num_update)] num_update: u64) -> f64 {
        self.schedule.learning_rate(self.base_lr(), num_update)
    }

    fn __repr__(&self) -> String {
        format!("<LrScheduler from {}>", self.base_lr())
    }
}

/// Returns whether a hyper-parameter is a boolean, so that `True` and `False` are valid values.
#[pyfunction]
pub(crate) fn is_flag(name: &str) -> bool {
    Optimizer::is_flag(name)
}

/// Returns the name of every optimizer.
#[pyfunction]
pub(crate) fn optimizer_names() -> Vec<&'static str> {
    Optimizer::names().collect()
}
