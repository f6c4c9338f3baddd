//! The statistics of keys.

use kvstore::KeyStats;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

use crate::convert;
use crate::interpreter::finalization;

/// Returns the statistics of a key as a `KeyStats`.
pub(crate) fn described<'py>(
    stats: &KeyStats,
    key: Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    static KEY_STATS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let py = key.py();
    let arguments = (
        key,
        convert::dims(py, stats.spec.shape())?,
        stats.spec.dtype().name(),
        convert::context(py, stats.device)?,
        stats.num_pushes,
        stats.value_bytes,
        stats.state_bytes,
    );
    let class = KEY_STATS.import(py, "mxkv.kvstore", "KeyStats")?;
    finalization::call(class, arguments, None)
}
