//! Checks that every implementation must pass. They name no implementation; each takes it as an
//! argument.

#![expect(
    clippy::unwrap_used,
    reason = "checks fail by panicking, and the code under test says why"
)]

use std::fmt::Debug;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use kvstore::{ErrorCode, NDArray, Result, Store};
use kvstore_core::{BoxError, Key, Tensor};

use crate::place::device;
use crate::reduced;

pub mod backend;
pub mod bits;
pub mod calls;
pub mod concurrency;
pub mod elementwise;
pub mod norms;
pub mod races;
pub mod row_sparse;
pub mod snapshots;
pub mod store_snapshots;
pub mod table;
pub mod updaters;
pub mod values;

/// An updater that replaces the stored value with the sum.
#[expect(clippy::unnecessary_wraps, reason = "the signature of an updater")]
pub(crate) fn assign(_: &Key, pushed: &Tensor, stored: &mut Tensor) -> Result<(), BoxError> {
    *stored = pushed.clone();
    Ok(())
}

/// Runs a check on a new store of every name.
pub fn on_every_store(check: impl Fn(&Store)) {
    for name in reduced::store_names() {
        println!("store `{name}`");
        check(&kvstore::create(name).expect("a store of this machine can be created"));
    }
}

/// Returns a new array with one axis.
pub fn array(data: &[f32]) -> NDArray {
    kvstore::array(data, [data.len()], device(0)).expect("enough host memory")
}

/// Returns the elements of an array.
pub fn floats(array: &NDArray) -> Vec<f32> {
    array.to_vec().expect("the array is of f32")
}

/// Returns the elements of the stored value of a key.
pub fn stored(store: &Store, text: &str) -> Vec<f32> {
    floats(&store.pull_new(text).expect("the key is initialised")[0])
}

/// Panics unless the call failed with this code.
#[track_caller]
pub fn assert_code<T: Debug>(result: Result<T>, code: ErrorCode) {
    match result {
        Err(error) => assert_eq!(error.code(), code, "{}", error.chain()),
        Ok(value) => panic!("expected {code}, found {value:?}"),
    }
}

/// Runs `work` on another thread. Panics if it takes longer than it can on any machine, because it
/// then waits forever.
#[track_caller]
pub fn before_the_deadline<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    const DEADLINE: Duration = reduced::deadline();
    let (sender, receiver) = mpsc::channel();
    let worker = thread::spawn(move || {
        let _ = sender.send(work());
    });
    match receiver.recv_timeout(DEADLINE) {
        Ok(result) => result,
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("deadlock: not done after {DEADLINE:?}"),
        Err(mpsc::RecvTimeoutError::Disconnected) => {
            std::panic::resume_unwind(worker.join().expect_err("it ended without a result"))
        }
    }
}
