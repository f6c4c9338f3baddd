//! The tables of the objects that Java holds, by handle.

use std::sync::{Arc, LazyLock, Mutex};

use jni::Env;
use jni::objects::JLongArray;
use jni::sys::jlong;
use kvstore::fallible;
use kvstore::{
    Checkpoint, CheckpointProgress, NDArray, Optimizer, OptimizerState, RowSparse, Server,
    Snapshot, Store, Tensor,
};

use crate::error::Result;
use crate::handle::HandleTable;

use super::java::numbers;

/// The arrays that Java holds.
pub(crate) static ARRAYS: LazyLock<HandleTable<NDArray>> =
    LazyLock::new(|| HandleTable::new("array"));
/// The row-sparse values that Java holds.
pub(crate) static ROWS: LazyLock<HandleTable<RowSparse>> =
    LazyLock::new(|| HandleTable::new("row-sparse value"));
/// The stores that Java holds.
pub(crate) static STORES: LazyLock<HandleTable<Store>> =
    LazyLock::new(|| HandleTable::new("store"));
/// The servers that Java holds.
pub(crate) static SERVERS: LazyLock<HandleTable<Server>> =
    LazyLock::new(|| HandleTable::new("server"));
/// The optimizers that Java holds during a call.
pub(crate) static OPTIMIZERS: LazyLock<HandleTable<Optimizer>> =
    LazyLock::new(|| HandleTable::new("optimizer"));
/// The optimizer states that Java holds.
pub(crate) static STATES: LazyLock<HandleTable<Mutex<OptimizerState>>> =
    LazyLock::new(|| HandleTable::new("optimizer state"));
/// The snapshots that Java holds.
pub(crate) static SNAPSHOTS: LazyLock<HandleTable<Snapshot>> =
    LazyLock::new(|| HandleTable::new("snapshot"));
/// The checkpoints that Java holds. The `Option` is `None` after a caller has waited for the
/// checkpoint.
pub(crate) static CHECKPOINTS: LazyLock<
    HandleTable<(Mutex<Option<Checkpoint>>, CheckpointProgress)>,
> = LazyLock::new(|| HandleTable::new("checkpoint"));
/// The values whose memory Java buffers share.
pub(crate) static PINS: LazyLock<HandleTable<Tensor>> =
    LazyLock::new(|| HandleTable::new("buffer"));

/// Returns the array of a handle.
///
/// # Errors
/// - [`kvstore::Error::Closed`] if the handle is outdated.
pub(crate) fn array(handle: jlong) -> Result<Arc<NDArray>> {
    Ok(ARRAYS.get(handle)?)
}

/// Returns the store of a handle.
///
/// # Errors
/// - [`kvstore::Error::Closed`] if the handle is outdated.
pub(crate) fn store(handle: jlong) -> Result<Arc<Store>> {
    Ok(STORES.get(handle)?)
}

/// Returns the arrays of some handles. `name` is the name of the argument in errors.
pub(crate) fn arrays(env: &Env<'_>, handles: &JLongArray<'_>, name: &str) -> Result<Vec<NDArray>> {
    let handles = numbers(env, handles, name)?;
    fallible::try_collect(handles.into_iter().map(|handle| Ok(NDArray::clone(&*array(handle)?))))
}
