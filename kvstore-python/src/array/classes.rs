//! The classes of arrays. Their Python methods are in `ndarray.rs` and `row_sparse.rs`.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use kvstore::{Error, NDArray, RowSparse, Value};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;

use crate::interpreter::error::detached;
use crate::interpreter::finalization;

/// An array on one device. As in MXNet, every reference to it sees later changes.
///
/// Stores, copies and other libraries receive the current value and do not see later changes.
///
/// >>> from mxkv import nd
/// >>> a = nd.array([[1, 2], [3, 4]])
/// >>> a += 10
/// >>> a[1].asnumpy()
/// array([13., 14.], dtype=float32)
#[pyclass(frozen, subclass, weakref, name = "NDArray", module = "mxkv._native")]
#[derive(Debug)]
pub(crate) struct PyArray {
    pub(super) array: NDArray,
}

impl From<NDArray> for PyArray {
    fn from(array: NDArray) -> Self {
        Self { array }
    }
}

impl PyArray {
    pub(crate) fn array(&self) -> &NDArray {
        &self.array
    }

    /// Returns an array as an instance of the class of `like`.
    pub(crate) fn as_class_of<'py>(
        like: &Bound<'py, Self>,
        array: NDArray,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = like.py();
        let made = Bound::new(py, Self { array })?.into_any();
        // `like` may have a subclass, such as `mxkv.np.ndarray`. Its constructor wraps the array.
        let class = like.get_type();
        if class.is(py.get_type::<Self>()) {
            Ok(made)
        } else {
            finalization::call(&class, (made,), None)
        }
    }
}

/// Whether pulls return arrays of `mxkv.np`.
static IS_NP: AtomicBool = AtomicBool::new(false);

/// Sets whether pulls return arrays of :mod:`mxkv.np`.
#[pyfunction]
pub(crate) fn set_np(is_np: bool) {
    IS_NP.store(is_np, Ordering::Relaxed);
}

/// Returns a pulled array as an instance of the class that [`set_np`] selected.
pub(crate) fn new_array(py: Python<'_>, array: NDArray) -> PyResult<Bound<'_, PyAny>> {
    static CLASS: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    let made = Bound::new(py, PyArray { array })?.into_any();
    if !IS_NP.load(Ordering::Relaxed) {
        return Ok(made);
    }
    let class = CLASS.import(py, "mxkv.np", "ndarray")?;
    finalization::call(class, (made,), None)
}

/// An array that stores only some of its rows. The others are 0.
///
/// >>> from mxkv import nd
/// >>> rows = nd.sparse.row_sparse_array(([[1, 2], [3, 4]], [3, 0]), shape=(4, 2))
/// >>> rows.indices.tolist()
/// [0, 3]
/// >>> rows.asnumpy().tolist()
/// [[3.0, 4.0], [0.0, 0.0], [0.0, 0.0], [1.0, 2.0]]
///
/// The sum, difference or product of two row-sparse arrays stays row-sparse, as does a product or
/// quotient with a number. Other results are dense, as in MXNet.
///
/// >>> (rows * 2).data.tolist(), (rows + rows).stype, (rows + 1).stype
/// ([[6.0, 8.0], [2.0, 4.0]], 'row_sparse', 'default')
#[pyclass(frozen, name = "RowSparseNDArray", module = "mxkv._native")]
#[derive(Debug)]
pub(crate) struct PyRows {
    pub(super) value: Mutex<RowSparse>,
}

impl From<RowSparse> for PyRows {
    fn from(value: RowSparse) -> Self {
        Self { value: Mutex::new(value) }
    }
}

impl PyRows {
    pub(crate) fn value(&self) -> RowSparse {
        self.value.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces the rows.
    pub(crate) fn replace(&self, value: RowSparse) {
        *self.value.lock().unwrap_or_else(PoisonError::into_inner) = value;
    }

    /// Replaces the array with a value of the same shape, cast to its dtype and moved to its
    /// device.
    pub(crate) fn receive(&self, py: Python<'_>, value: &Value) -> PyResult<()> {
        let received = detached(py, || {
            let own = self.value();
            if value.spec().shape() != own.shape() {
                let found = value.spec().with_dtype(own.dtype());
                return Err(Error::operand_mismatch("out", own.spec(), &found));
            }
            self.convert(value)
        })?;
        self.replace(received);
        Ok(())
    }

    /// Returns a value of the same shape, cast to the dtype of the array and moved to its device.
    pub(crate) fn convert(&self, value: &Value) -> kvstore::Result<RowSparse> {
        let own = self.value();
        value.cast(own.dtype())?.into_rows()?.to_device(kvstore::backends(), own.device())
    }
}
