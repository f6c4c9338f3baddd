//! Calls of Java code from a thread of the library.

use jni::objects::{JObject, JValue};
use jni::refs::Global;
use jni::signature::MethodSignature;
use jni::strings::JNIStr;
use jni::{Env, JavaVM};
use kvstore::BoxError;

use crate::convert;
use crate::error::{BridgeError, JavaException, Result};

/// A Java object that the library calls. It is kept alive while the library may call it.
#[derive(Debug)]
pub(crate) struct JavaCallback {
    vm: JavaVM,
    target: Global<JObject<'static>>,
}

impl JavaCallback {
    /// Returns the callback for an object; `name` is its name in errors.
    pub(crate) fn new(env: &mut Env<'_>, target: &JObject<'_>, name: &str) -> Result<Self> {
        convert::reject_null(target, name)?;
        Ok(Self { vm: env.get_java_vm()?, target: env.new_global_ref(target)? })
    }

    /// Calls a method without a result in the current thread, which need not be a Java thread.
    /// `arguments` returns the arguments of the method.
    ///
    /// # Errors
    /// - [`JavaException`] if the method throws.
    pub(crate) fn call<'s, const N: usize>(
        &self,
        method: impl AsRef<JNIStr>,
        signature: impl AsRef<MethodSignature<'s, 's>>,
        arguments: impl for<'l> FnOnce(&mut Env<'l>) -> Result<[JObject<'l>; N]>,
    ) -> std::result::Result<(), BoxError> {
        let call = |env: &mut Env<'_>| -> Result<Option<JavaException>> {
            let arguments = arguments(env)?;
            let arguments = arguments.each_ref().map(JValue::Object);
            match env.call_method(&self.target, method, signature, &arguments) {
                Ok(_) => Ok(None),
                Err(jni::errors::Error::JavaException) => JavaException::catch(env),
                Err(error) => Err(error.into()),
            }
        };
        attached(&self.vm, call)
    }
}

/// Runs `call` with a new environment in the current thread, which need not be a Java thread.
///
/// # Errors
/// - The exception that `call` returns, and the errors of `call`.
pub(crate) fn attached(
    vm: &JavaVM,
    call: impl FnOnce(&mut Env<'_>) -> Result<Option<JavaException>>,
) -> std::result::Result<(), BoxError> {
    // Attached only for this call, because the JVM terminates only when all other threads have.
    match vm.attach_current_thread_for_scope(call) {
        Ok(None) => Ok(()),
        Ok(Some(thrown)) => Err(thrown.into()),
        Err(BridgeError::Store(error)) => Err(error.into()),
        Err(BridgeError::Jni(error)) => Err(error.into()),
    }
}
