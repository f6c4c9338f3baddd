//! Row-sparse outputs of a pull.

use kvstore::{Error, Key, RowSparse, Store, fallible};
use pyo3::exceptions::PyUserWarning;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

use crate::arguments::values::RowOutput;
use crate::interpreter::finalization;

/// Returns the new values of row-sparse outputs, or an empty list if they are ignored. In both
/// cases, fails if a key does not exist.
pub(crate) fn pull_rows(
    store: &Store,
    outs: &[RowOutput],
    is_ignored: bool,
) -> kvstore::Result<Vec<RowSparse>> {
    if is_ignored {
        for (key, _) in outs {
            if !store.contains(key)? {
                return Err(Error::KeyNotFound { key: key.clone() });
            }
        }
        return Ok(Vec::new());
    }
    let keys: Vec<Key> = fallible::collect(outs.iter().map(|(key, _)| key.clone()))?;
    let pulled = store.pull_new(keys)?;
    // Convert all rows before the caller replaces any output, because the conversion can fail.
    let rows = outs.iter().zip(pulled).map(|((key, out), value)| {
        let (out, value) = (out.get(), value.tensor());
        let own = out.value();
        if value.shape() != own.shape() {
            let expected = Box::new(value.spec().with_dtype(own.dtype()));
            let (subject, found) = (format!("key `{key}`: out"), Box::new(own.spec().clone()));
            return Err(Error::SpecMismatch { subject, key: Some(key.clone()), expected, found });
        }
        out.convert(&RowSparse::from_dense(&value)?.into())
    });
    fallible::try_collect(rows)
}

/// Warns that a pull ignores its row-sparse outputs.
pub(crate) fn warn_about_rows(py: Python<'_>) -> PyResult<()> {
    static WARN: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let text =
        "pull does not change row-sparse outputs: use row_sparse_pull or ignore_sparse=False";
    let arguments = (text, py.get_type::<PyUserWarning>());
    finalization::call(WARN.import(py, "warnings", "warn")?, arguments, None).map(drop)
}
