//! The values and the outputs of a verb: arrays of this package and of other libraries.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use kvstore::{Key, NDArray, Storage, Tensor, Value, fallible};
use pyo3::prelude::*;

use super::keys::KeyKind;
use super::listed::{self, Read};
use crate::array::classes::{PyArray, PyRows};
use crate::interop::block::Block;
use crate::interop::{foreign, pytorch};
use crate::interpreter::error::{about, detached, to_python, type_error};
use crate::interpreter::lists;

/// Returns key and array if there is one of each and the array is an `NDArray`. This is a fast
/// path: testing for all other kinds of arguments takes as long as the call itself.
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

/// A key for each value of a call, and the values.
pub(crate) type Values = (Vec<Key>, Vec<Value>);

/// Returns a key for each value, and the values.
pub(crate) fn values(
    kind: &KeyKind,
    keys: &Bound<'_, PyAny>,
    values: &Bound<'_, PyAny>,
) -> PyResult<Values> {
    listed::paired(
        kind.keys(keys)?,
        values,
        "values",
        |object, _| value(object),
        |error, key, place| about(values.py(), error, key, &format!("value{place}")),
    )
}

fn value(object: &Bound<'_, PyAny>) -> PyResult<Read<Value>> {
    if let Ok(array) = object.cast::<PyArray>() {
        return Ok(Read::Item(array.get().array().into()));
    }
    if let Ok(rows) = object.cast::<PyRows>() {
        return Ok(Read::Item(rows.get().value().into()));
    }
    let Some(block) = foreign::block(object)? else { return Ok(Read::Unexpected) };
    let tensor = detached(object.py(), move || block.tensor())?;
    Ok(Read::Item(tensor.into()))
}

/// The outputs of a call.
#[derive(Debug, Default)]
pub(crate) struct Outputs {
    keys: Vec<Key>,
    arrays: Vec<NDArray>,
    foreign: Vec<Foreign>,
    rows: Vec<RowOutput>,
}

/// A key, and its row-sparse output.
pub(crate) type RowOutput = (Key, Py<PyRows>);

/// An output of another library: the array that the store pulls into, and the memory that its
/// elements are copied to afterwards.
#[derive(Debug)]
struct Foreign {
    object: Py<PyAny>,
    array: NDArray,
    block: Arc<Block>,
}

/// A copy to a GPU in progress: the value, and the destination memory.
type Copy = (Tensor, Arc<dyn Storage>);

impl Outputs {
    /// Returns a key for each output, and the arrays that the store pulls into.
    pub(crate) fn pairs(&self) -> (&[Key], &[NDArray]) {
        (&self.keys, &self.arrays)
    }

    /// Returns the row-sparse outputs. `pairs` does not contain them.
    pub(crate) fn rows(&self) -> &[RowOutput] {
        &self.rows
    }

    /// Writes the pulled values to the outputs of other libraries.
    ///
    /// `copies` must have capacity for one copy per output, because no step may fail between two
    /// outputs.
    fn deliver(&self, mut copies: Vec<Copy>) -> kvstore::Result<()> {
        for output in &self.foreign {
            let value = output.array.tensor();
            copies.extend(output.block.write(&value)?.map(|storage| (value, storage)));
        }
        // Start all asynchronous copies before waiting for the first one.
        let mut awaited = self.foreign.iter().filter(|output| output.block.is_awaited());
        awaited.try_for_each(|output| output.array.tensor().wait())
    }
}

/// Returns the outputs of a call.
pub(crate) fn outs(
    kind: &KeyKind,
    keys: &Bound<'_, PyAny>,
    outs: &Bound<'_, PyAny>,
) -> PyResult<Outputs> {
    let (py, keys) = (outs.py(), kind.keys(keys)?);
    let (mut foreign, mut rows): (Vec<Foreign>, Vec<RowOutput>) = (Vec::new(), Vec::new());
    // Maps an object's address to its index in `foreign`, which keeps the object alive.
    let mut index_of: HashMap<usize, usize> = HashMap::new();
    let explain = |error, key: Option<&Key>, place| about(py, error, key, &format!("out{place}"));
    let output = |object: &Bound<'_, PyAny>, key: Option<&Key>| {
        if let Ok(array) = object.cast::<PyArray>() {
            return Ok(Read::Item(array.get().array().clone()));
        }
        if let Ok(array) = object.cast::<PyRows>() {
            if let Some(key) = key {
                lists::push(py, &mut rows, (key.clone(), array.clone().unbind()))?;
            }
            return Ok(Read::Kept);
        }
        // An object that appears several times is one output: the key initialised last wins.
        let address = object.as_ptr().addr();
        if let Some(known) = index_of.get(&address).and_then(|index| foreign.get(*index)) {
            return Ok(Read::Item(known.array.clone()));
        }
        let Some(block) = foreign::writable(object)? else { return Ok(Read::Unexpected) };
        let of_block = Arc::clone(&block);
        let array = NDArray::new(detached(py, move || of_block.placeholder())?);
        let reserved = fallible::reserve_entries(&mut index_of, 1);
        reserved.map_err(|error| to_python(py, error))?;
        index_of.insert(address, foreign.len());
        let output = Foreign { object: object.clone().unbind(), array: array.clone(), block };
        lists::push(py, &mut foreign, output)?;
        Ok(Read::Item(array))
    };
    let (keys, arrays) = listed::paired(keys, outs, "outputs", output, explain)?;
    Ok(Outputs { keys, arrays, foreign, rows })
}

/// Returns a key for each output, and the outputs, of a verb that accepts only dense outputs.
///
/// # Errors
/// - A `TypeError` if an output is row-sparse.
pub(crate) fn output_arrays(
    kind: &KeyKind,
    keys: &Bound<'_, PyAny>,
    arrays: &Bound<'_, PyAny>,
) -> PyResult<Outputs> {
    let outs = outs(kind, keys, arrays)?;
    let Some((key, _)) = outs.rows.first() else { return Ok(outs) };
    let text = format!("key `{key}`: out: expected a dense array, found a row-sparse one");
    Err(type_error(arrays.py(), text))
}

/// Runs `call` with values and outputs while other Python threads run, and writes the pulled values
/// to the outputs of other libraries.
///
/// Releases values and outputs before this thread acquires the GIL again, because releasing them
/// may wait for a GPU.
pub(crate) fn run(
    py: Python<'_>,
    (keys, values): Values,
    outs: Outputs,
    call: impl FnOnce((&[Key], &[Value]), &Outputs) -> kvstore::Result<()> + Send,
) -> PyResult<()> {
    // Reserve first: if memory is missing, the store and the outputs stay unchanged.
    let num_foreign = outs.foreign.len();
    let reserved = fallible::with_capacity(num_foreign)
        .and_then(|copies| Ok((copies, fallible::with_capacity(num_foreign)?)));
    let (copies, mut written) = reserved.map_err(|error| to_python(py, error))?;
    let (done, written) = detached(py, move || {
        let done = call((&keys, &values), &outs).and_then(|()| outs.deliver(copies));
        written.extend(outs.foreign.into_iter().map(|output| output.object));
        Ok((done, written))
    })?;
    done.map_err(|error| to_python(py, error))?;
    pytorch::note_writes(py, &written)
}
