//! The native methods of `dev.kvstore.NativeOptimizer`.
#![expect(clippy::needless_pass_by_value, reason = "`native_method!` passes references by value")]
#![expect(clippy::unnecessary_wraps, reason = "`native_method!` requires a result")]

use std::sync::{Mutex, PoisonError};

use jni::Env;
use jni::objects::{JClass, JDoubleArray, JLongArray, JObjectArray, JString};
use jni::sys::{jdouble, jlong};
use kvstore::{Key, NDArray, Optimizer};

use crate::convert::{self, OPTIMIZERS, STATES};
use crate::error::{Result, ThrowKVStoreException};

type Strings<'l> = JObjectArray<'l, JString<'l>>;

natives_of!($ "dev.kvstore.NativeOptimizer");

native!(fn create(
    name: JString, names: JString[], values: jdouble[], schedule: jlong[], lr_keys: JString[],
    lr_factors: jdouble[], wd_keys: JString[], wd_factors: jdouble[]
) -> jlong);
#[expect(clippy::too_many_arguments, reason = "the Java method has as many arguments")]
fn create(
    env: &mut Env<'_>,
    _class: JClass<'_>,
    name: JString<'_>,
    names: Strings<'_>,
    values: JDoubleArray<'_>,
    schedule: JLongArray<'_>,
    lr_keys: Strings<'_>,
    lr_factors: JDoubleArray<'_>,
    wd_keys: Strings<'_>,
    wd_factors: JDoubleArray<'_>,
) -> Result<jlong> {
    let name = convert::string(env, &name, "name")?;
    let options = convert::options(env, &names, &values)?;
    let mut optimizer = Optimizer::from_options(&name, &options)?;
    if let Some(schedule) = convert::schedule(env, &schedule)? {
        optimizer = optimizer.with_scheduler(schedule);
    }
    for (key, factor) in convert::options(env, &lr_keys, &lr_factors)? {
        optimizer = optimizer.with_lr_multiplier(Key::new(&key)?, factor)?;
    }
    for (key, factor) in convert::options(env, &wd_keys, &wd_factors)? {
        optimizer = optimizer.with_wd_multiplier(Key::new(&key)?, factor)?;
    }
    Ok(OPTIMIZERS.insert(optimizer)?)
}

native!(fn release(optimizer: jlong));
fn release(_env: &mut Env<'_>, _class: JClass<'_>, optimizer: jlong) -> Result<()> {
    drop(OPTIMIZERS.remove(optimizer));
    Ok(())
}

native!(fn names() -> JString[]);
fn names<'l>(env: &mut Env<'l>, _class: JClass<'_>) -> Result<Strings<'l>> {
    let names: Vec<_> = Optimizer::names().collect();
    convert::strings_to_java(env, names.into_iter())
}

native!(fn default_names(name: JString) -> JString[]);
fn default_names<'l>(
    env: &mut Env<'l>,
    _class: JClass<'_>,
    name: JString<'_>,
) -> Result<Strings<'l>> {
    let name = convert::string(env, &name, "name")?;
    let defaults = Optimizer::new(&name)?.hyper_parameters();
    convert::strings_to_java(env, defaults.iter().map(|(name, _)| name))
}

native!(fn default_values(name: JString) -> jdouble[]);
fn default_values<'l>(
    env: &mut Env<'l>,
    _class: JClass<'_>,
    name: JString<'_>,
) -> Result<JDoubleArray<'l>> {
    let name = convert::string(env, &name, "name")?;
    let defaults = Optimizer::new(&name)?.hyper_parameters();
    let values: Vec<f64> = defaults.into_iter().map(|(_, value)| value).collect();
    convert::to_java(env, &values)
}

native!(fn learning_rate(schedule: jlong[], base: jdouble, num_update: jlong) -> jdouble);
fn learning_rate(
    env: &mut Env<'_>,
    _class: JClass<'_>,
    schedule: JLongArray<'_>,
    base: jdouble,
    num_update: jlong,
) -> Result<jdouble> {
    let num_update = convert::position(num_update, "numUpdate")? as u64;
    let schedule = convert::schedule(env, &schedule)?;
    Ok(schedule.map_or(base, |schedule| schedule.learning_rate(base, num_update)))
}

native!(fn create_state(optimizer: jlong, weight: jlong) -> jlong);
fn create_state(
    _env: &mut Env<'_>,
    _class: JClass<'_>,
    optimizer: jlong,
    weight: jlong,
) -> Result<jlong> {
    let weight = convert::array(weight)?.tensor();
    let state = OPTIMIZERS.get(optimizer)?.create_state(&weight)?;
    Ok(STATES.insert(Mutex::new(state))?)
}

native!(fn release_state(state: jlong));
fn release_state(_env: &mut Env<'_>, _class: JClass<'_>, state: jlong) -> Result<()> {
    drop(STATES.remove(state));
    Ok(())
}

native!(fn update(optimizer: jlong, key: JString, weight: jlong, gradient: jlong, state: jlong));
fn update(
    env: &mut Env<'_>,
    _class: JClass<'_>,
    optimizer: jlong,
    key: JString<'_>,
    weight: jlong,
    gradient: jlong,
    state: jlong,
) -> Result<()> {
    let key = convert::key(env, &key)?;
    let (weight, gradient) = (convert::array(weight)?, convert::array(gradient)?);
    let (optimizer, state) = (OPTIMIZERS.get(optimizer)?, STATES.get(state)?);
    let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(kvstore::update(&optimizer, &key, &weight, &gradient, &mut state)?)
}

native!(fn num_updates(state: jlong) -> jlong);
fn num_updates(_env: &mut Env<'_>, _class: JClass<'_>, state: jlong) -> Result<jlong> {
    let state = STATES.get(state)?;
    let count = state.lock().unwrap_or_else(PoisonError::into_inner).num_updates();
    Ok(jlong::try_from(count).unwrap_or(jlong::MAX))
}

native!(fn state_arrays(state: jlong) -> jlong[]);
fn state_arrays<'l>(env: &mut Env<'l>, _class: JClass<'_>, state: jlong) -> Result<JLongArray<'l>> {
    let state = STATES.get(state)?;
    let state = state.lock().unwrap_or_else(PoisonError::into_inner);
    let tensors = kvstore::fallible::copied(state.tensors())?;
    // Release the lock before the arrays are registered.
    drop(state);
    convert::adopt_all(env, tensors.into_iter().map(NDArray::new).collect())
}
