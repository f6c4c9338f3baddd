//! The arguments and names of the kernels in `kernels/quantize.cu`, which quantize gradients to
//! codes and sum codes.

use kvstore_core::compression::{Code, Quantizer};
use kvstore_core::{DType, Result};

use super::batch::{Address, Batch, THREADS, is_aligned};
use super::update::{self, FromTo};

/// The number of vectors that a thread computes from codes.
const CODE_VECTORS: u64 = 2;

/// A value to compress, as the kernel reads it.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct QuantizeJob {
    /// The number of tiles of all earlier jobs.
    pub first_tile: u64,
    /// The number of elements.
    pub len: u64,
    /// The value to compress.
    pub gradient: Address,
    /// The old residual.
    pub residual_from: Address,
    /// The destination of the new residual.
    pub residual_to: Address,
    /// The destination of the codes.
    pub codes: Address,
    /// The threshold of the quantizer.
    pub threshold: f64,
    /// 1 if the elements for a byte of codes can be loaded in one instruction, otherwise 0.
    pub is_aligned: u32,
    /// Padding.
    pub unused: u32,
}

/// A sum of codes, as the kernel reads it.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DequantizeJob {
    /// The number of tiles of all earlier jobs.
    pub first_tile: u64,
    /// The number of elements.
    pub len: u64,
    /// The destination of the sum.
    pub dst: Address,
    /// The threshold of the quantizer.
    pub threshold: f64,
    /// The position of its codes in the list of addends.
    pub first_addend: u32,
    /// The number of values that are summed.
    pub num_addends: u32,
    /// 1 if a thread can store its elements in one instruction, otherwise 0.
    pub is_aligned: u32,
    /// Padding.
    pub unused: u32,
}

impl Batch<QuantizeJob> {
    /// Appends a value of `len` elements. All values of a batch have the same kind of code and
    /// dtype.
    ///
    /// # Errors
    /// - [`Error::OutOfMemory`](kvstore_core::Error::OutOfMemory) if there is not enough memory.
    pub fn push(
        &mut self,
        quantizer: Quantizer,
        dtype: DType,
        len: u64,
        (gradient, residual, codes): (Address, FromTo, Address),
    ) -> Result<()> {
        let arithmetic = dtype.arithmetic().unwrap_or(dtype);
        let is_aligned = is_at_once(quantizer.code, dtype, gradient)
            && is_at_once(quantizer.code, arithmetic, residual.from)
            && is_at_once(quantizer.code, arithmetic, residual.to);
        let num_bytes = quantizer.code.num_bytes(usize::try_from(len).unwrap_or(usize::MAX)) as u64;
        let num_tiles = num_bytes.div_ceil(u64::from(THREADS));
        self.push_job(&[], num_tiles, |first_tile, _, _| QuantizeJob {
            first_tile,
            len,
            gradient,
            residual_from: residual.from,
            residual_to: residual.to,
            codes,
            threshold: quantizer.threshold,
            is_aligned: is_aligned.into(),
            unused: 0,
        })
    }
}

impl Batch<DequantizeJob> {
    /// Appends a sum of `len` elements. All sums of a batch have the same kind of code and dtype.
    ///
    /// # Errors
    /// - [`Error::OutOfMemory`](kvstore_core::Error::OutOfMemory) if there is not enough memory.
    pub fn push(
        &mut self,
        quantizer: Quantizer,
        dtype: DType,
        len: u64,
        (codes, dst): (&[Address], Address),
    ) -> Result<()> {
        let is_aligned = u32::from(is_aligned(dst, dtype, update::AT_ONCE));
        let num_tiles = len.div_ceil(CODE_VECTORS * update::tile(dtype));
        self.push_job(codes, num_tiles, |first_tile, first_addend, num_addends| DequantizeJob {
            first_tile,
            len,
            dst,
            threshold: quantizer.threshold,
            first_addend,
            num_addends,
            is_aligned,
            unused: 0,
        })
    }
}

/// Returns whether the elements for a byte of codes can be loaded in one instruction.
fn is_at_once(code: Code, dtype: DType, address: Address) -> bool {
    is_aligned(address, dtype, 8 / code.bits())
}

/// Returns the name of the kernel that quantizes, or `None` for integer dtypes.
pub fn quantize_kernel(code: Code, dtype: DType) -> Option<String> {
    dtype.is_float().then(|| format!("kv_quantize_{}bit_{dtype}", code.bits()))
}

/// Returns the name of the kernel that sums codes, or `None` for integer dtypes.
pub fn dequantize_kernel(code: Code, dtype: DType) -> Option<String> {
    dtype.is_float().then(|| format!("kv_dequantize_{}bit_{dtype}", code.bits()))
}
