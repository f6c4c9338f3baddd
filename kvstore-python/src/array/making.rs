//! The functions that create arrays.

use kvstore::{NDArray, Range, fallible};
use pyo3::prelude::*;

use super::classes::PyArray;
use super::operand;
use crate::convert::{self, DeviceName};
use crate::interpreter::error::{detached, invalid, to_python, wrong_class};
use crate::interpreter::lists;

/// Returns an array with every element set to a number.
#[pyfunction]
pub(crate) fn full(
    py: Python<'_>,
    shape: &Bound<'_, PyAny>,
    value: &Bound<'_, PyAny>,
    dtype: &str,
    device: DeviceName,
) -> PyResult<PyArray> {
    let shape = convert::shape(shape)?;
    let (dtype, device) = (convert::dtype(py, dtype)?, convert::device(py, device)?);
    let value = convert::number(value, dtype)?
        .ok_or_else(|| convert::wrong_type(value, "value: expected a number"))?;
    detached(py, || kvstore::full(shape, value, dtype, device)).map(PyArray::from)
}

/// Returns a new array with the elements of an array of any library. Converts them to ``dtype`` and
/// moves them to ``device``, unless these are ``None``.
#[pyfunction]
#[pyo3(signature = (source, dtype, device))]
pub(crate) fn from_array(
    py: Python<'_>,
    source: &Bound<'_, PyAny>,
    dtype: Option<&str>,
    device: Option<DeviceName>,
) -> PyResult<PyArray> {
    let array = operand::array(source)?
        .ok_or_else(|| wrong_class(source, "source: expected an array of any library"))?;
    let dtype = dtype.map_or(Ok(array.dtype()), |name| convert::dtype(py, name))?;
    let device = device.map_or(Ok(array.device()), |name| convert::device(py, name))?;
    let made = move || array.as_type(dtype)?.to_device(kvstore::backends(), device)?.copy();
    detached(py, made).map(PyArray::from)
}

/// Returns the numbers from ``start`` up to but not including ``stop``, each ``repeat`` times.
#[pyfunction]
#[expect(clippy::similar_names, reason = "the parameter names of NumPy's and MXNet's `arange`")]
pub(crate) fn arange(
    py: Python<'_>,
    #[pyo3(from_py_with = convert::start)] start: f64,
    #[pyo3(from_py_with = convert::stop)] stop: f64,
    #[pyo3(from_py_with = convert::step)] step: f64,
    #[pyo3(from_py_with = convert::repeat)] repeat: usize,
    dtype: &str,
    device: DeviceName,
) -> PyResult<PyArray> {
    let (dtype, device) = (convert::dtype(py, dtype)?, convert::device(py, device)?);
    let range = Range { start, stop, step, repeat };
    detached(py, move || kvstore::arange(range, dtype, device)).map(PyArray::from)
}

/// Returns the arrays joined along an axis.
#[pyfunction]
#[expect(clippy::needless_pass_by_value, reason = "PyO3 converts a Python list to a vector")]
pub(crate) fn concatenate<'py>(
    py: Python<'py>,
    #[pyo3(from_py_with = lists::read)] arrays: Vec<Bound<'py, PyArray>>,
    #[pyo3(from_py_with = convert::axis)] axis: isize,
) -> PyResult<Bound<'py, PyAny>> {
    let first = arrays.first().ok_or_else(|| invalid(py, "concatenate: no arrays"))?;
    let parts = fallible::collect(arrays.iter().map(|array| array.get().array().clone()));
    let parts: Vec<NDArray> = parts.map_err(|error| to_python(py, error))?;
    let array = first.get().array();
    let rank = array.shape().rank();
    let from_first = if axis < 0 { axis.saturating_add_unsigned(rank) } else { axis };
    let axis = usize::try_from(from_first).map_err(|_| {
        let spec = array.spec();
        let text = format!(
            "concatenate: axis {axis} is out of range for {spec}: expected at least -{rank}"
        );
        invalid(py, text)
    })?;
    let joined = detached(py, move || NDArray::concatenate(&parts, axis))?;
    PyArray::as_class_of(first, joined)
}

/// Sets the seed of the random numbers.
#[pyfunction]
pub(crate) fn random_seed(seed: i64) {
    kvstore::random::seed(seed.cast_unsigned());
}

/// Returns numbers that are uniformly distributed between ``low`` and ``high``.
#[pyfunction]
pub(crate) fn random_uniform(
    py: Python<'_>,
    #[pyo3(from_py_with = convert::low)] low: f64,
    #[pyo3(from_py_with = convert::high)] high: f64,
    shape: &Bound<'_, PyAny>,
    dtype: &str,
    device: DeviceName,
) -> PyResult<PyArray> {
    let shape = convert::shape(shape)?;
    let (dtype, device) = (convert::dtype(py, dtype)?, convert::device(py, device)?);
    let made = move || kvstore::random::uniform(low, high, shape, dtype, device);
    detached(py, made).map(PyArray::from)
}

/// Returns normally distributed numbers.
#[pyfunction]
pub(crate) fn random_normal(
    py: Python<'_>,
    #[pyo3(from_py_with = convert::loc)] loc: f64,
    #[pyo3(from_py_with = convert::scale)] scale: f64,
    shape: &Bound<'_, PyAny>,
    dtype: &str,
    device: DeviceName,
) -> PyResult<PyArray> {
    let shape = convert::shape(shape)?;
    let (dtype, device) = (convert::dtype(py, dtype)?, convert::device(py, device)?);
    let made = move || kvstore::random::normal(loc, scale, shape, dtype, device);
    detached(py, made).map(PyArray::from)
}
