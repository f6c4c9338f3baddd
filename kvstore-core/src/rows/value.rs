//! [`Value`]: a dense or row-sparse tensor, as stores accept and keep it.

use super::row_sparse::{RowSparse, row_len};
use crate::backend::registry::Backends;
use crate::tensor::Tensor;
use crate::types::{Device, Error, Result, TensorSpec};

/// A dense or row-sparse tensor. [`init`](crate::KvStore::init) and [`push`](crate::KvStore::push)
/// accept both forms, and a store keeps both. The forms differ only in cost.
///
/// ```
/// use kvstore_core::{Backends, CpuBackend, Device, Tensor, Value};
/// let backends = Backends::new(vec![CpuBackend::new()]);
/// let value = Value::from(Tensor::from_slice(&backends, Device::cpu(0), [2], &[1f32, 2.0])?);
/// assert_eq!(value.to_dense()?.to_vec::<f32>()?, [1.0, 2.0]);
/// # Ok::<(), kvstore_core::Error>(())
/// ```
#[derive(Clone, Debug)]
pub enum Value {
    /// All rows.
    Dense(Tensor),
    /// Some rows. The others are 0.
    Rows(RowSparse),
}

impl Value {
    /// Returns the shape and dtype of the dense value.
    pub fn spec(&self) -> &TensorSpec {
        match self {
            Self::Dense(tensor) => tensor.spec(),
            Self::Rows(rows) => rows.spec(),
        }
    }

    /// Returns the row-sparse value, or `None` if the value is dense.
    pub fn rows(&self) -> Option<&RowSparse> {
        match self {
            Self::Dense(_) => None,
            Self::Rows(rows) => Some(rows),
        }
    }

    /// Returns the dense value. O(1) if it is already dense.
    ///
    /// # Errors
    /// - [`Error::OutOfMemory`](crate::Error::OutOfMemory) if there is not enough memory.
    /// - [`Error::InvalidArgument`](crate::Error::InvalidArgument) if the size in bytes overflows.
    pub fn to_dense(&self) -> Result<Tensor> {
        match self {
            Self::Dense(tensor) => Ok(tensor.clone()),
            Self::Rows(rows) => rows.to_dense(),
        }
    }

    /// Returns the stored elements: all elements, or only the rows of a row-sparse value.
    pub(crate) fn memory(&self) -> &Tensor {
        match self {
            Self::Dense(tensor) => tensor,
            Self::Rows(rows) => rows.rows(),
        }
    }

    /// Returns the dense value for writing, or `None` if the value is row-sparse.
    pub(crate) fn dense_mut(&mut self) -> Option<&mut Tensor> {
        match self {
            Self::Dense(tensor) => Some(tensor),
            Self::Rows(_) => None,
        }
    }

    /// Converts the value to a dense one in place, and returns it for writing.
    ///
    /// # Errors
    /// - The errors of [`Value::to_dense`].
    pub(crate) fn make_dense(&mut self) -> Result<&mut Tensor> {
        if let Self::Rows(rows) = self {
            *self = Self::Dense(rows.to_dense()?);
        }
        self.dense_mut().ok_or_else(|| Error::Internal("a value stays rows".to_owned()))
    }

    /// Returns whether both values have the same bits when dense. A dense and a row-sparse value
    /// can be identical. Does not read memory that they share.
    pub(crate) fn is_identical(&self, other: &Self) -> Result<bool> {
        if self.spec() != other.spec() {
            return Ok(false);
        }
        if let (Self::Dense(left), Self::Dense(right)) = (self, other) {
            return left.is_identical(right);
        }
        if let (Self::Rows(left), Self::Rows(right)) = (self, other)
            && left.indices() == right.indices()
        {
            return left.rows().is_identical(right.rows());
        }
        let (left, right) = (self.memory().seen_bytes()?, other.memory().seen_bytes()?);
        Ok(self.non_zero_rows(&left).eq(other.non_zero_rows(&right)))
    }

    /// Returns the rows with at least one bit that is not 0, each with its index. `bytes` are those
    /// of the stored rows.
    fn non_zero_rows<'a>(&'a self, bytes: &'a [u8]) -> impl Iterator<Item = (i64, &'a [u8])> {
        let row_bytes = row_len(self.spec().shape()) * self.spec().dtype().size();
        let stored = self.rows().map(RowSparse::indices);
        let numbered = bytes.chunks(row_bytes.max(1)).zip(0_i64..).zip(0_usize..);
        numbered.filter_map(move |((row, number), position)| {
            let index = stored.map_or(Some(number), |indices| indices.get(position).copied())?;
            row.iter().any(|byte| *byte != 0).then_some((index, row))
        })
    }

    /// Returns the number of bytes of the stored elements and row indices.
    pub fn num_bytes(&self) -> usize {
        let index_bytes = self.rows().map_or(0, |rows| size_of_val(rows.indices()));
        self.memory().num_bytes() + index_bytes
    }

    /// Returns the value on another device.
    pub(crate) fn to_device(&self, backends: &Backends, device: Device) -> Result<Self> {
        Ok(match self {
            Self::Dense(tensor) => Self::Dense(tensor.to_device(backends, device)?),
            Self::Rows(rows) => Self::Rows(rows.to_device(backends, device)?),
        })
    }

    /// Returns the value in a storage of exactly its size, under another name of the same device.
    pub(crate) fn compact(&self, device: Device) -> Result<Self> {
        Ok(match self {
            Self::Dense(tensor) => Self::Dense(tensor.compact()?.relabelled(device)),
            Self::Rows(rows) => Self::Rows(rows.compact(device)?),
        })
    }
}

impl From<Tensor> for Value {
    fn from(tensor: Tensor) -> Self {
        Self::Dense(tensor)
    }
}

impl From<RowSparse> for Value {
    fn from(rows: RowSparse) -> Self {
        Self::Rows(rows)
    }
}

impl From<&Tensor> for Value {
    fn from(tensor: &Tensor) -> Self {
        Self::Dense(tensor.clone())
    }
}

impl From<&RowSparse> for Value {
    fn from(rows: &RowSparse) -> Self {
        Self::Rows(rows.clone())
    }
}
