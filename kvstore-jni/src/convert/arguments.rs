//! Converts arguments of calls: keys, values, shapes, devices, options.

use jni::Env;
use jni::objects::{JDoubleArray, JLongArray, JObjectArray, JString};
use jni::sys::{jint, jlong};
use kvstore::fallible;
use kvstore::{
    DType, Device, DeviceKind, Distribution, Error, Key, LrScheduler, Shape, Value, Warmup,
};

use crate::codes::{Code, DistributionKind, ScheduleKind};
use crate::error::{BridgeError, Result};

use super::handles::{ROWS, array};
use super::java::{collect_strings, numbers, strings, with_string};

/// Returns the values of handles. A positive number is the handle of an array. A negative number is
/// the bitwise complement of the handle of a row-sparse value.
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

/// Returns the keys with these names.
pub(crate) fn keys(env: &mut Env<'_>, names: &JObjectArray<'_, JString<'_>>) -> Result<Vec<Key>> {
    collect_strings(env, names, "keys", |name| Ok(Key::new(name)?))
}

/// Returns the key with this name.
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

/// Returns options by name, with their values.
pub(crate) fn named_strings(
    env: &mut Env<'_>,
    names: &JObjectArray<'_, JString<'_>>,
    values: &JObjectArray<'_, JString<'_>>,
) -> Result<Vec<(String, String)>> {
    let names = strings(env, names, "names")?;
    let values = strings(env, values, "values")?;
    Ok(fallible::collect(names.into_iter().zip(values))?)
}

/// Returns references to options and their values.
pub(crate) fn pairs(options: &[(String, String)]) -> Vec<(&str, &str)> {
    options.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect()
}

/// Returns a learning rate schedule, or `None` for an empty array.
///
/// The numbers are: the kind of the schedule, the mode of its warm-up, the number of updates of the
/// warm-up (0 for none), the first learning rate of the warm-up, and the parameters of the kind.
/// Learning rates and other fractions are encoded as the bits of a double.
///
/// # Errors
/// - [`Error::InvalidArgument`] if the numbers are not a valid schedule.
pub(crate) fn schedule(env: &Env<'_>, numbers: &JLongArray<'_>) -> Result<Option<LrScheduler>> {
    let numbers = self::numbers(env, numbers, "schedule")?;
    let Some((&[kind, mode, steps, begin], own)) = numbers.split_first_chunk() else {
        return Ok(None);
    };
    let schedule = match (ScheduleKind::of(kind)?, own) {
        (ScheduleKind::Factor, &[step, factor, lowest]) => {
            LrScheduler::factor(update_count(step, "step")?, fraction(factor))?
                .with_stop(fraction(lowest))?
        }
        (ScheduleKind::MultiFactor, &[factor, ref steps @ ..]) => {
            let steps = steps.iter().map(|&step| update_count(step, "steps"));
            let steps = fallible::try_collect(steps)?;
            LrScheduler::multi_factor(steps, fraction(factor))?
        }
        (ScheduleKind::Poly, &[end, power, last]) => {
            LrScheduler::poly(update_count(end, "max_update")?, fraction(power), fraction(last))?
        }
        (ScheduleKind::Cosine, &[end, last]) => {
            LrScheduler::cosine(update_count(end, "max_update")?, fraction(last))?
        }
        _ => return Err(Error::invalid(format!("unknown schedule {numbers:?}")).into()),
    };
    // Java always passes the warm-up. With 0 steps there is none, and its mode has no meaning.
    if steps == 0 {
        return Ok(Some(schedule));
    }
    let steps = update_count(steps, "warmup_steps")?;
    Ok(Some(schedule.with_warmup(steps, fraction(begin), Warmup::of(mode)?)?))
}

/// Decodes a double from its bits.
fn fraction(bits: jlong) -> f64 {
    f64::from_bits(bits.cast_unsigned())
}

/// Converts an update count; `name` is its name in errors.
///
/// # Errors
/// - [`Error::InvalidArgument`] if it is negative.
fn update_count(number: jlong, name: &str) -> Result<u64> {
    let count = u64::try_from(number);
    Ok(count.map_err(|_| Error::invalid(format!("{name}: expected 0 or more, found {number}")))?)
}

/// Returns the shape with these dimensions.
///
/// # Errors
/// - [`Error::InvalidArgument`] if a dimension is negative.
pub(crate) fn shape(env: &Env<'_>, dimensions: &JLongArray<'_>) -> Result<Shape> {
    let dimensions = numbers(env, dimensions, "shape")?;
    if let Some(negative) =
        dimensions.iter().find(|&&dimension| usize::try_from(dimension).is_err())
    {
        let text =
            format!("shape {dimensions:?}: expected dimensions of 0 or more, found {negative}");
        return Err(Error::invalid(text).into());
    }
    let mut lengths = fallible::with_capacity(dimensions.len())?;
    lengths.extend(dimensions.iter().filter_map(|&dimension| usize::try_from(dimension).ok()));
    Ok(Shape::from(lengths))
}

/// Returns a distribution. The numbers are the bounds of a uniform one, or the mean and standard
/// deviation of a normal one.
pub(crate) fn distribution(code: jint, first: f64, second: f64) -> Result<Distribution> {
    Ok(match DistributionKind::of(code)? {
        DistributionKind::Uniform => Distribution::Uniform { low: first, high: second },
        DistributionKind::Normal => Distribution::Normal { mean: first, deviation: second },
    })
}

/// Returns the dtype with this code.
pub(crate) fn dtype(code: jint) -> Result<DType> {
    Ok(DType::from_code(code)?)
}

/// Returns the device with this kind and ordinal.
pub(crate) fn device(kind: jint, ordinal: jint) -> Result<Device> {
    let kind = DeviceKind::of(kind)?;
    let ordinal = u32::try_from(ordinal)
        .map_err(|_| Error::invalid(format!("device id: expected 0 or more, found {ordinal}")))?;
    Ok(Device::new(kind, ordinal))
}
