//! What one kind of memory can do: the [`Backend`] seam.

mod interop;
pub mod registry;
pub mod storage;

use std::fmt;
use std::sync::Arc;

use crate::codec::Quantizer;
use crate::noise::Distribution;
use crate::rule::{MAX_STATES, UpdateRule};
#[cfg(doc)]
use crate::types::Error;
use crate::types::{BinaryOp, DType, Device, DeviceKind, Reduction, Result, Scalar, UnaryOp};

pub use interop::{DeviceInterop, ForeignMemory, Queue};
pub use storage::{InOut, Span, SpanMut, Storage};

pub(crate) use storage::{open, open_mut};

/// One sum of a batch: `dst = ((addends[0] + addends[1]) + addends[2]) + ..`.
#[derive(Debug)]
pub struct SumJob<'a> {
    /// Where the memory is.
    pub device: Device,
    /// The type of the elements of every range.
    pub dtype: DType,
    /// Where the sum goes.
    pub dst: SpanMut<'a>,
    /// What is added, at least one, each as long as `dst`.
    pub addends: &'a [Span<'a>],
}

/// One optimizer step of a batch, on the sum of the addends.
#[derive(Debug)]
pub struct UpdateJob<'a> {
    /// The step, with this key's scalars folded in.
    pub rule: UpdateRule,
    /// Where the memory is.
    pub device: Device,
    /// The type of the weight and of the addends.
    pub dtype: DType,
    /// The weight.
    pub weight: InOut<'a>,
    /// The state in the order of [`UpdateRule::initial`], in [`DType::arithmetic`]; for a
    /// half-precision weight preceded by its master copy. The rest is none.
    pub states: [Option<InOut<'a>>; MAX_STATES],
    /// The gradients, at least one, each as long as the weight.
    pub addends: &'a [Span<'a>],
}

/// The sums of squares of one key of a batch, which need a pass of their own.
///
/// Nothing is written but `sums`.
#[derive(Debug)]
pub struct MeasureJob<'a> {
    /// What is squared.
    pub measured: Measured<'a>,
    /// Where the memory is.
    pub device: Device,
    /// The type of the addends.
    pub dtype: DType,
    /// The gradients, at least one, each as long as the others.
    pub addends: &'a [Span<'a>],
    /// Two sums for each block of the gradient; [`norm`](crate::norm) says in which order they are
    /// added up.
    pub sums: &'a mut [[f64; 2]],
}

/// What a [`MeasureJob`] squares and sums.
#[derive(Clone, Copy, Debug)]
#[allow(clippy::large_enum_variant, reason = "a push has few jobs, and mostly of steps")]
pub enum Measured<'a> {
    /// The sum of the gradients, rounded to its dtype, in [`DType::arithmetic`]. The second sums are 0.
    Gradient,
    /// What [`LayerFormula::measure`](crate::optimizer::LayerFormula::measure) returns, computed from the
    /// weight and the state before a step, which are those of [`UpdateJob`].
    Step {
        /// The step.
        rule: UpdateRule,
        /// The weight.
        weight: Span<'a>,
        /// The state.
        states: [Option<Span<'a>>; MAX_STATES],
    },
}

/// One value of a batch that is compressed.
///
/// Each element is added to its residual, a code says what of that is sent, and the rest stays in the residual:
/// see [`Compression`](crate::Compression).
#[derive(Debug)]
pub struct QuantizeJob<'a> {
    /// What the codes mean.
    pub quantizer: Quantizer,
    /// Where the memory is.
    pub device: Device,
    /// The type of the gradient.
    pub dtype: DType,
    /// What is compressed.
    pub gradient: Span<'a>,
    /// As many elements, in [`DType::arithmetic`].
    pub residual: InOut<'a>,
    /// [`Code::num_bytes`](crate::compression::Code::num_bytes): the codes of 16 or 32 elements in a word, the first
    /// one in the highest bits of the first byte; bits without an element are 0.
    pub codes: SpanMut<'a>,
}

/// One sum of codes of a batch: the left fold of what they mean.
#[derive(Debug)]
pub struct DequantizeJob<'a> {
    /// What the codes mean.
    pub quantizer: Quantizer,
    /// Where the memory is.
    pub device: Device,
    /// The type of the sum.
    pub dtype: DType,
    /// The codes, at least one range, each as long as those of `dst`.
    pub codes: &'a [Span<'a>],
    /// Where the sum goes.
    pub dst: SpanMut<'a>,
}

/// Rows that are added up: each row of the sum is the left fold of its sources, in their order.
///
/// The numbers are the host's, whatever the device; all rows are as long as each other.
#[derive(Clone, Copy, Debug)]
pub struct RowAddends<'a> {
    /// The number of elements of a row.
    pub row_len: usize,
    /// For each row of the sum which of `sources` is its first one, and after the last row their number.
    pub starts: &'a [usize],
    /// What is added; a row without any is 0.
    pub sources: &'a [RowSource],
    /// A row of fewer sources has `+0.0` added, as for rows of 0 that are not there: `-0.0` becomes `+0.0`.
    pub full: usize,
    /// Where the sources are.
    pub spans: &'a [Span<'a>],
}

