//! Files of arrays in MXNet's format.

use std::path::PathBuf;

use kvstore::{ArrayList, NDArray, fallible};
use pyo3::prelude::*;

use super::classes::PyArray;
use crate::interpreter::error::{detached, to_python};

/// Writes arrays to a file, with names or without.
#[pyfunction]
#[pyo3(signature = (file, names, arrays))]
pub(crate) fn save(
    py: Python<'_>,
    file: PathBuf,
    names: Option<Vec<String>>,
    arrays: Vec<Bound<'_, PyArray>>,
) -> PyResult<()> {
    let arrays = arrays.into_iter().map(|array| array.get().array().clone());
    let arrays: kvstore::Result<Vec<NDArray>> = fallible::collect(arrays);
    detached(py, move || {
        let list = match names {
            Some(names) => ArrayList::named(names.into_iter().zip(arrays?)),
            None => ArrayList::unnamed(arrays?),
        };
        list?.write(file)
    })
}

/// Returns the names, or nothing at all, and the arrays of a file.
#[pyfunction]
pub(crate) fn load(py: Python<'_>, file: PathBuf) -> PyResult<(Vec<String>, Vec<PyArray>)> {
    let list = detached(py, || kvstore::read_arrays(file))?;
    let loaded = || {
        let arrays = fallible::collect(list.arrays().iter().cloned().map(PyArray::from))?;
        Ok((fallible::copied(list.names())?, arrays))
    };
    loaded().map_err(|error| to_python(py, error))
}
