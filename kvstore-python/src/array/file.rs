//! Files of arrays in the format of MXNet.

use std::path::PathBuf;

use kvstore::{ArrayList, NDArray, fallible};
use pyo3::prelude::*;
use pyo3::types::PyList;

use super::classes::PyArray;
use crate::interpreter::error::detached;
use crate::interpreter::lists;

/// The names and the arrays of a file.
type LoadedArrays<'py> = (Bound<'py, PyList>, Bound<'py, PyList>);

/// Writes arrays to a file, with or without names.
#[pyfunction]
#[pyo3(signature = (file, names, arrays))]
pub(crate) fn save(
    py: Python<'_>,
    file: PathBuf,
    names: Option<&Bound<'_, PyAny>>,
    #[pyo3(from_py_with = lists::read)] arrays: Vec<Bound<'_, PyArray>>,
) -> PyResult<()> {
    let names: Option<Vec<String>> = names.map(lists::read).transpose()?;
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

/// Returns the names and the arrays of a file. The list of names is empty for a file without names.
#[pyfunction]
pub(crate) fn load(py: Python<'_>, file: PathBuf) -> PyResult<LoadedArrays<'_>> {
    let list = detached(py, || kvstore::read_arrays(file))?;
    let arrays = lists::new(py, list.arrays().iter().cloned().map(PyArray::from))?;
    Ok((lists::new(py, list.names())?, arrays))
}
