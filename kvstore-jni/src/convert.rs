//! Every conversion between Java and Rust: handles, keys, shapes, devices, numbers.

use std::sync::{Arc, LazyLock, Mutex};

use jni::Env;
use jni::objects::{
    JByteArray, JDoubleArray, JLongArray, JObject, JObjectArray, JPrimitiveArray, JString,
    TypeArray,
};
use jni::refs::IntoAuto;
use jni::strings::JNIString;
use jni::sys::{jdouble, jint, jlong, jsize};
use kvstore::fallible;
use kvstore::{
    ArrayOrRows, Checkpoint, CheckpointProgress, DType, Device, DeviceKind, DeviceMemory,
    Distribution, Element, Error, Key, KeyStats, LrScheduler, NDArray, OnExisting, Optimizer,
    OptimizerState, Pairs, RowSparse, Shape, Snapshot, Store, Tensor, TensorSpec, Warmup,
};

use crate::buffer;
use crate::error::{BridgeError, Result};
use crate::handle::HandleTable;

/// The arrays that Java holds.
pub(crate) static ARRAYS: LazyLock<HandleTable<NDArray>> =
    LazyLock::new(|| HandleTable::new("array"));
/// The values of rows that Java holds.
pub(crate) static ROWS: LazyLock<HandleTable<RowSparse>> =
    LazyLock::new(|| HandleTable::new("row sparse value"));
/// The stores that Java holds.
pub(crate) static STORES: LazyLock<HandleTable<Store>> =
    LazyLock::new(|| HandleTable::new("store"));
/// The optimizers that Java holds, for the time of a call.
pub(crate) static OPTIMIZERS: LazyLock<HandleTable<Optimizer>> =
    LazyLock::new(|| HandleTable::new("optimizer"));
/// The states of optimizers that Java holds.
pub(crate) static STATES: LazyLock<HandleTable<Mutex<OptimizerState>>> =
    LazyLock::new(|| HandleTable::new("optimizer state"));
/// The snapshots that Java holds.
pub(crate) static SNAPSHOTS: LazyLock<HandleTable<Snapshot>> =
    LazyLock::new(|| HandleTable::new("snapshot"));
/// The checkpoints that are being written, until somebody has waited for them.
pub(crate) static CHECKPOINTS: LazyLock<
    HandleTable<(Mutex<Option<Checkpoint>>, CheckpointProgress)>,
> = LazyLock::new(|| HandleTable::new("checkpoint"));
/// The values whose memory Java sees.
pub(crate) static PINS: LazyLock<HandleTable<Tensor>> =
    LazyLock::new(|| HandleTable::new("buffer"));

/// Returns the array of a handle.
pub(crate) fn array(handle: jlong) -> Result<Arc<NDArray>> {
    Ok(ARRAYS.get(handle)?)
}

/// Returns the store of a handle.
pub(crate) fn store(handle: jlong) -> Result<Arc<Store>> {
    Ok(STORES.get(handle)?)
}

/// Returns the arrays of some handles.
pub(crate) fn arrays(env: &Env<'_>, handles: &JLongArray<'_>, name: &str) -> Result<Vec<NDArray>> {
    let handles = numbers(env, handles, name)?;
    fallible::try_collect(handles.into_iter().map(|handle| Ok(NDArray::clone(&*array(handle)?))))
}

/// Returns keys and the arrays beside them; `name` stands for the arrays in errors.
pub(crate) fn pairs(
    env: &mut Env<'_>,
    names: &JObjectArray<'_, JString<'_>>,
    handles: &JLongArray<'_>,
    name: &str,
) -> Result<Pairs> {
    let keys = keys(env, names)?;
    let arrays = arrays(env, handles, name)?;
    Ok(Pairs::new(keys, arrays)?)
}

