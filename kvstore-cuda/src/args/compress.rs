//! Gradients to codes and back, as one launch each: what the kernels of `kernels/compress.cu` get.

use kvstore_core::compression::{Code, Quantizer};
use kvstore_core::{DType, Result};

use super::batch::{Address, Batch, THREADS, is_aligned};
use super::update::{self, FromTo};

/// The number of vectors that a thread computes from codes.
const CODE_VECTORS: u64 = 2;

/// One value that is compressed, as the kernel reads it.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct QuantizeJob {
    /// The tiles of the jobs before it.
    pub first_tile: u64,
    /// In elements.
    pub len: u64,
    /// What is compressed.
    pub gradient: Address,
    /// The residual.
    pub residual_from: Address,
    /// Where it goes.
    pub residual_to: Address,
    /// Where the codes go.
    pub codes: Address,
    /// What the codes mean.
    pub threshold: f64,
    /// Whether the elements of a byte of codes can be loaded at a time.
    pub is_aligned: u32,
    /// Fills the struct up.
    pub unused: u32,
}

/// One sum of codes, as the kernel reads it.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DequantizeJob {
    /// The tiles of the jobs before it.
    pub first_tile: u64,
    /// In elements.
    pub len: u64,
    /// Where the sum goes.
    pub dst: Address,
    /// What the codes mean.
    pub threshold: f64,
    /// Where its codes begin in the list of all.
    pub first_addend: u32,
    /// How many it has.
    pub num_addends: u32,
    /// Whether a thread can store its elements at a time.
    pub is_aligned: u32,
    /// Fills the struct up.
    pub unused: u32,
}

impl Batch<QuantizeJob> {
    /// Adds a value of `len` elements. All of a batch have one kind of code and one dtype.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`](kvstore_core::Error::OutOfMemory).
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
    /// Adds a sum of `len` elements. All of a batch have one kind of code and one dtype.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`](kvstore_core::Error::OutOfMemory).
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

/// Returns whether the elements of a byte of codes can be loaded at a time.
fn is_at_once(code: Code, dtype: DType, address: Address) -> bool {
    is_aligned(address, dtype, 8 / code.bits())
}

/// Returns the kernel that compresses; none for integers.
pub fn quantize_kernel(code: Code, dtype: DType) -> Option<String> {
    dtype.is_float().then(|| format!("kv_quantize_{}bit_{dtype}", code.bits()))
}

/// Returns the kernel that sums codes up; none for integers.
pub fn dequantize_kernel(code: Code, dtype: DType) -> Option<String> {
    dtype.is_float().then(|| format!("kv_dequantize_{}bit_{dtype}", code.bits()))
}
