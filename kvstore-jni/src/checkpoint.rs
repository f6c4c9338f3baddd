//! The native methods of `dev.kvstore.NativeCheckpoint`.
#![expect(clippy::needless_pass_by_value, reason = "`native_method!` passes references by value")]
#![expect(clippy::unnecessary_wraps, reason = "`native_method!` requires a result")]

use std::sync::{Mutex, PoisonError};

use jni::Env;
use jni::objects::{JClass, JObjectArray, JString};
use jni::sys::{jboolean, jlong};
use kvstore::{Checkpoint, Checkpoints, Error};

use crate::convert::{self, CHECKPOINTS, SNAPSHOTS};
use crate::error::{Result, ThrowKVStoreException};

natives_of!($ "dev.kvstore.NativeCheckpoint");

native!(fn begin(snapshot: jlong, file: JString) -> jlong);
fn begin(
    env: &mut Env<'_>,
    _class: JClass<'_>,
    snapshot: jlong,
    file: JString<'_>,
) -> Result<jlong> {
    let file = convert::string(env, &file, "file")?;
    insert(Checkpoint::begin(&*SNAPSHOTS.get(snapshot)?, file)?)
}

native!(fn begin_since(snapshot: jlong, file: JString, base: jlong) -> jlong);
fn begin_since(
    env: &mut Env<'_>,
    _class: JClass<'_>,
    snapshot: jlong,
    file: JString<'_>,
    base: jlong,
) -> Result<jlong> {
    let file = convert::string(env, &file, "file")?;
    let (snapshot, base) = (SNAPSHOTS.get(snapshot)?, SNAPSHOTS.get(base)?);
    insert(Checkpoint::begin_since(&snapshot, file, &base)?)
}

fn insert(checkpoint: Checkpoint) -> Result<jlong> {
    let progress = checkpoint.progress().clone();
    Ok(CHECKPOINTS.insert((Mutex::new(Some(checkpoint)), progress))?)
}

native!(fn bytes(checkpoint: jlong) -> jlong);
fn bytes(_env: &mut Env<'_>, _class: JClass<'_>, checkpoint: jlong) -> Result<jlong> {
    number(CHECKPOINTS.get(checkpoint)?.1.num_bytes())
}

native!(fn bytes_written(checkpoint: jlong) -> jlong);
fn bytes_written(_env: &mut Env<'_>, _class: JClass<'_>, checkpoint: jlong) -> Result<jlong> {
    number(CHECKPOINTS.get(checkpoint)?.1.num_bytes_written())
}

fn number(num_bytes: u64) -> Result<jlong> {
    let number = jlong::try_from(num_bytes);
    Ok(number.map_err(|_| Error::Unsupported(format!("a file of {num_bytes} bytes")))?)
}

native!(fn await_end(checkpoint: jlong));
fn await_end(_env: &mut Env<'_>, _class: JClass<'_>, checkpoint: jlong) -> Result<()> {
    // Take the checkpoint out, because only one caller can wait for it.
    let entry = CHECKPOINTS.get(checkpoint)?;
    let checkpoint = entry.0.lock().unwrap_or_else(PoisonError::into_inner).take();
    match checkpoint {
        Some(checkpoint) => Ok(checkpoint.wait()?),
        None => Ok(()),
    }
}

native!(fn release(checkpoint: jlong));
fn release(_env: &mut Env<'_>, _class: JClass<'_>, checkpoint: jlong) -> Result<()> {
    drop(CHECKPOINTS.remove(checkpoint));
    Ok(())
}

native!(fn finish() -> JString[]);
fn finish<'l>(env: &mut Env<'l>, _class: JClass<'_>) -> Result<JObjectArray<'l, JString<'l>>> {
    let errors: Vec<String> = Checkpoints::of_process().finish().iter().map(Error::chain).collect();
    convert::strings_to_java(env, errors.iter().map(String::as_str))
}

native!(fn restore(store: jlong, file: JString));
fn restore(env: &mut Env<'_>, _class: JClass<'_>, store: jlong, file: JString<'_>) -> Result<()> {
    let file = convert::string(env, &file, "file")?;
    Ok(convert::store(store)?.restore(file)?)
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
