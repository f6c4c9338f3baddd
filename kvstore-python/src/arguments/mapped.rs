//! Mappings of key to array, as an alternative to separate lists of keys and arrays.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyInt, PyList, PyMapping, PyString};

use super::listed;
use crate::array::classes::PyArray;
use crate::interpreter::error::{about, type_error};
use crate::interpreter::finalization;

type KeysAndArrays<'py> = (Bound<'py, PyAny>, Bound<'py, PyAny>);

/// Returns whether the keys are a mapping of key to array. Tests the most frequent other types
/// first, because that needs no call.
pub(crate) fn is_map(keys: &Bound<'_, PyAny>) -> bool {
    let is_usual = keys.is_exact_instance_of::<PyInt>()
        || keys.is_exact_instance_of::<PyString>()
        || keys.is_exact_instance_of::<PyArray>()
        || listed::is_list(keys);
    !is_usual && keys.is_instance_of::<PyMapping>()
}

/// Returns the keys and arrays of a mapping if `keys` is one and `arrays` is `None`. Otherwise
/// returns the arguments unchanged.
///
/// # Errors
/// - A `TypeError` if `keys` is a mapping and `arrays` is given.
/// - A `TypeError` if `keys` is not a mapping and `arrays` is `None`.
pub(crate) fn apart<'py>(
    keys: &Bound<'py, PyAny>,
    arrays: Option<&Bound<'py, PyAny>>,
    name: &str,
) -> PyResult<KeysAndArrays<'py>> {
    match arrays {
        Some(_) if is_map(keys) => Err(type_error(
            keys.py(),
            "after a map of keys to arrays, pass the other arguments by name, such as `priority=1`",
        )),
        Some(arrays) => Ok((keys.clone(), arrays.clone())),
        None if is_map(keys) => items(keys),
        None => {
            let py = keys.py();
            let missing = listed::unexpected(py.None().bind(py), listed::Place::Itself);
            Err(about(py, missing, None, name))
        }
    }
}

/// Returns keys and outputs of a verb that also has values. If the values are a mapping, the
/// outputs must be a mapping with keys of its own.
///
/// # Errors
/// - A `TypeError` if only one of `keys` and `outs` is a mapping.
pub(crate) fn beside<'py>(
    keys: &Bound<'py, PyAny>,
    outs: &Bound<'py, PyAny>,
) -> PyResult<KeysAndArrays<'py>> {
    match (is_map(keys), is_map(outs)) {
        (true, true) => items(outs),
        (false, false) => Ok((keys.clone(), outs.clone())),
        _ => {
            let text = "out: expected a map of keys to arrays if and only if the values are a map";
            Err(type_error(keys.py(), text))
        }
    }
}

fn items<'py>(map: &Bound<'py, PyAny>) -> PyResult<KeysAndArrays<'py>> {
    let (keys, arrays) = (PyList::empty(map.py()), PyList::empty(map.py()));
    let (py, name) = (map.py(), intern!(map.py(), "items"));
    let items = finalization::call_method(map, name, ())?;
    let items = finalization::call(&py.get_type::<PyList>(), (items,), None)?;
    for item in items.cast_into::<PyList>()? {
        let (key, array): (Bound<'py, PyAny>, Bound<'py, PyAny>) =
            item.extract().map_err(|_| {
                type_error(map.py(), "expected a map whose items are pairs of a key and an array")
            })?;
        keys.append(key)?;
        arrays.append(array)?;
    }
    Ok((keys.into_any(), arrays.into_any()))
}