/// Returns keys and the values beside them. Of each value one of two handles is 0: in `handles` that of an
/// array, in `rows` that of rows. Without rows that is null.
pub(crate) fn values(
    env: &mut Env<'_>,
    names: &JObjectArray<'_, JString<'_>>,
    handles: &JLongArray<'_>,
    rows: &JLongArray<'_>,
) -> Result<Pairs<ArrayOrRows>> {
    let keys = keys(env, names)?;
    let arrays = numbers(env, handles, "values")?;
    let rows = if rows.is_null() { Vec::new() } else { numbers(env, rows, "rows")? };
    let values = arrays.into_iter().enumerate().map(|(index, handle)| {
        Ok::<ArrayOrRows, BridgeError>(match rows.get(index) {
            None | Some(0) => NDArray::clone(&*array(handle)?).into(),
            Some(rows) => RowSparse::clone(&*ROWS.get(*rows)?).into(),
        })
    });
    Ok(Pairs::new(keys, fallible::try_collect(values)?)?)
}

/// Returns keys.
pub(crate) fn keys(env: &mut Env<'_>, names: &JObjectArray<'_, JString<'_>>) -> Result<Vec<Key>> {
    fallible::try_collect(strings(env, names, "keys")?.iter().map(|name| Ok(Key::new(name)?)))
}

/// Returns a key.
pub(crate) fn key(env: &Env<'_>, name: &JString<'_>) -> Result<Key> {
    Ok(Key::new(&string(env, name, "key")?)?)
}

/// Returns the hyper-parameters of an optimizer.
pub(crate) fn options(
    env: &mut Env<'_>,
    names: &JObjectArray<'_, JString<'_>>,
    values: &JDoubleArray<'_>,
) -> Result<Vec<(String, f64)>> {
    let names = strings(env, names, "names")?;
    let values = numbers(env, values, "values")?;
    Ok(fallible::collect(names.into_iter().zip(values))?)
}

/// Returns a schedule of the learning rate, none for an empty array.
///
/// The numbers are: its kind, the updates of the warm-up (0 for none), the learning rate where it begins
/// and whether that stays (1) or grows (0); then those of the kind.
pub(crate) fn schedule(env: &Env<'_>, numbers: &JDoubleArray<'_>) -> Result<Option<LrScheduler>> {
    let numbers = self::numbers(env, numbers, "schedule")?;
    let Some((&[kind, steps, begin, mode], own)) = numbers.split_first_chunk() else {
        return Ok(None);
    };
    let schedule = match (kind, own) {
        (FACTOR, &[step, factor, lowest]) => {
            LrScheduler::factor(update_count(step)?, factor)?.with_stop(lowest)?
        }
        (MULTI_FACTOR, &[factor, ref steps @ ..]) => {
            let steps = fallible::try_collect(steps.iter().map(|&step| update_count(step)))?;
            LrScheduler::multi_factor(steps, factor)?
        }
        (POLY, &[end, power, last]) => LrScheduler::poly(update_count(end)?, power, last)?,
        (COSINE, &[end, last]) => LrScheduler::cosine(update_count(end)?, last)?,
        _ => return Err(Error::invalid(format!("schedule {numbers:?} is unknown")).into()),
    };
    if steps == 0.0 {
        return Ok(Some(schedule));
    }
    let mode = if mode == 0.0 { Warmup::Linear } else { Warmup::Constant };
    Ok(Some(schedule.with_warmup(update_count(steps)?, begin, mode)?))
}

const FACTOR: f64 = 0.0;
const MULTI_FACTOR: f64 = 1.0;
const POLY: f64 = 2.0;
const COSINE: f64 = 3.0;

/// Returns a number of updates.
#[expect(clippy::cast_possible_truncation, reason = "a whole number of at most 53 bits")]
#[expect(clippy::cast_sign_loss, reason = "and at least 0")]
fn update_count(number: f64) -> Result<u64> {
    if number.fract() != 0.0 || !(0.0..9e15).contains(&number) {
        let text = format!("a number of updates is {number}, expected a whole one from 0 on");
        return Err(Error::invalid(text).into());
    }
    Ok(number as u64)
}

