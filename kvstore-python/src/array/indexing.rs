//! `array[..]`: an element, a row or a range of rows. Each is a view: writing it changes the array.

use kvstore::NDArray;
use pyo3::exceptions::PyIndexError;
use pyo3::prelude::*;
use pyo3::types::{PyEllipsis, PySlice, PyTuple};

use super::operand;
use crate::convert;
use crate::interpreter::error::{detached, optional, to_python, type_error, wrong_class};
use crate::interpreter::finalization;
use crate::numpy;

/// Returns the part of an array that an index selects: an integer, a slice with step 1, or a tuple
/// of integers for the first axes with at most one slice at the end.
pub(crate) fn part(array: &NDArray, index: &Bound<'_, PyAny>) -> PyResult<NDArray> {
    let Ok(indices) = index.cast::<PyTuple>() else { return along_first(array, index) };
    let mut part = array.clone();
    let mut is_last = false;
    for index in indices.iter() {
        if is_last && !is_all(&index)? {
            return Err(invalid_index(&index, "only `:` can follow a slice")?);
        }
        if is_last {
            continue;
        }
        is_last = index.is_instance_of::<PySlice>() || index.is_instance_of::<PyEllipsis>();
        part = along_first(&part, &index)?;
    }
    Ok(part)
}

/// Overwrites the elements of a part with a number, an array, or nested lists.
pub(crate) fn assign(part: &NDArray, value: &Bound<'_, PyAny>) -> PyResult<()> {
    let py = value.py();
    if let Some(number) = convert::number(value, part.dtype())? {
        return detached(py, || part.fill(number));
    }
    let array = if let Some(array) = operand::array(value)? {
        array
    } else {
        let array = numpy::asarray(value)?;
        operand::array(&array)?.ok_or_else(|| wrong_class(value, "value: expected an array"))?
    };
    detached(py, move || part.assign(&array.tensor()))
}

/// Fails with `reason` if the index is not `:` or `...`.
pub(crate) fn check_all(index: &Bound<'_, PyAny>, reason: &str) -> PyResult<()> {
    if is_all(index)? {
        return Ok(());
    }
    let text = shown(index)?;
    Err(type_error(index.py(), format!("index {text}: {reason}")))
}

fn along_first(array: &NDArray, index: &Bound<'_, PyAny>) -> PyResult<NDArray> {
    let py = index.py();
    if is_all(index)? {
        return Ok(array.clone());
    }
    let rows = array.shape().num_rows();
    if let Ok(slice) = index.cast::<PySlice>() {
        let range = slice.indices(rows.cast_signed())?;
        if range.step != 1 {
            return Err(invalid_index(index, "expected a slice with step 1")?);
        }
        let (start, stop) = (range.start.cast_unsigned(), range.stop.cast_unsigned());
        return array.slice(start, stop.max(start)).map_err(|error| to_python(py, error));
    }
    if array.shape().rank() == 0 {
        return Err(PyIndexError::new_err("a scalar array has no rows"));
    }
    let Some(number) = optional(py, index.extract::<isize>())? else {
        return Err(invalid_index(index, "expected an integer or a slice")?);
    };
    // As in Python, a negative index counts from the end.
    let from_start = if number < 0 { number.saturating_add_unsigned(rows) } else { number };
    let row = usize::try_from(from_start).ok().filter(|row| *row < rows).ok_or_else(|| {
        PyIndexError::new_err(format!(
            "row index {number} is out of range for {}: expected at least -{rows} and less than \
             {rows}",
            array.spec()
        ))
    })?;
    array.at(row).map_err(|error| to_python(py, error))
}

/// Returns whether the index is `:` or `...`.
fn is_all(index: &Bound<'_, PyAny>) -> PyResult<bool> {
    if index.is_instance_of::<PyEllipsis>() {
        return Ok(true);
    }
    let Ok(slice) = index.cast::<PySlice>() else { return Ok(false) };
    let parts = ["start", "stop", "step"].map(|name| slice.getattr(name));
    parts.into_iter().try_fold(true, |all, part| Ok(all && part?.is_none()))
}

fn invalid_index(index: &Bound<'_, PyAny>, reason: &str) -> PyResult<PyErr> {
    let text = shown(index)?;
    Ok(type_error(index.py(), format!("index {text}: {reason}; use `asnumpy()` for others")))
}

/// Returns the index as Python prints it, or an empty string if its class fails to print it.
fn shown(index: &Bound<'_, PyAny>) -> PyResult<String> {
    let text = finalization::repr(index).and_then(|text| text.extract::<String>());
    Ok(optional(index.py(), text)?.unwrap_or_default())
}