/// One sum of rows of a batch.
#[derive(Debug)]
pub struct RowSumJob<'a> {
    /// Where the memory is.
    pub device: Device,
    /// The type of the elements of every range.
    pub dtype: DType,
    /// What is added up.
    pub addends: RowAddends<'a>,
    /// Where the sums go.
    pub dst: SpanMut<'a>,
}

/// A row of one of the ranges of [`RowAddends`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowSource {
    /// Which range.
    pub addend: usize,
    /// Which of its rows.
    pub row: usize,
}

/// One whole value of a batch: the rows that are there, and 0 between them.
#[derive(Debug)]
pub struct RowScatterJob<'a> {
    /// Where the memory is.
    pub device: Device,
    /// The type of the elements of both ranges.
    pub dtype: DType,
    /// The number of elements of a row.
    pub row_len: usize,
    /// Which rows are there, ascending.
    pub indices: &'a [i64],
    /// Those rows.
    pub rows: Span<'a>,
    /// The whole value.
    pub dst: SpanMut<'a>,
}

/// One optimizer step of a batch that changes nothing but some rows of weight and states, in place. Its rule is one of
/// those that [`UpdateRule::visit_lazy`] knows, or [row-wise](UpdateRule::is_rowwise). The states of a row-wise rule have
/// one number for each row of the weight, but for a master copy.
#[derive(Debug)]
pub struct RowUpdateJob<'a> {
    /// The step, with this key's scalars folded in.
    pub rule: UpdateRule,
    /// Where the memory is.
    pub device: Device,
    /// The type of the weight and of the gradient.
    pub dtype: DType,
    /// The gradient: what is added up to it, rounded to the dtype as a sum is.
    pub addends: RowAddends<'a>,
    /// Which rows the gradient has, ascending and within the weight.
    pub indices: &'a [i64],
    /// The whole weight.
    pub weight: SpanMut<'a>,
    /// The whole state, as in [`UpdateJob::states`].
    pub states: [Option<SpanMut<'a>>; MAX_STATES],
}

/// The second operand of an elementwise operation.
#[derive(Clone, Copy, Debug)]
pub enum Operand<'a> {
    /// A range as long as the first operand.
    Span(Span<'a>),
    /// One number for every element, already of the array's dtype or convertible to it.
    Scalar(Scalar),
}

/// Decides whether a long operation continues. An error cancels it.
pub type Check<'a> = dyn Fn() -> Result<()> + Sync + 'a;

/// What one kind of memory can do. Knows bytes, dtypes and update rules; not keys, not stores.
///
/// Ranges given to one call have equal lengths and lie within their storages; the callers in this
/// crate see to it. Every implementation gives the same bits: sums are left folds in the order of
/// the addends, half precision adds in `f32` and is rounded once, integers wrap, nothing is
/// contracted into fused multiply-adds. Exempt are `exp` and its like and [`Backend::matmul`].
///
/// Work may be queued: a call returns when its arguments may be reused, and [`Backend::read`] and
/// [`Backend::synchronize`] wait.
pub trait Backend: Send + Sync + fmt::Debug {
    /// Returns the kind of device that this backend drives.
    fn kind(&self) -> DeviceKind;

    /// Returns one line for people: what was found, how it is set up.
    fn description(&self) -> String;

    /// Allocates `num_bytes` of arbitrary content, aligned for every dtype.
    ///
    /// # Errors
    /// [`Error::DeviceUnavailable`] when there is no such device, [`Error::OutOfMemory`] also at the limit that
    /// [`Backend::set_memory_limit`] sets.
    fn allocate(&self, device: Device, num_bytes: usize) -> Result<Arc<dyn Storage>>;

    /// Takes a storage back that nobody needs any more, to hand it out again. Whoever calls drops
    /// its share right after; a storage that others hold is left alone.
    fn recycle(&self, storage: &mut Arc<dyn Storage>);

    /// Checks that this process can use the backend, which a forked child may be unable to.
    ///
    /// # Errors
    /// [`Error::Unsupported`] in a forked child, if the backend does not work there.
    fn check_process(&self) -> Result<()> {
        Ok(())
    }

    /// Returns the bytes that storages of this backend hold on all its devices, without the
    /// memory kept for reuse.
    fn live_bytes(&self) -> usize;

    /// Returns the bytes kept for reuse.
    fn pooled_bytes(&self) -> usize;

    /// Returns what each device has of these; devices that are the same memory are one.
    fn memory(&self) -> Vec<DeviceMemory>;

    /// Gives the memory kept for reuse back to the system.
    fn trim(&self);

    /// Returns the limit set by [`Backend::set_memory_limit`], or `None`.
    fn memory_limit(&self) -> Option<usize>;

    /// Limits the sum of [`Backend::live_bytes`] and [`Backend::pooled_bytes`]. `None` removes the
    /// limit. If the sum is above the limit, frees pooled memory. Memory in use stays.
    fn set_memory_limit(&self, num_bytes: Option<usize>);

