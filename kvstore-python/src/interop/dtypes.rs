//! The names of each dtype in `DLPack` and NumPy, in one table. Everything else about dtypes in
//! this crate is derived from it.

use kvstore::DType;

/// The kinds of numbers in `DLPack`.
pub(super) const INT: u8 = 0;
pub(super) const UINT: u8 = 1;
const FLOAT: u8 = 2;
pub(super) const BFLOAT: u8 = 4;

/// The names of a dtype in other libraries.
#[derive(Clone, Copy, Debug)]
pub(super) struct Names {
    /// The kind of numbers in `DLPack`.
    pub(super) dlpack: u8,
    /// NumPy's letter for the kind of numbers, or `None` if NumPy lacks the dtype. Packages such as
    /// `ml_dtypes` then define the dtype, with the kind `V` and the same name as here.
    numpy: Option<char>,
}

/// Returns the names of a dtype.
pub(super) const fn names(dtype: DType) -> Names {
    let (dlpack, numpy) = match dtype {
        DType::F32 | DType::F64 | DType::F16 => (FLOAT, Some('f')),
        DType::Bf16 => (BFLOAT, None),
        DType::U8 => (UINT, Some('u')),
        DType::I8 | DType::I32 | DType::I64 => (INT, Some('i')),
    };
    Names { dlpack, numpy }
}

/// Returns whether NumPy has the dtype.
pub(crate) const fn is_in_numpy(dtype: DType) -> bool {
    names(dtype).numpy.is_some()
}

/// Returns the dtype of NumPy's copy of an array: the same, or `F32` if NumPy lacks it.
pub(super) const fn in_numpy(dtype: DType) -> DType {
    if is_in_numpy(dtype) { dtype } else { DType::F32 }
}

/// Returns NumPy's type code without the byte order: `f4`, or `V2` for a dtype of another package.
pub(super) fn type_code(dtype: DType) -> String {
    format!("{}{}", names(dtype).numpy.unwrap_or('V'), dtype.size())
}
