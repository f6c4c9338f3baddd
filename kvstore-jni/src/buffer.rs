//! The native methods of `dev.kvstore.NativeBuffer`: elements where Java can see them.
#![expect(clippy::needless_pass_by_value, reason = "`native_method!` passes references by value")]
#![expect(clippy::unnecessary_wraps, reason = "`native_method!` asks for a result")]

use jni::Env;
use jni::objects::{
    JByteBuffer, JClass, JDoubleArray, JFloatArray, JIntArray, JLongArray, JPrimitiveArray,
    TypeArray,
};
use jni::sys::jlong;
use kvstore::Element;

use crate::convert::{self, PINS};
use crate::error::{Result, ThrowKVStoreException};

natives_of!($ "dev.kvstore.NativeBuffer");

native!(fn pin(array: jlong) -> jlong);
fn pin(_env: &mut Env<'_>, _class: JClass<'_>, array: jlong) -> Result<jlong> {
    let value = convert::array(array)?.tensor();
    value.wait()?;
    Ok(PINS.insert(value)?)
}

native!(fn view(pin: jlong) -> JByteBuffer);
#[allow(unsafe_code, reason = "a buffer of the JVM is an address and a length")]
fn view<'l>(env: &mut Env<'l>, _class: JClass<'_>, pin: jlong) -> Result<JByteBuffer<'l>> {
    let value = PINS.get(pin)?;
    let bytes = value.host_bytes()?;
    let start = bytes.as_ptr().cast_mut();
    // SAFETY: the bytes live and stay as they are until the pin is released, for they belong to a value
    // that somebody holds. Java releases the pin when nothing can reach the buffer any more, and hands
    // out read-only views of the buffer only, so nothing is ever written through this pointer.
    let buffer = unsafe { env.new_direct_byte_buffer(start, bytes.len()) }?;
    Ok(buffer)
}

native!(fn release(pin: jlong));
fn release(_env: &mut Env<'_>, _class: JClass<'_>, pin: jlong) -> Result<()> {
    drop(PINS.remove(pin));
    Ok(())
}

/// Fills a Java array with the elements of an array from `first` on, converted.
fn read<T: Element + TypeArray>(
    env: &Env<'_>,
    array: jlong,
    first: jlong,
    destination: &JPrimitiveArray<'_, T>,
) -> Result<()> {
    convert::reject_null(destination, "destination")?;
    let array = convert::array(array)?;
    let (first, len) = (convert::position(first, "first")?, destination.len(env)?);
    let part = array.elements(first, len)?.tensor();
    match part.as_slice::<T>() {
        Ok(elements) => destination.set_region(env, 0, elements)?,
        Err(_) => destination.set_region(env, 0, &part.read_as::<T>()?)?,
    }
    Ok(())
}

native!(fn read_floats(array: jlong, first: jlong, destination: jfloat[]));
fn read_floats(
    env: &mut Env<'_>,
    _class: JClass<'_>,
    array: jlong,
    first: jlong,
    destination: JFloatArray<'_>,
) -> Result<()> {
    read(env, array, first, &destination)
}

native!(fn read_doubles(array: jlong, first: jlong, destination: jdouble[]));
fn read_doubles(
    env: &mut Env<'_>,
    _class: JClass<'_>,
    array: jlong,
    first: jlong,
    destination: JDoubleArray<'_>,
) -> Result<()> {
    read(env, array, first, &destination)
}

native!(fn read_ints(array: jlong, first: jlong, destination: jint[]));
fn read_ints(
    env: &mut Env<'_>,
    _class: JClass<'_>,
    array: jlong,
    first: jlong,
    destination: JIntArray<'_>,
) -> Result<()> {
    read(env, array, first, &destination)
}

native!(fn read_longs(array: jlong, first: jlong, destination: jlong[]));
fn read_longs(
    env: &mut Env<'_>,
    _class: JClass<'_>,
    array: jlong,
    first: jlong,
    destination: JLongArray<'_>,
) -> Result<()> {
    read(env, array, first, &destination)
}
