//! Converts errors and panics to Java exceptions.

use std::any::Any;
use std::error::Error as StdError;
use std::fmt;

use jni::Env;
use jni::errors::{ErrorPolicy, JniError};
use jni::objects::{JString, JThrowable, JValue};
use jni::refs::Global;
use jni::sys::jint;
use jni::{jni_sig, jni_str};
use kvstore::{Error, ErrorCode};

/// The result of a native method.
pub(crate) type Result<T, E = BridgeError> = std::result::Result<T, E>;

/// The reason why a native method failed.
#[derive(Debug)]
pub(crate) enum BridgeError {
    /// A store or an array returned an error.
    Store(Error),
    /// A JNI call failed.
    Jni(jni::errors::Error),
}

impl From<Error> for BridgeError {
    fn from(error: Error) -> Self {
        Self::Store(error)
    }
}

impl From<jni::errors::Error> for BridgeError {
    fn from(error: jni::errors::Error) -> Self {
        Self::Jni(error)
    }
}

/// The exception that Java code threw: an updater or a handler of commands. The store passes it to
/// the caller of the push. A caller in another process gets its text.
#[derive(Debug)]
pub(crate) struct JavaException {
    throwable: Global<JThrowable<'static>>,
    /// The result of `toString`: the class and the message.
    text: String,
}

impl JavaException {
    /// Clears and returns the pending exception, or `None` if there is none.
    pub(crate) fn catch(env: &mut Env<'_>) -> Result<Option<Self>> {
        let Some(throwable) = env.exception_occurred() else { return Ok(None) };
        env.exception_clear();
        let text = text_of(env, &throwable).unwrap_or_else(|_| {
            // `toString` of the program's own class has failed.
            env.exception_clear();
            "a Java exception".to_owned()
        });
        Ok(Some(Self { throwable: env.new_global_ref(throwable)?, text }))
    }
}

fn text_of(env: &mut Env<'_>, throwable: &JThrowable<'_>) -> Result<String> {
    let signature = jni_sig!("()Ljava/lang/String;");
    let text = env.call_method(throwable, jni_str!("toString"), signature, &[])?.l()?;
    let text = env.cast_local::<JString>(text)?;
    Ok(text.mutf8_chars(env)?.to_str().into_owned())
}

impl fmt::Display for JavaException {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl StdError for JavaException {}

/// Throws the exception for an error of a native method: a `dev.kvstore.KVStoreException`, the same
/// object that a Java updater threw, or `OutOfMemoryError` if the Java heap is full.
#[derive(Debug)]
pub(crate) struct ThrowKVStoreException;

impl<T: Default> ErrorPolicy<T, BridgeError> for ThrowKVStoreException {
    type Captures<'unowned_env_local: 'native_method, 'native_method> = ();

    fn on_error<'unowned_env_local: 'native_method, 'native_method>(
        env: &mut Env<'unowned_env_local>,
        _captures: &mut (),
        error: BridgeError,
    ) -> jni::errors::Result<T> {
        returned(throw(env, &error))
    }

    fn on_panic<'unowned_env_local: 'native_method, 'native_method>(
        env: &mut Env<'unowned_env_local>,
        _captures: &mut (),
        payload: Box<dyn Any + Send + 'static>,
    ) -> jni::errors::Result<T> {
        let error = Error::Internal(format!("panic: {}", panic_text(payload.as_ref())));
        returned(throw(env, &BridgeError::Store(error)))
    }
}

/// Returns a placeholder that Java ignores, because an exception is pending.
fn returned<T: Default>(thrown: jni::errors::Result<()>) -> jni::errors::Result<T> {
    match thrown {
        Ok(()) | Err(jni::errors::Error::JavaException) => Ok(T::default()),
        Err(error) => Err(error),
    }
}

fn throw(env: &mut Env<'_>, error: &BridgeError) -> jni::errors::Result<()> {
    if env.exception_check() {
        return Ok(());
    }
    if let Some(JavaException { throwable, .. }) = thrown_by_updater(error) {
        let throwable = env.new_local_ref(throwable)?;
        return env.throw(throwable);
    }
    if matches!(error, BridgeError::Jni(jni::errors::Error::JniCall(JniError::NoMemory))) {
        // Java throws the same exception for its own arrays. If there is not enough memory even for
        // this exception, the JVM uses a preallocated one.
        let thrown =
            env.throw_new(jni_str!("java/lang/OutOfMemoryError"), jni_str!("Java heap space"));
        return if env.exception_check() { Ok(()) } else { thrown };
    }
    // If `KVStoreException` cannot be created, throw another exception rather than return an
    // unexpected null.
    match throw_store_exception(env, &Report::of(error)) {
        Ok(()) => Ok(()),
        Err(jni::errors::Error::JavaException) => Err(jni::errors::Error::JavaException),
        Err(_) if env.exception_check() => Ok(()),
        Err(_) => env.throw(Report::of(error).message),
    }
}

