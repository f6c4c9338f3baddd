//! The native methods of `dev.kvstore.NativeBuffer`: elements in buffers and Java arrays.
#![expect(clippy::needless_pass_by_value, reason = "`native_method!` passes references by value")]
#![expect(clippy::unnecessary_wraps, reason = "`native_method!` requires a result")]

use jni::Env;
use jni::objects::{
    JByteArray, JByteBuffer, JClass, JDoubleArray, JFloatArray, JIntArray, JLongArray, JObject,
    JPrimitiveArray, TypeArray,
};
use jni::sys::{jint, jlong};
use kvstore::{Device, Element, Error, NDArray, TensorSpec};

use crate::codes::{BufferKind, Code};
use crate::convert::{self, PINS};
use crate::error::{Result, ThrowKVStoreException};

natives_of!($ "dev.kvstore.NativeBuffer");

native!(fn pin(array: jlong) -> jlong);
fn pin(_env: &mut Env<'_>, _class: JClass<'_>, array: jlong) -> Result<jlong> {
    // This copies only if the value is not in host memory.
    let value =
        convert::array(array)?.tensor().to_device(kvstore::backends(), Device::default())?;
    value.wait()?;
    Ok(PINS.insert(value)?)
}

native!(fn view(pin: jlong, start: jlong, num_bytes: jlong) -> JByteBuffer);
#[allow(unsafe_code, reason = "the JVM creates a direct buffer from an address and a length")]
fn view<'l>(
    env: &mut Env<'l>,
    _class: JClass<'_>,
    pin: jlong,
    start: jlong,
    num_bytes: jlong,
) -> Result<JByteBuffer<'l>> {
    let value = PINS.get(pin)?;
    let (start, len) =
        (convert::position(start, "start")?, convert::position(num_bytes, "length")?);
    let bytes = value.host_bytes()?.get(start..).and_then(|bytes| bytes.get(..len));
    let bytes = bytes.ok_or_else(|| Error::invalid("a view beyond the end of its value"))?;
    let start = bytes.as_ptr().cast_mut();
    // SAFETY: the bytes belong to a value that the pin keeps alive. They do not change until the
    // pin is released, because a shared value is never written. Java releases the pin when no
    // buffer over it is reachable. Java hands out only read-only views of the buffer, so nothing
    // writes through this pointer.
    let buffer = unsafe { env.new_direct_byte_buffer(start, bytes.len()) }?;
    Ok(buffer)
}

native!(fn release(pin: jlong));
fn release(_env: &mut Env<'_>, _class: JClass<'_>, pin: jlong) -> Result<()> {
    drop(PINS.remove(pin));
    Ok(())
}

/// A part of the memory of a direct Java buffer. `position` and `len` count elements of the buffer.
struct Region<'a, 'local> {
    buffer: &'a JObject<'local>,
    position: usize,
    len: usize,
}

impl<'a, 'local> Region<'a, 'local> {
    fn new(buffer: &'a JObject<'local>, position: jlong, len: jlong) -> Result<Self> {
        convert::reject_null(buffer, "buffer")?;
        let (position, len) =
            (convert::position(position, "position")?, convert::position(len, "length")?);
        Ok(Self { buffer, position, len })
    }

    /// Returns a pointer to the first of `len` elements, which may be unaligned.
    ///
    /// # Errors
    /// - [`Error::InvalidArgument`] if the region exceeds the buffer.
    #[allow(unsafe_code, reason = "`jni` supports only byte buffers, the JVM any direct buffer")]
    fn start<T>(&self, env: &Env<'_>) -> Result<*mut T> {
        // SAFETY: the JVM functions that are called with this reference accept every
        // `java.nio.Buffer`, and the Java method declares the parameter as one.
        let buffer = unsafe { env.as_cast_unchecked::<JByteBuffer>(self.buffer) };
        let capacity = env.get_direct_buffer_capacity(&buffer)?;
        if self.position.checked_add(self.len).is_none_or(|end| end > capacity) {
            let text = format!(
                "{} elements from element {} on are out of range for a buffer of {capacity}",
                self.len, self.position
            );
            return Err(Error::invalid(text).into());
        }
        Ok(env.get_direct_buffer_address(&buffer)?.cast::<T>().wrapping_add(self.position))
    }

