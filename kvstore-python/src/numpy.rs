//! What NumPy gets of an array: its memory for reading, or a copy.

use kvstore::{DType, NDArray, Tensor};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

use crate::error::{detached, type_error};
use crate::{convert, ending, foreign};

/// What keeps a value for whom reads its memory.
#[pyclass(frozen, module = "mxkv._native")]
#[derive(Debug)]
struct Kept(#[expect(dead_code, reason = "it is held, not read")] Tensor);

/// Returns a `memoryview` of a value, which keeps it.
pub(crate) fn read_only(
    py: Python<'_>,
    value: Tensor,
    address: usize,
    num_bytes: usize,
) -> PyResult<Bound<'_, PyAny>> {
    static VIEW: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let kept = Bound::new(py, Kept(value))?;
    let view = VIEW.import(py, "mxkv._memory", "read_only")?;
    ending::call(view, &(kept, address, num_bytes).into_pyobject(py)?, None)
}

/// Returns a dtype as NumPy's array interface names it.
pub(crate) fn typestr(dtype: DType) -> Option<String> {
    let kind = match dtype {
        DType::F32 => "f4",
        DType::F64 => "f8",
        DType::F16 => "f2",
        DType::U8 => "u1",
        DType::I8 => "i1",
        DType::I32 => "i4",
        DType::I64 => "i8",
        DType::Bf16 => return None,
    };
    Some(format!("{}{kind}", if cfg!(target_endian = "little") { '<' } else { '>' }))
}

/// Returns the elements in an array of NumPy's.
pub(crate) fn copied<'py>(py: Python<'py>, array: &NDArray) -> PyResult<Bound<'py, PyAny>> {
    static EMPTY: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let dtype = if array.dtype() == DType::Bf16 { DType::F32 } else { array.dtype() };
    let empty = EMPTY.import(py, "numpy", "empty")?;
    let copy = empty.call1((convert::dims(py, array.shape())?, dtype.name()))?;
    let block = foreign::writable(&copy)?
        .ok_or_else(|| type_error(py, "an array of NumPy's hands out no memory"))?;
    detached(py, || block.write(&array.tensor().cast(dtype)?).map(drop))?;
    Ok(copy)
}
