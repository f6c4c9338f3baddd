//! [`ToValue`]: the types that a store takes as values.

use kvstore_core::{NDArray, RowSparse, TensorSpec, Value};

/// A type that [`Store::init`](crate::Store::init) and [`Store::push`](crate::Store::push) take as
/// a value. A list of [`Value`]s may mix dense and row-sparse values.
///
/// ```
/// use kvstore::{Device, RowSparse, Value, array, create};
/// let store = create("local")?;
/// let bias = array(&[1f32, 2.0], [2], Device::cpu(0))?;
/// let rows = array(&[3f32, 4.0], [1, 2], Device::cpu(0))?.tensor();
/// let table = RowSparse::new([9, 2], vec![7], rows)?;
/// store.init(["b", "t"], vec![Value::from(bias), table.into()])?;
/// assert_eq!(store.pull_new("t")?[0].slice(7, 8)?.to_vec::<f32>()?, [3.0, 4.0]);
/// # Ok::<(), kvstore::Error>(())
/// ```
pub trait ToValue {
    /// Returns the current value. O(1), because the memory is shared.
    fn to_value(&self) -> Value;

    /// Returns the shape and the dtype.
    fn spec(&self) -> &TensorSpec;
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

impl ToValue for Value {
    fn to_value(&self) -> Value {
        self.clone()
    }

    fn spec(&self) -> &TensorSpec {
        self.spec()
    }
}
