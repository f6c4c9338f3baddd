//! The native methods of `dev.kvstore.NativeRandom`.
#![expect(clippy::needless_pass_by_value, reason = "`native_method!` passes references by value")]
#![expect(clippy::unnecessary_wraps, reason = "`native_method!` requires a result")]

use jni::Env;
use jni::objects::{JClass, JLongArray};
use jni::sys::{jdouble, jint, jlong};

use crate::convert;
use crate::error::{Result, ThrowKVStoreException};

natives_of!($ "dev.kvstore.NativeRandom");

native!(fn seed(number: jlong));
fn seed(_env: &mut Env<'_>, _class: JClass<'_>, number: jlong) -> Result<()> {
    kvstore::random::seed(number.cast_unsigned());
    Ok(())
}

native!(fn array(
    distribution: jint, first: jdouble, second: jdouble, dims: jlong[], dtype: jint,
    device_kind: jint, device_id: jint
) -> jlong[]);
#[expect(clippy::too_many_arguments, reason = "the Java method has as many arguments")]
fn array<'l>(
    env: &mut Env<'l>,
    _class: JClass<'_>,
    distribution: jint,
    first: jdouble,
    second: jdouble,
    dims: JLongArray<'_>,
    dtype: jint,
    device_kind: jint,
    device_id: jint,
) -> Result<JLongArray<'l>> {
    let distribution = convert::distribution(distribution, first, second)?;
    let shape = convert::shape(env, &dims)?;
    let (dtype, device) = (convert::dtype(dtype)?, convert::device(device_kind, device_id)?);
    let array = kvstore::random::array(distribution, shape, dtype, device)?;
    convert::adopt(env, array)
}
