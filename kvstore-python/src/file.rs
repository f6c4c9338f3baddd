//! Files of arrays in MXNet's format.

use std::path::PathBuf;

use kvstore::{ArrayList, NDArray};
use pyo3::prelude::*;

use crate::error::{detached, to_python};
use crate::ndarray::PyArray;

/// Writes arrays to a file, with names or without.
#[pyfunction]
#[pyo3(signature = (file, names, arrays))]
pub(crate) fn save(
    py: Python<'_>,
    file: PathBuf,
    names: Option<Vec<String>>,
    arrays: Vec<Bound<'_, PyArray>>,
) -> PyResult<()> {
    let arrays: Vec<NDArray> =
        arrays.into_iter().map(|array| array.get().array().clone()).collect();
    let list = match names {
        Some(names) => ArrayList::named(names.into_iter().zip(arrays)),
        None => ArrayList::unnamed(arrays),
    };
    detached(py, move || list.write(file))
}

/// Returns the names, or nothing at all, and the arrays of a file.
#[pyfunction]
pub(crate) fn load(py: Python<'_>, file: PathBuf) -> PyResult<(Vec<String>, Vec<PyArray>)> {
    let list = detached(py, || kvstore::read_arrays(file))?;
    let arrays = list.arrays().iter().cloned().map(PyArray::from).collect();
    let names = kvstore::fallible::copied(list.names());
    Ok((names.map_err(|error| to_python(py, error))?, arrays))
}
