//! The class `RowSparseNDArray`: some rows of an array, the others being 0.

use std::sync::{Mutex, PoisonError};

use kvstore::{NDArray, RowSparse};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::convert;
use crate::error::{detached, invalid, to_python};
use crate::ndarray::{self, PyArray};

/// An array of which only some rows are there; the others are 0.
///
/// >>> from mxkv import nd
/// >>> rows = nd.sparse.row_sparse_array(([[1, 2], [3, 4]], [3, 0]), shape=(4, 2))
/// >>> rows.indices.tolist()
/// [0, 3]
/// >>> rows.asnumpy().tolist()
/// [[3.0, 4.0], [0.0, 0.0], [0.0, 0.0], [1.0, 2.0]]
#[pyclass(frozen, name = "RowSparseNDArray", module = "mxkv._native")]
#[derive(Debug)]
pub(crate) struct PyRows {
    value: Mutex<RowSparse>,
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
}

#[pymethods]
impl PyRows {
    /// Makes the value of this shape with these rows; rows of the same number are summed.
    #[new]
    fn new(
        py: Python<'_>,
        rows: &Bound<'_, PyAny>,
        indices: &Bound<'_, PyAny>,
        shape: &Bound<'_, PyAny>,
    ) -> PyResult<Self> {
        let (rows, shape) = (ndarray::tensor(py, rows)?, convert::shape(shape)?);
        let indices = convert::row_ids(indices)?;
        detached(py, || RowSparse::from_ids(shape, &indices, rows)).map(Self::from)
    }

    /// What MXNet calls an array of rows.
    #[classattr]
    #[pyo3(name = "stype")]
    pub(crate) const STYPE: &'static str = "row_sparse";

    /// The lengths along the axes of the whole array.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        convert::dims(py, self.value().shape())
    }

    /// The type of the elements, as NumPy's.
    #[getter]
    fn dtype<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        Bound::new(py, self.data())?.getattr("dtype")
    }

    /// The device, as a ``Context``.
    #[getter]
    fn context<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        convert::context(py, self.value().device())
    }

    /// Waits until the rows have been computed.
    fn wait_to_read(&self, py: Python<'_>) -> PyResult<()> {
        let value = self.value();
        detached(py, || value.rows().wait())
    }

    /// The numbers of the rows that are there, ascending: an array of ``int64`` of its own.
    #[getter]
    fn indices(&self, py: Python<'_>) -> PyResult<PyArray> {
        let value = self.value();
        let numbers = value.indices();
        detached(py, || kvstore::array(numbers, [numbers.len()], value.device())).map(PyArray::from)
    }

    /// The rows that are there, below each other.
    #[getter]
    fn data(&self) -> PyArray {
        NDArray::new(self.value().rows().clone()).into()
    }

    /// Returns the whole array.
    fn todense(&self, py: Python<'_>) -> PyResult<PyArray> {
        let value = self.value();
        let dense = detached(py, || value.to_dense())?;
        Ok(NDArray::new(dense).into())
    }

    /// Returns the array itself for ``'row_sparse'``, and for ``'default'`` the whole one.
    fn tostype<'py>(slf: &Bound<'py, Self>, stype: &str) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        match stype {
            Self::STYPE => Ok(slf.clone().into_any()),
            PyArray::STYPE => Ok(Bound::new(py, slf.get().todense(py)?)?.into_any()),
            _ => Err(unknown_stype(py, stype)),
        }
    }

    /// Returns the whole array as NumPy's.
    fn asnumpy<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        Bound::new(py, self.todense(py)?)?.call_method0("asnumpy")
    }

    /// Gives this array the rows of another one of the same shape and dtype.
    #[pyo3(name = "_assign")]
    fn assign(&self, py: Python<'_>, other: &Bound<'_, PyRows>) -> PyResult<()> {
        let (own, value) = (self.value(), other.get().value());
        if own.spec() != value.spec() {
            let error = kvstore::Error::operand_mismatch("out", value.spec(), own.spec());
            return Err(to_python(py, error));
        }
        *self.value.lock().unwrap_or_else(PoisonError::into_inner) = value;
        Ok(())
    }

    fn __repr__(&self) -> String {
        let value = self.value();
        format!(
            "<RowSparseNDArray {}, {} rows, @{}>",
            value.spec(),
            value.num_rows(),
            value.device()
        )
    }
}

/// Returns the error for a kind of array that is none of ours.
pub(crate) fn unknown_stype(py: Python<'_>, stype: &str) -> PyErr {
    invalid(py, format!("stype: expected `row_sparse` or `default`, found `{stype}`"))
}