    /// Returns whether the two devices of this kind are the same memory under two names.
    fn shares_memory(&self, one: Device, other: Device) -> bool;

    /// Copies bytes of the host into the range.
    fn write(&self, dst: SpanMut<'_>, host: &[u8]) -> Result<()>;
    /// Copies the range to the host; waits for work that writes it.
    fn read(&self, src: Span<'_>, host: &mut [u8]) -> Result<()>;
    /// Returns the bytes themselves, where the host can see the memory; waits for work that writes
    /// them.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where it cannot.
    fn host_bytes<'a>(&self, src: Span<'a>) -> Result<&'a [u8]>;
    /// Returns the bytes themselves to be written, as [`Backend::host_bytes`].
    ///
    /// # Errors
    /// [`Error::Unsupported`] where the host cannot see the memory.
    fn host_bytes_mut<'a>(&self, dst: SpanMut<'a>) -> Result<&'a mut [u8]>;
    /// Copies between two storages of this backend.
    fn copy(&self, dst: SpanMut<'_>, src: Span<'_>) -> Result<()>;
    /// Copies the range to several places of another one, which do not overlap: `places` are their first bytes, counted
    /// from the beginning of `dst`.
    fn broadcast(&self, dst: SpanMut<'_>, places: &[usize], src: Span<'_>) -> Result<()>;
    /// Writes one number to every element.
    fn fill(&self, dtype: DType, dst: SpanMut<'_>, value: Scalar) -> Result<()>;
    /// Writes random numbers: to element `i` that of [`Distribution::sample`] for index `i`, rounded.
    fn random(
        &self,
        dtype: DType,
        dst: SpanMut<'_>,
        distribution: Distribution,
        stream: [u32; 2],
        call: u64,
    ) -> Result<()>;
    /// Converts elements as [`cast`](crate::dtype::cast) does.
    fn cast(&self, from: DType, src: Span<'_>, to: DType, dst: SpanMut<'_>) -> Result<()>;

    /// Runs every sum of the batch.
    fn sum(&self, jobs: &mut [SumJob<'_>]) -> Result<()>;
    /// Runs every step of the batch, each in one pass over its memory.
    fn update(&self, jobs: &mut [UpdateJob<'_>]) -> Result<()>;
    /// Sums the squares of every job of the batch.
    fn measure(&self, jobs: &mut [MeasureJob<'_>]) -> Result<()>;
    /// Runs every sum of rows of the batch.
    fn sum_rows(&self, jobs: &mut [RowSumJob<'_>]) -> Result<()>;
    /// Makes every whole value of the batch.
    fn scatter_rows(&self, jobs: &mut [RowScatterJob<'_>]) -> Result<()>;
    /// Runs every step of the batch, at a cost of the rows that it changes.
    fn update_rows(&self, jobs: &mut [RowUpdateJob<'_>]) -> Result<()>;
    /// Compresses every value of the batch.
    fn quantize(&self, jobs: &mut [QuantizeJob<'_>]) -> Result<()>;
    /// Sums the codes of every job of the batch.
    fn dequantize(&self, jobs: &mut [DequantizeJob<'_>]) -> Result<()>;

    /// `lhs = lhs op rhs`, or `rhs op lhs` when `reversed`.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for an integer division by zero; `lhs` is then as it was.
    fn binary(
        &self,
        op: BinaryOp,
        dtype: DType,
        lhs: InOut<'_>,
        rhs: Operand<'_>,
        reversed: bool,
    ) -> Result<()>;
    /// `operand = op(operand)`.
    fn unary(&self, op: UnaryOp, dtype: DType, operand: InOut<'_>) -> Result<()>;
    /// `operand = the nearest number in [low, high]`; NaN stays, and limits nothing. The limits are numbers that the
    /// dtype has or that are rounded to it.
    fn clip(&self, dtype: DType, operand: InOut<'_>, low: Scalar, high: Scalar) -> Result<()>;
    /// Reduces all elements of `src` to the one element of `dst`, in blocks of 4096 elements that
    /// are folded in order, floats in `f64`.
    fn reduce(&self, op: Reduction, dtype: DType, dst: SpanMut<'_>, src: Span<'_>) -> Result<()>;
    /// Repeats `src` of shape `from` along its axes of length 1 up to shape `to` of the same rank.
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
    /// - [`Error::Unsupported`] for dtypes other than `F32` and `F64`.
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
    /// The transpose of a matrix of `rows` rows.
    fn transpose(&self, dtype: DType, dst: SpanMut<'_>, src: Span<'_>, rows: usize) -> Result<()>;
    /// The column of the largest element of each of `rows` rows, the first one of equals.
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

/// The memory of a device, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceMemory {
    /// Which device.
    pub device: Device,
    /// What storages hold there.
    pub live: usize,
    /// What is kept for reuse.
    pub pooled: usize,
    /// All that the device has, where it has memory of its own.
    pub total: Option<usize>,
}

/// The sizes of a matrix product `[m, k] x [k, n]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the letters are the field's own and stand in the type's text")]
pub struct MatmulSize {
    pub m: usize,
    pub k: usize,
    pub n: usize,
}
