//! The values and the outputs of a verb: arrays of ours, which are held for the time of the call, and of other libraries.

use std::borrow::{Borrow, Cow};
use std::collections::HashMap;
use std::sync::Arc;

use kvstore::{
    ArrayOrRows, Key, Keys, NDArray, Pairs, Storage, Tensor, TensorSpec, ToValue, Value, fallible,
};
use pyo3::prelude::*;

use super::keys::KeyKind;
use super::listed;
use super::listed::Place;
use crate::array::classes::{PyArray, PyRows};
use crate::interop::block::Block;
use crate::interop::{foreign, pytorch};
use crate::interpreter::error::{about, detached, to_python, type_error};
use crate::interpreter::lists;

/// Returns key and array where there is one of each and the array is ours. To look for all else that a call may be given
/// takes as long as the call.
pub(crate) fn only<'a>(
    kind: &KeyKind,
    keys: &Bound<'_, PyAny>,
    arrays: &'a Bound<'_, PyAny>,
) -> PyResult<Option<(Cow<'static, Key>, &'a NDArray)>> {
    match arrays.cast_exact::<PyArray>() {
        Ok(array) if !listed::is_list(keys) => Ok(Some((kind.one(keys)?, array.get().array()))),
        _ => Ok(None),
    }
}

/// A value of a call.
#[derive(Debug)]
pub(crate) enum Argument {
    Ours(Py<PyArray>),
    /// Rows, or what is another library's for the time of the call.
    Other(Box<ArrayOrRows>),
}

impl ToValue for Argument {
    fn to_value(&self) -> Value {
        match self {
            Self::Ours(array) => array.get().array().to_value(),
            Self::Other(value) => value.to_value(),
        }
    }

    fn spec(&self) -> &TensorSpec {
        match self {
            Self::Ours(array) => array.get().array().spec(),
            Self::Other(value) => value.spec(),
        }
    }
}

/// Returns keys and values side by side.
pub(crate) fn values(
    kind: &KeyKind,
    keys: &Bound<'_, PyAny>,
    values: &Bound<'_, PyAny>,
) -> PyResult<Pairs<Argument>> {
    let keys = kind.keys(keys)?;
    let explain = |error, place| with_key(values.py(), error, &keys, "value", place);
    let arrays = listed::nested(values, value, explain)?;
    Pairs::new(keys, arrays).map_err(|error| to_python(values.py(), error))
}

/// Adds the key and the place of an array to its error.
fn with_key(py: Python<'_>, error: PyErr, keys: &Keys, name: &str, place: Place) -> PyErr {
    let key = match keys {
        Keys::One(key) => Some(key),
        Keys::Many(keys) => place.outer().and_then(|outer| keys.get(outer)),
    };
    about(py, error, key, &format!("{name}{place}"))
}

fn value(object: &Bound<'_, PyAny>) -> PyResult<Option<Argument>> {
    if let Ok(array) = object.cast::<PyArray>() {
        return Ok(Some(Argument::Ours(array.clone().unbind())));
    }
    if let Ok(rows) = object.cast::<PyRows>() {
        return Ok(Some(Argument::Other(Box::new(rows.get().value().into()))));
    }
    let Some(block) = foreign::block(object)? else { return Ok(None) };
    let tensor = detached(object.py(), move || block.tensor())?;
    Ok(Some(Argument::Other(Box::new(NDArray::new(tensor).into()))))
}

/// The outputs of a call.
#[derive(Debug, Default)]
pub(crate) struct Outs {
    pairs: Pairs<Output>,
    foreign: Vec<Foreign>,
}

/// An output of a call.
#[derive(Debug)]
pub(crate) enum Output {
    Ours(Py<PyArray>),
    /// What is pulled for another library's array.
    Foreign(Box<NDArray>),
}

impl Borrow<NDArray> for Output {
    fn borrow(&self) -> &NDArray {
        match self {
            Self::Ours(array) => array.get().array(),
            Self::Foreign(array) => array,
        }
    }
}

/// An output of another library's: the array that is pulled into, and where its elements then go.
#[derive(Debug)]
struct Foreign {
    object: Py<PyAny>,
    array: NDArray,
    block: Arc<Block>,
}

/// A copy to a GPU that has begun: the value, and the memory that is written.
type Copy = (Tensor, Arc<dyn Storage>);

