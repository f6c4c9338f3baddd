//! The native methods of `dev.kvstore.NativeSnapshot`.
#![expect(clippy::needless_pass_by_value, reason = "`native_method!` passes references by value")]
#![expect(clippy::unnecessary_wraps, reason = "`native_method!` requires a result")]

use std::sync::{Arc, Mutex};

use jni::Env;
use jni::objects::{JClass, JLongArray, JObject, JObjectArray, JString};
use jni::sys::{jboolean, jlong};
use kvstore::{Error, Key, NDArray, Snapshot, SnapshotFile, Value, fallible};

use crate::convert::{self, SNAPSHOTS, STATES};
use crate::error::{Result, ThrowKVStoreException};

type Strings<'l> = JObjectArray<'l, JString<'l>>;
type Objects<'l> = JObjectArray<'l, JObject<'l>>;

natives_of!($ "dev.kvstore.NativeSnapshot");

native!(fn take(store: jlong) -> jlong);
fn take(_env: &mut Env<'_>, _class: JClass<'_>, store: jlong) -> Result<jlong> {
    Ok(SNAPSHOTS.insert(convert::store(store)?.snapshot()?)?)
}

native!(fn read(file: JString) -> jlong);
fn read(env: &mut Env<'_>, _class: JClass<'_>, file: JString<'_>) -> Result<jlong> {
    let file = convert::string(env, &file, "file")?;
    Ok(SNAPSHOTS.insert(Snapshot::read(kvstore::backends(), file)?)?)
}

native!(fn load(snapshot: jlong) -> jlong);
fn load(_env: &mut Env<'_>, _class: JClass<'_>, snapshot: jlong) -> Result<jlong> {
    Ok(SNAPSHOTS.insert(self::snapshot(snapshot)?.load()?)?)
}

native!(fn files(snapshot: jlong) -> JString[]);
fn files<'l>(env: &mut Env<'l>, _class: JClass<'_>, snapshot: jlong) -> Result<Strings<'l>> {
    let file = self::snapshot(snapshot)?.file();
    let chain = file.iter().flat_map(SnapshotFile::chain);
    let names: Vec<_> = chain.map(|file| file.path().to_string_lossy()).collect();
    convert::strings_to_java(env, names.iter())
}

native!(fn release(snapshot: jlong));
fn release(_env: &mut Env<'_>, _class: JClass<'_>, snapshot: jlong) -> Result<()> {
    drop(SNAPSHOTS.remove(snapshot));
    Ok(())
}

fn snapshot(handle: jlong) -> Result<Arc<Snapshot>> {
    Ok(SNAPSHOTS.get(handle)?)
}

native!(fn rollback(store: jlong, snapshot: jlong));
fn rollback(_env: &mut Env<'_>, _class: JClass<'_>, store: jlong, snapshot: jlong) -> Result<()> {
    Ok(convert::store(store)?.rollback(&*self::snapshot(snapshot)?)?)
}

native!(fn store_type(snapshot: jlong) -> JString);
fn store_type<'l>(env: &mut Env<'l>, _class: JClass<'_>, snapshot: jlong) -> Result<JString<'l>> {
    Ok(JString::from_str(env, self::snapshot(snapshot)?.store_name())?)
}

native!(fn keys(snapshot: jlong) -> JString[]);
fn keys<'l>(env: &mut Env<'l>, _class: JClass<'_>, snapshot: jlong) -> Result<Strings<'l>> {
    convert::strings_to_java(env, self::snapshot(snapshot)?.keys().map(Key::as_str))
}

native!(fn get(snapshot: jlong, key: JString) -> jlong[]);
fn get<'l>(
    env: &mut Env<'l>,
    _class: JClass<'_>,
    snapshot: jlong,
    key: JString<'_>,
) -> Result<JLongArray<'l>> {
    let (snapshot, key) = (self::snapshot(snapshot)?, convert::key(env, &key)?);
    let value = snapshot.get(&key)?.as_ref().map(Value::to_dense).transpose()?;
    convert::adopt(env, NDArray::new(value.ok_or(Error::KeyNotFound { key })?))
}

native!(fn stats(snapshot: jlong) -> JObject[]);
fn stats<'l>(env: &mut Env<'l>, _class: JClass<'_>, snapshot: jlong) -> Result<Objects<'l>> {
    let stats = fallible::collect(self::snapshot(snapshot)?.stats())?;
    convert::stats_to_java(env, &stats)
}

native!(fn hyper_parameters(snapshot: jlong) -> JObject[]);
fn hyper_parameters<'l>(
    env: &mut Env<'l>,
    _class: JClass<'_>,
    snapshot: jlong,
) -> Result<Objects<'l>> {
    let snapshot = self::snapshot(snapshot)?;
    let none = || Error::invalid("cannot read hyper-parameters: the store had no optimizer");
    let optimizer = snapshot.optimizer().ok_or_else(none)?;
    convert::hyper_parameters_to_java(env, optimizer.hyper_parameters())
}

native!(fn optimizer_state(snapshot: jlong, key: JString) -> jlong);
fn optimizer_state(
    env: &mut Env<'_>,
    _class: JClass<'_>,
    snapshot: jlong,
    key: JString<'_>,
) -> Result<jlong> {
    let (snapshot, key) = (self::snapshot(snapshot)?, convert::key(env, &key)?);
    if !snapshot.contains(&key) {
        return Err(Error::KeyNotFound { key }.into());
    }
    match snapshot.optimizer_state(&key)? {
        Some(state) => Ok(STATES.insert(Mutex::new(state))?),
        None => Ok(0),
    }
}

native!(fn changed_keys(snapshot: jlong, other: jlong) -> JString[]);
fn changed_keys<'l>(
    env: &mut Env<'l>,
    _class: JClass<'_>,
    snapshot: jlong,
    other: jlong,
) -> Result<Strings<'l>> {
    let changed = self::snapshot(snapshot)?.changed_keys(&*self::snapshot(other)?)?;
    convert::strings_to_java(env, changed.iter().map(Key::as_str))
}

native!(fn is_identical(snapshot: jlong, other: jlong) -> jboolean);
fn is_identical(
    _env: &mut Env<'_>,
    _class: JClass<'_>,
    snapshot: jlong,
    other: jlong,
) -> Result<jboolean> {
    Ok(self::snapshot(snapshot)?.is_identical(&*self::snapshot(other)?)?)
}
