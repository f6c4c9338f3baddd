//! The native methods of `dev.kvstore.NativeFile`.
#![expect(clippy::needless_pass_by_value, reason = "`native_method!` passes references by value")]

use jni::Env;
use jni::objects::{JByteArray, JClass, JLongArray, JObject, JObjectArray, JString};
use jni::sys::jlong;
use kvstore::{ArrayList, NDArray};

use crate::convert;
use crate::error::{Result, ThrowKVStoreException};

type Names<'l> = JObjectArray<'l, JString<'l>>;

natives_of!($ "dev.kvstore.NativeFile");

native!(fn save_list(file: JString, arrays: jlong[]));
fn save_list(
    env: &mut Env<'_>,
    _class: JClass<'_>,
    file: JString<'_>,
    arrays: JLongArray<'_>,
) -> Result<()> {
    let file = convert::string(env, &file, "file")?;
    let arrays = convert::arrays(env, &arrays, "arrays")?;
    Ok(ArrayList::unnamed(arrays)?.write(file)?)
}

native!(fn save_map(file: JString, names: JString[], arrays: jlong[]));
fn save_map(
    env: &mut Env<'_>,
    _class: JClass<'_>,
    file: JString<'_>,
    names: Names<'_>,
    arrays: JLongArray<'_>,
) -> Result<()> {
    let file = convert::string(env, &file, "file")?;
    let names = convert::strings(env, &names, "names")?;
    let arrays = convert::arrays(env, &arrays, "arrays")?;
    Ok(ArrayList::named(names.into_iter().zip(arrays))?.write(file)?)
}

native!(fn load(file: JString) -> JObject[]);
fn load<'l>(
    env: &mut Env<'l>,
    _class: JClass<'_>,
    file: JString<'_>,
) -> Result<JObjectArray<'l, JObject<'l>>> {
    let file = convert::string(env, &file, "file")?;
    let list = kvstore::read_arrays(file)?;
    let names = convert::strings_to_java(env, list.names().iter())?;
    let (registered, descriptions) =
        convert::register(env, kvstore::fallible::copied(list.arrays())?)?;
    let result = convert::pair_to_java(env, &names, &descriptions)?;
    registered.keep();
    Ok(result)
}

native!(fn serialize(array: jlong) -> jbyte[]);
fn serialize<'l>(env: &mut Env<'l>, _class: JClass<'_>, array: jlong) -> Result<JByteArray<'l>> {
    let array = convert::array(array)?;
    // Check before serializing, because the bytes are the elements and a short header.
    convert::check_java_length(array.tensor().num_bytes())?;
    let bytes = array.serialize()?;
    convert::bytes_to_java(env, &bytes)
}

native!(fn deserialize(bytes: jbyte[]) -> jlong[]);
fn deserialize<'l>(
    env: &mut Env<'l>,
    _class: JClass<'_>,
    bytes: JByteArray<'_>,
) -> Result<JLongArray<'l>> {
    let bytes = convert::bytes(env, &bytes, "bytes")?;
    convert::adopt(env, NDArray::deserialize(kvstore::backends(), &bytes)?)
}
