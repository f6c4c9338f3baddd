//! [`JavaUpdater`]: the way from a push into a Java updater.

use jni::objects::{JMethodID, JObject, JString, JValue};
use jni::refs::Global;
use jni::signature::{Primitive, ReturnType};
use jni::{Env, JavaVM, jni_sig, jni_str};
use kvstore::{BoxError, Key, NDArray};

use crate::convert;
use crate::error::{BridgeError, JavaException, Result};

/// A `dev.kvstore.UpdaterCall`, kept alive as long as a store may call it.
#[derive(Debug)]
pub(crate) struct JavaUpdater {
    vm: JavaVM,
    target: Global<JObject<'static>>,
    /// The method `update` of the target's class.
    update: JMethodID,
}

impl JavaUpdater {
    /// Returns the updater behind a `dev.kvstore.UpdaterCall`.
    pub(crate) fn new(env: &mut Env<'_>, target: &JObject<'_>) -> Result<Self> {
        convert::reject_null(target, "updater")?;
        let class = env.get_object_class(target)?;
        let update =
            env.get_method_id(class, jni_str!("update"), jni_sig!("(Ljava/lang/String;[J)V"))?;
        Ok(Self { vm: env.get_java_vm()?, target: env.new_global_ref(target)?, update })
    }

    /// Calls the updater in the current thread, whichever it is.
    ///
    /// What it throws comes back as [`JavaException`], which the native method that pushed rethrows.
    pub(crate) fn update(
        &self,
        key: &Key,
        pushed: &NDArray,
        stored: &NDArray,
    ) -> Result<(), BoxError> {
        // The push that led here has an environment of its own further up the stack: only a fresh
        // one may be used now. A thread that is not Java's own is attached for this call alone: a JVM ends when
        // all others have.
        let call = |env: &mut Env<'_>| self.call(env, key, pushed, stored);
        let called = self.vm.attach_current_thread_for_scope(call);
        match called {
            Ok(None) => Ok(()),
            Ok(Some(thrown)) => Err(thrown.into()),
            Err(BridgeError::Store(error)) => Err(error.into()),
            Err(BridgeError::Jni(error)) => Err(error.into()),
        }
    }

    #[allow(unsafe_code, reason = "looking the method up by its name takes as long as calling it")]
    fn call(
        &self,
        env: &mut Env<'_>,
        key: &Key,
        pushed: &NDArray,
        stored: &NDArray,
    ) -> Result<Option<JavaException>> {
        let key = JString::from_str(env, key.as_str())?;
        let (_registered, arrays) =
            convert::register(env, Vec::from([pushed.clone(), stored.clone()]))?;
        let arguments = [JValue::Object(&key).as_jni(), JValue::Object(&arrays).as_jni()];
        let returns = ReturnType::Primitive(Primitive::Void);
        // SAFETY: the method belongs to the class of the target, which is loaded as long as the
        // target is held; it takes a string and an array of longs and returns nothing.
        let called =
            unsafe { env.call_method_unchecked(&self.target, self.update, returns, &arguments) };
        match called {
            Ok(_) => Ok(None),
            Err(jni::errors::Error::JavaException) => catch(env),
            Err(error) => Err(error.into()),
        }
    }
}

/// Takes the pending exception off the thread.
fn catch(env: &mut Env<'_>) -> Result<Option<JavaException>> {
    let thrown = env.exception_occurred();
    env.exception_clear();
    match thrown {
        Some(throwable) => Ok(Some(JavaException(env.new_global_ref(throwable)?))),
        None => Ok(None),
    }
}
