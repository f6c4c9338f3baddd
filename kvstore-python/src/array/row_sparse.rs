//! The Python methods of the class `RowSparseNDArray`.

use kvstore::{BinaryOp, NDArray, Reduction, RowSparse, UnaryOp, Value, fallible};
use pyo3::basic::CompareOp;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple, PyType};

use super::classes::{PyArray, PyRows};
use super::indexing;
use super::operand;
use super::operators;
use super::row_operators;
use crate::convert;
use crate::interop::to_numpy;
use crate::interpreter::error::{about, detached, to_python};
use crate::interpreter::lists;

type Any<'py> = Bound<'py, PyAny>;
/// The class of a row-sparse array, its rows, their indices and its shape.
type PickledParts<'py> = (Bound<'py, PyType>, (Any<'py>, Bound<'py, PyList>, Vec<usize>));

#[pymethods]
impl PyRows {
    /// Creates an array of this shape with these rows. Rows with the same index are summed.
    #[new]
    fn new(
        py: Python<'_>,
        rows: &Bound<'_, PyAny>,
        indices: &Bound<'_, PyAny>,
        shape: &Bound<'_, PyAny>,
    ) -> PyResult<Self> {
        let rows = operand::tensor(py, rows).map_err(|error| about(py, error, None, "rows"))?;
        let shape = convert::shape(shape)?;
        let indices =
            operand::row_ids(indices).map_err(|error| about(py, error, None, "indices"))?;
        detached(py, || RowSparse::from_ids(shape, &indices, rows)).map(Self::from)
    }

    /// Gives our operators precedence over those of NumPy arrays.
    #[classattr]
    #[pyo3(name = "__array_priority__")]
    const ARRAY_PRIORITY: f64 = 1000.0;

    /// MXNet's name for a row-sparse array.
    #[classattr]
    #[pyo3(name = "stype")]
    pub(crate) const STYPE: &'static str = "row_sparse";

