//! The native methods of `dev.kvstore.NativeGroup`.
#![expect(clippy::needless_pass_by_value, reason = "`native_method!` passes references by value")]

use jni::objects::{JClass, JObject, JObjectArray, JString};
use jni::sys::{jdouble, jlong};
use jni::{Env, jni_sig, jni_str};
use kvstore::{GroupMember, Rewound};

use crate::callback::JavaCallback;
use crate::convert;
use crate::error::{Result, ThrowKVStoreException};

natives_of!($ "dev.kvstore.NativeGroup");

native!(fn members(store: jlong) -> JObject[]);
fn members<'l>(
    env: &mut Env<'l>,
    _class: JClass<'_>,
    store: jlong,
) -> Result<JObjectArray<'l, JObject<'l>>> {
    convert::members_to_java(env, &convert::store(store)?.members()?)
}

native!(fn on_member(store: jlong, listener: dev.kvstore.MembersCall));
fn on_member(
    env: &mut Env<'_>,
    _class: JClass<'_>,
    store: jlong,
    listener: JObject<'_>,
) -> Result<()> {
    let listener = JavaCallback::new(env, &listener, "listener")?;
    let call = move |members: &[GroupMember]| {
        // The Java side reports exceptions of the listener.
        let _ = listener.call(jni_str!("changed"), jni_sig!("([Ljava/lang/Object;)V"), |env| {
            Ok([convert::members_to_java(env, members)?.into()])
        });
    };
    Ok(convert::store(store)?.on_member(call)?)
}

native!(fn on_rewind(store: jlong, listener: dev.kvstore.RewoundCall));
fn on_rewind(
    env: &mut Env<'_>,
    _class: JClass<'_>,
    store: jlong,
    listener: JObject<'_>,
) -> Result<()> {
    let listener = JavaCallback::new(env, &listener, "listener")?;
    let call = move |rewound: &Rewound| {
        // The Java side reports exceptions of the listener.
        let _ = listener.call(
            jni_str!("rewound"),
            jni_sig!("(Ljava/lang/String;Ljava/lang/String;)V"),
            |env| {
                let version = JString::from_str(env, rewound.version.to_string())?;
                Ok([JString::from_str(env, &rewound.server)?.into(), version.into()])
            },
        );
    };
    Ok(convert::store(store)?.on_rewind(call)?)
}

native!(fn set_weight(store: jlong, weight: jdouble));
fn set_weight(_env: &mut Env<'_>, _class: JClass<'_>, store: jlong, weight: jdouble) -> Result<()> {
    Ok(convert::store(store)?.set_weight(weight)?)
}

native!(fn leave(store: jlong));
fn leave(_env: &mut Env<'_>, _class: JClass<'_>, store: jlong) -> Result<()> {
    Ok(convert::store(store)?.leave()?)
}

native!(fn version(store: jlong, key: JString) -> jlong);
fn version(env: &mut Env<'_>, _class: JClass<'_>, store: jlong, key: JString<'_>) -> Result<jlong> {
    let key = convert::key(env, &key)?;
    Ok(convert::store(store)?.version(&key)?.cast_signed())
}

native!(fn checkpoint_on_servers(store: jlong, name: JString));
fn checkpoint_on_servers(
    env: &mut Env<'_>,
    _class: JClass<'_>,
    store: jlong,
    name: JString<'_>,
) -> Result<()> {
    let name = convert::string(env, &name, "name")?;
    Ok(convert::store(store)?.checkpoint_on_servers(&name)?)
}

native!(fn push_staleness(key: JString) -> jlong);
/// Returns -1 if the staleness is not known.
fn push_staleness(env: &mut Env<'_>, _class: JClass<'_>, key: JString<'_>) -> Result<jlong> {
    let staleness = kvstore::push_staleness(&convert::key(env, &key)?);
    Ok(staleness.map_or(-1, u64::cast_signed))
}