impl Outs {
    /// Writes what was pulled to the outputs of other libraries.
    ///
    /// `copies` has capacity for a copy per output: nothing may fail between two outputs.
    fn deliver(&self, mut copies: Vec<Copy>) -> kvstore::Result<()> {
        for output in &self.foreign {
            let value = output.array.tensor();
            copies.extend(output.block.write(&value)?.map(|storage| (value, storage)));
        }
        // Asynchronous copies have all begun before this waits for the first one.
        copies.iter().try_for_each(|(value, _)| value.wait())
    }
}

/// Returns keys and outputs side by side; nothing when there are rows among the outputs.
pub(crate) fn outs(
    kind: &KeyKind,
    keys: &Bound<'_, PyAny>,
    outs: &Bound<'_, PyAny>,
) -> PyResult<Option<Outs>> {
    let keys = kind.keys(keys)?;
    let (mut foreign, mut has_rows): (Vec<Foreign>, _) = (Vec::new(), false);
    // Maps an object's address to its index in `foreign`, which keeps the object alive.
    let mut index_of: HashMap<usize, usize> = HashMap::new();
    let explain = |error, place| with_key(outs.py(), error, &keys, "out", place);
    let output = |object: &Bound<'_, PyAny>| {
        if let Ok(array) = object.cast::<PyArray>() {
            return Ok(Some(Output::Ours(array.clone().unbind())));
        }
        // An object that stands several times is one output: the key initialised last wins.
        let address = object.as_ptr().addr();
        if let Some(known) = index_of.get(&address).and_then(|index| foreign.get(*index)) {
            return Ok(Some(Output::Foreign(Box::new(known.array.clone()))));
        }
        has_rows = object.is_instance_of::<PyRows>();
        let Some(block) = foreign::writable(object)? else { return Ok(None) };
        let of_block = Arc::clone(&block);
        let array = NDArray::new(detached(object.py(), move || of_block.placeholder())?);
        let reserved = fallible::reserve_entries(&mut index_of, 1);
        reserved.map_err(|error| to_python(object.py(), error))?;
        index_of.insert(address, foreign.len());
        let output = Foreign { object: object.clone().unbind(), array: array.clone(), block };
        lists::push(object.py(), &mut foreign, output)?;
        Ok(Some(Output::Foreign(Box::new(array))))
    };
    let arrays = listed::nested(outs, output, explain);
    if has_rows {
        return Ok(None);
    }
    let pairs = Pairs::new(keys, arrays?).map_err(|error| to_python(outs.py(), error))?;
    Ok(Some(Outs { pairs, foreign }))
}

/// Returns keys and outputs side by side, of a verb whose outputs are whole.
pub(crate) fn whole_outs(
    kind: &KeyKind,
    keys: &Bound<'_, PyAny>,
    arrays: &Bound<'_, PyAny>,
) -> PyResult<Outs> {
    let refused = || type_error(arrays.py(), "out: expected whole arrays, found rows");
    outs(kind, keys, arrays)?.ok_or_else(refused)
}

/// Runs `call` with values and outputs while other threads of Python go on, and gives the outputs of other libraries
/// what was pulled for them.
///
/// What is not ours is let go before this thread has the interpreter's lock again, for that may wait for a GPU. What is
/// ours is let go after, when it costs next to nothing.
pub(crate) fn run(
    py: Python<'_>,
    values: Pairs<Argument>,
    outs: Outs,
    call: impl FnOnce(&Pairs<Argument>, &Pairs<Output>) -> kvstore::Result<()> + Send,
) -> PyResult<()> {
    // The store and the outputs stay unchanged if memory for these lists is missing.
    let num_foreign = outs.foreign.len();
    let reserved = fallible::with_capacity(num_foreign)
        .and_then(|copies| Ok((copies, fallible::with_capacity(num_foreign)?)));
    let (copies, mut written) = reserved.map_err(|error| to_python(py, error))?;
    let (done, written, _ours) = detached(py, move || {
        let done = call(&values, &outs.pairs).and_then(|()| outs.deliver(copies));
        let (mut values, mut arrays) = (values.into_arrays(), outs.pairs.into_arrays());
        values.retain(|value| matches!(value, Argument::Ours(_)));
        arrays.retain(|array| matches!(array, Output::Ours(_)));
        written.extend(outs.foreign.into_iter().map(|output| output.object));
        Ok((done, written, (values, arrays)))
    })?;
    done.map_err(|error| to_python(py, error))?;
    pytorch::note_writes(py, &written)
}
