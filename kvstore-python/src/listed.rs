//! Lists in arguments: one item, a list, or a list of lists.

use kvstore::Arrays;
use pyo3::prelude::*;
use pyo3::types::{PyInt, PyList, PyTuple};

use crate::error::type_error;
use crate::ndarray::PyArray;

/// Returns whether an argument is a list or a tuple. Neither is an array, and to ask them for what arrays have takes
/// longer than to read them.
pub(crate) fn is_list(object: &Bound<'_, PyAny>) -> bool {
    // What it mostly is is seen without a call.
    if object.is_exact_instance_of::<PyArray>() || object.is_exact_instance_of::<PyInt>() {
        return false;
    }
    object.is_exact_instance_of::<PyList>()
        || object.is_instance_of::<PyList>()
        || object.is_instance_of::<PyTuple>()
}

/// Returns how many items a list or tuple has now.
pub(crate) fn len(object: &Bound<'_, PyAny>) -> usize {
    // Not what a class of its own says that it has.
    match (object.cast::<PyList>(), object.cast::<PyTuple>()) {
        (Ok(list), _) => list.len(),
        (_, Ok(tuple)) => tuple.len(),
        _ => 0,
    }
}

/// Calls `item` with each item of a list or tuple. It may run code of Python's that changes the list.
pub(crate) fn each<'py>(
    object: &Bound<'py, PyAny>,
    name: &str,
    mut item: impl FnMut(&Bound<'py, PyAny>) -> PyResult<()>,
) -> PyResult<()> {
    if let Ok(list) = object.cast::<PyList>() {
        return list.iter().try_for_each(|element| item(&element));
    }
    let tuple = object.cast::<PyTuple>().map_err(|_| unexpected(object, name))?;
    tuple.iter_borrowed().try_for_each(|element| item(&element))
}

/// Returns one item, a list, or a list of lists; in the last a single item stands for a list of one. `item` returns
/// nothing for what is none.
pub(crate) fn nested<'py, T>(
    object: &Bound<'py, PyAny>,
    name: &str,
    mut item: impl FnMut(&Bound<'py, PyAny>) -> PyResult<Option<T>>,
) -> PyResult<Arrays<T>> {
    if !is_list(object) {
        let one = item(object)?.ok_or_else(|| unexpected(object, name))?;
        return Ok(Arrays::One(one));
    }
    let mut arrays = Vec::with_capacity(len(object));
    // From the first list on, how long each is.
    let mut lengths: Option<Vec<usize>> = None;
    each(object, name, |element| {
        if !is_list(element) {
            arrays.push(item(element)?.ok_or_else(|| unexpected(element, name))?);
            if let Some(lengths) = &mut lengths {
                lengths.push(1);
            }
            return Ok(());
        }
        let before = arrays.len();
        each(element, name, |element| {
            arrays.push(item(element)?.ok_or_else(|| unexpected(element, name))?);
            Ok(())
        })?;
        let found = arrays.len() - before;
        lengths.get_or_insert_with(|| vec![1; before]).push(found);
        Ok(())
    })?;
    Ok(match lengths {
        None => Arrays::Many(arrays),
        Some(lengths) => Arrays::Nested { arrays, lengths },
    })
}

pub(crate) fn unexpected(object: &Bound<'_, PyAny>, name: &str) -> PyErr {
    let class = object.get_type().name().map(|it| it.to_string()).unwrap_or_default();
    let text = format!(
        "{name}: expected an array, a list of arrays or a list of such lists, found a `{class}`"
    );
    type_error(object.py(), text)
}
