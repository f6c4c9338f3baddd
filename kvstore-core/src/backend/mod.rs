//! The [`Backend`] trait: the operations on one kind of memory.

mod interop;
pub mod registry;
mod row_ids;
pub mod storage;

use std::fmt;
use std::sync::Arc;

use crate::codec::Quantizer;
use crate::noise::Distribution;
use crate::rule::{MAX_STATES, UpdateRule};
#[cfg(doc)]
use crate::types::Error;
use crate::types::{BinaryOp, DType, Device, DeviceKind, Reduction, Result, Scalar, UnaryOp};

pub use interop::{CurrentDevice, DeviceInterop, ForeignMemory, Queue};
pub use row_ids::RowIds;
pub use storage::{InOut, Span, SpanMut, Storage};

pub(crate) use storage::{open, open_mut};

/// The jobs of a batch. A backend takes all of them before it changes anything, so an error of the
/// iterator ends the call without a change.
pub type Jobs<'a, J> = dyn Iterator<Item = Result<J>> + 'a;

/// One sum of a batch: `dst = ((addends[0] + addends[1]) + addends[2]) + ..`.
#[derive(Debug)]
pub struct SumJob<'a> {
    /// The device whose memory the ranges are in.
    pub device: Device,
    /// The dtype of all ranges.
    pub dtype: DType,
    /// The range that receives the sum.
    pub dst: SpanMut<'a>,
    /// The ranges to add: at least one, each as long as `dst`.
    pub addends: &'a [Span<'a>],
}

/// One optimizer step of a batch. The gradient is the sum of the addends.
#[derive(Debug)]
pub struct UpdateJob<'a> {
    /// The step, with the scalars for its key.
    pub rule: &'a UpdateRule,
    /// The device whose memory the ranges are in.
    pub device: Device,
    /// The dtype of the weight and of the addends.
    pub dtype: DType,
    /// The weight.
    pub weight: InOut<'a>,
    /// The tensors of the state, in the order of [`UpdateRule::initial`] and in the dtype of
    /// [`DType::arithmetic`]. The master copy of a half-precision weight comes first. Unused
    /// entries are `None`.
    pub states: [Option<InOut<'a>>; MAX_STATES],
    /// The gradients to add: at least one, each as long as the weight.
    pub addends: &'a [Span<'a>],
}

/// The sums of squares of one key of a batch. They need a pass of their own before the step.
///
/// The job writes only to `sums`.
#[derive(Debug)]
pub struct MeasureJob<'a> {
    /// The values to square.
    pub measured: Measured<'a>,
    /// The device whose memory the ranges are in.
    pub device: Device,
    /// The dtype of the addends.
    pub dtype: DType,
    /// The gradients to add: at least one, all equally long.
    pub addends: &'a [Span<'a>],
    /// Receives two sums for each block of the gradient. [`norm`](crate::norm) defines the order of
    /// the additions.
    pub sums: &'a mut [[f64; 2]],
}

/// The values that a [`MeasureJob`] squares and sums.
#[derive(Clone, Copy, Debug)]
#[allow(clippy::large_enum_variant, reason = "a push has few jobs, and most of them are steps")]
pub enum Measured<'a> {
    /// The sum of the gradients, rounded to their dtype and converted to [`DType::arithmetic`]. The
    /// second sums are 0.
    Gradient,
    /// The values that [`LayerFormula::measure`](crate::optimizer::LayerFormula::measure) returns
    /// for the weight and the state before the step. The fields are as in [`UpdateJob`].
    Step {
        /// The step.
        rule: UpdateRule,
        /// The weight.
        weight: Span<'a>,
        /// The state.
        states: [Option<Span<'a>>; MAX_STATES],
    },
}

