//! Descriptions of objects for Java: new handles with shape, dtype and device.

use jni::Env;
use jni::objects::{JLongArray, JObject, JObjectArray};
use jni::sys::{jdouble, jlong};
use kvstore::fallible;
use kvstore::{Device, DeviceMemory, KeyStats, NDArray, RowSparse, TensorSpec};

use crate::codes::Code;
use crate::error::Result;
use crate::handle::HandleTable;

use super::handles::{ARRAYS, ROWS};
use super::java::{pair_to_java, size, strings_to_java, to_java};

/// Gives an array to Java and returns its description: handle, dtype, device kind, device ordinal,
/// rank, dimensions. Java releases the handle.
pub(crate) fn adopt<'local>(env: &mut Env<'local>, array: NDArray) -> Result<JLongArray<'local>> {
    adopt_all(env, Vec::from([array]))
}

/// Gives arrays to Java and returns their descriptions, one after the other.
pub(crate) fn adopt_all<'local>(
    env: &mut Env<'local>,
    arrays: Vec<NDArray>,
) -> Result<JLongArray<'local>> {
    let (registered, descriptions) = register(env, arrays)?;
    registered.keep();
    Ok(descriptions)
}

/// Gives row-sparse values to Java and returns their descriptions, one after the other. A description
/// has the shape of the dense value.
pub(crate) fn adopt_rows<'local>(
    env: &mut Env<'local>,
    values: Vec<RowSparse>,
) -> Result<JLongArray<'local>> {
    let described = values.into_iter().map(|value| (value.spec().clone(), value.device(), value));
    let (registered, descriptions) = register_in(&ROWS, env, described)?;
    registered.keep();
    Ok(descriptions)
}

/// Registers arrays for Java. Returns their handles, which are released when dropped, and their
/// descriptions, one after the other.
pub(crate) fn register<'local>(
    env: &mut Env<'local>,
    arrays: Vec<NDArray>,
) -> Result<(TemporaryHandles<NDArray>, JLongArray<'local>)> {
    let described = arrays.into_iter().map(|array| (array.spec().clone(), array.device(), array));
    register_in(&ARRAYS, env, described)
}

fn register_in<'local, T>(
    table: &'static HandleTable<T>,
    env: &mut Env<'local>,
    described: impl ExactSizeIterator<Item = (TensorSpec, Device, T)>,
) -> Result<(TemporaryHandles<T>, JLongArray<'local>)> {
    let mut registered =
        TemporaryHandles { table, handles: fallible::with_capacity(described.len())? };
    let mut descriptions =
        fallible::with_capacity(described.len().saturating_mul(USUAL_DESCRIPTION))?;
    for (spec, device, value) in described {
        let handle = table.insert(value)?;
        registered.handles.push(handle);
        fallible::push(&mut descriptions, handle)?;
        describe(&spec, device, &mut descriptions)?;
    }
    let descriptions = to_java(env, &descriptions)?;
    Ok((registered, descriptions))
}

/// Handles that are released when this is dropped.
#[must_use]
pub(crate) struct TemporaryHandles<T: 'static> {
    table: &'static HandleTable<T>,
    handles: Vec<jlong>,
}

impl<T> TemporaryHandles<T> {
    /// Leaves the arrays to Java.
    pub(crate) fn keep(mut self) {
        self.handles.clear();
    }
}

impl<T> Drop for TemporaryHandles<T> {
    fn drop(&mut self) {
        for &handle in &self.handles {
            drop(self.table.remove(handle));
        }
    }
}

/// How many numbers the description of an array of four axes has.
const USUAL_DESCRIPTION: usize = 9;

/// Returns the memory of each device as five numbers: kind and ordinal, live and pooled bytes, all bytes or -1.
pub(crate) fn memory_to_java<'local>(
    env: &mut Env<'local>,
    devices: &[DeviceMemory],
) -> Result<JLongArray<'local>> {
    let numbers = devices.iter().flat_map(|memory| {
        let (kind, ordinal) = (memory.device.kind().code(), memory.device.ordinal());
        let (live, pooled) = (size(memory.live), size(memory.pooled));
        [jlong::from(kind), jlong::from(ordinal), live, pooled, memory.total.map_or(-1, size)]
    });
    to_java(env, &numbers.collect::<Vec<jlong>>())
}

/// Appends the description of a value, all but the number in front.
fn describe(spec: &TensorSpec, device: Device, description: &mut Vec<jlong>) -> Result<()> {
    let dims = spec.shape().dims();
    fallible::reserve(description, 4 + dims.len())?;
    description.extend([
        jlong::from(spec.dtype().code()),
        jlong::from(device.kind().code()),
        jlong::from(device.ordinal()),
        size(dims.len()),
    ]);
    description.extend(dims.iter().copied().map(size));
    Ok(())
}

/// Returns keys and what they hold, each as numbers: pushes, bytes of its state, and the description of its value
/// as [`adopt`] gives that of an array, with the bytes of the value in place of a handle.
pub(crate) fn stats_to_java<'local>(
    env: &mut Env<'local>,
    stats: &[KeyStats],
) -> Result<JObjectArray<'local, JObject<'local>>> {
    // Three numbers per key, then the description: four numbers and the lengths of the axes.
    let len = stats.iter().map(|of_key| 3 + 4 + of_key.spec.shape().rank()).sum();
    let mut numbers = fallible::with_capacity(len)?;
    for of_key in stats {
        let num_pushes = jlong::try_from(of_key.num_pushes).unwrap_or(jlong::MAX);
        let new = [num_pushes, size(of_key.state_bytes), size(of_key.value_bytes)];
        fallible::extend(&mut numbers, &new)?;
        describe(&of_key.spec, of_key.device, &mut numbers)?;
    }
    let names = strings_to_java(env, stats.iter().map(|of_key| of_key.key.as_str()))?;
    let numbers = to_java(env, &numbers)?;
    pair_to_java(env, &names, &numbers)
}

/// Returns the names and the values of hyper-parameters.
pub(crate) fn hyper_parameters_to_java<'local>(
    env: &mut Env<'local>,
    hyper_parameters: Vec<(&'static str, f64)>,
) -> Result<JObjectArray<'local, JObject<'local>>> {
    let (names, values): (Vec<_>, Vec<_>) = hyper_parameters.into_iter().unzip();
    let names = strings_to_java(env, names.into_iter())?;
    let values = to_java::<jdouble>(env, &values)?;
    pair_to_java(env, &names, &values)
}
