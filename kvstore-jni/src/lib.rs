//! The native library behind the Java package `dev.kvstore`: it translates and decides nothing.
//!
//! - `handle`: the numbers that stand for stores, arrays and their like on the Java side
//! - `error`: errors and panics become exceptions
//! - `convert`: every conversion of arguments and results
//! - `critical`: the elements of a Java array where they are
//! - `store`, `snapshot`, `checkpoint`, `ndarray`, `row_sparse`, `buffer`, `file`, `optimizer`, `random`, `runtime`: the native methods,
//!   one file per Java class
//! - `updater`: the way back, from a push into a Java updater
//!
//! No pointer crosses the border: Java holds a number, and a number that is out of date is an
//! exception. The one exception is a read-only buffer on a value's memory, which holds the value until
//! nothing can reach the buffer.

#![cfg_attr(test, allow(clippy::disallowed_macros, reason = "a test may abort without memory"))]

/// Defines `native!` for the rest of a file, after `natives_of!($ "dev.kvstore.NativeKVStore")`.
///
/// `native!(fn rank(store: jlong) -> jint)` then exports `Java_dev_kvstore_NativeKVStore_rank__J`, which
/// calls the function `rank` of the file. (The dollar is handed over because a macro cannot write one.)
macro_rules! natives_of {
    ($dollar:tt $class:literal) => {
        macro_rules! native {
            ($dollar($dollar signature:tt)*) => {
                // Remove with the first release of jni that does not call `fetch_update`.
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
mod checkpoint;
mod codes;
mod convert;
mod critical;
mod error;
mod file;
mod handle;
mod ndarray;
mod optimizer;
mod random;
mod row_sparse;
mod runtime;
mod snapshot;
mod store;
mod updater;
