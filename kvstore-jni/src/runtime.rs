//! The native methods of `dev.kvstore.NativeRuntime`.
#![expect(clippy::unnecessary_wraps, reason = "`native_method!` requires a result")]

use jni::Env;
use jni::exceptions::JOutOfMemoryError;
use jni::objects::{JClass, JLongArray, JObject, JObjectArray, JString};
use jni::refs::{LoaderContext, Reference};
use jni::sys::{jint, jlong};

use crate::codes;
use crate::convert::{self, ARRAYS, STORES};
use crate::error::{Result, ThrowKVStoreException};

natives_of!($ "dev.kvstore.NativeRuntime");

type Names<'local> = JObjectArray<'local, JString<'local>>;

native!(fn prepare());
fn prepare(env: &mut Env<'_>, _class: JClass<'_>) -> Result<()> {
    // `jni` looks this class up if an array does not fit into the Java heap. The first look-up
    // needs heap, too, so do it now.
    drop(JOutOfMemoryError::lookup_class(env, &LoaderContext::None)?);
    Ok(())
}

native!(fn live_bytes() -> jlong);
fn live_bytes(_env: &mut Env<'_>, _class: JClass<'_>) -> Result<jlong> {
    Ok(convert::size(kvstore::live_bytes()))
}

native!(fn pooled_bytes() -> jlong);
fn pooled_bytes(_env: &mut Env<'_>, _class: JClass<'_>) -> Result<jlong> {
    Ok(convert::size(kvstore::pooled_bytes()))
}

native!(fn host_live_bytes() -> jlong);
fn host_live_bytes(_env: &mut Env<'_>, _class: JClass<'_>) -> Result<jlong> {
    Ok(convert::size(kvstore::host_live_bytes()))
}

native!(fn device_memory() -> jlong[]);
fn device_memory<'l>(env: &mut Env<'l>, _class: JClass<'_>) -> Result<JLongArray<'l>> {
    convert::memory_to_java(env, &kvstore::device_memory())
}

native!(fn num_gpus() -> jint);
fn num_gpus(_env: &mut Env<'_>, _class: JClass<'_>) -> Result<jint> {
    convert::count(kvstore::num_gpus())
}

native!(fn trim());
fn trim(_env: &mut Env<'_>, _class: JClass<'_>) -> Result<()> {
    kvstore::trim();
    Ok(())
}

native!(fn memory_limit() -> jlong);
fn memory_limit(_env: &mut Env<'_>, _class: JClass<'_>) -> Result<jlong> {
    Ok(kvstore::memory_limit().map_or(-1, convert::size))
}

native!(fn set_memory_limit(num_bytes: jlong));
fn set_memory_limit(_env: &mut Env<'_>, _class: JClass<'_>, num_bytes: jlong) -> Result<()> {
    kvstore::set_memory_limit(Some(convert::position(num_bytes, "limit")?));
    Ok(())
}

native!(fn synchronize());
fn synchronize(_env: &mut Env<'_>, _class: JClass<'_>) -> Result<()> {
    Ok(kvstore::synchronize()?)
}

native!(fn doctor() -> JString[]);
fn doctor<'l>(env: &mut Env<'l>, _class: JClass<'_>) -> Result<Names<'l>> {
    let mut facts = kvstore::doctor();
    facts.push(("arrays held by Java".to_owned(), ARRAYS.len().to_string()));
    facts.push(("stores held by Java".to_owned(), STORES.len().to_string()));
    let facts: Vec<String> = facts.into_iter().flat_map(<[String; 2]>::from).collect();
    convert::strings_to_java(env, facts.iter())
}

native!(fn codes() -> JObject[]);
fn codes<'l>(env: &mut Env<'l>, _class: JClass<'_>) -> Result<JObjectArray<'l, JObject<'l>>> {
    let (names, numbers): (Vec<_>, Vec<_>) = codes::all().into_iter().unzip();
    let names = convert::strings_to_java(env, names.iter())?;
    let numbers = convert::to_java(env, &numbers)?;
    convert::pair_to_java(env, &names, &numbers)
}