/// The compression of one value of a batch.
///
/// Adds each element of the gradient to its residual. Writes a code for the part that is sent, and
/// keeps the rest in the residual. See [`Compression`](crate::Compression).
#[derive(Debug)]
pub struct QuantizeJob<'a> {
    /// Defines the codes.
    pub quantizer: Quantizer,
    /// The device whose memory the ranges are in.
    pub device: Device,
    /// The dtype of the gradient.
    pub dtype: DType,
    /// The value to compress.
    pub gradient: Span<'a>,
    /// The residual: as many elements as the gradient, in the dtype of [`DType::arithmetic`].
    pub residual: InOut<'a>,
    /// Receives [`Code::num_bytes`](crate::compression::Code::num_bytes) bytes of codes. A word has
    /// the codes of 16 or 32 elements, the first one in the highest bits of the first byte. Bits
    /// without an element are 0.
    pub codes: SpanMut<'a>,
}

/// One sum of codes of a batch: the left fold of the numbers that they represent.
#[derive(Debug)]
pub struct DequantizeJob<'a> {
    /// Defines the codes.
    pub quantizer: Quantizer,
    /// The device whose memory the ranges are in.
    pub device: Device,
    /// The dtype of the sum.
    pub dtype: DType,
    /// The ranges of codes: at least one, each with a code for every element of `dst`.
    pub codes: &'a [Span<'a>],
    /// The range that receives the sum.
    pub dst: SpanMut<'a>,
}

/// Rows to add up. Each row of the sum is the left fold of its sources, in their order. All rows
/// are equally long.
#[derive(Clone, Copy, Debug)]
pub struct RowAddends<'a> {
    /// The number of elements of a row.
    pub row_len: usize,
    /// The sources of each row.
    pub sources: RowSources<'a>,
    /// The number of addends in the dense sum. A row with fewer sources also adds `+0.0`, as the
    /// zeros of the other addends would: this turns `-0.0` into `+0.0`.
    pub full: usize,
    /// The ranges that contain the sources.
    pub spans: &'a [Span<'a>],
}

/// The sources of each row of a sum. Only backends that
/// [plan rows](Backend::plans_rows) get another form than [`RowSources::Listed`].
#[derive(Clone, Copy, Debug)]
pub enum RowSources<'a> {
    /// Lists in host memory, also for other devices.
    Listed {
        /// For each row of the sum, the index of its first source in `sources`. The last entry is
        /// the number of sources.
        starts: &'a [usize],
        /// The rows to add. A row of the sum without sources is 0.
        sources: &'a [RowSource],
    },
    /// The sum has the rows that a range has. Each range has its rows in the order of its ids.
    Union(&'a [Arc<RowIds>]),
    /// Row `n` of the sum is row `n` of the only range.
    InOrder,
    /// Row `n` of the sum is the row of the only range whose index is id `n` of the sum.
    Gathered,
}

/// One row of one of the ranges in [`RowAddends::spans`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowSource {
    /// The index of the range.
    pub addend: usize,
    /// The index of the row in the range.
    pub row: usize,
}

/// One sum of rows of a batch.
#[derive(Debug)]
pub struct RowSumJob<'a> {
    /// The device whose memory the ranges are in.
    pub device: Device,
    /// The dtype of all ranges.
    pub dtype: DType,
    /// The rows to add up.
    pub addends: RowAddends<'a>,
    /// The row indices of the sum.
    pub ids: &'a RowIds,
    /// The range that receives the sums.
    pub dst: SpanMut<'a>,
}

/// One dense value of a batch, made from some rows. All other rows are 0.
#[derive(Debug)]
pub struct RowScatterJob<'a> {
    /// The device whose memory the ranges are in.
    pub device: Device,
    /// The dtype of both ranges.
    pub dtype: DType,
    /// The number of elements of a row.
    pub row_len: usize,
    /// The indices of the rows.
    pub ids: &'a RowIds,
    /// The rows.
    pub rows: Span<'a>,
    /// The range that receives the dense value.
    pub dst: SpanMut<'a>,
}

