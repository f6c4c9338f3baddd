//! The native methods of `dev.kvstore.NativeNDArray`.
#![expect(clippy::needless_pass_by_value, reason = "`native_method!` passes references by value")]
#![expect(clippy::unnecessary_wraps, reason = "`native_method!` asks for a result")]

use jni::Env;
use jni::objects::{JByteArray, JClass, JDoubleArray, JFloatArray, JIntArray, JLongArray};
use jni::sys::{jboolean, jdouble, jint, jlong};
use kvstore::{BinaryOp, NDArray, Range, Reduction, Scalar, TensorSpec, UnaryOp};

use crate::convert::{self, ARRAYS};
use crate::error::{Result, ThrowKVStoreException};

natives_of!($ "dev.kvstore.NativeNDArray");

native!(fn full(dims: jlong[], dtype: jint, device_kind: jint, device_id: jint, value: jdouble) -> jlong[]);
fn full<'l>(
    env: &mut Env<'l>,
    _class: JClass<'_>,
    dims: JLongArray<'_>,
    dtype: jint,
    device_kind: jint,
    device_id: jint,
    value: jdouble,
) -> Result<JLongArray<'l>> {
    let shape = convert::shape(env, &dims)?;
    let (dtype, device) = (convert::dtype(dtype)?, convert::device(device_kind, device_id)?);
    let array = kvstore::full(shape, value, dtype, device)?;
    convert::adopt(env, array)
}

native!(fn full_long(dims: jlong[], dtype: jint, device_kind: jint, device_id: jint, value: jlong) -> jlong[]);
fn full_long<'l>(
    env: &mut Env<'l>,
    _class: JClass<'_>,
    dims: JLongArray<'_>,
    dtype: jint,
    device_kind: jint,
    device_id: jint,
    value: jlong,
) -> Result<JLongArray<'l>> {
    let shape = convert::shape(env, &dims)?;
    let (dtype, device) = (convert::dtype(dtype)?, convert::device(device_kind, device_id)?);
    let array = kvstore::full(shape, value, dtype, device)?;
    convert::adopt(env, array)
}

/// Exports a method that makes an array of a Java array's elements, converted.
///
/// `new_array!(fn from_floats(data: jfloat[]) for JFloatArray)` is `native!` with `data` and what every
/// such method takes besides, and the function.
macro_rules! new_array {
    (fn $name:ident($($data:tt)*) for $array:ident) => {
        native!(fn $name($($data)*, dims: jlong[], dtype: jint, device_kind: jint, device_id: jint) -> jlong[]);
        fn $name<'l>(
            env: &mut Env<'l>,
            _class: JClass<'_>,
            data: $array<'_>,
            dims: JLongArray<'_>,
            dtype: jint,
            device_kind: jint,
            device_id: jint,
        ) -> Result<JLongArray<'l>> {
            let shape = convert::shape(env, &dims)?;
            let (dtype, device) =
                (convert::dtype(dtype)?, convert::device(device_kind, device_id)?);
            let array = convert::new_array(env, &data, shape, device)?.as_type(dtype)?;
            convert::adopt(env, array)
        }
    };
}

new_array!(fn from_floats(data: jfloat[]) for JFloatArray);
new_array!(fn from_doubles(data: jdouble[]) for JDoubleArray);
new_array!(fn from_ints(data: jint[]) for JIntArray);
new_array!(fn from_longs(data: jlong[]) for JLongArray);

native!(fn from_bytes(data: jbyte[], dims: jlong[], dtype: jint, device_kind: jint, device_id: jint) -> jlong[]);
fn from_bytes<'l>(
    env: &mut Env<'l>,
    _class: JClass<'_>,
    data: JByteArray<'_>,
    dims: JLongArray<'_>,
    dtype: jint,
    device_kind: jint,
    device_id: jint,
) -> Result<JLongArray<'l>> {
    let data = convert::bytes(env, &data, "littleEndian")?;
    let shape = convert::shape(env, &dims)?;
    let (dtype, device) = (convert::dtype(dtype)?, convert::device(device_kind, device_id)?);
    let array = kvstore::from_bytes(&data, TensorSpec::new(shape, dtype), device)?;
    convert::adopt(env, array)
}

