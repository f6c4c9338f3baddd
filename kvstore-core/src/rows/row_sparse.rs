//! [`RowSparse`]: a tensor that stores only some of its rows. The others are 0.

use std::fmt;
use std::sync::Arc;

use crate::backend::registry::Backends;
use crate::backend::{RowIds, RowScatterJob};
use crate::fallible;
use crate::tensor::Tensor;
use crate::types::{DType, Device, Error, Result, Shape, TensorSpec};

/// A tensor that stores only some of its rows, with their ascending row indices. All other rows are
/// 0. An example is the gradient of a large embedding.
///
/// It has value semantics, like [`Tensor`]. A clone is O(1) and shares memory.
///
/// ```
/// use kvstore_core::{Backends, CpuBackend, Device, RowSparse, Tensor};
/// let backends = Backends::new(vec![CpuBackend::new()]);
/// let rows = Tensor::from_slice(&backends, Device::cpu(0), [2, 2], &[1f32, 2.0, 3.0, 4.0])?;
/// let value = RowSparse::new([4, 2], vec![1, 3], rows)?;
/// assert_eq!(value.to_dense()?.to_vec::<f32>()?, [0.0, 0.0, 1.0, 2.0, 0.0, 0.0, 3.0, 4.0]);
/// # Ok::<(), kvstore_core::Error>(())
/// ```
#[derive(Clone)]
pub struct RowSparse(Arc<Parts>);

#[derive(Clone)]
struct Parts {
    /// The shape and dtype of the dense value.
    spec: TensorSpec,
    ids: Arc<RowIds>,
    rows: Tensor,
}

impl RowSparse {
    /// Returns the value of this shape with these rows. `indices` are their row indices, ascending.
    ///
    /// # Errors
    /// - [`Error::InvalidArgument`] if the shape has no axes or exceeds the address space.
    /// - [`Error::InvalidArgument`] if the indices are not strictly ascending.
    /// - [`Error::InvalidArgument`] if an index is out of range.
    /// - [`Error::SpecMismatch`] if `rows` has the wrong shape.
    pub fn new(
        shape: impl Into<Shape>,
        indices: impl Into<Vec<i64>>,
        rows: Tensor,
    ) -> Result<Self> {
        let (shape, indices) = (shape.into(), indices.into());
        for (position, pair) in indices.windows(2).enumerate() {
            if let &[previous, next] = pair
                && previous >= next
            {
                return Err(Error::invalid(format!(
                    "row indices must be strictly ascending: {next} at position {} follows \
                     {previous}",
                    position + 1
                )));
            }
        }
        check("a row-sparse value", &shape, &indices, &rows)?;
        let ids = Arc::new(RowIds::new(indices));
        Ok(Self::from_parts(TensorSpec::new(shape, rows.dtype()), ids, rows))
    }

    /// Returns the value with these fields, without checks.
    pub(crate) fn from_parts(spec: TensorSpec, ids: Arc<RowIds>, rows: Tensor) -> Self {
        Self(Arc::new(Parts { spec, ids, rows }))
    }

    /// Returns the row indices and the rows.
    pub(crate) fn into_parts(self) -> (Arc<RowIds>, Tensor) {
        let Parts { ids, rows, .. } = Arc::unwrap_or_clone(self.0);
        (ids, rows)
    }

    /// Returns the shape and dtype of the dense value.
    pub fn spec(&self) -> &TensorSpec {
        &self.0.spec
    }

    /// Returns the shape of the dense value.
    pub fn shape(&self) -> &Shape {
        self.spec().shape()
    }

    /// Returns the dtype.
    pub fn dtype(&self) -> DType {
        self.spec().dtype()
    }

    /// Returns the device whose memory holds the rows.
    pub fn device(&self) -> Device {
        self.rows().device()
    }

    /// Returns the row indices of the stored rows, ascending.
    pub fn indices(&self) -> &[i64] {
        self.ids().indices()
    }

    /// Returns the row indices with their copies on devices.
    pub(crate) fn ids(&self) -> &Arc<RowIds> {
        &self.0.ids
    }

    /// Returns the stored rows as one tensor, in the order of their indices.
    pub fn rows(&self) -> &Tensor {
        &self.0.rows
    }

    /// Returns the number of stored rows.
    pub fn num_rows(&self) -> usize {
        self.ids().len()
    }