/// One optimizer step of a batch that changes only some rows of the weight and states, in place.
///
/// [`UpdateRule::visit_lazy`] supports the rule, or the rule is [row-wise](UpdateRule::is_rowwise).
/// The states of a row-wise rule have one number per row of the weight, except for the master copy.
#[derive(Debug)]
pub struct RowUpdateJob<'a> {
    /// The step, with the scalars for its key.
    pub rule: UpdateRule,
    /// The device whose memory the ranges are in.
    pub device: Device,
    /// The dtype of the weight and of the gradient.
    pub dtype: DType,
    /// The gradient: the sum of these rows, rounded to the dtype like any other sum.
    pub addends: RowAddends<'a>,
    /// The row indices of the gradient, within the weight.
    pub ids: &'a RowIds,
    /// The dense weight.
    pub weight: SpanMut<'a>,
    /// The dense state, as in [`UpdateJob::states`].
    pub states: [Option<SpanMut<'a>>; MAX_STATES],
}

/// The second operand of an elementwise operation.
#[derive(Clone, Copy, Debug)]
pub enum Operand<'a> {
    /// A range as long as the first operand.
    Span(Span<'a>),
    /// One number for every element. It has the dtype of the first operand or is convertible to it.
    Scalar(Scalar),
}

/// Decides whether a long operation continues. An error cancels the operation.
pub type Check<'a> = dyn Fn() -> Result<()> + Sync + 'a;

/// The operations on one kind of memory. A backend knows bytes, dtypes and update rules, but
/// neither keys nor stores.
///
/// - The ranges of a call have equal lengths and are within their storages. The callers in this
///   crate guarantee that.
/// - All backends give the same bits. Sums are left folds in the order of the addends.
///   Half-precision sums are computed in `f32` and rounded once. Integers wrap around. No operation
///   is contracted to a fused multiply-add. [`Backend::matmul`] and functions like `exp` are
///   exempt.
/// - A backend may queue work. A call returns when its arguments may be reused. [`Backend::read`]
///   and [`Backend::synchronize`] wait for the work.
///
/// Besides the errors that a method lists, a call fails with [`Error::Backend`] if the device
/// fails.
pub trait Backend: Send + Sync + fmt::Debug {
    /// Returns the kind of device that this backend drives.
    fn kind(&self) -> DeviceKind;

    /// Returns one line for logs and reports: the hardware that was found and its configuration.
    fn description(&self) -> String;

    /// Allocates `num_bytes` bytes with unspecified contents, aligned for every dtype.
    ///
    /// # Errors
    /// - [`Error::DeviceUnavailable`] if there is no such device.
    /// - [`Error::OutOfMemory`] if there is not enough memory.
    /// - [`Error::OutOfMemory`] if the allocation would exceed [`Backend::memory_limit`].
    fn allocate(&self, device: Device, num_bytes: usize) -> Result<Arc<dyn Storage>>;

    /// Takes back a storage for reuse. The caller drops its reference immediately afterwards. Does
    /// nothing if there are other references.
    fn recycle(&self, storage: &mut Arc<dyn Storage>);

    /// Checks that this process can use the backend, which a forked child may be unable to.
    ///
    /// # Errors
    /// - [`Error::Unsupported`] in a forked child, if the backend does not work there.
    fn check_process(&self) -> Result<()> {
        Ok(())
    }

    /// Returns the number of bytes in use on all devices of this backend. Memory kept for reuse
    /// does not count.
    fn live_bytes(&self) -> usize;

    /// Returns the number of bytes kept for reuse on all devices of this backend.
    fn pooled_bytes(&self) -> usize;

    /// Returns the memory of each device. Devices that share memory are listed once.
    fn memory(&self) -> Vec<DeviceMemory>;

    /// Returns the memory kept for reuse to the system.
    fn trim(&self);

    /// Returns the limit set by [`Backend::set_memory_limit`], or `None` if there is none.
    fn memory_limit(&self) -> Option<usize>;

    /// Limits the sum of [`Backend::live_bytes`] and [`Backend::pooled_bytes`]. `None` removes the
    /// limit. If the sum is above the limit, frees pooled memory. Memory in use stays.
    fn set_memory_limit(&self, num_bytes: Option<usize>);

