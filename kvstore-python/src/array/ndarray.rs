//! The Python methods of the class `NDArray`.

use kvstore::{BinaryOp, DeviceKind, Error, NDArray, Reduction, RowSparse, UnaryOp};
use pyo3::basic::CompareOp;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyCapsule, PyDict, PyInt, PyIterator, PyTuple, PyType};

use super::classes::{PyArray, PyRows};
use super::indexing;
use super::operand;
use super::operators;
use crate::convert;
use crate::interop::export::ExportRequest;
use crate::interop::{dlpack, dtypes, export, to_numpy};
use crate::interpreter::error::{
    detached, invalid, is_replaceable, optional, to_python, type_error, wrong_class,
};
use crate::interpreter::{finalization, interrupt, lists};

type Any<'py> = Bound<'py, PyAny>;
/// The class, the elements, the device and the dtype of an array.
type PickledParts<'py> = (Bound<'py, PyType>, Any<'py>, Any<'py>, &'static str);

/// Returns an array of any library as an `NDArray`.
fn other_array(other: &Any<'_>, function: &str) -> PyResult<NDArray> {
    let expected = || wrong_class(other, &format!("{function}: expected an array"));
    operand::array(other)?.ok_or_else(expected)
}

/// Runs an operation on an array and returns its result as an instance of the same class.
fn derived<'py>(
    slf: &Bound<'py, PyArray>,
    work: impl FnOnce(&NDArray) -> kvstore::Result<NDArray> + Send,
) -> PyResult<Bound<'py, PyAny>> {
    let array = &slf.get().array;
    let result = detached(slf.py(), || work(array))?;
    PyArray::as_class_of(slf, result)
}

/// Reduces all elements to one. NumPy's functions pass `axis`, `dtype` and `out` even if they are
/// `None`.
///
/// # Errors
/// - [`Error::Unsupported`] if an option is not `None`.
fn reduced<'py>(
    slf: &Bound<'py, PyArray>,
    op: Reduction,
    options: &[Option<&Any<'py>>],
) -> PyResult<Any<'py>> {
    if options.iter().any(Option::is_some) {
        let text = "only the sum of all elements into a new array of the same dtype is \
                    supported: use `asnumpy()` otherwise";
        return Err(to_python(slf.py(), Error::Unsupported(text.to_owned())));
    }
    derived(slf, move |array| array.reduce(op))
}

#[pymethods]
impl PyArray {
    /// Returns another handle to the same array.
    #[new]
    fn new(array: &Bound<'_, PyArray>) -> Self {
        Self { array: array.get().array.clone() }
    }

    /// Gives the operators of this class precedence over those of NumPy arrays.
    #[classattr]
    #[pyo3(name = "__array_priority__")]
    const ARRAY_PRIORITY: f64 = 1000.0;

    /// MXNet's name for a dense array.
    #[classattr]
    #[pyo3(name = "stype")]
    pub(crate) const STYPE: &'static str = "default";