    /// Returns whether both values have the same memory and spec.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.spec() == other.spec()
            && self.ids().is_same(other.ids())
            && self.rows().is_same(other.rows())
    }

    /// Returns the number of bytes of the stored rows and their indices.
    pub(crate) fn num_bytes(&self) -> usize {
        self.rows().num_bytes() + self.num_rows() * size_of::<i64>()
    }

    /// Returns the dense value.
    ///
    /// # Errors
    /// - [`Error::OutOfMemory`] if there is not enough memory.
    /// - [`Error::InvalidArgument`] if the size in bytes overflows.
    pub fn to_dense(&self) -> Result<Tensor> {
        let mut dense = self.rows().allocate_like(self.spec().clone())?;
        let (device, dtype) = (self.device(), self.dtype());
        let (ids, rows) = (&**self.ids(), self.rows().span());
        let backend = Arc::clone(dense.backend()?);
        let row_len = row_len(self.shape());
        let dst = dense.span_mut()?;
        backend.scatter_rows(&mut [RowScatterJob { device, dtype, row_len, ids, rows, dst }])?;
        Ok(dense)
    }

    /// Returns a row-sparse value with the rows of a dense value that have an element other than 0.
    ///
    /// ```
    /// use kvstore_core::{Backends, CpuBackend, Device, RowSparse, Tensor};
    /// let backends = Backends::new(vec![CpuBackend::new()]);
    /// let dense = Tensor::from_slice(&backends, Device::cpu(0), [2, 2], &[0f32, -0.0, 1.0, 0.0])?;
    /// let value = RowSparse::from_dense(&dense)?;
    /// assert_eq!(value.indices(), [1]);
    /// assert_eq!(value.rows().to_vec::<f32>()?, [1.0, 0.0]);
    /// # Ok::<(), kvstore_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// - [`Error::InvalidArgument`] if the value has no axes.
    /// - [`Error::OutOfMemory`] if there is not enough memory.
    pub fn from_dense(value: &Tensor) -> Result<Self> {
        let shape = value.shape();
        if shape.rank() == 0 {
            return Err(Error::invalid(
                "a row-sparse value: expected at least one axis, found a scalar",
            ));
        }
        let row = shape.row();
        // Compares numbers, because -0.0 is zero although one of its bits is not 0. Copies bytes,
        // because the rows must keep their bits.
        let (numbers, bytes) = (value.read_as::<f64>()?, value.seen_bytes()?);
        let rows = numbers.chunks(row.num_elements().max(1)).zip(0_i64..);
        let non_zero = rows.filter(|(row, _)| row.iter().any(|number| *number != 0.0));
        let indices = fallible::gather(non_zero.map(|(_, index)| index))?;
        let row_bytes = row.num_elements() * value.dtype().size();
        let mut elements = fallible::with_capacity(indices.len() * row_bytes)?;
        for (row, index) in bytes.chunks(row_bytes.max(1)).zip(0_i64..) {
            if indices.binary_search(&index).is_ok() {
                fallible::extend(&mut elements, row)?;
            }
        }
        let mut dims = Vec::from([indices.len()]);
        dims.extend(row.dims());
        let mut rows = value.allocate_like(TensorSpec::new(Shape::from(dims), value.dtype()))?;
        rows.overwrite(|backend, dst| backend.write(dst, &elements))?;
        Self::new(shape.clone(), indices, rows)
    }

    /// Returns the value on another device. O(1) if both devices share memory.
    ///
    /// # Errors
    /// - [`Error::DeviceUnavailable`] if the device is not available.
    /// - [`Error::OutOfMemory`] if there is not enough memory.
    pub fn to_device(&self, backends: &Backends, device: Device) -> Result<Self> {
        if self.device() == device {
            return Ok(self.clone());
        }
        let rows = self.rows().to_device(backends, device)?;
        // A value on several devices of a kind shares the copies of its indices. Others must not
        // keep memory of the old device.
        let is_same_kind = self.device().kind() == device.kind();
        let without_copies = || Arc::new(self.ids().without_copies());
        let ids = if is_same_kind { Arc::clone(self.ids()) } else { without_copies() };
        Ok(Self::from_parts(self.spec().clone(), ids, rows))
    }

    /// Returns the value in a storage of exactly its size, under another name of the same device.
    pub(crate) fn compact(&self, device: Device) -> Result<Self> {
        if self.rows().is_compact() && self.device() == device {
            return Ok(self.clone());
        }
        self.with_rows(self.rows().compact()?.relabelled(device))
    }

    /// Returns the value with the same indices and other rows. The rows may have another dtype.
    ///
    /// # Errors
    /// - [`Error::SpecMismatch`] if the rows have another shape.
    pub(crate) fn with_rows(&self, rows: Tensor) -> Result<Self> {
        if rows.shape() != self.rows().shape() {
            let expected = self.rows().spec().with_dtype(rows.dtype());
            return Err(Error::operand_mismatch("rows", &expected, rows.spec()));
        }
        let spec = self.spec().with_dtype(rows.dtype());
        Ok(Self::from_parts(spec, Arc::clone(self.ids()), rows))
    }
}

impl fmt::Debug for RowSparse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RowSparse[{} rows of {} {}]", self.num_rows(), self.spec(), self.device())
    }
}

/// Returns the number of elements of a row.
pub(crate) fn row_len(shape: &Shape) -> usize {
    shape.row().num_elements()
}

/// Checks that these rows and row indices form a value of this shape.
///
/// # Errors
/// - The errors of [`RowSparse::new`], except that the indices may have any order.
pub(super) fn check(what: &str, shape: &Shape, indices: &[i64], rows: &Tensor) -> Result<()> {
    check_ids(what, shape, indices)?;
    TensorSpec::new(shape.clone(), rows.dtype()).check_addressable(what)?;
    let expected = TensorSpec::new(shape.with_num_rows(indices.len()), rows.dtype());
    if *rows.spec() == expected {
        return Ok(());
    }
    let subject = format!("{} rows of {shape}", indices.len());
    Err(Error::operand_mismatch(&subject, &expected, rows.spec()))
}

/// Checks that all row indices are valid for a shape. `what` is the subject of the error.
///
/// # Errors
/// - [`Error::InvalidArgument`] if the shape has no axes.
/// - [`Error::InvalidArgument`] if an index is negative or too large.
pub fn check_ids(what: &str, shape: &Shape, ids: &[i64]) -> Result<()> {
    let Some(&num_rows) = shape.dims().first() else {
        return Err(Error::invalid(format!("{what}: shape {shape} has no rows")));
    };
    let is_row = |id: &i64| usize::try_from(*id).is_ok_and(|id| id < num_rows);
    match ids.iter().find(|id| !is_row(id)) {
        None => Ok(()),
        Some(id) => Err(Error::invalid(format!(
            "{what}: row index {id} is out of range for shape {shape}: expected 0 to {}",
            num_rows.saturating_sub(1)
        ))),
    }
}
