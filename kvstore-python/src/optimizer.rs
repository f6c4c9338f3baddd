//! The classes `Optimizer`, `OptimizerState` and `LrScheduler`.

use std::sync::{Mutex, MutexGuard, PoisonError};

use kvstore::{LrScheduler, NDArray, Optimizer, OptimizerState, Warmup};
use pyo3::prelude::*;

use crate::error::{about, detached, invalid, to_python};
use crate::ndarray::{self, PyArray};
use crate::{convert, keys};

/// An optimizer: its name and its hyper-parameters. A store that gets it takes them as they are at that moment.
#[pyclass(frozen, subclass, name = "Optimizer", module = "mxkv._native")]
#[derive(Debug)]
pub(crate) struct PyOptimizer {
    optimizer: Mutex<Optimizer>,
}

impl PyOptimizer {
    pub(crate) fn optimizer(&self) -> Optimizer {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Optimizer> {
        self.optimizer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl PyOptimizer {
    #[new]
    #[pyo3(signature = (name, options, scheduler))]
    #[expect(clippy::needless_pass_by_value, reason = "a list of Python's becomes a vector")]
    fn new(
        py: Python<'_>,
        name: &str,
        options: Vec<(String, f64)>,
        scheduler: Option<&Bound<'_, PyScheduler>>,
    ) -> PyResult<Self> {
        let mut optimizer =
            Optimizer::from_options(name, &options).map_err(|error| to_python(py, error))?;
        if let Some(scheduler) = scheduler {
            optimizer = optimizer.with_scheduler(scheduler.get().schedule.clone());
        }
        Ok(Self { optimizer: Mutex::new(optimizer) })
    }

    /// The name by which :func:`mxkv.optimizer.create` knows it.
    #[getter]
    fn name(&self) -> &'static str {
        self.lock().name()
    }

    #[pyo3(name = "_hyper_parameters")]
    fn hyper_parameters(&self) -> Vec<(&'static str, f64)> {
        self.lock().hyper_parameters()
    }

    #[pyo3(name = "_set")]
    fn set(&self, py: Python<'_>, name: &str, value: f64) -> PyResult<()> {
        self.lock().set(name, value).map_err(|error| to_python(py, error))
    }

    /// Multiplies the learning rate, or the weight decay, of one key.
    #[pyo3(name = "_multiply")]
    fn multiply(&self, py: Python<'_>, what: &str, key: &str, factor: f64) -> PyResult<()> {
        let key = keys::of_text(py, key)?;
        let mut optimizer = self.lock();
        let changed = match what {
            "lr" => optimizer.clone().with_lr_multiplier(key, factor),
            "wd" => optimizer.clone().with_wd_multiplier(key, factor),
            _ => return Err(invalid(py, format!("what: expected `lr` or `wd`, found `{what}`"))),
        };
        *optimizer = changed.map_err(|error| to_python(py, error))?;
        Ok(())
    }

    #[pyo3(name = "_create_state")]
    fn create_state(&self, py: Python<'_>, weight: &Bound<'_, PyAny>) -> PyResult<PyState> {
        let (optimizer, weight) = (self.optimizer(), ndarray::tensor(py, weight)?);
        detached(py, || optimizer.create_state(&weight)).map(PyState::from)
    }

    #[pyo3(name = "_update")]
    fn update(
        &self,
        py: Python<'_>,
        key: &str,
        weight: &Bound<'_, PyArray>,
        gradient: &Bound<'_, PyAny>,
        state: &Bound<'_, PyState>,
    ) -> PyResult<()> {
        let (optimizer, key) = (self.optimizer(), keys::of_text(py, key)?);
        let gradient = ndarray::tensor(py, gradient)
            .map_err(|error| about(py, error, Some(&key), "gradient"))?;
        let gradient = NDArray::new(gradient);
        let (weight, state) = (weight.get().array(), state.get());
        detached(py, || kvstore::update(&optimizer, &key, weight, &gradient, &mut state.lock()))
    }

    fn __repr__(&self) -> String {
        let optimizer = self.lock();
        let parameters: Vec<String> = optimizer
            .hyper_parameters()
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        format!("<Optimizer {}: {}>", optimizer.name(), parameters.join(", "))
    }
}

/// What an optimizer keeps for one weight.
#[pyclass(frozen, name = "OptimizerState", module = "mxkv._native")]
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
    /// How many updates the weight has had.
    #[getter]
    fn num_updates(&self) -> u64 {
        self.lock().num_updates()
    }

    /// Returns the arrays of the state.
    fn arrays(&self) -> Vec<PyArray> {
        let tensors = self.lock().tensors().to_vec();
        tensors.into_iter().map(|tensor| PyArray::from(NDArray::new(tensor))).collect()
    }

    fn __repr__(&self) -> String {
        format!("<OptimizerState after {} updates>", self.num_updates())
    }
}

/// A schedule of the learning rate.
#[pyclass(frozen, subclass, name = "LrScheduler", module = "mxkv._native")]
#[derive(Debug)]
pub(crate) struct PyScheduler {
    schedule: LrScheduler,
    base_lr: f64,
}

#[pymethods]
impl PyScheduler {
    /// Makes the schedule of this kind. `numbers` are its factor and lowest rate, its factor, its power and final
    /// rate, or its final rate; `warmup` is how many updates it takes, where it begins, and how.
    #[new]
    #[pyo3(signature = (kind, steps, numbers, base_lr, warmup))]
    #[expect(clippy::needless_pass_by_value, reason = "a list of Python's becomes a vector")]
    fn new(
        py: Python<'_>,
        kind: &str,
        steps: Vec<u64>,
        numbers: Vec<f64>,
        base_lr: f64,
        warmup: (u64, f64, String),
    ) -> PyResult<Self> {
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
        Ok(Self { schedule: warmed.map_err(|error| to_python(py, error))?, base_lr })
    }

    /// The learning rate at which the schedule begins.
    #[getter]
    fn base_lr(&self) -> f64 {
        self.base_lr
    }

    /// Returns the learning rate of a key's update with this number, counted from 1.
    fn __call__(&self, #[pyo3(from_py_with = convert::num_update)] num_update: u64) -> f64 {
        self.schedule.learning_rate(self.base_lr, num_update)
    }

    fn __repr__(&self) -> String {
        format!("<LrScheduler from {}>", self.base_lr)
    }
}

/// Returns whether a hyper-parameter is 0 or 1, which Python's booleans are, too.
#[pyfunction]
pub(crate) fn is_flag(name: &str) -> bool {
    Optimizer::is_flag(name)
}

/// Returns the name of every optimizer.
#[pyfunction]
pub(crate) fn optimizer_names() -> Vec<&'static str> {
    Optimizer::names().collect()
}
