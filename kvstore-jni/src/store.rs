//! The native methods of `dev.kvstore.NativeKVStore`.
#![expect(clippy::needless_pass_by_value, reason = "`native_method!` passes references by value")]

use jni::Env;
use jni::objects::{JClass, JDoubleArray, JLongArray, JObject, JObjectArray, JString};
use jni::sys::{jboolean, jdouble, jint, jlong};
use kvstore::{Key, OnExisting, Optimizer};

use crate::codes::Code;
use crate::convert::{self, OPTIMIZERS, STORES};
use crate::error::{Result, ThrowKVStoreException};
use crate::updater::JavaUpdater;

natives_of!($ "dev.kvstore.NativeKVStore");

type Keys<'local> = JObjectArray<'local, JString<'local>>;

native!(fn create(name: JString, options: JString[], values: JString[]) -> jlong);
fn create(
    env: &mut Env<'_>,
    _class: JClass<'_>,
    name: JString<'_>,
    options: Keys<'_>,
    values: Keys<'_>,
) -> Result<jlong> {
    let name = convert::string(env, &name, "name")?;
    let options = convert::named_strings(env, &options, &values)?;
    let store = kvstore::create_with(&name, &convert::pairs(&options))?;
    Ok(STORES.insert(store)?)
}

native!(fn release(store: jlong));
fn release(_env: &mut Env<'_>, _class: JClass<'_>, store: jlong) -> Result<()> {
    if let Some(store) = STORES.remove(store) {
        // `close` has waited for the other processes. After a garbage collection, waiting would be
        // wrong, because it happens at a different time in each process.
        store.set_barrier_before_exit(false)?;
    }
    Ok(())
}

native!(fn store_type(store: jlong) -> JString);
fn store_type<'l>(env: &mut Env<'l>, _class: JClass<'_>, store: jlong) -> Result<JString<'l>> {
    let store = convert::store(store)?;
    Ok(JString::from_str(env, store.name())?)
}

native!(fn rank(store: jlong) -> jint);
fn rank(_env: &mut Env<'_>, _class: JClass<'_>, store: jlong) -> Result<jint> {
    convert::count(convert::store(store)?.rank()?)
}

native!(fn num_workers(store: jlong) -> jint);
fn num_workers(_env: &mut Env<'_>, _class: JClass<'_>, store: jlong) -> Result<jint> {
    convert::count(convert::store(store)?.num_workers()?)
}

native!(fn barrier(store: jlong));
fn barrier(_env: &mut Env<'_>, _class: JClass<'_>, store: jlong) -> Result<()> {
    Ok(convert::store(store)?.barrier()?)
}

native!(fn set_barrier_before_exit(store: jlong, barrier_before_exit: jboolean));
fn set_barrier_before_exit(
    _env: &mut Env<'_>,
    _class: JClass<'_>,
    store: jlong,
    barrier_before_exit: jboolean,
) -> Result<()> {
    Ok(convert::store(store)?.set_barrier_before_exit(barrier_before_exit)?)
}

native!(fn num_dead_node(store: jlong, node_id: jint) -> jint);
fn num_dead_node(
    _env: &mut Env<'_>,
    _class: JClass<'_>,
    store: jlong,
    node_id: jint,
) -> Result<jint> {
    convert::count(convert::store(store)?.num_dead_node(node_id)?)
}

native!(fn send_command_to_servers(store: jlong, head: jint, body: JString));
fn send_command_to_servers(
    env: &mut Env<'_>,
    _class: JClass<'_>,
    store: jlong,
    head: jint,
    body: JString<'_>,
) -> Result<()> {
    let body = convert::string(env, &body, "body")?;
    Ok(convert::store(store)?.send_command_to_servers(head, &body)?)
}

native!(fn init(store: jlong, keys: JString[], values: jlong[], existing: jint));
fn init(
    env: &mut Env<'_>,
    _class: JClass<'_>,
    store: jlong,
    keys: Keys<'_>,
    values: JLongArray<'_>,
    existing: jint,
) -> Result<()> {
    let (keys, values) = (convert::keys(env, &keys)?, convert::values(env, &values)?);
    Ok(convert::store(store)?.init_values(&keys, &values, OnExisting::of(existing)?)?)
}

