//! [`Value`]: what a store takes and keeps under a key.

use super::row_sparse::{RowSparse, row_len};
use crate::backend::registry::Backends;
use crate::tensor::Tensor;
use crate::types::{Device, Error, Result, TensorSpec};

/// What [`init`](crate::KvStore::init) and [`push`](crate::KvStore::push) take, and a store keeps: a
/// tensor, all of it or some of its rows. The two are alike in all but cost.
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
    /// All of it.
    Dense(Tensor),
    /// Some rows, the others being 0.
    Rows(RowSparse),
}

impl Value {
    /// Returns shape and dtype of the whole value.
    pub fn spec(&self) -> &TensorSpec {
        match self {
            Self::Dense(tensor) => tensor.spec(),
            Self::Rows(rows) => rows.spec(),
        }
    }

    /// Returns the rows, where only some are there.
    pub fn rows(&self) -> Option<&RowSparse> {
        match self {
            Self::Dense(_) => None,
            Self::Rows(rows) => Some(rows),
        }
    }

    /// Returns the whole value; O(1) when it is that.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`](crate::Error::OutOfMemory), or
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument) for a size that no memory can have.
    pub fn to_dense(&self) -> Result<Tensor> {
        match self {
            Self::Dense(tensor) => Ok(tensor.clone()),
            Self::Rows(rows) => rows.to_dense(),
        }
    }

    /// Returns the elements that are there, all or those of some rows.
    pub(crate) fn memory(&self) -> &Tensor {
        match self {
            Self::Dense(tensor) => tensor,
            Self::Rows(rows) => rows.rows(),
        }
    }

    /// Returns the whole value to be changed, where it is that.
    pub(crate) fn dense_mut(&mut self) -> Option<&mut Tensor> {
        match self {
            Self::Dense(tensor) => Some(tensor),
            Self::Rows(_) => None,
        }
    }

    /// Takes the form of a whole value, and returns it to be changed.
    pub(crate) fn make_dense(&mut self) -> Result<&mut Tensor> {
        if let Self::Rows(rows) = self {
            *self = Self::Dense(rows.to_dense()?);
        }
        self.dense_mut().ok_or_else(|| Error::Internal("a value stays rows".to_owned()))
    }

    /// Returns whether both stand for the same bits, in whatever form; memory that they share is not read.
    pub(crate) fn is_identical(&self, other: &Self) -> Result<bool> {
        if self.spec() != other.spec() {
            return Ok(false);
        }
        if let (Self::Dense(one), Self::Dense(other)) = (self, other) {
            return one.is_identical(other);
        }
        if let (Self::Rows(one), Self::Rows(other)) = (self, other)
            && one.indices() == other.indices()
        {
            return one.rows().is_identical(other.rows());
        }
        let (ours, theirs) = (self.memory().seen_bytes()?, other.memory().seen_bytes()?);
        Ok(self.non_zero_rows(&ours).eq(other.non_zero_rows(&theirs)))
    }

    /// Returns the rows that are not 0 in every bit, each with its number, given the bytes of those that are there.
    fn non_zero_rows<'a>(&'a self, bytes: &'a [u8]) -> impl Iterator<Item = (i64, &'a [u8])> {
        let row_bytes = row_len(self.spec().shape()) * self.spec().dtype().size();
        let indices = self.rows().map(RowSparse::indices);
        let numbered = bytes.chunks(row_bytes.max(1)).zip(0_i64..).zip(0_usize..);
        numbered.filter_map(move |((row, number), position)| {
            let index = indices.map_or(Some(number), |it| it.get(position).copied())?;
            row.iter().any(|byte| *byte != 0).then_some((index, row))
        })
    }

    /// Returns how many bytes are there: of rows with their numbers.
    pub fn num_bytes(&self) -> usize {
        let numbers = self.rows().map_or(0, |rows| size_of_val(rows.indices()));
        self.memory().num_bytes() + numbers
    }

    /// Returns the same value on another device.
    pub(crate) fn to_device(&self, backends: &Backends, device: Device) -> Result<Self> {
        Ok(match self {
            Self::Dense(tensor) => Self::Dense(tensor.to_device(backends, device)?),
            Self::Rows(rows) => Self::Rows(rows.to_device(backends, device)?),
        })
    }

    /// Returns the value in memory of its own size, under another name of the same device.
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
