//! The native methods of `dev.kvstore.NativeSnapshot`.
#![expect(clippy::needless_pass_by_value, reason = "`native_method!` passes references by value")]
#![expect(clippy::unnecessary_wraps, reason = "`native_method!` asks for a result")]

use std::sync::{Arc, Mutex, PoisonError};

use jni::Env;
use jni::objects::{JClass, JLongArray, JObjectArray, JString};
use jni::sys::{jboolean, jlong};
use kvstore::{Checkpoint, Error, Key, NDArray, Snapshot, Value};

use crate::convert::{self, CHECKPOINTS, SNAPSHOTS};
use crate::error::{Result, ThrowKVStoreException};

type Strings<'l> = JObjectArray<'l, JString<'l>>;

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
    let keys = self::snapshot(snapshot)?.keys();
    convert::strings_to_java(env, keys.iter().map(Key::as_str))
}

native!(fn get(snapshot: jlong, key: JString) -> jlong[]);
fn get<'l>(
    env: &mut Env<'l>,
    _class: JClass<'_>,
    snapshot: jlong,
    key: JString<'_>,
) -> Result<JLongArray<'l>> {
    let (snapshot, key) = (self::snapshot(snapshot)?, convert::key(env, &key)?);
    let value = snapshot.get(&key).map(Value::to_dense).transpose()?;
    convert::adopt(env, NDArray::new(value.ok_or(Error::KeyNotFound { key })?))
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

native!(fn save_optimizer_states(store: jlong, file: JString, dump_optimizer: jboolean));
fn save_optimizer_states(
    env: &mut Env<'_>,
    _class: JClass<'_>,
    store: jlong,
    file: JString<'_>,
    dump_optimizer: jboolean,
) -> Result<()> {
    let file = convert::string(env, &file, "file")?;
    Ok(convert::store(store)?.save_optimizer_states(file, dump_optimizer)?)
}

native!(fn load_optimizer_states(store: jlong, file: JString));
fn load_optimizer_states(
    env: &mut Env<'_>,
    _class: JClass<'_>,
    store: jlong,
    file: JString<'_>,
) -> Result<()> {
    let file = convert::string(env, &file, "file")?;
    Ok(convert::store(store)?.load_optimizer_states(file)?)
}

native!(fn begin_checkpoint(snapshot: jlong, file: JString) -> jlong);
fn begin_checkpoint(
    env: &mut Env<'_>,
    _class: JClass<'_>,
    snapshot: jlong,
    file: JString<'_>,
) -> Result<jlong> {
    let file = convert::string(env, &file, "file")?;
    let checkpoint = Checkpoint::begin(&*self::snapshot(snapshot)?, file)?;
    let progress = checkpoint.progress().clone();
    Ok(CHECKPOINTS.insert((Mutex::new(Some(checkpoint)), progress))?)
}

native!(fn checkpoint_bytes(checkpoint: jlong) -> jlong);
fn checkpoint_bytes(_env: &mut Env<'_>, _class: JClass<'_>, checkpoint: jlong) -> Result<jlong> {
    number(CHECKPOINTS.get(checkpoint)?.1.num_bytes())
}

native!(fn checkpoint_bytes_written(checkpoint: jlong) -> jlong);
fn checkpoint_bytes_written(
    _env: &mut Env<'_>,
    _class: JClass<'_>,
    checkpoint: jlong,
) -> Result<jlong> {
    number(CHECKPOINTS.get(checkpoint)?.1.num_bytes_written())
}

fn number(num_bytes: u64) -> Result<jlong> {
    let number = jlong::try_from(num_bytes);
    Ok(number.map_err(|_| Error::Unsupported(format!("a file of {num_bytes} bytes")))?)
}

native!(fn await_checkpoint(checkpoint: jlong));
fn await_checkpoint(_env: &mut Env<'_>, _class: JClass<'_>, checkpoint: jlong) -> Result<()> {
    let entry = CHECKPOINTS.get(checkpoint)?;
    let checkpoint = entry.0.lock().unwrap_or_else(PoisonError::into_inner).take();
    match checkpoint {
        Some(checkpoint) => Ok(checkpoint.wait()?),
        None => Ok(()),
    }
}

native!(fn release_checkpoint(checkpoint: jlong));
fn release_checkpoint(_env: &mut Env<'_>, _class: JClass<'_>, checkpoint: jlong) -> Result<()> {
    drop(CHECKPOINTS.remove(checkpoint));
    Ok(())
}
