//! What a store takes as values: arrays and rows, also mixed.

use kvstore_core::{NDArray, RowSparse, TensorSpec, Value};

/// Something that [`Store::init`](crate::Store::init) and [`Store::push`](crate::Store::push) take.
pub trait ToValue {
    /// Returns the present value. O(1): memory is shared.
    fn to_value(&self) -> Value;

    /// Returns shape and dtype.
    fn spec(&self) -> &TensorSpec;
}

/// A value for a key, for calls in which some keys get arrays and others get rows.
///
/// ```
/// use kvstore::{ArrayOrRows, Device, RowSparse, array, create};
/// let store = create("local")?;
/// let bias = array(&[1f32, 2.0], [2], Device::cpu(0))?;
/// let rows = array(&[3f32, 4.0], [1, 2], Device::cpu(0))?.tensor();
/// let table = RowSparse::new([9, 2], vec![7], rows)?;
/// store.init(["b", "t"], vec![ArrayOrRows::from(bias), table.into()])?;
/// assert_eq!(store.pull_new("t")?[0].slice(7, 8)?.to_vec::<f32>()?, [3.0, 4.0]);
/// # Ok::<(), kvstore::Error>(())
/// ```
#[derive(Clone, Debug)]
pub enum ArrayOrRows {
    /// All of a value.
    Array(NDArray),
    /// Some of its rows.
    Rows(RowSparse),
}

impl ToValue for NDArray {
    fn to_value(&self) -> Value {
        self.tensor().into()
    }

    fn spec(&self) -> &TensorSpec {
        self.spec()
    }
}

impl ToValue for RowSparse {
    fn to_value(&self) -> Value {
        self.clone().into()
    }

    fn spec(&self) -> &TensorSpec {
        self.spec()
    }
}

impl ToValue for ArrayOrRows {
    fn to_value(&self) -> Value {
        match self {
            Self::Array(array) => array.to_value(),
            Self::Rows(rows) => rows.to_value(),
        }
    }

    fn spec(&self) -> &TensorSpec {
        match self {
            Self::Array(array) => array.spec(),
            Self::Rows(rows) => rows.spec(),
        }
    }
}

impl From<NDArray> for ArrayOrRows {
    fn from(array: NDArray) -> Self {
        Self::Array(array)
    }
}

impl From<RowSparse> for ArrayOrRows {
    fn from(rows: RowSparse) -> Self {
        Self::Rows(rows)
    }
}