/// Returns the strings of a Java array; `name` stands for the array in errors.
pub(crate) fn strings(
    env: &mut Env<'_>,
    array: &JObjectArray<'_, JString<'_>>,
    name: &str,
) -> Result<Vec<String>> {
    reject_null(array, name)?;
    let len = array.len(env)?;
    let mut strings = fallible::with_capacity(len)?;
    for index in 0..len {
        // Freed at once: a call may bring more keys than a local frame has room for.
        let element = array.get_element(env, index)?.auto();
        if element.is_null() {
            return Err(Error::invalid(format!("`{name}[{index}]` is null")).into());
        }
        strings.push(string(env, &element, name)?);
    }
    Ok(strings)
}

/// Returns a string; `name` stands for it in errors.
pub(crate) fn string(env: &Env<'_>, string: &JString<'_>, name: &str) -> Result<String> {
    reject_null(string, name)?;
    let encoded = string.mutf8_chars(env)?;
    let text = encoded.to_str().into_owned();
    // A Java string may hold half a surrogate pair. Replaced, two different keys could become one.
    if text.contains(char::REPLACEMENT_CHARACTER)
        && JNIString::new(&text).to_bytes() != encoded.to_bytes()
    {
        return Err(Error::invalid(format!("`{name}` is not valid Unicode: `{text}`")).into());
    }
    Ok(text)
}

/// Returns the numbers of a Java array; `name` stands for it in errors.
pub(crate) fn numbers<T: TypeArray + Default>(
    env: &Env<'_>,
    array: &JPrimitiveArray<'_, T>,
    name: &str,
) -> Result<Vec<T>> {
    reject_null(array, name)?;
    let len = array.len(env)?;
    let mut numbers = fallible::filled(T::default(), len)?;
    array.get_region(env, 0, &mut numbers)?;
    Ok(numbers)
}

/// Returns a new array with the numbers of a Java array, which are copied once.
pub(crate) fn new_array<T: Element + TypeArray>(
    env: &Env<'_>,
    data: &JPrimitiveArray<'_, T>,
    shape: Shape,
    device: Device,
) -> Result<NDArray> {
    if device.kind() != DeviceKind::Cpu {
        // A copy to another device may wait, which the one below may not.
        return Ok(kvstore::array(&numbers(env, data, "data")?, shape, device)?);
    }
    reject_null(data, "data")?;
    kvstore::array_from(data.len(env)?, shape, device, |range, write| {
        buffer::lend(env, data, range, |elements| Ok(write(elements)?))
    })
}

/// Returns the bytes of a Java array, which are signed there; `name` stands for it in errors.
pub(crate) fn bytes(env: &Env<'_>, array: &JByteArray<'_>, name: &str) -> Result<Vec<u8>> {
    // The standard library collects in place.
    Ok(numbers(env, array, name)?.into_iter().map(i8::cast_unsigned).collect())
}

/// Returns a Java array of some bytes.
pub(crate) fn bytes_to_java<'local>(
    env: &mut Env<'local>,
    bytes: &[u8],
) -> Result<JByteArray<'local>> {
    check_java_length(bytes.len())?;
    Ok(env.byte_array_from_slice(bytes)?)
}

/// Refuses more elements than a Java array can have.
pub(crate) fn check_java_length(len: usize) -> Result<()> {
    if jsize::try_from(len).is_err() {
        let text = format!(
            "{len} elements do not fit into a Java array, read them piece by piece \
             (`NDArray.read`, `ndarray/read-into`)"
        );
        return Err(Error::invalid(text).into());
    }
    Ok(())
}

/// Returns a Java array of some numbers.
pub(crate) fn to_java<'local, T: TypeArray>(
    env: &mut Env<'local>,
    numbers: &[T],
) -> Result<JPrimitiveArray<'local, T>> {
    check_java_length(numbers.len())?;
    let array = JPrimitiveArray::new(env, numbers.len())?;
    array.set_region(env, 0, numbers)?;
    Ok(array)
}

