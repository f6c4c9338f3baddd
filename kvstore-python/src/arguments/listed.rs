//! Lists in arguments: one item, a list, or a list of lists.

use std::fmt;

use kvstore::{Error, Key, fallible};
use pyo3::prelude::*;
use pyo3::types::{PyInt, PyList, PyTuple};

use crate::array::classes::PyArray;
use crate::interpreter::error::{to_python, wrong_class};
use crate::interpreter::lists;

/// Returns whether an argument is a list or a tuple. Checks this before any array attributes,
/// because those lookups take longer than reading the list.
pub(crate) fn is_list(object: &Bound<'_, PyAny>) -> bool {
    // Fast path for the most frequent types.
    if object.is_exact_instance_of::<PyArray>() || object.is_exact_instance_of::<PyInt>() {
        return false;
    }
    object.is_exact_instance_of::<PyList>()
        || object.is_instance_of::<PyList>()
        || object.is_instance_of::<PyTuple>()
}

/// Returns the current number of items of a list or tuple.
pub(crate) fn len(object: &Bound<'_, PyAny>) -> usize {
    // Use the real length: a subclass may override `__len__`.
    match (object.cast::<PyList>(), object.cast::<PyTuple>()) {
        (Ok(list), _) => list.len(),
        (_, Ok(tuple)) => tuple.len(),
        _ => 0,
    }
}

/// Calls `item` with each item of a list or tuple. `item` may run Python code that changes the
/// list.
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

/// The result of reading an object.
pub(crate) enum Read<T> {
    Item(T),
    /// The reader keeps the object itself.
    Kept,
    /// The object is not an item.
    Unexpected,
}

/// The keys of a call.
#[derive(Debug)]
pub(crate) enum Keys {
    /// One key, for one item or for all items of a list.
    One(Key),
    /// A list of keys, parallel to a list of items or of lists of items. It may repeat keys.
    Many(Vec<Key>),
}

impl Keys {
    pub(crate) fn into_list(self) -> Vec<Key> {
        match self {
            Self::One(key) => Vec::from([key]),
            Self::Many(keys) => keys,
        }
    }
}

/// Reads one item, a list, or a list of lists, and returns a key for each item. In a list of lists,
/// a single item counts as a list of one. `read` receives an object and its key, or `None` if there
/// are more objects than keys.
///
/// # Errors
/// - The exception of `read`, passed through `explain` with the key and the place of the object.
/// - A length mismatch if the number of items or lists differs from the number of keys.
/// - `MemoryError`.
pub(crate) fn paired<'py, T>(
    keys: Keys,
    object: &Bound<'py, PyAny>,
    what: &str,
    mut read: impl FnMut(&Bound<'py, PyAny>, Option<&Key>) -> PyResult<Read<T>>,
    explain: impl Fn(PyErr, Option<&Key>, Place) -> PyErr,
) -> PyResult<(Vec<Key>, Vec<T>)> {
    let py = object.py();
    let mut read = |object: &Bound<'py, PyAny>, place: Place| {
        let key = key_at(&keys, place);
        let found = match read(object, key) {
            Ok(Read::Item(item)) => Ok(Some(item)),
            Ok(Read::Kept) => Ok(None),
            Ok(Read::Unexpected) => Err(unexpected(object, place)),
            Err(error) => Err(error),
        };
        found.map_err(|error| explain(error, key, place))
    };
    let mut items = Vec::new();
    // The keys of the items. Needed only if they differ from the keys of the call.
    let mut own_keys: Option<Vec<Key>> = None;
    let (mut num_outer, mut is_nested) = (0, false);
    if is_list(object) {
        fallible::reserve(&mut items, len(object)).map_err(|error| to_python(py, error))?;
        each(object, |element| {
            let outer = num_outer;
            num_outer += 1;
            if !is_list(element) {
                let item = read(element, Place::At(outer))?;
                if item.is_none() && own_keys.is_none() {
                    own_keys = Some(first_keys(py, &keys, outer)?);
                }
                let Some(item) = item else { return Ok(()) };
                lists::push(py, &mut items, item)?;
                return own_keys.as_mut().map_or(Ok(()), |own| repeat(py, own, &keys, outer));
            }
            is_nested = true;
            let own_keys = match &mut own_keys {
                Some(own) => own,
                none => none.insert(first_keys(py, &keys, outer)?),
            };
            let mut inner = 0..;
            each(element, |element| {
                let place = Place::Within(outer, inner.next().unwrap_or_default());
                let Some(item) = read(element, place)? else { return Ok(()) };
                lists::push(py, &mut items, item)?;
                repeat(py, own_keys, &keys, outer)
            })
        })?;
    } else {
        // A single item without a list around it.
        num_outer = 1;
        match read(object, Place::Itself)? {
            Some(item) => lists::push(py, &mut items, item)?,
            None => own_keys = Some(Vec::new()),
        }
    }
    let num_keys = match &keys {
        // A single key: `[a, b]` are two values of it, and `[[a, b]]` is one list of its values.
        Keys::One(_) if is_nested => 1,
        Keys::One(_) => num_outer,
        Keys::Many(keys) => keys.len(),
    };
    if num_keys != num_outer {
        let what = format!("{what} for keys");
        let error = Error::LengthMismatch { what, expected: num_keys, found: num_outer };
        return Err(to_python(py, error));
    }
    let own_keys = match (own_keys, keys) {
        (Some(own_keys), _) | (None, Keys::Many(own_keys)) => Ok(own_keys),
        (None, Keys::One(key)) => fallible::filled(key, items.len()),
    };
    Ok((own_keys.map_err(|error| to_python(py, error))?, items))
}

/// Returns the key of an item, or `None` if there are more items than keys.
pub(crate) fn key_at(keys: &Keys, place: Place) -> Option<&Key> {
    match keys {
        Keys::One(key) => Some(key),
        Keys::Many(keys) => place.outer().and_then(|outer| keys.get(outer)),
    }
}

/// Appends the key of an item of the outer list.
fn repeat(py: Python<'_>, repeated: &mut Vec<Key>, keys: &Keys, outer: usize) -> PyResult<()> {
    match key_at(keys, Place::At(outer)) {
        Some(key) => lists::push(py, repeated, key.clone()),
        // `paired` reports at the end that the lengths differ.
        None => Ok(()),
    }
}

/// Returns the keys of the first items of the outer list.
fn first_keys(py: Python<'_>, keys: &Keys, num_items: usize) -> PyResult<Vec<Key>> {
    let mut first = Vec::new();
    (0..num_items).try_for_each(|outer| repeat(py, &mut first, keys, outer))?;
    Ok(first)
}

/// Returns the error for an object that is not an array.
pub(crate) fn unexpected(object: &Bound<'_, PyAny>, place: Place) -> PyErr {
    let expected = match place {
        Place::Itself => "expected an array, a list of arrays or a nested list of arrays",
        Place::At(_) => "expected an array or a list of arrays",
        Place::Within(..) => "expected an array",
    };
    wrong_class(object, expected)
}
