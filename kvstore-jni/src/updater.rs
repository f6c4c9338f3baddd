//! [`JavaUpdater`]: the way from a push into a Java updater.

use jni::objects::{JObject, JString, JValue};
use jni::refs::Global;
use jni::{Env, JavaVM, jni_sig, jni_str};
use kvstore::{BoxError, Key, NDArray};

use crate::convert;
use crate::error::{BridgeError, Result, Thrown};

/// A `dev.kvstore.UpdaterCall`, kept alive as long as a store may call it.
#[derive(Debug)]
pub(crate) struct JavaUpdater {
    vm: JavaVM,
    target: Global<JObject<'static>>,
}

impl JavaUpdater {
    /// Returns the updater behind a `dev.kvstore.UpdaterCall`.
    pub(crate) fn new(env: &mut Env<'_>, target: &JObject<'_>) -> Result<Self> {
        convert::reject_null(target, "updater")?;
        Ok(Self { vm: env.get_java_vm()?, target: env.new_global_ref(target)? })
    }

    /// Calls the updater in the current thread, whichever it is.
    ///
    /// What it throws comes back as [`Thrown`], which the native method that pushed rethrows.
    pub(crate) fn update(
        &self,
        key: &Key,
        pushed: &NDArray,
        stored: &NDArray,
    ) -> Result<(), BoxError> {
        // The push that led here has an environment of its own further up the stack: only a fresh
        // one may be used now.
        let called = self.vm.attach_current_thread(|env| self.call(env, key, pushed, stored));
        match called {
            Ok(None) => Ok(()),
            Ok(Some(thrown)) => Err(thrown.into()),
            Err(BridgeError::Store(error)) => Err(error.into()),
            Err(BridgeError::Jni(error)) => Err(error.into()),
        }
    }

    fn call(
        &self,
        env: &mut Env<'_>,
        key: &Key,
        pushed: &NDArray,
        stored: &NDArray,
    ) -> Result<Option<Thrown>> {
        let key = JString::from_str(env, key.as_str())?;
        let (_lent, arrays) = convert::lend(env, vec![pushed.clone(), stored.clone()])?;
        let called = env.call_method(
            &self.target,
            jni_str!("update"),
            jni_sig!("(Ljava/lang/String;[J)V"),
            &[JValue::Object(&key), JValue::Object(&arrays)],
        );
        match called {
            Ok(_) => Ok(None),
            Err(jni::errors::Error::JavaException) => catch(env),
            Err(error) => Err(error.into()),
        }
    }
}

/// Takes the pending exception off the thread.
fn catch(env: &mut Env<'_>) -> Result<Option<Thrown>> {
    let thrown = env.exception_occurred();
    env.exception_clear();
    match thrown {
        Some(throwable) => Ok(Some(Thrown(env.new_global_ref(throwable)?))),
        None => Ok(None),
    }
}