/// Returns a Java array of a value's elements, converted.
pub(crate) fn elements_to_java<'local, T: Element + TypeArray>(
    env: &mut Env<'local>,
    value: &Tensor,
) -> Result<JPrimitiveArray<'local, T>> {
    // Before anything is converted, which would take as much memory again.
    check_java_length(value.num_elements())?;
    let array = JPrimitiveArray::new(env, value.num_elements())?;
    buffer::fill(env, &array, &value.cast(T::DTYPE)?)?;
    Ok(array)
}

/// Returns a Java array of some strings.
pub(crate) fn strings_to_java<'local, S: AsRef<str>>(
    env: &mut Env<'local>,
    strings: impl ExactSizeIterator<Item = S>,
) -> Result<JObjectArray<'local, JString<'local>>> {
    let array = JObjectArray::<JString>::new(env, strings.len(), JString::null())?;
    for (index, string) in strings.enumerate() {
        let string = JString::from_str(env, string)?.auto();
        array.set_element(env, index, &string)?;
    }
    Ok(array)
}

/// Returns a shape.
pub(crate) fn shape(env: &Env<'_>, dimensions: &JLongArray<'_>) -> Result<Shape> {
    let dimensions = numbers(env, dimensions, "shape")?;
    let mut lengths = fallible::with_capacity(dimensions.len())?;
    lengths.extend(dimensions.iter().filter_map(|&dimension| usize::try_from(dimension).ok()));
    if lengths.len() < dimensions.len() {
        let text = format!("shape {dimensions:?} has a negative dimension");
        return Err(Error::invalid(text).into());
    }
    Ok(Shape::from(lengths))
}

/// Returns a position that counts from 0; `name` stands for it in errors.
pub(crate) fn position<N>(number: N, name: &str) -> Result<usize>
where
    N: Copy + std::fmt::Display + TryInto<usize>,
{
    number
        .try_into()
        .map_err(|_| Error::invalid(format!("`{name}` is {number}, expected 0 or more")).into())
}

/// Returns a count as Java takes it.
pub(crate) fn count(number: usize) -> Result<jint> {
    jint::try_from(number)
        .map_err(|_| Error::Internal(format!("{number} does not fit into a Java int")).into())
}

/// Returns a number of bytes or a dimension.
pub(crate) fn size(number: usize) -> jlong {
    jlong::try_from(number).unwrap_or(jlong::MAX)
}

/// Returns what becomes of keys that exist.
pub(crate) fn existing(code: jint) -> Result<OnExisting> {
    match code {
        0 => Ok(OnExisting::Reject),
        1 => Ok(OnExisting::Keep),
        2 => Ok(OnExisting::Replace),
        _ => Err(Error::invalid(format!("existing keys: {code} is unknown")).into()),
    }
}

/// Returns a distribution with its two parameters.
pub(crate) fn distribution(code: jint, one: f64, other: f64) -> Result<Distribution> {
    match code {
        0 => Ok(Distribution::Uniform { low: one, high: other }),
        1 => Ok(Distribution::Normal { mean: one, deviation: other }),
        _ => Err(Error::invalid(format!("distribution {code} is unknown")).into()),
    }
}

/// Returns a dtype.
pub(crate) fn dtype(code: jint) -> Result<DType> {
    Ok(DType::from_code(code)?)
}

/// Returns a device.
pub(crate) fn device(kind: jint, ordinal: jint) -> Result<Device> {
    let kind = match kind {
        CPU => DeviceKind::Cpu,
        GPU => DeviceKind::Gpu,
        _ => return Err(Error::invalid(format!("device kind {kind} is unknown")).into()),
    };
    let ordinal = u32::try_from(ordinal)
        .map_err(|_| Error::invalid(format!("device id is {ordinal}, expected 0 or more")))?;
    Ok(Device::new(kind, ordinal))
}

const CPU: jint = 0;
const GPU: jint = 1;

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
    let (lent, descriptions) = lend(env, arrays)?;
    lent.keep();
    Ok(descriptions)
}

