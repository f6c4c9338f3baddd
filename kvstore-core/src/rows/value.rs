//! [`Value`]: a dense or row-sparse tensor, as stores accept and keep it.

use std::ops::Range;

use super::row_sparse::{RowSparse, row_len};
use super::sum::RowSum;
use crate::backend::registry::Backends;
use crate::fallible;
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

    /// Returns some rows as a value of their own, which shares the elements. A row-sparse value
    /// stays row-sparse.
    ///
    /// # Errors
    /// - [`Error::InvalidArgument`](crate::Error::InvalidArgument) if the rows are not within the
    ///   value.
    /// - [`Error::OutOfMemory`](crate::Error::OutOfMemory) if there is not enough memory.
    pub fn slice_rows(&self, rows: Range<usize>) -> Result<Self> {
        let shape = self.spec().shape();
        if rows.start > rows.end || rows.end > shape.num_rows() {
            let text = format!("rows {} to {} are not within {shape}", rows.start, rows.end);
            return Err(Error::invalid(text));
        }
        let sliced = shape.with_num_rows(rows.len());
        let row_len = row_len(shape);
        let Self::Rows(value) = self else {
            return Ok(Self::Dense(self.memory().view(rows.start * row_len, sliced)?));
        };
        let position_of = |row: usize| {
            value.indices().partition_point(|index| usize::try_from(*index).is_ok_and(|i| i < row))
        };
        let (first, end) = (position_of(rows.start), position_of(rows.end));
        let mut indices = fallible::copied(value.indices().get(first..end).unwrap_or_default())?;
        let start = i64::try_from(rows.start).unwrap_or(i64::MAX);
        for index in &mut indices {
            *index -= start;
        }
        let elements = value.rows().view(first * row_len, sliced.with_num_rows(indices.len()))?;
        RowSparse::new(sliced, indices, elements).map(Self::Rows)
    }

    /// Returns the value with the rows of all parts, in order: the inverse of
    /// [`Value::slice_rows`]. It is dense if a part is.
    ///
    /// # Errors
    /// - [`Error::InvalidArgument`](crate::Error::InvalidArgument) if there are no parts.
    /// - [`Error::SpecMismatch`](crate::Error::SpecMismatch) if the parts differ in more than the
    ///   number of rows.
    /// - [`Error::OutOfMemory`](crate::Error::OutOfMemory) if there is not enough memory.
    pub fn concatenate(parts: &[Self]) -> Result<Self> {
        if let [only] = parts {
            return Ok(only.clone());
        }
        if parts.iter().any(|part| part.rows().is_none()) {
            let parts = fallible::try_collect(parts.iter().map(Self::to_dense))?;
            return Tensor::concatenate(&parts, 0).map(Self::Dense);
        }
        let mut indices: Vec<i64> = Vec::new();
        let (mut elements, mut num_rows) = (fallible::with_capacity(parts.len())?, 0);
        for part in parts.iter().filter_map(Self::rows) {
            let first = i64::try_from(num_rows).unwrap_or(i64::MAX);
            fallible::reserve(&mut indices, part.num_rows())?;
            indices.extend(part.indices().iter().map(|index| first + index));
            elements.push(part.rows().clone());
            num_rows += part.shape().num_rows();
        }
        let elements = Tensor::concatenate(&elements, 0)?;
        let shape = elements.shape().with_num_rows(num_rows);
        RowSparse::new(shape, indices, elements).map(Self::Rows)
    }

    /// Returns the sum of several values of one key, with the bits that a push of the values has.
    /// It is row-sparse if all of them are, and on the device of the first one.
    ///
    /// # Errors
    /// - [`Error::InvalidArgument`](crate::Error::InvalidArgument) if there are no values.
    /// - [`Error::SpecMismatch`](crate::Error::SpecMismatch) if their types differ.
    /// - [`Error::OutOfMemory`](crate::Error::OutOfMemory) if there is not enough memory.
    pub fn sum(values: &[Self]) -> Result<Self> {
        if let [only] = values {
            return Ok(only.clone());
        }
        let none = || Error::invalid("sum: expected at least one value, found none");
        let first = values.first().ok_or_else(none)?;
        if let Some(other) = values.iter().find(|value| value.spec() != first.spec()) {
            return Err(Error::operand_mismatch("sum", first.spec(), other.spec()));
        }
        let mut rows = fallible::with_capacity(values.len())?;
        rows.extend(values.iter().filter_map(Self::rows));
        if rows.len() == values.len() {
            return RowSum::union(&rows)?.run_alone(first.memory()).map(Self::Rows);
        }
        let addends = fallible::try_collect(values.iter().map(Self::to_dense))?;
        let mut sum = first.memory().allocate_like(first.spec().clone())?;
        sum.sum_into(0, &addends)?;
        Ok(Self::Dense(sum))
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
        match self {
            Self::Dense(tensor) => tensor.num_bytes(),
            Self::Rows(rows) => rows.num_bytes(),
        }
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

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;
    use crate::cpu::CpuBackend;

    /// Checks all cuts of a dense value and of row-sparse values with all sets of rows.
    fn check_cuts(backends: &Backends, (num_rows, row_len): (usize, usize)) {
        let tensor = |num_rows: usize| {
            let elements: Vec<f32> = (1_u8..).map(f32::from).take(num_rows * row_len).collect();
            Tensor::from_slice(backends, Device::cpu(0), [num_rows, row_len], &elements).unwrap()
        };
        let mut values = vec![Value::Dense(tensor(num_rows))];
        for stored in 0..1 << num_rows {
            let is_stored = |row: &i64| stored >> row & 1 == 1;
            let indices: Vec<i64> = (0..).take(num_rows).filter(is_stored).collect();
            let rows = tensor(indices.len());
            values.push(RowSparse::new([num_rows, row_len], indices, rows).unwrap().into());
        }
        for (value, cut) in
            values.iter().flat_map(|value| (0..=num_rows).map(move |cut| (value, cut)))
        {
            let parts = [0..cut, cut..num_rows].map(|rows| value.slice_rows(rows).unwrap());
            assert!(parts.iter().all(|part| part.rows().is_some() == value.rows().is_some()));
            assert!(Value::concatenate(&parts).unwrap().is_identical(value).unwrap());
            assert!(value.slice_rows(0..num_rows + 1).is_err());
        }
    }

    #[test]
    fn slices_of_rows_add_up_to_the_value() {
        let backends = Backends::new(vec![CpuBackend::with_threads(1)]);
        for num_rows in if cfg!(miri) { 2..3 } else { 1..6 } {
            check_cuts(&backends, (num_rows, 1));
            check_cuts(&backends, (num_rows, 3));
        }
    }
}