native!(fn arange(start: jdouble, stop: jdouble, step: jdouble, repeat: jint, dtype: jint, device_kind: jint, device_id: jint) -> jlong[]);
#[expect(clippy::too_many_arguments, reason = "as many as the Java method has")]
#[expect(clippy::similar_names, reason = "what every `arange` calls them")]
fn arange<'l>(
    env: &mut Env<'l>,
    _class: JClass<'_>,
    start: jdouble,
    stop: jdouble,
    step: jdouble,
    repeat: jint,
    dtype: jint,
    device_kind: jint,
    device_id: jint,
) -> Result<JLongArray<'l>> {
    let repeat = convert::position(repeat, "repeat")?;
    let (dtype, device) = (convert::dtype(dtype)?, convert::device(device_kind, device_id)?);
    let array = kvstore::arange(Range { start, stop, step, repeat }, dtype, device)?;
    convert::adopt(env, array)
}

native!(fn concatenate(handles: jlong[], axis: jint) -> jlong[]);
fn concatenate<'l>(
    env: &mut Env<'l>,
    _class: JClass<'_>,
    handles: JLongArray<'_>,
    axis: jint,
) -> Result<JLongArray<'l>> {
    let arrays = convert::arrays(env, &handles, "arrays")?;
    let joined = NDArray::concatenate(&arrays, convert::position(axis, "axis")?)?;
    convert::adopt(env, joined)
}

native!(fn binary(left: jlong, op: jint, right: jlong) -> jlong[]);
fn binary<'l>(
    env: &mut Env<'l>,
    _class: JClass<'_>,
    left: jlong,
    op: jint,
    right: jlong,
) -> Result<JLongArray<'l>> {
    let (left, right) = (convert::array(left)?, convert::array(right)?);
    let result = left.binary(BinaryOp::from_code(op)?, &right)?;
    convert::adopt(env, result)
}

native!(fn binary_double(array: jlong, op: jint, scalar: jdouble, reversed: jboolean) -> jlong[]);
fn binary_double<'l>(
    env: &mut Env<'l>,
    _class: JClass<'_>,
    array: jlong,
    op: jint,
    scalar: jdouble,
    reversed: jboolean,
) -> Result<JLongArray<'l>> {
    let (array, op) = (convert::array(array)?, BinaryOp::from_code(op)?);
    let result = array.binary_scalar(op, Scalar::from(scalar), reversed)?;
    convert::adopt(env, result)
}

native!(fn binary_long(array: jlong, op: jint, scalar: jlong, reversed: jboolean) -> jlong[]);
fn binary_long<'l>(
    env: &mut Env<'l>,
    _class: JClass<'_>,
    array: jlong,
    op: jint,
    scalar: jlong,
    reversed: jboolean,
) -> Result<JLongArray<'l>> {
    let (array, op) = (convert::array(array)?, BinaryOp::from_code(op)?);
    let result = array.binary_scalar(op, Scalar::from(scalar), reversed)?;
    convert::adopt(env, result)
}

native!(fn binary_assign(left: jlong, op: jint, right: jlong));
fn binary_assign(
    _env: &mut Env<'_>,
    _class: JClass<'_>,
    left: jlong,
    op: jint,
    right: jlong,
) -> Result<()> {
    let (left, right) = (convert::array(left)?, convert::array(right)?);
    Ok(left.binary_assign(BinaryOp::from_code(op)?, &right)?)
}

native!(fn binary_assign_double(array: jlong, op: jint, scalar: jdouble));
fn binary_assign_double(
    _env: &mut Env<'_>,
    _class: JClass<'_>,
    array: jlong,
    op: jint,
    scalar: jdouble,
) -> Result<()> {
    let (array, op) = (convert::array(array)?, BinaryOp::from_code(op)?);
    Ok(array.binary_scalar_assign(op, Scalar::from(scalar))?)
}

native!(fn binary_assign_long(array: jlong, op: jint, scalar: jlong));
fn binary_assign_long(
    _env: &mut Env<'_>,
    _class: JClass<'_>,
    array: jlong,
    op: jint,
    scalar: jlong,
) -> Result<()> {
    let (array, op) = (convert::array(array)?, BinaryOp::from_code(op)?);
    Ok(array.binary_scalar_assign(op, Scalar::from(scalar))?)
}