    /// Returns whether two devices of this kind are two names for the same memory.
    fn shares_memory(&self, a: Device, b: Device) -> bool;

    /// Copies bytes from the host into the range.
    fn write(&self, dst: SpanMut<'_>, host: &[u8]) -> Result<()>;
    /// Copies the range to the host, after waiting for queued work that writes to it.
    fn read(&self, src: Span<'_>, host: &mut [u8]) -> Result<()>;
    /// Returns the bytes of the range without a copy, after waiting for queued work that writes to
    /// them.
    ///
    /// # Errors
    /// - [`Error::Unsupported`] if the host cannot access the memory.
    fn host_bytes<'a>(&self, src: Span<'a>) -> Result<&'a [u8]>;
    /// Returns the bytes of the range for writing, like [`Backend::host_bytes`].
    ///
    /// # Errors
    /// - [`Error::Unsupported`] if the host cannot access the memory.
    fn host_bytes_mut<'a>(&self, dst: SpanMut<'a>) -> Result<&'a mut [u8]>;
    /// Copies between two storages of this backend.
    fn copy(&self, dst: SpanMut<'_>, src: Span<'_>) -> Result<()>;
    /// Copies `src` to several non-overlapping places in `dst`. `places` are byte offsets from the
    /// start of `dst`.
    fn broadcast(&self, dst: SpanMut<'_>, places: &[usize], src: Span<'_>) -> Result<()>;
    /// Sets every element to `value`.
    fn fill(&self, dtype: DType, dst: SpanMut<'_>, value: Scalar) -> Result<()>;
    /// Writes random numbers of a floating-point dtype. Element `i` is [`Distribution::sample`] for
    /// index `i`, rounded to the dtype. `stream` and `call` select the sequence of random numbers.
    fn random(
        &self,
        dtype: DType,
        dst: SpanMut<'_>,
        distribution: Distribution,
        stream: [u32; 2],
        call: u64,
    ) -> Result<()>;
    /// Converts the elements by the rules of [`cast`](crate::dtype::cast).
    fn cast(&self, from: DType, src: Span<'_>, to: DType, dst: SpanMut<'_>) -> Result<()>;

    /// Runs every sum of the batch.
    ///
    /// # Errors
    /// - The first error of `jobs`. Nothing has changed then.
    fn sum(&self, jobs: &mut Jobs<'_, SumJob<'_>>) -> Result<()>;
    /// Like [`Backend::reserve_updates`], for [`Backend::sum`].
    ///
    /// # Errors
    /// - [`Error::OutOfMemory`] if there is not enough memory.
    fn reserve_sums(&self, num_jobs: usize) -> Result<()> {
        let _ = num_jobs;
        Ok(())
    }
    /// Reserves the memory that the host needs for the next call of [`Backend::update`] by this
    /// thread, so that it does not fail after the caller has changed something.
    ///
    /// # Errors
    /// - [`Error::OutOfMemory`] if there is not enough memory.
    fn reserve_updates(&self, num_jobs: usize) -> Result<()> {
        let _ = num_jobs;
        Ok(())
    }
    /// Runs every optimizer step of the batch, each in one pass over its memory.
    ///
    /// # Errors
    /// - The first error of `jobs`. Nothing has changed then.
    fn update(&self, jobs: &mut Jobs<'_, UpdateJob<'_>>) -> Result<()>;
    /// Sums the squares of every job of the batch.
    fn measure(&self, jobs: &mut [MeasureJob<'_>]) -> Result<()>;
    /// Returns whether the backend plans sums of rows itself. Otherwise, every job has
    /// [`RowSources::Listed`].
    fn plans_rows(&self) -> bool {
        false
    }
    /// Runs every sum of rows of the batch.
    fn sum_rows(&self, jobs: &mut [RowSumJob<'_>]) -> Result<()>;
    /// Writes every dense value of the batch.
    fn scatter_rows(&self, jobs: &mut [RowScatterJob<'_>]) -> Result<()>;
    /// Runs every step of the batch. The cost depends only on the number of changed rows.
    fn update_rows(&self, jobs: &mut [RowUpdateJob<'_>]) -> Result<()>;
    /// Compresses every value of the batch.
    fn quantize(&self, jobs: &mut [QuantizeJob<'_>]) -> Result<()>;
    /// Sums the codes of every job of the batch.
    fn dequantize(&self, jobs: &mut [DequantizeJob<'_>]) -> Result<()>;

    /// Computes `lhs = lhs op rhs`, or `lhs = rhs op lhs` if `reversed` is true.
    ///
    /// # Errors
    /// - [`Error::InvalidArgument`] for an integer division by zero. `lhs` is then unchanged.
    fn binary(
        &self,
        op: BinaryOp,
        dtype: DType,
        lhs: InOut<'_>,
        rhs: Operand<'_>,
        reversed: bool,
    ) -> Result<()>;
    /// Computes `operand = op(operand)`.
    fn unary(&self, op: UnaryOp, dtype: DType, operand: InOut<'_>) -> Result<()>;
    /// Clips each element to `[low, high]`. NaN stays NaN. A limit that is NaN does not limit. The
    /// limits are rounded to the dtype.
    fn clip(&self, dtype: DType, operand: InOut<'_>, low: Scalar, high: Scalar) -> Result<()>;
    /// Reduces all elements of `src` to the single element of `dst`. Reduces each block of 4096
    /// elements, then folds the blocks in order. Floats are computed in `f64`.
    fn reduce(&self, op: Reduction, dtype: DType, dst: SpanMut<'_>, src: Span<'_>) -> Result<()>;
    /// Repeats `src` along its axes of length 1. `from` is the shape of `src`, and `to` is that of
    /// `dst`. Both have the same number of axes.
    fn expand(
        &self,
        dtype: DType,
        dst: SpanMut<'_>,
        to: &[usize],
        src: Span<'_>,
        from: &[usize],
    ) -> Result<()>;
    /// Computes the matrix product of `[m, k]` and `[k, n]`. If the backend computes it in blocks,
    /// the calling thread calls `check` between them.
    ///
    /// # Errors
    /// - [`Error::Unsupported`] if the dtype is neither `F32` nor `F64`.
    /// - The error of `check`. The contents of `dst` are then unspecified.
    fn matmul(
        &self,
        dtype: DType,
        dst: SpanMut<'_>,
        lhs: Span<'_>,
        rhs: Span<'_>,
        size: MatmulSize,
        check: &Check<'_>,
    ) -> Result<()>;
    /// Transposes a matrix of `rows` rows.
    fn transpose(&self, dtype: DType, dst: SpanMut<'_>, src: Span<'_>, rows: usize) -> Result<()>;
    /// Writes the column of the largest element of each of the `rows` rows. Of equal elements, the
    /// first one wins.
    fn argmax(&self, dtype: DType, dst: SpanMut<'_>, src: Span<'_>, rows: usize) -> Result<()>;

    /// Waits until all work queued on the device is done.
    fn synchronize(&self, device: Device) -> Result<()>;

    /// Returns the interface for memory shared with other libraries, or `None` if device memory is
    /// not shared. Host memory needs none: see [`Backend::host_bytes`] and
    /// [`Storage::external_bytes`].
    fn interop(&self) -> Option<&dyn DeviceInterop> {
        None
    }
}

/// The memory of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceMemory {
    /// The device.
    pub device: Device,
    /// The number of bytes in use.
    pub live: usize,
    /// The number of bytes kept for reuse.
    pub pooled: usize,
    /// The size of the device's memory in bytes, or `None` if it has no memory of its own.
    pub total: Option<usize>,
}

/// The sizes of a matrix product `[m, k] x [k, n]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the letters are standard, and the type's text has them")]
pub struct MatmulSize {
    pub m: usize,
    pub k: usize,
    pub n: usize,
}