native!(fn push(store: jlong, keys: JString[], values: jlong[], priority: jint));
fn push(
    env: &mut Env<'_>,
    _class: JClass<'_>,
    store: jlong,
    keys: Keys<'_>,
    values: JLongArray<'_>,
    priority: jint,
) -> Result<()> {
    let (keys, values) = (convert::keys(env, &keys)?, convert::values(env, &values)?);
    Ok(convert::store(store)?.push_values(&keys, &values, priority)?)
}

native!(fn pull(store: jlong, keys: JString[], outs: jlong[], priority: jint));
fn pull(
    env: &mut Env<'_>,
    _class: JClass<'_>,
    store: jlong,
    keys: Keys<'_>,
    outs: JLongArray<'_>,
    priority: jint,
) -> Result<()> {
    let (keys, outs) = (convert::keys(env, &keys)?, convert::arrays(env, &outs, "outs")?);
    Ok(convert::store(store)?.pull_arrays(&keys, &outs, priority)?)
}

native!(fn pull_new(store: jlong, keys: JString[]) -> jlong[]);
fn pull_new<'l>(
    env: &mut Env<'l>,
    _class: JClass<'_>,
    store: jlong,
    keys: Keys<'_>,
) -> Result<JLongArray<'l>> {
    let keys = convert::keys(env, &keys)?;
    let values = convert::store(store)?.pull_new(keys)?;
    convert::adopt_all(env, values)
}

native!(fn pushpull(
    store: jlong, value_keys: JString[], values: jlong[], out_keys: JString[], outs: jlong[],
    priority: jint
));
#[expect(clippy::too_many_arguments, reason = "the Java method has as many arguments")]
fn pushpull(
    env: &mut Env<'_>,
    _class: JClass<'_>,
    store: jlong,
    value_keys: Keys<'_>,
    values: JLongArray<'_>,
    out_keys: Keys<'_>,
    outs: JLongArray<'_>,
    priority: jint,
) -> Result<()> {
    let (keys, values) = (convert::keys(env, &value_keys)?, convert::values(env, &values)?);
    let (out_keys, outs) = (convert::keys(env, &out_keys)?, convert::arrays(env, &outs, "outs")?);
    let (values, outs) = ((&*keys, &*values), (&*out_keys, &*outs));
    Ok(convert::store(store)?.pushpull_values(values, outs, priority)?)
}

native!(fn broadcast(
    store: jlong, value_keys: JString[], values: jlong[], out_keys: JString[], outs: jlong[],
    priority: jint
));
#[expect(clippy::too_many_arguments, reason = "the Java method has as many arguments")]
fn broadcast(
    env: &mut Env<'_>,
    _class: JClass<'_>,
    store: jlong,
    value_keys: Keys<'_>,
    values: JLongArray<'_>,
    out_keys: Keys<'_>,
    outs: JLongArray<'_>,
    priority: jint,
) -> Result<()> {
    let (keys, values) = (convert::keys(env, &value_keys)?, convert::values(env, &values)?);
    let (out_keys, outs) = (convert::keys(env, &out_keys)?, convert::arrays(env, &outs, "outs")?);
    let (values, outs) = ((&*keys, &*values), (&*out_keys, &*outs));
    Ok(convert::store(store)?.broadcast_values(values, outs, priority)?)
}

native!(fn remove(store: jlong, keys: JString[]));
fn remove(env: &mut Env<'_>, _class: JClass<'_>, store: jlong, keys: Keys<'_>) -> Result<()> {
    let keys = convert::keys(env, &keys)?;
    Ok(convert::store(store)?.remove(keys)?)
}

native!(fn keys(store: jlong) -> JString[]);
fn keys<'l>(env: &mut Env<'l>, _class: JClass<'_>, store: jlong) -> Result<Keys<'l>> {
    let keys = convert::store(store)?.keys()?;
    convert::strings_to_java(env, keys.iter().map(Key::as_str))
}

