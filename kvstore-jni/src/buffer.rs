//! The native methods of `dev.kvstore.NativeBuffer`: elements where Java can see them.
#![expect(clippy::needless_pass_by_value, reason = "`native_method!` passes references by value")]
#![expect(clippy::unnecessary_wraps, reason = "`native_method!` asks for a result")]

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
    // A copy only where the host does not see the memory.
    let value =
        convert::array(array)?.tensor().to_device(kvstore::backends(), Device::default())?;
    value.wait()?;
    Ok(PINS.insert(value)?)
}

native!(fn view(pin: jlong, start: jlong, num_bytes: jlong) -> JByteBuffer);
#[allow(unsafe_code, reason = "a buffer of the JVM is an address and a length")]
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

/// A part of the memory of a direct buffer of Java, in elements of the buffer.
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

    /// Returns where the region begins. It has `len` elements, which need not be aligned.
    #[allow(unsafe_code, reason = "jni knows byte buffers only, the JVM any direct buffer")]
    fn start<T>(&self, env: &Env<'_>) -> Result<*mut T> {
        // SAFETY: the functions of the JVM called with it take every buffer of java.nio, and Java
        // declares the parameter as one.
        let buffer = unsafe { env.as_cast_unchecked::<JByteBuffer>(self.buffer) };
        let capacity = env.get_direct_buffer_capacity(&buffer)?;
        if self.position.checked_add(self.len).is_none_or(|end| end > capacity) {
            let text = format!(
                "{} elements from {} on of a buffer of {capacity}",
                self.len, self.position
            );
            return Err(Error::invalid(text).into());
        }
        Ok(env.get_direct_buffer_address(&buffer)?.cast::<T>().wrapping_add(self.position))
    }

    /// Returns a copy of the elements. Java may write the buffer meanwhile; then it is any mixture.
    #[allow(unsafe_code, reason = "the memory of a direct buffer is an address")]
    fn copy<T: Element>(&self, env: &Env<'_>) -> Result<Vec<T>> {
        let mut elements = kvstore::fallible::with_capacity::<T>(self.len)?;
        if self.len == 0 {
            return Ok(elements);
        }
        let (from, to) = (self.start::<T>(env)?.cast::<u8>(), elements.as_mut_ptr().cast::<u8>());
        // SAFETY: the buffer has `len` elements from its start, and Java holds it during this call;
        // the vector has room for as many and nobody else knows it.
        unsafe { std::ptr::copy_nonoverlapping(from, to, self.len * size_of::<T>()) };
        // SAFETY: as many have just been written, and every pattern of bits is an element.
        unsafe { elements.set_len(self.len) };
        Ok(elements)
    }

    /// Fills the region.
    ///
    /// # Errors
    /// [`Error::LengthMismatch`] when there are not as many elements.
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
        // SAFETY: the buffer has `len` elements from its start, Java holds it during this call and
        // has checked that it may be written; memory of Java does not overlap with ours, but for
        // the read-only buffers of `view`.
        unsafe { std::ptr::copy_nonoverlapping(from, to, size_of_val(elements)) };
        Ok(())
    }
}

native!(fn create(data: java.nio.Buffer, kind: jint, position: jlong, length: jlong, dims: jlong[], dtype: jint, device_kind: jint, device_id: jint) -> jlong[]);
#[expect(clippy::too_many_arguments, reason = "as many as the Java method has")]
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

native!(fn assign(array: jlong, data: java.nio.Buffer, kind: jint, position: jlong, length: jlong, dtype: jint));
#[expect(clippy::too_many_arguments, reason = "as many as the Java method has")]
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
            let spec = TensorSpec::new(array.shape().clone(), convert::dtype(dtype)?);
            let value = kvstore::from_bytes(&data.copy::<u8>(env)?, spec, array.device())?;
            array.assign(&value.tensor())
        }
    }?;
    Ok(())
}

native!(fn read(array: jlong, first: jlong, destination: java.nio.Buffer, kind: jint, position: jlong, length: jlong));
#[expect(clippy::too_many_arguments, reason = "as many as the Java method has")]
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
        let text = format!("{} bytes of a buffer are no whole number of elements", region.len);
        return Err(Error::invalid(text).into());
    }
    let part = array.elements(first, region.len / size)?.tensor();
    match part.host_bytes() {
        Ok(bytes) => region.write(env, bytes),
        Err(_) => region.write(env, &part.to_bytes()?),
    }
}

/// Exports a method that fills a Java array with the elements of an array from `first` on, converted.
///
/// `read_array!(fn read_floats(array: jlong, first: jlong, destination: jfloat[]) for JFloatArray)`
/// is `native!` of that signature, and the function.
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
