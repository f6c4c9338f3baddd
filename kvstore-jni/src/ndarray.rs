//! The native methods of `dev.kvstore.NativeNDArray`.
#![expect(clippy::needless_pass_by_value, reason = "`native_method!` passes references by value")]
#![expect(clippy::unnecessary_wraps, reason = "`native_method!` requires a result")]

use jni::Env;
use jni::objects::{JByteArray, JClass, JDoubleArray, JFloatArray, JIntArray, JLongArray};
use jni::sys::{jboolean, jdouble, jint, jlong};
use kvstore::{BinaryOp, NDArray, Range, Reduction, Scalar, TensorSpec, UnaryOp};

use crate::convert::{self, ARRAYS};
use crate::error::{Result, ThrowKVStoreException};

natives_of!($ "dev.kvstore.NativeNDArray");

native!(fn full(
    dims: jlong[], dtype: jint, device_kind: jint, device_id: jint, value: jdouble
) -> jlong[]);
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

native!(fn full_long(
    dims: jlong[], dtype: jint, device_kind: jint, device_id: jint, value: jlong
) -> jlong[]);
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

/// Exports a method that creates an array with the converted elements of a Java array.
///
/// `new_array!(fn from_floats(data: jfloat[]) for JFloatArray)` expands to `native!` with `data`
/// and the arguments that all these methods have in common, and to the function.
macro_rules! new_array {
    (fn $name:ident($($data:tt)*) for $array:ident) => {
        native!(fn $name(
            $($data)*, dims: jlong[], dtype: jint, device_kind: jint, device_id: jint
        ) -> jlong[]);
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

native!(fn from_bytes(
    data: jbyte[], dims: jlong[], dtype: jint, device_kind: jint, device_id: jint
) -> jlong[]);
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

native!(fn arange(
    start: jdouble, stop: jdouble, step: jdouble, repeat: jint, dtype: jint, device_kind: jint,
    device_id: jint
) -> jlong[]);
#[expect(clippy::too_many_arguments, reason = "the Java method has as many arguments")]
#[expect(clippy::similar_names, reason = "these are the usual names of the arguments of `arange`")]
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

/// Exports a method that computes a new array from the array whose handle is the first argument.
/// The other arguments are numbers.
macro_rules! derived {
    (fn $name:ident($($argument:ident: $type:ident),*) |$array:ident| $result:expr) => {
        native!(fn $name(array: jlong $(, $argument: $type)*) -> jlong[]);
        fn $name<'l>(
            env: &mut Env<'l>,
            _class: JClass<'_>,
            array: jlong,
            $($argument: $type,)*
        ) -> Result<JLongArray<'l>> {
            let $array = convert::array(array)?;
            let result = $result?;
            convert::adopt(env, result)
        }
    };
}

derived!(fn binary(op: jint, right: jlong) |left| {
    left.binary(BinaryOp::from_code(op)?, &*convert::array(right)?)
});
derived!(fn binary_double(op: jint, scalar: jdouble, reversed: jboolean) |array| {
    array.binary_scalar(BinaryOp::from_code(op)?, Scalar::from(scalar), reversed)
});
derived!(fn binary_long(op: jint, scalar: jlong, reversed: jboolean) |array| {
    array.binary_scalar(BinaryOp::from_code(op)?, Scalar::from(scalar), reversed)
});
derived!(fn unary(op: jint) |array| array.unary(UnaryOp::from_code(op)?));
derived!(fn reduce(reduction: jint) |array| array.reduce(Reduction::from_code(reduction)?));
derived!(fn clip(low: jdouble, high: jdouble) |array| array.clip(low, high));
derived!(fn dot(right: jlong) |left| left.dot(&*convert::array(right)?));
derived!(fn transpose() |array| array.transpose());
derived!(fn argmax_channel() |array| array.argmax_channel());
derived!(fn choose_elements(columns: jlong) |matrix| {
    matrix.choose_elements(&*convert::array(columns)?)
});
derived!(fn copy() |array| array.copy());
derived!(fn slice(start: jlong, stop: jlong) |array| {
    array.slice(convert::position(start, "start")?, convert::position(stop, "stop")?)
});
derived!(fn at(index: jlong) |array| array.at(convert::position(index, "index")?));
derived!(fn as_type(dtype: jint) |array| array.as_type(convert::dtype(dtype)?));
derived!(fn to_device(device_kind: jint, device_id: jint) |array| {
    array.to_device(kvstore::backends(), convert::device(device_kind, device_id)?)
});

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

/// Exports a method without a result that uses the array whose handle is the first argument. The
/// other arguments are numbers.
macro_rules! applied {
    (fn $name:ident($($argument:ident: $type:ident),*) |$array:ident| $done:expr) => {
        native!(fn $name(array: jlong $(, $argument: $type)*));
        fn $name(
            _env: &mut Env<'_>,
            _class: JClass<'_>,
            array: jlong,
            $($argument: $type,)*
        ) -> Result<()> {
            let $array = convert::array(array)?;
            Ok($done?)
        }
    };
}

applied!(fn binary_assign(op: jint, right: jlong) |left| {
    left.binary_assign(BinaryOp::from_code(op)?, &*convert::array(right)?)
});
applied!(fn binary_assign_double(op: jint, scalar: jdouble) |array| {
    array.binary_scalar_assign(BinaryOp::from_code(op)?, Scalar::from(scalar))
});
applied!(fn binary_assign_long(op: jint, scalar: jlong) |array| {
    array.binary_scalar_assign(BinaryOp::from_code(op)?, Scalar::from(scalar))
});
applied!(fn copy_to(destination: jlong) |source| source.copy_to(&*convert::array(destination)?));
applied!(fn fill(value: jdouble) |array| array.fill(Scalar::from(value)));
applied!(fn fill_long(value: jlong) |array| array.fill(Scalar::from(value)));
applied!(fn set_one_hot(columns: jlong) |matrix| matrix.set_one_hot(&*convert::array(columns)?));
applied!(fn wait_to_read() |array| array.wait_to_read());

native!(fn array_equal(left: jlong, right: jlong) -> jboolean);
fn array_equal(
    _env: &mut Env<'_>,
    _class: JClass<'_>,
    left: jlong,
    right: jlong,
) -> Result<jboolean> {
    let (left, right) = (convert::array(left)?, convert::array(right)?);
    Ok(left.array_equal(&right)?)
}

/// Exports a method that sets the elements of an array to the converted elements of a Java array,
/// like [`new_array`].
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

native!(fn release(array: jlong));
fn release(_env: &mut Env<'_>, _class: JClass<'_>, array: jlong) -> Result<()> {
    drop(ARRAYS.remove(array));
    Ok(())
}