fn thrown_by_updater(error: &BridgeError) -> Option<&JavaException> {
    match error {
        BridgeError::Store(Error::Updater { source, .. }) => source.downcast_ref(),
        BridgeError::Store(_) | BridgeError::Jni(_) => None,
    }
}

fn throw_store_exception(env: &mut Env<'_>, report: &Report) -> jni::errors::Result<()> {
    let class = env.find_class(jni_str!("dev/kvstore/KVStoreException"))?;
    let message = JString::from_str(env, &report.message)?;
    let key = optional(env, report.key.as_deref())?;
    let expected = optional(env, report.expected.as_deref())?;
    let found = optional(env, report.found.as_deref())?;
    let exception = env.new_object(
        class,
        jni_sig!("(ILjava/lang/String;Ljava/lang/String;Ljava/lang/String;Ljava/lang/String;)V"),
        &[
            JValue::Int(jint::from(report.code as u8)),
            JValue::Object(&message),
            JValue::Object(&key),
            JValue::Object(&expected),
            JValue::Object(&found),
        ],
    )?;
    let exception = env.cast_local::<JThrowable>(exception)?;
    env.throw(exception)
}

fn optional<'local>(
    env: &mut Env<'local>,
    text: Option<&str>,
) -> jni::errors::Result<JString<'local>> {
    match text {
        Some(text) => JString::from_str(env, text),
        None => Ok(JString::null()),
    }
}

/// The fields of a `KVStoreException`.
#[derive(Debug)]
struct Report {
    code: ErrorCode,
    message: String,
    key: Option<String>,
    expected: Option<String>,
    found: Option<String>,
}

impl Report {
    fn of(error: &BridgeError) -> Self {
        match error {
            BridgeError::Store(error) => Self {
                code: error.code(),
                message: error.chain(),
                key: error.key().map(ToString::to_string),
                expected: error.expected(),
                found: error.found(),
            },
            BridgeError::Jni(error) => Self {
                code: jni_code(error),
                message: jni_text(error),
                key: None,
                expected: None,
                found: None,
            },
        }
    }
}

fn jni_code(error: &jni::errors::Error) -> ErrorCode {
    match error {
        jni::errors::Error::NullPtr(_) => ErrorCode::InvalidArgument,
        jni::errors::Error::JniCall(JniError::NoMemory) => ErrorCode::OutOfMemory,
        _ => ErrorCode::Internal,
    }
}

fn jni_text(error: &jni::errors::Error) -> String {
    match error {
        jni::errors::Error::NullPtr(call) => format!("an argument is null: {call}"),
        jni::errors::Error::JniCall(JniError::NoMemory) => {
            "the Java heap has no space for the result".to_owned()
        }
        other => format!("java native interface: {other}"),
    }
}

/// Returns the message of a panic. The payload of `panic!` is a `&str` for a literal and a `String`
/// for a formatted message.
fn panic_text(payload: &(dyn Any + Send)) -> &str {
    payload
        .downcast_ref::<&'static str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("without a text")
}

#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;

    use kvstore::{DType, Key, TensorSpec};

    use super::*;

    #[test]
    fn panic_text_returns_literal_and_formatted_messages() {
        let literal = catch_unwind(|| panic!("literal")).unwrap_err();
        let number = 7;
        let formatted = catch_unwind(move || panic!("number {number}")).unwrap_err();
        let other = catch_unwind(|| std::panic::panic_any(1_u8)).unwrap_err();
        assert_eq!(panic_text(literal.as_ref()), "literal");
        assert_eq!(panic_text(formatted.as_ref()), "number 7");
        assert_eq!(panic_text(other.as_ref()), "without a text");
    }

    #[test]
    fn a_report_contains_key_expected_and_found() {
        let key = Key::new("w1").unwrap();
        let expected = TensorSpec::new([2, 3], DType::F32);
        let found = TensorSpec::new([3, 2], DType::F32);
        let report = Report::of(&Error::spec_mismatch(&key, &expected, &found).into());
        assert_eq!(report.code, ErrorCode::SpecMismatch);
        assert_eq!(report.message, "key `w1`: expected [2, 3] f32, found [3, 2] f32");
        assert_eq!(report.key.as_deref(), Some("w1"));
        assert_eq!(report.expected.as_deref(), Some("[2, 3] f32"));
        assert_eq!(report.found.as_deref(), Some("[3, 2] f32"));
    }

    #[test]
    fn a_null_argument_is_invalid_and_a_full_java_heap_is_out_of_memory() {
        let null = Report::of(&jni::errors::Error::NullPtr("get_region").into());
        let full = Report::of(&jni::errors::Error::JniCall(JniError::NoMemory).into());
        assert_eq!(null.code, ErrorCode::InvalidArgument);
        assert_eq!(full.code, ErrorCode::OutOfMemory);
    }
}