native!(fn unary(array: jlong, op: jint) -> jlong[]);
fn unary<'l>(
    env: &mut Env<'l>,
    _class: JClass<'_>,
    array: jlong,
    op: jint,
) -> Result<JLongArray<'l>> {
    let result = convert::array(array)?.unary(UnaryOp::from_code(op)?)?;
    convert::adopt(env, result)
}

native!(fn reduce(array: jlong, reduction: jint) -> jlong[]);
fn reduce<'l>(
    env: &mut Env<'l>,
    _class: JClass<'_>,
    array: jlong,
    reduction: jint,
) -> Result<JLongArray<'l>> {
    let result = convert::array(array)?.reduce(Reduction::from_code(reduction)?)?;
    convert::adopt(env, result)
}

native!(fn clip(array: jlong, low: jdouble, high: jdouble) -> jlong[]);
fn clip<'l>(
    env: &mut Env<'l>,
    _class: JClass<'_>,
    array: jlong,
    low: jdouble,
    high: jdouble,
) -> Result<JLongArray<'l>> {
    let result = convert::array(array)?.clip(low, high)?;
    convert::adopt(env, result)
}

native!(fn dot(left: jlong, right: jlong) -> jlong[]);
fn dot<'l>(
    env: &mut Env<'l>,
    _class: JClass<'_>,
    left: jlong,
    right: jlong,
) -> Result<JLongArray<'l>> {
    let result = convert::array(left)?.dot(&*convert::array(right)?)?;
    convert::adopt(env, result)
}

native!(fn transpose(array: jlong) -> jlong[]);
fn transpose<'l>(env: &mut Env<'l>, _class: JClass<'_>, array: jlong) -> Result<JLongArray<'l>> {
    let result = convert::array(array)?.transpose()?;
    convert::adopt(env, result)
}

native!(fn argmax_channel(array: jlong) -> jlong[]);
fn argmax_channel<'l>(
    env: &mut Env<'l>,
    _class: JClass<'_>,
    array: jlong,
) -> Result<JLongArray<'l>> {
    let result = convert::array(array)?.argmax_channel()?;
    convert::adopt(env, result)
}

native!(fn copy(array: jlong) -> jlong[]);
fn copy<'l>(env: &mut Env<'l>, _class: JClass<'_>, array: jlong) -> Result<JLongArray<'l>> {
    let result = convert::array(array)?.copy()?;
    convert::adopt(env, result)
}

native!(fn slice(array: jlong, start: jlong, stop: jlong) -> jlong[]);
fn slice<'l>(
    env: &mut Env<'l>,
    _class: JClass<'_>,
    array: jlong,
    start: jlong,
    stop: jlong,
) -> Result<JLongArray<'l>> {
    let (start, stop) = (convert::position(start, "start")?, convert::position(stop, "stop")?);
    let view = convert::array(array)?.slice(start, stop)?;
    convert::adopt(env, view)
}

native!(fn at(array: jlong, index: jlong) -> jlong[]);
fn at<'l>(
    env: &mut Env<'l>,
    _class: JClass<'_>,
    array: jlong,
    index: jlong,
) -> Result<JLongArray<'l>> {
    let view = convert::array(array)?.at(convert::position(index, "index")?)?;
    convert::adopt(env, view)
}

native!(fn reshape(array: jlong, dims: jlong[]) -> jlong[]);
fn reshape<'l>(
    env: &mut Env<'l>,
    _class: JClass<'_>,
    array: jlong,
    dims: JLongArray<'_>,
) -> Result<JLongArray<'l>> {
    let dims = convert::numbers(env, &dims, "dimensions")?;
    let view = convert::array(array)?.reshape(&dims)?;
    convert::adopt(env, view)
}

native!(fn as_type(array: jlong, dtype: jint) -> jlong[]);
fn as_type<'l>(
    env: &mut Env<'l>,
    _class: JClass<'_>,
    array: jlong,
    dtype: jint,
) -> Result<JLongArray<'l>> {
    let result = convert::array(array)?.as_type(convert::dtype(dtype)?)?;
    convert::adopt(env, result)
}