    /// The lengths along the axes of the dense array.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        convert::dims(py, self.value().shape())
    }

    /// The dtype of the elements, as a NumPy dtype.
    #[getter]
    fn dtype<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        Bound::new(py, self.data())?.getattr("dtype")
    }

    /// The device, as a ``Context``.
    #[getter]
    fn context<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        convert::context(py, self.value().device())
    }

    /// The device, as a ``Context``.
    #[getter]
    fn ctx<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.context(py)
    }

    /// Waits until the rows have been computed.
    fn wait_to_read(&self, py: Python<'_>) -> PyResult<()> {
        let value = self.value();
        detached(py, || value.rows().wait())
    }

    /// The indices of the stored rows in ascending order, as a new ``int64`` array.
    #[getter]
    fn indices(&self, py: Python<'_>) -> PyResult<PyArray> {
        let value = self.value();
        let numbers = value.indices();
        detached(py, || kvstore::array(numbers, [numbers.len()], value.device())).map(PyArray::from)
    }

    /// The stored rows, in the order of ``indices``.
    #[getter]
    fn data(&self) -> PyArray {
        NDArray::new(self.value().rows().clone()).into()
    }

    /// Returns the dense array.
    fn todense(&self, py: Python<'_>) -> PyResult<PyArray> {
        let value = self.value();
        let dense = detached(py, || value.to_dense())?;
        Ok(NDArray::new(dense).into())
    }

    /// Returns this array for ``'row_sparse'``, and the dense array for ``'default'``.
    fn tostype<'py>(slf: &Bound<'py, Self>, stype: &str) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        match stype {
            Self::STYPE => Ok(slf.clone().into_any()),
            PyArray::STYPE => Ok(Bound::new(py, slf.get().todense(py)?)?.into_any()),
            _ => Err(operand::unknown_stype(py, stype)),
        }
    }

    /// Returns the dense array as a NumPy array.
    fn asnumpy<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        to_numpy::copied(py, &NDArray::new(detached(py, || self.value().to_dense())?))
    }

    /// Returns a new array with the elements converted to another dtype, which is a name or a NumPy
    /// dtype. With ``copy=False``, returns this array if it already has the dtype.
    #[pyo3(signature = (dtype, copy = true))]
    fn astype<'py>(slf: &Bound<'py, Self>, dtype: &Any<'py>, copy: bool) -> PyResult<Any<'py>> {
        let (py, value, dtype) = (slf.py(), slf.get().value(), convert::dtype_like(dtype)?);
        if !copy && value.dtype() == dtype {
            return Ok(slf.clone().into_any());
        }
        let cast = detached(py, || value.cast(dtype))?;
        Ok(Bound::new(py, Self::from(cast))?.into_any())
    }

    /// Returns a copy.
    fn copy(&self) -> Self {
        self.value().into()
    }

    /// Copies the elements into a dense or row-sparse array, with a cast and a move if needed, and
    /// returns that array. For a device, returns a copy there.
    fn copyto<'py>(slf: &Bound<'py, Self>, other: &Any<'py>) -> PyResult<Any<'py>> {
        let (py, value) = (slf.py(), slf.get().value());
        if let Ok(rows) = other.cast::<Self>() {
            rows.get().receive(py, &value.into())?;
        } else if let Ok(dense) = other.cast::<PyArray>() {
            let to = dense.get().array();
            detached(py, || NDArray::new(value.to_dense()?).copy_to(to))?;
        } else {
            let device = convert::device_like(other)?;
            let moved = detached(py, || value.to_device(kvstore::backends(), device))?;
            return Ok(Bound::new(py, Self::from(moved))?.into_any());
        }
        Ok(other.clone())
    }

    /// Returns this array if it is on the device, otherwise a copy there.
    fn as_in_context<'py>(slf: &Bound<'py, Self>, context: &Any<'py>) -> PyResult<Any<'py>> {
        if convert::device_like(context)? == slf.get().value().device() {
            return Ok(slf.clone().into_any());
        }
        Self::copyto(slf, context)
    }

    /// Returns the sum of all elements, as a dense array with one element.
    fn sum(&self, py: Python<'_>) -> PyResult<PyArray> {
        self.reduced(py, Reduction::Sum)
    }

    /// Returns the mean of all elements, as a dense array with one element.
    fn mean(&self, py: Python<'_>) -> PyResult<PyArray> {
        self.reduced(py, Reduction::Mean)
    }

    /// Returns the square root of the sum of the squares, as a dense array with one element.
    fn norm(&self, py: Python<'_>) -> PyResult<PyArray> {
        self.reduced(py, Reduction::Norm)
    }

    /// Returns every element clamped to ``[a_min, a_max]``.
    fn clip<'py>(
        &self,
        py: Python<'py>,
        #[pyo3(from_py_with = convert::a_min)] a_min: f64,
        #[pyo3(from_py_with = convert::a_max)] a_max: f64,
    ) -> PyResult<Any<'py>> {
        let value = Value::Rows(self.value());
        row_operators::object(py, detached(py, || value.clip(a_min.into(), a_max.into()))?)
    }

    /// Applies the elementwise function with this name, such as ``exp`` or ``sqrt``.
    #[pyo3(name = "_unary")]
    fn unary<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Any<'py>> {
        let op = operators::unary_named(py, name)?;
        row_operators::unary(py, self.value(), op)
    }

    /// Applies the binary elementwise function with this name, such as ``maximum``.
    #[pyo3(name = "_binary")]
    fn binary<'py>(
        slf: &Bound<'py, Self>,
        name: &str,
        other: &Bound<'py, PyAny>,
    ) -> PyResult<Any<'py>> {
        let op = operators::binary_named(slf.py(), name)?;
        row_operators::binary(slf, op, other, false)
    }

    /// Returns this array for ``[:]``, the only supported index. Use ``todense()`` for parts.
    fn __getitem__<'py>(slf: &Bound<'py, Self>, index: &Any<'py>) -> PyResult<Any<'py>> {
        indexing::check_all(
            index,
            "a row-sparse array supports only `[:]`; use `todense()` for parts",
        )?;
        Ok(slf.clone().into_any())
    }

    /// Replaces all elements. ``[:]`` is the only supported index.
    fn __setitem__(&self, index: &Any<'_>, value: &Any<'_>) -> PyResult<()> {
        indexing::check_all(index, "a row-sparse array supports only `[:]`")?;
        let py = index.py();
        if let Ok(rows) = value.cast::<Self>() {
            return self.receive(py, &rows.get().value().into());
        }
        let own = self.value();
        let filled = detached(py, || own.to_dense().map(NDArray::new))?;
        indexing::assign(&filled, value)?;
        self.receive(py, &filled.tensor().into())
    }

    fn __hash__(slf: &Bound<'_, Self>) -> usize {
        slf.as_ptr().addr() >> 4
    }

    fn __richcmp__<'py>(
        slf: &Bound<'py, Self>,
        other: &Any<'py>,
        op: CompareOp,
    ) -> PyResult<Any<'py>> {
        row_operators::binary(slf, operators::comparison(op), other, false)
    }

    fn __neg__<'py>(&self, py: Python<'py>) -> PyResult<Any<'py>> {
        row_operators::unary(py, self.value(), UnaryOp::Negate)
    }

    fn __abs__<'py>(&self, py: Python<'py>) -> PyResult<Any<'py>> {
        row_operators::unary(py, self.value(), UnaryOp::Abs)
    }

    fn __add__<'py>(slf: &Bound<'py, Self>, other: &Any<'py>) -> PyResult<Any<'py>> {
        row_operators::binary(slf, BinaryOp::Add, other, false)
    }

    fn __radd__<'py>(slf: &Bound<'py, Self>, other: &Any<'py>) -> PyResult<Any<'py>> {
        row_operators::binary(slf, BinaryOp::Add, other, true)
    }

    fn __iadd__(slf: &Bound<'_, Self>, other: &Any<'_>) -> PyResult<()> {
        row_operators::in_place(slf, BinaryOp::Add, other)
    }

    fn __sub__<'py>(slf: &Bound<'py, Self>, other: &Any<'py>) -> PyResult<Any<'py>> {
        row_operators::binary(slf, BinaryOp::Sub, other, false)
    }

    fn __rsub__<'py>(slf: &Bound<'py, Self>, other: &Any<'py>) -> PyResult<Any<'py>> {
        row_operators::binary(slf, BinaryOp::Sub, other, true)
    }

    fn __isub__(slf: &Bound<'_, Self>, other: &Any<'_>) -> PyResult<()> {
        row_operators::in_place(slf, BinaryOp::Sub, other)
    }

    fn __mul__<'py>(slf: &Bound<'py, Self>, other: &Any<'py>) -> PyResult<Any<'py>> {
        row_operators::binary(slf, BinaryOp::Mul, other, false)
    }

    fn __rmul__<'py>(slf: &Bound<'py, Self>, other: &Any<'py>) -> PyResult<Any<'py>> {
        row_operators::binary(slf, BinaryOp::Mul, other, true)
    }

    fn __imul__(slf: &Bound<'_, Self>, other: &Any<'_>) -> PyResult<()> {
        row_operators::in_place(slf, BinaryOp::Mul, other)
    }

    fn __truediv__<'py>(slf: &Bound<'py, Self>, other: &Any<'py>) -> PyResult<Any<'py>> {
        row_operators::binary(slf, BinaryOp::Div, other, false)
    }

    fn __rtruediv__<'py>(slf: &Bound<'py, Self>, other: &Any<'py>) -> PyResult<Any<'py>> {
        row_operators::binary(slf, BinaryOp::Div, other, true)
    }

    fn __itruediv__(slf: &Bound<'_, Self>, other: &Any<'_>) -> PyResult<()> {
        row_operators::in_place(slf, BinaryOp::Div, other)
    }

    fn __mod__<'py>(slf: &Bound<'py, Self>, other: &Any<'py>) -> PyResult<Any<'py>> {
        row_operators::binary(slf, BinaryOp::Rem, other, false)
    }

    fn __rmod__<'py>(slf: &Bound<'py, Self>, other: &Any<'py>) -> PyResult<Any<'py>> {
        row_operators::binary(slf, BinaryOp::Rem, other, true)
    }

    fn __imod__(slf: &Bound<'_, Self>, other: &Any<'_>) -> PyResult<()> {
        row_operators::in_place(slf, BinaryOp::Rem, other)
    }

    fn __pow__<'py>(
        slf: &Bound<'py, Self>,
        other: &Any<'py>,
        _modulo: Option<&Any<'py>>,
    ) -> PyResult<Any<'py>> {
        row_operators::binary(slf, BinaryOp::Pow, other, false)
    }

    fn __rpow__<'py>(
        slf: &Bound<'py, Self>,
        other: &Any<'py>,
        _modulo: Option<&Any<'py>>,
    ) -> PyResult<Any<'py>> {
        row_operators::binary(slf, BinaryOp::Pow, other, true)
    }

    fn __ipow__(slf: &Bound<'_, Self>, other: &Any<'_>, _modulo: Option<&Any<'_>>) -> PyResult<()> {
        row_operators::in_place(slf, BinaryOp::Pow, other)
    }

    /// Supports `pickle` and `copy`: returns the rows, their indices and the shape.
    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<PickledParts<'py>> {
        let (py, value) = (slf.py(), slf.get().value());
        let rows = Bound::new(py, slf.get().data())?.into_any();
        let raise = |error| to_python(py, error);
        let indices = lists::new(py, value.indices())?;
        let dims = fallible::copied(value.shape().dims()).map_err(raise)?;
        Ok((slf.get_type(), (rows, indices, dims)))
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

impl PyRows {
    fn reduced(&self, py: Python<'_>, op: Reduction) -> PyResult<PyArray> {
        let value = Value::Rows(self.value());
        detached(py, || value.reduce(op).map(NDArray::new)).map(PyArray::from)
    }
}