    /// Returns a copy of the elements. If Java writes to the buffer during the copy, the copy is a
    /// mixture of old and new elements.
    #[allow(unsafe_code, reason = "the memory of a direct buffer is an address")]
    fn copy<T: Element>(&self, env: &Env<'_>) -> Result<Vec<T>> {
        let mut elements = kvstore::fallible::with_capacity::<T>(self.len)?;
        if self.len == 0 {
            return Ok(elements);
        }
        let (from, to) = (self.start::<T>(env)?.cast::<u8>(), elements.as_mut_ptr().cast::<u8>());
        // SAFETY: the buffer has `len` elements from its start, and Java keeps it alive during this
        // call. The vector has room for `len` elements, and nothing else refers to it.
        unsafe { std::ptr::copy_nonoverlapping(from, to, self.len * size_of::<T>()) };
        // SAFETY: `len` elements have just been written, and every bit pattern is a valid element.
        unsafe { elements.set_len(self.len) };
        Ok(elements)
    }

    /// Fills the region.
    ///
    /// # Errors
    /// - [`Error::LengthMismatch`] if the number of elements is not the length of the region.
    #[allow(unsafe_code, reason = "the memory of a direct buffer is an address")]
    fn write<T: Element>(&self, env: &Env<'_>, elements: &[T]) -> Result<()> {
        if elements.len() != self.len {
            let what = "elements of a buffer".to_owned();
            let (expected, found) = (self.len, elements.len());
            return Err(Error::LengthMismatch { what, expected, found }.into());
        }
        if self.len == 0 {
            return Ok(());
        }
        let (from, to) = (elements.as_ptr().cast::<u8>(), self.start::<T>(env)?.cast::<u8>());
        // SAFETY: the buffer has `len` elements from its start. Java keeps it alive during this
        // call and has checked that it is writable. Java's memory does not overlap with this
        // library's, except for the read-only buffers of `view`.
        unsafe { std::ptr::copy_nonoverlapping(from, to, size_of_val(elements)) };
        Ok(())
    }
}

native!(fn create(
    data: java.nio.Buffer, kind: jint, position: jlong, length: jlong, dims: jlong[], dtype: jint,
    device_kind: jint, device_id: jint
) -> jlong[]);
#[expect(clippy::too_many_arguments, reason = "the Java method has as many arguments")]
fn create<'l>(
    env: &mut Env<'l>,
    _class: JClass<'_>,
    data: JObject<'_>,
    kind: jint,
    position: jlong,
    length: jlong,
    dims: JLongArray<'_>,
    dtype: jint,
    device_kind: jint,
    device_id: jint,
) -> Result<JLongArray<'l>> {
    let data = Region::new(&data, position, length)?;
    let shape = convert::shape(env, &dims)?;
    let (dtype, device) = (convert::dtype(dtype)?, convert::device(device_kind, device_id)?);
    let array = match BufferKind::of(kind)? {
        BufferKind::Floats => {
            kvstore::array(&data.copy::<f32>(env)?, shape, device)?.as_type(dtype)
        }
        BufferKind::Doubles => {
            kvstore::array(&data.copy::<f64>(env)?, shape, device)?.as_type(dtype)
        }
        BufferKind::Ints => kvstore::array(&data.copy::<i32>(env)?, shape, device)?.as_type(dtype),
        BufferKind::Longs => kvstore::array(&data.copy::<i64>(env)?, shape, device)?.as_type(dtype),
        BufferKind::Bytes => {
            kvstore::from_bytes(&data.copy::<u8>(env)?, TensorSpec::new(shape, dtype), device)
        }
    }?;
    convert::adopt(env, array)
}

native!(fn assign(
    array: jlong, data: java.nio.Buffer, kind: jint, position: jlong, length: jlong, dtype: jint
));
#[expect(clippy::too_many_arguments, reason = "the Java method has as many arguments")]
fn assign(
    env: &mut Env<'_>,
    _class: JClass<'_>,
    array: jlong,
    data: JObject<'_>,
    kind: jint,
    position: jlong,
    length: jlong,
    dtype: jint,
) -> Result<()> {
    let array = convert::array(array)?;
    let data = Region::new(&data, position, length)?;
    match BufferKind::of(kind)? {
        BufferKind::Floats => array.assign_slice(&data.copy::<f32>(env)?),
        BufferKind::Doubles => array.assign_slice(&data.copy::<f64>(env)?),
        BufferKind::Ints => array.assign_slice(&data.copy::<i32>(env)?),
        BufferKind::Longs => array.assign_slice(&data.copy::<i64>(env)?),
        BufferKind::Bytes => {
            // The dtype of the bytes may differ from the array's, so use a temporary array.
            let spec = TensorSpec::new(array.shape().clone(), convert::dtype(dtype)?);
            let value = kvstore::from_bytes(&data.copy::<u8>(env)?, spec, array.device())?;
            array.assign(&value.tensor())
        }
    }?;
    Ok(())
}

