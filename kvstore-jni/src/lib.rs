//! The native library behind the Java package `dev.kvstore`. It only translates calls; it contains
//! no logic of its own.
//!
//! - `handle`: the handles of stores, arrays and other objects on the Java side
//! - `error`: converts errors and panics to exceptions
//! - `codes`: the codes of enumerations
//! - `convert`: converts arguments and results
//! - `critical`: direct access to the elements of a Java array
//! - `store`, `group`, `server`, `snapshot`, `checkpoint`, `ndarray`, `row_sparse`, `buffer`,
//!   `file`, `optimizer`, `random`, `runtime`: the native methods, one file per Java class
//! - `updater`, `callback`: call Java updaters, listeners and handlers
//!
//! No pointer is passed to Java. Java holds a number (a handle), and a native call with an outdated
//! number throws an exception. The only exception to this rule is a read-only buffer over the
//! memory of a value. It keeps the value alive while the buffer is reachable.

#![cfg_attr(test, allow(clippy::disallowed_macros, reason = "a test may abort without memory"))]

/// Defines `native!` for the rest of a file, after `natives_of!($ "dev.kvstore.NativeKVStore")`.
///
/// `native!(fn rank(store: jlong) -> jint)` then exports `Java_dev_kvstore_NativeKVStore_rank__J`,
/// which calls the function `rank` of the file. (The caller passes the dollar sign, because a macro
/// cannot produce one.)
macro_rules! natives_of {
    ($dollar:tt $class:literal) => {
        macro_rules! native {
            ($dollar($dollar signature:tt)*) => {
                // Remove this with the first release of jni that does not call `fetch_update`.
                #[allow(
                    deprecated,
                    reason = "jni 0.22.4 calls `fetch_update`, deprecated in Rust 1.99"
                )]
                const _: jni::NativeMethod = jni::native_method! {
                    java_type = $class,
                    error_policy = ThrowKVStoreException,
                    static extern $dollar($dollar signature)*,
                };
            };
        }
    };
}

mod buffer;
mod callback;
mod checkpoint;
mod codes;
mod convert;
mod critical;
mod error;
mod file;
mod group;
mod handle;
mod ndarray;
mod optimizer;
mod random;
mod row_sparse;
mod runtime;
mod server;
mod snapshot;
mod store;
mod updater;