    /// The lengths along the axes.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        convert::dims(py, self.array.shape())
    }

    /// The number of axes.
    #[getter]
    fn ndim(&self) -> usize {
        self.array.shape().rank()
    }

    /// The number of elements.
    #[getter]
    fn size(&self) -> usize {
        self.array.shape().num_elements()
    }

    /// The dtype of the elements: a NumPy dtype, or the name if NumPy lacks the dtype, such as
    /// ``'bfloat16'``.
    #[getter]
    fn dtype<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        static DTYPE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let dtype = self.array.dtype();
        if dtypes::is_in_numpy(dtype) {
            let class = DTYPE.import(py, "numpy", "dtype")?;
            return finalization::call(class, (dtype.name(),), None);
        }
        Ok(dtype.name().into_pyobject(py)?.into_any())
    }

    /// The device, as a ``Context``.
    #[getter]
    fn context<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        convert::context(py, self.array.device())
    }

    /// The device, as a ``Context``.
    #[getter]
    fn ctx<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        convert::context(py, self.array.device())
    }

    /// The device, as a ``Context``.
    #[getter]
    fn device<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        convert::context(py, self.array.device())
    }

    /// The transpose of a matrix.
    #[getter(T)]
    fn transposed<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        derived(slf, NDArray::transpose)
    }

    /// Returns a copy as a NumPy array. A dtype that NumPy lacks, such as ``bfloat16``, becomes
    /// ``float32``, which represents the same numbers.
    fn asnumpy<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        to_numpy::copied(py, &self.array)
    }

    /// Returns the only element as a number.
    fn item<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let array = &self.array;
        if array.dtype().is_float() {
            return Ok(detached(py, || array.to_scalar())?.into_pyobject(py)?.into_any());
        }
        match detached(py, || array.read_as::<i64>())?.as_slice() {
            &[number] => Ok(number.into_pyobject(py)?.into_any()),
            _ => Err(invalid(
                py,
                format!("expected an array with one element, found {}", array.spec()),
            )),
        }
    }

    /// Returns the only element as a number.
    fn asscalar<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.item(py)
    }

    /// Returns the elements as nested lists of numbers, one level for each axis.
    fn tolist<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let copy = to_numpy::copied(py, &self.array)?;
        finalization::call_method(&copy, intern!(py, "tolist"), ())
    }

    /// Returns a new array with the elements converted to another dtype, which is a name or a NumPy
    /// dtype. With ``copy=False``, returns this array if it already has the dtype.
    #[pyo3(signature = (dtype, copy = true))]
    fn astype<'py>(slf: &Bound<'py, Self>, dtype: &Any<'py>, copy: bool) -> PyResult<Any<'py>> {
        let dtype = convert::dtype_like(dtype)?;
        if !copy && slf.get().array.dtype() == dtype {
            return Ok(slf.clone().into_any());
        }
        derived(slf, move |array| array.as_type(dtype)?.copy())
    }

    /// Returns a new array with the same elements. Nothing is copied until one of the two changes.
    fn copy<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        derived(slf, NDArray::copy)
    }

    /// Copies the elements into another array, cast to its dtype and moved to its device, and
    /// returns that array. A row-sparse target then stores every row. For a device, returns a new
    /// array there.
    fn copyto<'py>(slf: &Bound<'py, Self>, other: &Any<'py>) -> PyResult<Any<'py>> {
        if let Ok(rows) = other.cast::<PyRows>() {
            rows.get().receive(slf.py(), &slf.get().array.tensor().into())?;
            return Ok(other.clone());
        }
        let Ok(target) = other.cast::<PyArray>() else {
            let device = convert::device_like(other)?;
            let moved = move |array: &NDArray| array.to_device(kvstore::backends(), device)?.copy();
            return derived(slf, moved);
        };
        let (source, to) = (&slf.get().array, &target.get().array);
        detached(slf.py(), || source.copy_to(to))?;
        Ok(other.clone())
    }

    /// Returns this array if it is on the device, otherwise a copy there.
    fn as_in_context<'py>(slf: &Bound<'py, Self>, context: &Any<'py>) -> PyResult<Any<'py>> {
        let device = convert::device_like(context)?;
        if device == slf.get().array.device() {
            return Ok(slf.clone().into_any());
        }
        derived(slf, move |array| array.to_device(kvstore::backends(), device))
    }

    /// Returns this array if it is on the device, otherwise a copy there.
    fn as_in_ctx<'py>(slf: &Bound<'py, Self>, ctx: &Any<'py>) -> PyResult<Any<'py>> {
        Self::as_in_context(slf, ctx)
    }

    /// Returns a view of the same elements with another shape. A length of 0 keeps the length of
    /// that axis. A length of -1 is inferred from the other lengths.
    #[pyo3(signature = (*shape))]
    fn reshape<'py>(
        slf: &Bound<'py, Self>,
        shape: &Bound<'py, PyTuple>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let only = if shape.len() == 1 { Some(shape.get_item(0)?) } else { None };
        let is_number = |object: &Any<'py>| {
            Ok::<_, PyErr>(
                object.is_instance_of::<PyInt>()
                    || optional(slf.py(), object.extract::<i64>())?.is_some(),
            )
        };
        let expected = "an integer of 64 bits, or a sequence of them";
        let given: Vec<i64> = match only {
            Some(list) if !is_number(&list)? => convert::argument(&list, "shape", expected)?,
            _ => convert::argument(shape, "shape", expected)?,
        };
        derived(slf, move |array| array.reshape(&given))
    }

    /// Waits until the elements have been computed.
    fn wait_to_read(&self, py: Python<'_>) -> PyResult<()> {
        let array = &self.array;
        // Operations on the host are complete when their calls return.
        if array.device().kind() == DeviceKind::Cpu {
            return Ok(());
        }
        detached(py, || array.wait_to_read())
    }

    /// Applies the elementwise function with this name, such as ``exp`` or ``sqrt``.
    #[pyo3(name = "_unary")]
    fn unary<'py>(slf: &Bound<'py, Self>, name: &str) -> PyResult<Bound<'py, PyAny>> {
        let op = operators::unary_named(slf.py(), name)?;
        derived(slf, move |array| array.unary(op))
    }

    /// Applies the binary elementwise function with this name, such as ``maximum``.
    #[pyo3(name = "_binary")]
    fn binary<'py>(
        slf: &Bound<'py, Self>,
        name: &str,
        other: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let op = operators::binary_named(slf.py(), name)?;
        operators::binary(slf, op, other, false)
    }

    /// Returns the sum of all elements, as an array with one element.
    #[pyo3(signature = (axis = None, dtype = None, out = None))]
    fn sum<'py>(
        slf: &Bound<'py, Self>,
        axis: Option<&Any<'py>>,
        dtype: Option<&Any<'py>>,
        out: Option<&Any<'py>>,
    ) -> PyResult<Any<'py>> {
        reduced(slf, Reduction::Sum, &[axis, dtype, out])
    }

    /// Returns the mean of all elements, as an array with one element.
    #[pyo3(signature = (axis = None, dtype = None, out = None))]
    fn mean<'py>(
        slf: &Bound<'py, Self>,
        axis: Option<&Any<'py>>,
        dtype: Option<&Any<'py>>,
        out: Option<&Any<'py>>,
    ) -> PyResult<Any<'py>> {
        reduced(slf, Reduction::Mean, &[axis, dtype, out])
    }

    /// Returns the largest element, as an array with one element.
    #[pyo3(signature = (axis = None, out = None))]
    fn max<'py>(
        slf: &Bound<'py, Self>,
        axis: Option<&Any<'py>>,
        out: Option<&Any<'py>>,
    ) -> PyResult<Any<'py>> {
        reduced(slf, Reduction::Max, &[axis, out])
    }

    /// Returns the smallest element, as an array with one element.
    #[pyo3(signature = (axis = None, out = None))]
    fn min<'py>(
        slf: &Bound<'py, Self>,
        axis: Option<&Any<'py>>,
        out: Option<&Any<'py>>,
    ) -> PyResult<Any<'py>> {
        reduced(slf, Reduction::Min, &[axis, out])
    }

    /// Returns the square root of the sum of the squares, as an array with one element.
    fn norm<'py>(slf: &Bound<'py, Self>) -> PyResult<Any<'py>> {
        derived(slf, |array| array.reduce(Reduction::Norm))
    }

    /// Returns every element clamped to ``[a_min, a_max]``.
    fn clip<'py>(
        slf: &Bound<'py, Self>,
        #[pyo3(from_py_with = convert::a_min)] a_min: f64,
        #[pyo3(from_py_with = convert::a_max)] a_max: f64,
    ) -> PyResult<Bound<'py, PyAny>> {
        derived(slf, move |array| array.clip(a_min, a_max))
    }

    /// Returns the product of two matrices or vectors.
    fn dot<'py>(slf: &Bound<'py, Self>, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let other = other_array(other, "dot")?;
        let array = &slf.get().array;
        let product =
            interrupt::interruptible(slf.py(), move |check| array.dot_checked(&other, check))?;
        PyArray::as_class_of(slf, product)
    }

    fn _choose_elements<'py>(
        slf: &Bound<'py, Self>,
        columns: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let columns = other_array(columns, "choose_element_0index")?;
        derived(slf, move |matrix| matrix.choose_elements(&columns))
    }

    fn _set_one_hot(slf: &Bound<'_, Self>, columns: &Bound<'_, PyAny>) -> PyResult<()> {
        let columns = other_array(columns, "onehot_encode")?;
        let matrix = &slf.get().array;
        detached(slf.py(), move || matrix.set_one_hot(&columns))
    }

    fn _array_equal(slf: &Bound<'_, Self>, other: &Bound<'_, PyAny>) -> PyResult<bool> {
        let other = other_array(other, "array_equal")?;
        let array = &slf.get().array;
        detached(slf.py(), move || array.array_equal(&other))
    }

    /// Returns this array for ``'default'``. For ``'row_sparse'``, returns the rows that are not
    /// all zeros.
    ///
    /// >>> from mxkv import nd
    /// >>> rows = nd.array([[0, 0], [1, 2]]).tostype('row_sparse')
    /// >>> rows.indices.tolist(), rows.data.tolist()
    /// ([1], [[1.0, 2.0]])
    fn tostype<'py>(slf: &Bound<'py, Self>, stype: &str) -> PyResult<Any<'py>> {
        let py = slf.py();
        match stype {
            Self::STYPE => Ok(slf.clone().into_any()),
            PyRows::STYPE => {
                let array = &slf.get().array;
                let rows = detached(py, || RowSparse::from_dense(&array.tensor()))?;
                Ok(Bound::new(py, PyRows::from(rows))?.into_any())
            }
            _ => Err(operand::unknown_stype(py, stype)),
        }
    }

    /// Returns the array as bytes in the format of MXNet.
    fn serialize<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let array = &self.array;
        let bytes = detached(py, || array.serialize())?;
        Ok(convert::bytes_of(py, &bytes)?.into_any())
    }

    /// Describes the current value for NumPy, which reads it in place and cannot write to it.
    #[getter]
    #[pyo3(name = "__array_interface__")]
    fn array_interface<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        to_numpy::interface(py, &self.array)
    }

    /// Returns the current value as a NumPy array. Shares the memory read-only if dtype and device
    /// allow it, otherwise copies.
    #[pyo3(name = "__array__", signature = (dtype = None, copy = None))]
    fn to_array<'py>(
        &self,
        py: Python<'py>,
        dtype: Option<&Bound<'py, PyAny>>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        to_numpy::array(py, &self.array, dtype, copy)
    }

    /// Exports the current value to another library with `DLPack`: a writable copy on the same
    /// device.
    ///
    /// With ``copy=False``, the value is shared read-only, and only consumers that support versions
    /// of the protocol can import it. Some libraries ignore the read-only flag: PyTorch lets a
    /// program write to the tensor. Do not write to it, because the memory is shared.
    #[pyo3(
        name = "__dlpack__",
        signature = (*, stream = None, max_version = None, dl_device = None, copy = None)
    )]
    fn to_dlpack<'py>(
        &self,
        py: Python<'py>,
        stream: Option<&Bound<'py, PyAny>>,
        max_version: Option<(u32, u32)>,
        dl_device: Option<(i32, i32)>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let wanted = ExportRequest { stream, max_version, device: dl_device, copy };
        export::to_dlpack(py, &self.array, &wanted)
    }

    /// Returns the device in the numbering of `DLPack`.
    #[pyo3(name = "__dlpack_device__")]
    fn dlpack_device(&self, py: Python<'_>) -> PyResult<(i32, i32)> {
        let device = detached(py, || dlpack::device_of(self.array.device()))?;
        Ok((device.kind, device.id))
    }

    /// Supports `pickle` and `copy`: returns the value as a NumPy array.
    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<(Bound<'py, PyAny>, PickledParts<'py>)> {
        static RESTORED: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let (py, array) = (slf.py(), &slf.get().array);
        let restored = RESTORED.import(py, "mxkv.nd", "_restored")?.clone();
        let context = convert::context(py, array.device())?;
        let value = to_numpy::copied(py, array)?;
        Ok((restored, (slf.get_type(), value, context, array.dtype().name())))
    }

    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        let first = self.array.shape().dims().first();
        first.copied().ok_or_else(|| type_error(py, "a scalar array has no length"))
    }

    fn __iter__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyIterator>> {
        let num_rows = Self::__len__(slf.get(), slf.py())?;
        lists::try_new(slf.py(), (0..num_rows).map(|row| slf.get_item(row)))?.try_iter()
    }

    fn __getitem__<'py>(
        slf: &Bound<'py, Self>,
        index: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        PyArray::as_class_of(slf, indexing::part(&slf.get().array, index)?)
    }

    fn __setitem__(&self, index: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<()> {
        indexing::assign(&indexing::part(&self.array, index)?, value)
    }

    fn __bool__(&self, py: Python<'_>) -> PyResult<bool> {
        self.item(py)?.is_truthy()
    }

    fn __float__(&self, py: Python<'_>) -> PyResult<f64> {
        self.item(py)?.extract()
    }

    fn __int__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        finalization::call_method(&self.item(py)?, intern!(py, "__int__"), ())
    }

    fn __hash__(slf: &Bound<'_, Self>) -> usize {
        slf.as_ptr().addr() >> 4
    }

    /// Returns the elements as NumPy prints them, and the shape and device. Omits the elements of
    /// large arrays on a GPU, and elements that cannot be read.
    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let dims: Vec<String> = self.array.shape().dims().iter().map(usize::to_string).collect();
        let name = format!("<NDArray {} @{}>", dims.join("x"), self.array.device());
        match self
            .to_show(py)
            .and_then(|shown| shown.map(|object| finalization::text(&object)).transpose())
        {
            Ok(Some(elements)) => Ok(format!("\n{elements}\n{name}")),
            Err(raised) if !is_replaceable(py, &raised) => Err(raised),
            Ok(None) | Err(_) => Ok(name),
        }
    }

    /// Returns the elements for `repr` as a NumPy array, or `None` if `repr` omits them.
    #[pyo3(name = "_shown")]
    fn to_show<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let is_near = self.array.device().kind() == DeviceKind::Cpu;
        let is_short = self.array.shape().num_elements() <= 1_000_000;
        (is_near || is_short).then(|| self.to_array(py, None, None)).transpose()
    }

    fn __str__(&self, py: Python<'_>) -> PyResult<String> {
        self.__repr__(py)
    }

    fn __richcmp__<'py>(
        slf: &Bound<'py, Self>,
        other: &Bound<'py, PyAny>,
        op: CompareOp,
    ) -> PyResult<Bound<'py, PyAny>> {
        operators::compare(slf, op, other)
    }

    fn __neg__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        derived(slf, |array| array.unary(UnaryOp::Negate))
    }

    fn __abs__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        derived(slf, |array| array.unary(UnaryOp::Abs))
    }

    fn __add__<'py>(slf: &Bound<'py, Self>, other: &Any<'py>) -> PyResult<Any<'py>> {
        operators::binary(slf, BinaryOp::Add, other, false)
    }

    fn __radd__<'py>(slf: &Bound<'py, Self>, other: &Any<'py>) -> PyResult<Any<'py>> {
        operators::binary(slf, BinaryOp::Add, other, true)
    }

    fn __iadd__(slf: &Bound<'_, Self>, other: &Any<'_>) -> PyResult<()> {
        operators::in_place(slf, BinaryOp::Add, other)
    }

    fn __sub__<'py>(slf: &Bound<'py, Self>, other: &Any<'py>) -> PyResult<Any<'py>> {
        operators::binary(slf, BinaryOp::Sub, other, false)
    }

    fn __rsub__<'py>(slf: &Bound<'py, Self>, other: &Any<'py>) -> PyResult<Any<'py>> {
        operators::binary(slf, BinaryOp::Sub, other, true)
    }

    fn __isub__(slf: &Bound<'_, Self>, other: &Any<'_>) -> PyResult<()> {
        operators::in_place(slf, BinaryOp::Sub, other)
    }

    fn __mul__<'py>(slf: &Bound<'py, Self>, other: &Any<'py>) -> PyResult<Any<'py>> {
        operators::binary(slf, BinaryOp::Mul, other, false)
    }

    fn __rmul__<'py>(slf: &Bound<'py, Self>, other: &Any<'py>) -> PyResult<Any<'py>> {
        operators::binary(slf, BinaryOp::Mul, other, true)
    }

    fn __imul__(slf: &Bound<'_, Self>, other: &Any<'_>) -> PyResult<()> {
        operators::in_place(slf, BinaryOp::Mul, other)
    }

    fn __truediv__<'py>(slf: &Bound<'py, Self>, other: &Any<'py>) -> PyResult<Any<'py>> {
        operators::binary(slf, BinaryOp::Div, other, false)
    }

    fn __rtruediv__<'py>(slf: &Bound<'py, Self>, other: &Any<'py>) -> PyResult<Any<'py>> {
        operators::binary(slf, BinaryOp::Div, other, true)
    }

    fn __itruediv__(slf: &Bound<'_, Self>, other: &Any<'_>) -> PyResult<()> {
        operators::in_place(slf, BinaryOp::Div, other)
    }

    fn __mod__<'py>(slf: &Bound<'py, Self>, other: &Any<'py>) -> PyResult<Any<'py>> {
        operators::binary(slf, BinaryOp::Rem, other, false)
    }

    fn __rmod__<'py>(slf: &Bound<'py, Self>, other: &Any<'py>) -> PyResult<Any<'py>> {
        operators::binary(slf, BinaryOp::Rem, other, true)
    }

    fn __imod__(slf: &Bound<'_, Self>, other: &Any<'_>) -> PyResult<()> {
        operators::in_place(slf, BinaryOp::Rem, other)
    }

    fn __pow__<'py>(
        slf: &Bound<'py, Self>,
        other: &Any<'py>,
        _modulo: Option<&Any<'py>>,
    ) -> PyResult<Any<'py>> {
        operators::binary(slf, BinaryOp::Pow, other, false)
    }

    fn __rpow__<'py>(
        slf: &Bound<'py, Self>,
        other: &Any<'py>,
        _modulo: Option<&Any<'py>>,
    ) -> PyResult<Any<'py>> {
        operators::binary(slf, BinaryOp::Pow, other, true)
    }

    fn __ipow__(slf: &Bound<'_, Self>, other: &Any<'_>, _modulo: Option<&Any<'_>>) -> PyResult<()> {
        operators::in_place(slf, BinaryOp::Pow, other)
    }
}
