//! Copies elements from and to Java arrays.

use std::ops::Range;

use jni::Env;
use jni::objects::{JPrimitiveArray, TypeArray};
use jni::sys::jsize;
use kvstore::{Device, DeviceKind, Element, Error, NDArray, Shape, Tensor};

use crate::error::Result;

use super::java::{check_java_length, numbers, reject_null};
use crate::critical::Critical;

/// Returns a new array with the numbers of a Java array. Copies them only once.
pub(crate) fn new_array<T: Element + TypeArray>(
    env: &Env<'_>,
    data: &JPrimitiveArray<'_, T>,
    shape: Shape,
    device: Device,
) -> Result<NDArray> {
    if device.kind() != DeviceKind::Cpu {
        // A copy to another device may block, which is not allowed in the critical section below.
        return Ok(kvstore::array(&numbers(env, data, "data")?, shape, device)?);
    }
    reject_null(data, "data")?;
    kvstore::array_from(data.len(env)?, shape, device, |range, write| {
        with_elements(env, data, range, |elements| Ok(write(elements)?))
    })
}

/// Returns a Java array of the converted elements of a value.
pub(crate) fn elements_to_java<'local, T: Element + TypeArray>(
    env: &mut Env<'local>,
    value: &Tensor,
) -> Result<JPrimitiveArray<'local, T>> {
    // Check before converting, because the conversion takes as much memory again.
    check_java_length(value.num_elements())?;
    let array = JPrimitiveArray::new(env, value.num_elements())?;
    fill(env, &array, &value.cast(T::DTYPE)?)?;
    Ok(array)
}

/// Passes some elements of a Java array to `copy` without a copy.
///
/// While `copy` runs, the JVM moves no objects. So `copy` must only copy a piece, which takes
/// microseconds. It must neither wait nor call Java. Copying through a buffer took a third longer
/// for a large array.
#[allow(
    unsafe_code,
    reason = "16 Mi floats are copied at 0.85 of the speed of `System.arraycopy`, not 0.64"
)]
fn with_elements<T: TypeArray>(
    env: &Env<'_>,
    array: &JPrimitiveArray<'_, T>,
    range: Range<usize>,
    copy: impl FnOnce(&[T]) -> Result<()>,
) -> Result<()> {
    // SAFETY: until this function returns, only `copy` runs in this thread, and it makes no JNI
    // call.
    let elements = unsafe { Critical::new(env, array) }?;
    let elements = elements.get(range);
    copy(elements.ok_or_else(|| Error::Internal("a range outside of a Java array".to_owned()))?)
}

/// Copies the elements of a value to the beginning of a Java array. Copies 1 MiB at a time, so that
/// a garbage collection never waits long. (The Java side copies long runs that need no conversion
/// itself, on all cores.)
///
/// # Errors
/// - [`Error::SpecMismatch`] if `T` is not the value's dtype.
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