/// Gives values of rows to Java and returns their descriptions, those of the whole values, one after the
/// other.
pub(crate) fn adopt_rows<'local>(
    env: &mut Env<'local>,
    values: Vec<RowSparse>,
) -> Result<JLongArray<'local>> {
    let described = values.into_iter().map(|value| (value.spec().clone(), value.device(), value));
    let (lent, descriptions) = lend_in(&ROWS, env, described)?;
    lent.keep();
    Ok(descriptions)
}

/// Gives arrays to Java until the first part of the result is dropped; the second part is their
/// descriptions, one after the other.
pub(crate) fn lend<'local>(
    env: &mut Env<'local>,
    arrays: Vec<NDArray>,
) -> Result<(Lent<NDArray>, JLongArray<'local>)> {
    let described = arrays.into_iter().map(|array| (array.spec().clone(), array.device(), array));
    lend_in(&ARRAYS, env, described)
}

fn lend_in<'local, T>(
    table: &'static HandleTable<T>,
    env: &mut Env<'local>,
    described: impl ExactSizeIterator<Item = (TensorSpec, Device, T)>,
) -> Result<(Lent<T>, JLongArray<'local>)> {
    let mut lent = Lent { table, handles: fallible::with_capacity(described.len())? };
    let mut descriptions =
        fallible::with_capacity(described.len().saturating_mul(USUAL_DESCRIPTION))?;
    for (spec, device, value) in described {
        let handle = table.insert(value)?;
        lent.handles.push(handle);
        fallible::push(&mut descriptions, handle)?;
        describe(&spec, device, &mut descriptions)?;
    }
    let descriptions = to_java(env, &descriptions)?;
    Ok((lent, descriptions))
}

/// Arrays, or other values, that Java may use until this is dropped.
#[must_use]
pub(crate) struct Lent<T: 'static> {
    table: &'static HandleTable<T>,
    handles: Vec<jlong>,
}

impl<T> Lent<T> {
    /// Leaves the arrays to Java.
    pub(crate) fn keep(mut self) {
        self.handles.clear();
    }
}

impl<T> Drop for Lent<T> {
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
        let (kind, ordinal) = (device_kind(memory.device), memory.device.ordinal());
        let (live, pooled) = (size(memory.live), size(memory.pooled));
        [jlong::from(kind), jlong::from(ordinal), live, pooled, memory.total.map_or(-1, size)]
    });
    to_java(env, &numbers.collect::<Vec<jlong>>())
}

/// Returns the number of a kind of device that [`device`] knows.
fn device_kind(device: Device) -> jint {
    match device.kind() {
        DeviceKind::Cpu => CPU,
        DeviceKind::Gpu => GPU,
    }
}

/// Appends the description of a value, all but the number in front.
fn describe(spec: &TensorSpec, device: Device, description: &mut Vec<jlong>) -> Result<()> {
    let dims = spec.shape().dims();
    fallible::reserve(description, 4 + dims.len())?;
    description.extend([
        jlong::from(spec.dtype().code()),
        jlong::from(device_kind(device)),
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

/// Returns a Java array of two objects.
pub(crate) fn pair_to_java<'local>(
    env: &mut Env<'local>,
    first: &impl AsRef<JObject<'local>>,
    second: &impl AsRef<JObject<'local>>,
) -> Result<JObjectArray<'local, JObject<'local>>> {
    let pair = JObjectArray::<JObject>::new(env, 2, JObject::null())?;
    pair.set_element(env, 0, first.as_ref())?;
    pair.set_element(env, 1, second.as_ref())?;
    Ok(pair)
}

/// Refuses a null; `name` stands for the reference in errors.
pub(crate) fn reject_null<'local>(
    reference: &impl AsRef<JObject<'local>>,
    name: &str,
) -> Result<()> {
    if reference.as_ref().is_null() {
        return Err(Error::invalid(format!("`{name}` is null")).into());
    }
    Ok(())
}