native!(fn read(
    array: jlong, first: jlong, destination: java.nio.Buffer, kind: jint, position: jlong,
    length: jlong
));
#[expect(clippy::too_many_arguments, reason = "the Java method has as many arguments")]
fn read(
    env: &mut Env<'_>,
    _class: JClass<'_>,
    array: jlong,
    first: jlong,
    destination: JObject<'_>,
    kind: jint,
    position: jlong,
    length: jlong,
) -> Result<()> {
    let array = convert::array(array)?;
    let first = convert::position(first, "first")?;
    let region = Region::new(&destination, position, length)?;
    match BufferKind::of(kind)? {
        BufferKind::Floats => read_numbers::<f32>(env, &array, first, &region),
        BufferKind::Doubles => read_numbers::<f64>(env, &array, first, &region),
        BufferKind::Ints => read_numbers::<i32>(env, &array, first, &region),
        BufferKind::Longs => read_numbers::<i64>(env, &array, first, &region),
        BufferKind::Bytes => read_bytes_of(env, &array, first, &region),
    }
}

fn read_numbers<T: Element>(
    env: &Env<'_>,
    array: &NDArray,
    first: usize,
    region: &Region<'_, '_>,
) -> Result<()> {
    let part = array.elements(first, region.len)?.tensor();
    match part.as_slice::<T>() {
        Ok(elements) => region.write(env, elements),
        Err(_) => region.write(env, &part.read_as::<T>()?),
    }
}

fn read_bytes_of(
    env: &Env<'_>,
    array: &NDArray,
    first: usize,
    region: &Region<'_, '_>,
) -> Result<()> {
    let size = array.dtype().size();
    if !region.len.is_multiple_of(size) {
        let text = format!(
            "destination: {} bytes is not a whole number of {size}-byte elements",
            region.len
        );
        return Err(Error::invalid(text).into());
    }
    let part = array.elements(first, region.len / size)?.tensor();
    match part.host_bytes() {
        Ok(bytes) => region.write(env, bytes),
        Err(_) => region.write(env, &part.to_bytes()?),
    }
}

/// Exports a method that fills a Java array with converted elements of an array, beginning with the
/// element `first`.
///
/// `read_array!(fn read_floats(array: jlong, first: jlong, destination: jfloat[]) for JFloatArray)`
/// expands to `native!` of that signature, and to the function.
macro_rules! read_array {
    (fn $name:ident($($signature:tt)*) for $array:ident) => {
        native!(fn $name($($signature)*));
        fn $name(
            env: &mut Env<'_>,
            _class: JClass<'_>,
            array: jlong,
            first: jlong,
            destination: $array<'_>,
        ) -> Result<()> {
            read_elements(env, array, first, &destination)
        }
    };
}

read_array!(fn read_floats(array: jlong, first: jlong, destination: jfloat[]) for JFloatArray);
read_array!(fn read_doubles(array: jlong, first: jlong, destination: jdouble[]) for JDoubleArray);
read_array!(fn read_ints(array: jlong, first: jlong, destination: jint[]) for JIntArray);
read_array!(fn read_longs(array: jlong, first: jlong, destination: jlong[]) for JLongArray);
read_array!(fn read_bytes(array: jlong, first: jlong, destination: jbyte[]) for JByteArray);

fn read_elements<T: Element + TypeArray>(
    env: &Env<'_>,
    array: jlong,
    first: jlong,
    destination: &JPrimitiveArray<'_, T>,
) -> Result<()> {
    convert::reject_null(destination, "destination")?;
    let array = convert::array(array)?;
    let (first, len) = (convert::position(first, "first")?, destination.len(env)?);
    let part = array.elements(first, len)?.tensor();
    convert::fill(env, destination, &part.cast(T::DTYPE)?)
}
