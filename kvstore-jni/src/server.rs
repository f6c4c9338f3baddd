//! The native methods of `dev.kvstore.NativeServer`.
#![expect(clippy::needless_pass_by_value, reason = "`native_method!` passes references by value")]

use std::sync::Arc;
use std::thread;

use jni::objects::{JClass, JObject, JObjectArray, JString};
use jni::sys::jlong;
use jni::{Env, jni_sig, jni_str};
use kvstore::{Error, LaunchedJob, Server, Store};

use crate::callback::JavaCallback;
use crate::convert::{self, SERVERS, STORES};
use crate::error::{Result, ThrowKVStoreException};

natives_of!($ "dev.kvstore.NativeServer");

type Strings<'l> = JObjectArray<'l, JString<'l>>;

native!(fn start(options: JString[], values: JString[]) -> jlong);
fn start(
    env: &mut Env<'_>,
    _class: JClass<'_>,
    options: Strings<'_>,
    values: Strings<'_>,
) -> Result<jlong> {
    let options = convert::named_strings(env, &options, &values)?;
    Ok(SERVERS.insert(kvstore::serve(&convert::pairs(&options))?)?)
}

native!(fn release(server: jlong));
/// Does not wait for the calls that run, because the thread of a garbage collection may call this.
fn release(_env: &mut Env<'_>, _class: JClass<'_>, server: jlong) -> Result<()> {
    if let Some(server) = SERVERS.remove(server) {
        let ended = thread::Builder::new().name("kvstore-shut-down".to_owned());
        let ended = ended.spawn(move || drop(server));
        ended.map_err(|error| Error::Transport {
            operation: "cannot start a thread that shuts down a server".to_owned(),
            source: error.into(),
        })?;
    }
    Ok(())
}

fn server(handle: jlong) -> Result<Arc<Server>> {
    Ok(SERVERS.get(handle)?)
}

native!(fn shut_down(server: jlong));
fn shut_down(_env: &mut Env<'_>, _class: JClass<'_>, server: jlong) -> Result<()> {
    self::server(server)?.shut_down();
    Ok(())
}

native!(fn address(server: jlong) -> JString);
fn address<'l>(env: &mut Env<'l>, _class: JClass<'_>, server: jlong) -> Result<JString<'l>> {
    Ok(JString::from_str(env, self::server(server)?.address().to_string())?)
}

native!(fn metrics_address(server: jlong) -> JString);
/// Returns an empty string if the server has no HTTP endpoint.
fn metrics_address<'l>(
    env: &mut Env<'l>,
    _class: JClass<'_>,
    server: jlong,
) -> Result<JString<'l>> {
    let address = self::server(server)?.metrics_address();
    let address = address.map_or_else(String::new, |address| address.to_string());
    Ok(JString::from_str(env, address)?)
}

native!(fn store(server: jlong) -> jlong);
/// Returns the handle of the store that holds the values.
fn store(_env: &mut Env<'_>, _class: JClass<'_>, server: jlong) -> Result<jlong> {
    Ok(STORES.insert(Store::from(&*self::server(server)?))?)
}

native!(fn members(server: jlong) -> JObject[]);
fn members<'l>(
    env: &mut Env<'l>,
    _class: JClass<'_>,
    server: jlong,
) -> Result<JObjectArray<'l, JObject<'l>>> {
    convert::members_to_java(env, &self::server(server)?.members())
}

native!(fn on_command(server: jlong, handler: dev.kvstore.CommandCall));
fn on_command(
    env: &mut Env<'_>,
    _class: JClass<'_>,
    server: jlong,
    handler: JObject<'_>,
) -> Result<()> {
    let handler = JavaCallback::new(env, &handler, "handler")?;
    let call = move |head: i32, body: &str| {
        let called = handler.call(
            jni_str!("run"),
            jni_sig!("(Ljava/lang/String;Ljava/lang/String;)V"),
            |env| {
                let head = JString::from_str(env, head.to_string())?;
                Ok([head.into(), JString::from_str(env, body)?.into()])
            },
        );
        called.map_err(|thrown| Error::Transport {
            operation: format!("command {head}"),
            source: thrown,
        })
    };
    self::server(server)?.on_command(Arc::new(call));
    Ok(())
}

native!(fn role(variables: JString[], values: JString[]) -> JString);
/// Returns the role of a process with these environment variables, or an empty string if no
/// launcher has started it.
fn role<'l>(
    env: &mut Env<'l>,
    _class: JClass<'_>,
    variables: Strings<'_>,
    values: Strings<'_>,
) -> Result<JString<'l>> {
    let role = job(env, &variables, &values)?.map_or("", |job| job.role().name());
    Ok(JString::from_str(env, role)?)
}

native!(fn launch(
    variables: JString[], values: JString[], options: JString[], settings: JString[]
) -> jlong);
/// Starts the server or the scheduler of the job that environment variables describe.
fn launch(
    env: &mut Env<'_>,
    _class: JClass<'_>,
    variables: Strings<'_>,
    values: Strings<'_>,
    options: Strings<'_>,
    settings: Strings<'_>,
) -> Result<jlong> {
    let options = convert::named_strings(env, &options, &settings)?;
    let server = launched(env, &variables, &values)?.start(&convert::pairs(&options))?;
    Ok(SERVERS.insert(server)?)
}

native!(fn join(
    name: JString, variables: JString[], values: JString[], options: JString[], settings: JString[]
) -> jlong);
/// Joins the job that environment variables describe as a worker. Returns the handle of the store.
fn join(
    env: &mut Env<'_>,
    _class: JClass<'_>,
    name: JString<'_>,
    variables: Strings<'_>,
    values: Strings<'_>,
    options: Strings<'_>,
    settings: Strings<'_>,
) -> Result<jlong> {
    let name = convert::string(env, &name, "name")?;
    let options = convert::named_strings(env, &options, &settings)?;
    let job = launched(env, &variables, &values)?;
    Ok(STORES.insert(job.connect(&name, &convert::pairs(&options))?)?)
}

native!(fn wait_for_job(server: jlong, variables: JString[], values: JString[]));
fn wait_for_job(
    env: &mut Env<'_>,
    _class: JClass<'_>,
    server: jlong,
    variables: Strings<'_>,
    values: Strings<'_>,
) -> Result<()> {
    let job = launched(env, &variables, &values)?;
    Ok(job.wait(&*self::server(server)?)?)
}

fn job(
    env: &mut Env<'_>,
    variables: &Strings<'_>,
    values: &Strings<'_>,
) -> Result<Option<LaunchedJob>> {
    let variables = convert::named_strings(env, variables, values)?;
    let value = |name: &str| {
        let found = variables.iter().find(|(variable, _)| variable == name);
        found.map(|(_, value)| value.clone()).filter(|value| !value.is_empty())
    };
    Ok(LaunchedJob::of_variables(value)?)
}

fn launched(
    env: &mut Env<'_>,
    variables: &Strings<'_>,
    values: &Strings<'_>,
) -> Result<LaunchedJob> {
    let none = || Error::invalid("DMLC_ROLE is not set: no launcher has started this process");
    Ok(job(env, variables, values)?.ok_or_else(none)?)
}
