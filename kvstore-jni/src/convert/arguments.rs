//! Arguments of calls: keys, values, shapes, devices, options.

use jni::Env;
use jni::objects::{JDoubleArray, JLongArray, JObjectArray, JString};
use jni::sys::jint;
use kvstore::fallible;
use kvstore::{
    DType, Device, DeviceKind, Distribution, Error, Key, LrScheduler, OnExisting, Shape, Value,
    Warmup,
};

use crate::error::{BridgeError, Result};

use super::handles::{ROWS, array};
use super::java::{collect_strings, numbers, strings, with_string};

/// Returns values. A positive number is the handle of an array. A negative number is the bitwise
/// complement of the handle of a row-sparse value.
pub(crate) fn values(env: &Env<'_>, handles: &JLongArray<'_>) -> Result<Vec<Value>> {
    let value = |handle: i64| {
        Ok::<Value, BridgeError>(if handle < 0 {
            Value::from(&*ROWS.get(!handle)?)
        } else {
            Value::from(&*array(handle)?)
        })
    };
    fallible::try_collect(numbers(env, handles, "values")?.into_iter().map(value))
}

/// Returns keys.
pub(crate) fn keys(env: &mut Env<'_>, names: &JObjectArray<'_, JString<'_>>) -> Result<Vec<Key>> {
    collect_strings(env, names, "keys", |name| Ok(Key::new(name)?))
}

/// Returns a key.
pub(crate) fn key(env: &Env<'_>, name: &JString<'_>) -> Result<Key> {
    with_string(env, name, "key", |name| Ok(Key::new(name)?))
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

const FACTOR: f64 = 0.0;
const MULTI_FACTOR: f64 = 1.0;
const POLY: f64 = 2.0;
const COSINE: f64 = 3.0;

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

/// Returns the treatment of keys that are already initialised.
pub(crate) fn on_existing(code: jint) -> Result<OnExisting> {
    match code {
        0 => Ok(OnExisting::Reject),
        1 => Ok(OnExisting::Keep),
        2 => Ok(OnExisting::Replace),
        _ => Err(Error::invalid(format!("onExisting: the code {code} is unknown")).into()),
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

const CPU: jint = 0;
const GPU: jint = 1;

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

/// Returns the number of a kind of device that [`device`] knows.
pub(super) fn device_kind(device: Device) -> jint {
    match device.kind() {
        DeviceKind::Cpu => CPU,
        DeviceKind::Gpu => GPU,
    }
}