native!(fn stats(store: jlong) -> JObject[]);
fn stats<'l>(
    env: &mut Env<'l>,
    _class: JClass<'_>,
    store: jlong,
) -> Result<JObjectArray<'l, JObject<'l>>> {
    convert::stats_to_java(env, &convert::store(store)?.stats()?)
}

native!(fn contains(store: jlong, key: JString) -> jboolean);
fn contains(
    env: &mut Env<'_>,
    _class: JClass<'_>,
    store: jlong,
    key: JString<'_>,
) -> Result<jboolean> {
    let key = convert::key(env, &key)?;
    Ok(convert::store(store)?.contains(&key)?)
}

native!(fn set_updater(store: jlong, updater: dev.kvstore.UpdaterCall));
fn set_updater(
    env: &mut Env<'_>,
    _class: JClass<'_>,
    store: jlong,
    updater: JObject<'_>,
) -> Result<()> {
    let updater = JavaUpdater::new(env, &updater)?;
    let store = convert::store(store)?;
    Ok(store.set_updater(move |key, pushed, stored| updater.update(key, pushed, stored))?)
}

native!(fn clear_updater(store: jlong));
fn clear_updater(_env: &mut Env<'_>, _class: JClass<'_>, store: jlong) -> Result<()> {
    Ok(convert::store(store)?.clear_updater()?)
}

native!(fn set_optimizer(store: jlong, optimizer: jlong));
fn set_optimizer(
    _env: &mut Env<'_>,
    _class: JClass<'_>,
    store: jlong,
    optimizer: jlong,
) -> Result<()> {
    let optimizer = OPTIMIZERS.get(optimizer)?;
    Ok(convert::store(store)?.set_optimizer(Optimizer::clone(&optimizer))?)
}

native!(fn hyper_parameters(store: jlong) -> JObject[]);
fn hyper_parameters<'l>(
    env: &mut Env<'l>,
    _class: JClass<'_>,
    store: jlong,
) -> Result<JObjectArray<'l, JObject<'l>>> {
    convert::hyper_parameters_to_java(env, convert::store(store)?.hyper_parameters()?)
}

native!(fn set_hyper_parameters(store: jlong, names: JString[], values: jdouble[]));
fn set_hyper_parameters(
    env: &mut Env<'_>,
    _class: JClass<'_>,
    store: jlong,
    names: Keys<'_>,
    values: JDoubleArray<'_>,
) -> Result<()> {
    let options = convert::options(env, &names, &values)?;
    let options: Vec<(&str, f64)> =
        options.iter().map(|(name, value)| (name.as_str(), *value)).collect();
    Ok(convert::store(store)?.set_hyper_parameters(&options)?)
}

native!(fn set_gradient_compression(store: jlong, name: JString, threshold: jdouble));
fn set_gradient_compression(
    env: &mut Env<'_>,
    _class: JClass<'_>,
    store: jlong,
    name: JString<'_>,
    threshold: jdouble,
) -> Result<()> {
    let name = convert::string(env, &name, "type")?;
    Ok(convert::store(store)?.set_gradient_compression(&name, threshold)?)
}

native!(fn clear_gradient_compression(store: jlong));
fn clear_gradient_compression(_env: &mut Env<'_>, _class: JClass<'_>, store: jlong) -> Result<()> {
    Ok(convert::store(store)?.clear_gradient_compression()?)
}

native!(fn set_clip_global_norm(store: jlong, bound: jdouble));
fn set_clip_global_norm(
    _env: &mut Env<'_>,
    _class: JClass<'_>,
    store: jlong,
    bound: jdouble,
) -> Result<()> {
    Ok(convert::store(store)?.set_clip_global_norm(bound)?)
}

native!(fn clear_clip_global_norm(store: jlong));
fn clear_clip_global_norm(_env: &mut Env<'_>, _class: JClass<'_>, store: jlong) -> Result<()> {
    Ok(convert::store(store)?.clear_clip_global_norm()?)
}

native!(fn clip_global_norm(store: jlong) -> jdouble);
/// Returns the bound, or 0 if there is none.
fn clip_global_norm(_env: &mut Env<'_>, _class: JClass<'_>, store: jlong) -> Result<jdouble> {
    Ok(convert::store(store)?.clip_global_norm()?.unwrap_or(0.0))
}