native!(fn to_device(array: jlong, device_kind: jint, device_id: jint) -> jlong[]);
fn to_device<'l>(
    env: &mut Env<'l>,
    _class: JClass<'_>,
    array: jlong,
    device_kind: jint,
    device_id: jint,
) -> Result<JLongArray<'l>> {
    let device = convert::device(device_kind, device_id)?;
    let result = convert::array(array)?.to_device(kvstore::backends(), device)?;
    convert::adopt(env, result)
}

native!(fn copy_to(source: jlong, destination: jlong));
fn copy_to(
    _env: &mut Env<'_>,
    _class: JClass<'_>,
    source: jlong,
    destination: jlong,
) -> Result<()> {
    let (source, destination) = (convert::array(source)?, convert::array(destination)?);
    Ok(source.copy_to(&destination)?)
}

native!(fn fill(array: jlong, value: jdouble));
fn fill(_env: &mut Env<'_>, _class: JClass<'_>, array: jlong, value: jdouble) -> Result<()> {
    Ok(convert::array(array)?.fill(Scalar::from(value))?)
}

native!(fn fill_long(array: jlong, value: jlong));
fn fill_long(_env: &mut Env<'_>, _class: JClass<'_>, array: jlong, value: jlong) -> Result<()> {
    Ok(convert::array(array)?.fill(Scalar::from(value))?)
}

/// Exports a method that sets an array to a Java array's elements, converted: see [`new_array`].
macro_rules! assign {
    (fn $name:ident($($signature:tt)*) for $java:ident) => {
        native!(fn $name($($signature)*));
        fn $name(
            env: &mut Env<'_>,
            _class: JClass<'_>,
            array: jlong,
            data: $java<'_>,
        ) -> Result<()> {
            let array = convert::array(array)?;
            let value = convert::new_array(env, &data, array.shape().clone(), array.device())?;
            Ok(array.assign(&value.tensor())?)
        }
    };
}

assign!(fn assign_floats(array: jlong, data: jfloat[]) for JFloatArray);
assign!(fn assign_doubles(array: jlong, data: jdouble[]) for JDoubleArray);
assign!(fn assign_ints(array: jlong, data: jint[]) for JIntArray);
assign!(fn assign_longs(array: jlong, data: jlong[]) for JLongArray);

native!(fn to_floats(array: jlong) -> jfloat[]);
fn to_floats<'l>(env: &mut Env<'l>, _class: JClass<'_>, array: jlong) -> Result<JFloatArray<'l>> {
    convert::elements_to_java::<f32>(env, &convert::array(array)?.tensor())
}

native!(fn to_doubles(array: jlong) -> jdouble[]);
fn to_doubles<'l>(env: &mut Env<'l>, _class: JClass<'_>, array: jlong) -> Result<JDoubleArray<'l>> {
    convert::elements_to_java::<f64>(env, &convert::array(array)?.tensor())
}

native!(fn to_ints(array: jlong) -> jint[]);
fn to_ints<'l>(env: &mut Env<'l>, _class: JClass<'_>, array: jlong) -> Result<JIntArray<'l>> {
    convert::elements_to_java::<i32>(env, &convert::array(array)?.tensor())
}

native!(fn to_longs(array: jlong) -> jlong[]);
fn to_longs<'l>(env: &mut Env<'l>, _class: JClass<'_>, array: jlong) -> Result<JLongArray<'l>> {
    convert::elements_to_java::<i64>(env, &convert::array(array)?.tensor())
}

native!(fn to_bytes(array: jlong) -> jbyte[]);
fn to_bytes<'l>(env: &mut Env<'l>, _class: JClass<'_>, array: jlong) -> Result<JByteArray<'l>> {
    let value = convert::array(array)?.tensor();
    convert::check_java_length(value.num_bytes())?;
    match value.host_bytes() {
        Ok(bytes) => convert::bytes_to_java(env, bytes),
        Err(_) => convert::bytes_to_java(env, &value.to_bytes()?),
    }
}

native!(fn wait_to_read(array: jlong));
fn wait_to_read(_env: &mut Env<'_>, _class: JClass<'_>, array: jlong) -> Result<()> {
    Ok(convert::array(array)?.wait_to_read()?)
}

native!(fn release(array: jlong));
fn release(_env: &mut Env<'_>, _class: JClass<'_>, array: jlong) -> Result<()> {
    drop(ARRAYS.remove(array));
    Ok(())
}
