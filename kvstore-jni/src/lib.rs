//! The native library behind the Java package `dev.kvstore`: it translates and decides nothing.
//!
//! - `handle`: the numbers that stand for stores, arrays and their like on the Java side
//! - `error`: errors and panics become exceptions
//! - `convert`: every conversion of arguments and results
//! - `store`, `ndarray`, `buffer`, `file`, `optimizer`, `random`, `runtime`: the native methods, one file per Java class
//! - `updater`: the way back, from a push into a Java updater
//!
//! No pointer crosses the border: Java holds a number, and a number that is out of date is an
//! exception. The one exception is a read-only buffer on a value's memory, which holds the value until
//! nothing can reach the buffer.

mod buffer;
mod convert;
mod error;
mod file;
mod handle;
mod ndarray;
mod optimizer;
mod random;
mod runtime;
mod store;
mod updater;
