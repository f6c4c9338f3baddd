//! Descriptions of objects for Java: new handles with shape, dtype and device.

use jni::Env;
use jni::objects::{JLongArray, JObject, JObjectArray};
use jni::sys::{jdouble, jlong};
use kvstore::fallible;
use kvstore::{Device, DeviceMemory, GroupMember, KeyStats, NDArray, RowSparse, TensorSpec};

use crate::codes::Code;
use crate::error::Result;
use crate::handle::HandleTable;

use super::handles::{ARRAYS, ROWS};
use super::java::{pair_to_java, size, strings_to_java, to_java};

/// Passes an array to Java. Returns its description: handle, dtype, device kind, device ordinal,
/// rank, dimensions. Java releases the handle.
pub(crate) fn adopt<'local>(env: &mut Env<'local>, array: NDArray) -> Result<JLongArray<'local>> {
    adopt_all(env, Vec::from([array]))
}

/// Passes arrays to Java. Returns their concatenated descriptions.
pub(crate) fn adopt_all<'local>(
    env: &mut Env<'local>,
    arrays: Vec<NDArray>,
) -> Result<JLongArray<'local>> {
    let (registered, descriptions) = register(env, arrays)?;
    registered.keep();
    Ok(descriptions)
}

/// Passes row-sparse values to Java. Returns their concatenated descriptions, which have the shape
/// of the dense value.
pub(crate) fn adopt_rows<'local>(
    env: &mut Env<'local>,
    values: Vec<RowSparse>,
) -> Result<JLongArray<'local>> {
    let described = values.into_iter().map(|value| (value.spec().clone(), value.device(), value));
    let (registered, descriptions) = register_in(&ROWS, env, described)?;
    registered.keep();
    Ok(descriptions)
}

/// Registers arrays for Java. Returns their handles, which are released on drop, and their
/// concatenated descriptions.
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

/// Handles that are released when this value is dropped.
#[must_use]
pub(crate) struct TemporaryHandles<T: 'static> {
    table: &'static HandleTable<T>,
    handles: Vec<jlong>,
}

impl<T> TemporaryHandles<T> {
    /// Keeps the handles valid. From now on, Java releases them.
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

/// The length of the description of an array with four dimensions.
const USUAL_DESCRIPTION: usize = 9;

/// Returns the memory usage of each device as five numbers: kind, ordinal, live bytes, pooled
/// bytes, and total bytes or -1.
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

/// Appends the description of a value, except the number in front.
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

/// Returns the keys and their statistics. The numbers of each key are: pushes, size of the state in
/// bytes, size of the value in bytes, and the description of the value as of [`adopt`] without the
/// handle.
pub(crate) fn stats_to_java<'local>(
    env: &mut Env<'local>,
    stats: &[KeyStats],
) -> Result<JObjectArray<'local, JObject<'local>>> {
    // For each key: three numbers, then four numbers of the description and the dimensions.
    let len = stats.iter().map(|entry| 3 + 4 + entry.spec.shape().rank()).sum();
    let mut numbers = fallible::with_capacity(len)?;
    for entry in stats {
        let num_pushes = jlong::try_from(entry.num_pushes).unwrap_or(jlong::MAX);
        let new = [num_pushes, size(entry.state_bytes), size(entry.value_bytes)];
        fallible::extend(&mut numbers, &new)?;
        describe(&entry.spec, entry.device, &mut numbers)?;
    }
    let names = strings_to_java(env, stats.iter().map(|entry| entry.key.as_str()))?;
    let numbers = to_java(env, &numbers)?;
    pair_to_java(env, &names, &numbers)
}

/// Returns the names of members, and for each its rank and whether it is a reader.
pub(crate) fn members_to_java<'local>(
    env: &mut Env<'local>,
    members: &[GroupMember],
) -> Result<JObjectArray<'local, JObject<'local>>> {
    let mut numbers = fallible::with_capacity(2 * members.len())?;
    for member in members {
        let rank = jlong::try_from(member.rank).unwrap_or(jlong::MAX);
        fallible::extend(&mut numbers, &[rank, jlong::from(member.is_reader)])?;
    }
    let names = strings_to_java(env, members.iter().map(|member| member.name.as_str()))?;
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
