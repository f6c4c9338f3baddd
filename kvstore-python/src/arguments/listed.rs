//! Lists in arguments: one item, a list, or a list of lists.

use std::fmt;

use kvstore::{Arrays, fallible};
use pyo3::prelude::*;
use pyo3::types::{PyInt, PyList, PyTuple};

use crate::array::classes::PyArray;
use crate::interpreter::error::{to_python, type_error};
use crate::interpreter::lists;

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
    mut item: impl FnMut(&Bound<'py, PyAny>) -> PyResult<()>,
) -> PyResult<()> {
    if let Ok(list) = object.cast::<PyList>() {
        return list.iter().try_for_each(|element| item(&element));
    }
    let tuple = object.cast::<PyTuple>()?;
    tuple.iter_borrowed().try_for_each(|element| item(&element))
}

/// The place of an item in an argument: no index, an index, or an index in a nested list.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Place {
    Itself,
    At(usize),
    Within(usize, usize),
}

impl Place {
    /// Returns the index in the outer list.
    pub(crate) fn outer(self) -> Option<usize> {
        match self {
            Self::Itself => None,
            Self::At(outer) | Self::Within(outer, _) => Some(outer),
        }
    }
}

/// Formats the place as a Python index.
impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Itself => Ok(()),
            Self::At(outer) => write!(f, "[{outer}]"),
            Self::Within(outer, inner) => write!(f, "[{outer}][{inner}]"),
        }
    }
}

/// Returns one item, a list, or a list of lists; in the last a single item stands for a list of one. `item` returns
/// nothing for what is none.
///
/// # Errors
/// The error of `item`, passed through `explain` with the place of the item.
pub(crate) fn nested<'py, T>(
    object: &Bound<'py, PyAny>,
    mut item: impl FnMut(&Bound<'py, PyAny>) -> PyResult<Option<T>>,
    explain: impl Fn(PyErr, Place) -> PyErr,
) -> PyResult<Arrays<T>> {
    let mut item = |object: &Bound<'py, PyAny>, place| {
        let found = item(object).and_then(|it| it.ok_or_else(|| unexpected(object, place)));
        found.map_err(|error| explain(error, place))
    };
    if !is_list(object) {
        return item(object, Place::Itself).map(Arrays::One);
    }
    let py = object.py();
    let room = fallible::with_capacity(len(object));
    let mut arrays = room.map_err(|error| to_python(py, error))?;
    // From the first list on, how long each is.
    let mut lengths: Option<Vec<usize>> = None;
    let mut outer = 0..;
    each(object, |element| {
        let outer = outer.next().unwrap_or_default();
        if !is_list(element) {
            lists::push(py, &mut arrays, item(element, Place::At(outer))?)?;
            return lengths.as_mut().map_or(Ok(()), |lengths| lists::push(py, lengths, 1));
        }
        let before = arrays.len();
        each(element, |element| {
            let place = Place::Within(outer, arrays.len() - before);
            lists::push(py, &mut arrays, item(element, place)?)
        })?;
        let found = arrays.len() - before;
        if lengths.is_none() {
            lengths = Some(fallible::filled(1, before).map_err(|error| to_python(py, error))?);
        }
        lengths.as_mut().map_or(Ok(()), |lengths| lists::push(py, lengths, found))
    })?;
    Ok(match lengths {
        None => Arrays::Many(arrays),
        Some(lengths) => Arrays::Nested { arrays, lengths },
    })
}

/// Returns the error for an object that is not an array.
pub(crate) fn unexpected(object: &Bound<'_, PyAny>, place: Place) -> PyErr {
    let class = object.get_type().name().map(|it| it.to_string()).unwrap_or_default();
    let expected = match place {
        Place::Itself => "an array, a list of arrays or a nested list of arrays",
        Place::At(_) => "an array or a list of arrays",
        Place::Within(..) => "an array",
    };
    type_error(object.py(), format!("expected {expected}, found a `{class}`"))
}
