//! [`JavaUpdater`] calls a Java updater from a push.

use jni::objects::{JMethodID, JObject, JString, JValue};
use jni::refs::Global;
use jni::signature::{Primitive, ReturnType};
use jni::{Env, JavaVM, jni_sig, jni_str};
use kvstore::{BoxError, Key, NDArray};

use crate::callback::attached;
use crate::convert;
use crate::error::{JavaException, Result};

/// A `dev.kvstore.UpdaterCall`. It is kept alive while a store may call it.
#[derive(Debug)]
pub(crate) struct JavaUpdater {
    vm: JavaVM,
    target: Global<JObject<'static>>,
    /// The method `update` of the target's class.
    update: JMethodID,
}

impl JavaUpdater {
    /// Returns the updater for a `dev.kvstore.UpdaterCall`.
    pub(crate) fn new(env: &mut Env<'_>, target: &JObject<'_>) -> Result<Self> {
        convert::reject_null(target, "updater")?;
        let class = env.get_object_class(target)?;
        let update =
            env.get_method_id(class, jni_str!("update"), jni_sig!("(Ljava/lang/String;[J)V"))?;
        Ok(Self { vm: env.get_java_vm()?, target: env.new_global_ref(target)?, update })
    }

    /// Calls the updater in the current thread, which need not be a Java thread.
    ///
    /// An exception that the updater throws is returned as [`JavaException`]. The native method
    /// that pushed rethrows it.
    pub(crate) fn update(
        &self,
        key: &Key,
        pushed: &NDArray,
        stored: &NDArray,
    ) -> Result<(), BoxError> {
        // The calling push has its own environment further up the stack, so only a new one may be
        // used here.
        attached(&self.vm, |env| self.call(env, key, pushed, stored))
    }

    #[allow(unsafe_code, reason = "a look-up of the method by name takes as long as the call")]
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
        // SAFETY: the method belongs to the class of the target, which stays loaded while the
        // target is held. It takes a string and an array of longs and returns nothing.
        let called =
            unsafe { env.call_method_unchecked(&self.target, self.update, returns, &arguments) };
        match called {
            Ok(_) => Ok(None),
            Err(jni::errors::Error::JavaException) => JavaException::catch(env),
            Err(error) => Err(error.into()),
        }
    }
}
