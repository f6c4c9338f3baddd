//! Elements of arrays, copied from and to Java arrays.

use std::ops::Range;

use jni::Env;
use jni::objects::{JPrimitiveArray, TypeArray};
use jni::sys::jsize;
use kvstore::{Device, DeviceKind, Element, Error, NDArray, Shape, Tensor};

use crate::error::Result;

use super::java::{check_java_length, numbers, reject_null};
use crate::critical::Critical;

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
        with_elements(env, data, range, |elements| Ok(write(elements)?))
    })
}

/// Returns a Java array of a value's elements, converted.
pub(crate) fn elements_to_java<'local, T: Element + TypeArray>(
    env: &mut Env<'local>,
    value: &Tensor,
) -> Result<JPrimitiveArray<'local, T>> {
    // Before anything is converted, which would take as much memory again.
    check_java_length(value.num_elements())?;
    let array = JPrimitiveArray::new(env, value.num_elements())?;
    fill(env, &array, &value.cast(T::DTYPE)?)?;
    Ok(array)
}

/// Lets `copy` see some elements of a Java array where they are.
///
/// Meanwhile the JVM does not move anything: `copy` only copies, a piece that takes microseconds, and neither
/// waits nor calls Java. Copied into a buffer first, a large array took a third longer.
#[allow(unsafe_code, reason = "16 Mi floats at 0.85 of `System.arraycopy` instead of 0.64")]
fn with_elements<T: TypeArray>(
    env: &Env<'_>,
    array: &JPrimitiveArray<'_, T>,
    range: Range<usize>,
    copy: impl FnOnce(&[T]) -> Result<()>,
) -> Result<()> {
    // SAFETY: until the end of this function, `copy` alone runs in this thread, and it makes no call of JNI.
    let elements = unsafe { Critical::new(env, array) }?;
    let elements = elements.get(range);
    copy(elements.ok_or_else(|| Error::Internal("a range outside of a Java array".to_owned()))?)
}

/// Copies the elements of a value into a Java array from its beginning on: 1 MiB at a time, so that a collection
/// never waits for long. (Long runs that need no conversion are copied on the Java side, on all cores.)
///
/// # Errors
/// [`Error::SpecMismatch`] when `T` is not the value's dtype.
pub(crate) fn fill<T: Element + TypeArray>(
    env: &Env<'_>,
    array: &JPrimitiveArray<'_, T>,
    value: &Tensor,
) -> Result<()> {
    const PIECE_BYTES: usize = 1 << 20;
    let most = PIECE_BYTES / size_of::<T>();
    let read;
    let elements = if let Ok(elements) = value.as_slice::<T>() {
        elements
    } else {
        read = value.to_vec::<T>()?;
        &read
    };
    for (index, piece) in elements.chunks(most).enumerate() {
        let start = jsize::try_from(index * most)
            .map_err(|_| Error::Internal("a value is longer than its Java array".to_owned()))?;
        array.set_region(env, start, piece)?;
    }
    Ok(())
}
