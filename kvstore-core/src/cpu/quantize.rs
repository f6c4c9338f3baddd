//! Gradients to codes of one or two bits, and back to a sum: block by block, each in one pass.

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

use super::memory::{bytes, bytes_mut, cast, cast_mut};
use super::slot::Slot;
use super::sum::{BLOCK, narrow, widen};
use super::workers::{Job, Split};
use crate::backend::{DequantizeJob, QuantizeJob};
use crate::compression::{Code, Quantizer};
use crate::dtype::{DType, Element};
use crate::error::{Error, Result};
use crate::optimizer::Real;

/// Codes are cut between words: as many elements as one has at most.
const WORD: usize = 32;

impl Job for QuantizeJob<'_> {
    type Piece<'j>
        = Quantize<'j>
    where
        Self: 'j;

    fn len(&self) -> usize {
        self.gradient.num_bytes / self.dtype.size()
    }

    fn open(&mut self) -> Result<Quantize<'_>> {
        let (quantizer, dtype) = (self.quantizer, self.dtype);
        let arithmetic = dtype.arithmetic().ok_or_else(no_float)?;
        let codes = bytes_mut(self.codes.reborrow())?;
        let len = self.gradient.num_bytes / dtype.size();
        if codes.len() != quantizer.code.num_bytes(len)
            || self.residual.num_bytes() != len * arithmetic.size()
        {
            return Err(Error::Internal("residuals or codes of another length".to_owned()));
        }
        let residual = Slot::open(self.residual.reborrow())?;
        Ok(Quantize { quantizer, dtype, gradient: bytes(self.gradient)?, residual, codes })
    }

    fn run(piece: Quantize<'_>) -> Result<()> {
        match piece.dtype {
            DType::F32 => piece.run::<f32, f32>(|block, _| block),
            DType::F64 => piece.run::<f64, f64>(|block, _| block),
            DType::F16 => piece.run::<f16, f32>(widened),
            DType::Bf16 => piece.run::<bf16, f32>(widened),
            DType::U8 | DType::I32 | DType::I8 | DType::I64 => Err(no_float()),
        }
    }
}

fn no_float() -> Error {
    Error::Internal("integers are not compressed".to_owned())
}

/// Converts a block to the arithmetic of half precision.
fn widened<'a, T>(block: &[T], wide: &'a mut [f32]) -> &'a [f32]
where
    [T]: HalfFloatSliceExt,
{
    let wide = wide.get_mut(..block.len()).unwrap_or_default();
    widen(block, wide);
    wide
}

/// Some elements that are quantised, as bytes.
pub(super) struct Quantize<'a> {
    quantizer: Quantizer,
    dtype: DType,
    gradient: &'a [u8],
    residual: Slot<'a, u8>,
    codes: &'a mut [u8],
}

impl Split for Quantize<'_> {
    fn len(&self) -> usize {
        self.gradient.len() / self.dtype.size()
    }

    fn split_at(self, middle: usize) -> (Self, Self) {
        let Self { quantizer, dtype, .. } = self;
        let middle = middle - middle % WORD;
        let (gradient, right_gradient) = self.gradient.split_at(middle * dtype.size());
        let arithmetic = dtype.arithmetic().unwrap_or(dtype).size();
        let (residual, right_residual) = self.residual.split_at(middle * arithmetic);
        let (codes, right_codes) = self.codes.split_at_mut(quantizer.code.num_bytes(middle));
        let right = Self {
            quantizer,
            dtype,
            gradient: right_gradient,
            residual: right_residual,
            codes: right_codes,
        };
        (Self { quantizer, dtype, gradient, residual, codes }, right)
    }
}

impl Quantize<'_> {
    /// Quantises elements `T` in the arithmetic `A`, into which `widen` converts a block.
    fn run<T: Element, A: Real>(
        self,
        widen: impl for<'b> Fn(&'b [T], &'b mut [A]) -> &'b [A],
    ) -> Result<()> {
        let gradient = cast::<T>(self.gradient)?;
        let mut residual = self.residual.cast::<A>()?;
        let threshold = A::from_f64(self.quantizer.threshold);
        let mut wide = [A::ZERO; BLOCK];
        let block_bytes = self.quantizer.code.num_bytes(BLOCK);
        let blocks = gradient.chunks(BLOCK).zip(self.codes.chunks_mut(block_bytes));
        for (index, (gradient, codes)) in blocks.enumerate() {
            let start = index * BLOCK;
            let residual = residual.block(start, start + gradient.len());
            let gradient = widen(gradient, &mut wide);
            match self.quantizer.code {
                Code::TwoBit => two_bits(gradient, residual, threshold, codes),
                Code::OneBit => one_bit(gradient, residual, threshold, codes),
            }
        }
        Ok(())
    }
}

/// Adds a block to its residuals, and takes off what the codes say.
fn two_bits<A: Real>(gradient: &[A], residual: &mut [A], threshold: A, codes: &mut [u8]) {
    let mut digits = [0; BLOCK];
    for ((digit, residual), &gradient) in digits.iter_mut().zip(residual).zip(gradient) {
        let sum = *residual + gradient;
        let (above, below) = (sum >= threshold, sum <= -threshold);
        let sent = if above { threshold } else { A::ZERO };
        let sent = if below { -threshold } else { sent };
        *residual = sum - sent;
        *digit = u8::from(above) * 3 + u8::from(below) * 2;
    }
    for (code, digits) in codes.iter_mut().zip(digits.as_chunks::<4>().0) {
        // The digits' own bits end up side by side in the highest byte, and nothing else there.
        const GATHER: u32 = 1 << 30 | 1 << 20 | 1 << 10 | 1;
        let [.., highest] = u32::from_le_bytes(*digits).wrapping_mul(GATHER).to_le_bytes();
        *code = highest;
    }
}

/// Adds a block to its residuals, and takes off what the codes say.
fn one_bit<A: Real>(gradient: &[A], residual: &mut [A], threshold: A, codes: &mut [u8]) {
    let mut digits = [0; BLOCK];
    for ((digit, residual), &gradient) in digits.iter_mut().zip(residual).zip(gradient) {
        let sum = *residual + gradient;
        let above = sum > threshold;
        *residual = sum - if above { A::ONE } else { -A::ONE };
        *digit = u8::from(above);
    }
    for (code, digits) in codes.iter_mut().zip(digits.as_chunks::<8>().0) {
        // The first digit comes highest; each is moved to its place, and nothing else gets there.
        const GATHER: u64 = 0x8040_2010_0804_0201;
        let [.., highest] = u64::from_le_bytes(*digits).wrapping_mul(GATHER).to_le_bytes();
        *code = highest;
    }
}

impl Job for DequantizeJob<'_> {
    type Piece<'j>
        = Dequantize<'j>
    where
        Self: 'j;

    fn len(&self) -> usize {
        self.dst.num_bytes / self.dtype.size()
    }

    fn open(&mut self) -> Result<Dequantize<'_>> {
        let (quantizer, dtype) = (self.quantizer, self.dtype);
        let codes = self.codes.iter().map(|span| bytes(*span)).collect::<Result<Vec<_>>>()?;
        let dst = bytes_mut(self.dst.reborrow())?;
        let num_bytes = quantizer.code.num_bytes(dst.len() / dtype.size());
        if codes.is_empty() || codes.iter().any(|codes| codes.len() != num_bytes) {
            return Err(Error::Internal("codes of another length than their sum".to_owned()));
        }
        Ok(Dequantize { quantizer, dtype, codes, dst })
    }

    fn run(piece: Dequantize<'_>) -> Result<()> {
        match piece.dtype {
            DType::F32 => piece.run::<f32, f32>(|sums, dst| dst.copy_from_slice(sums)),
            DType::F64 => piece.run::<f64, f64>(|sums, dst| dst.copy_from_slice(sums)),
            DType::F16 => piece.run::<f16, f32>(narrow),
            DType::Bf16 => piece.run::<bf16, f32>(narrow),
            DType::U8 | DType::I32 | DType::I8 | DType::I64 => Err(no_float()),
        }
    }
}

/// Some elements of a sum of codes.
pub(super) struct Dequantize<'a> {
    quantizer: Quantizer,
    dtype: DType,
    codes: Vec<&'a [u8]>,
    dst: &'a mut [u8],
}

impl Split for Dequantize<'_> {
    fn len(&self) -> usize {
        self.dst.len() / self.dtype.size()
    }

    fn split_at(self, middle: usize) -> (Self, Self) {
        let Self { quantizer, dtype, .. } = self;
        let middle = middle - middle % WORD;
        let num_bytes = quantizer.code.num_bytes(middle);
        let (dst, right_dst) = self.dst.split_at_mut(middle * dtype.size());
        let (codes, right_codes) = self.codes.iter().map(|codes| codes.split_at(num_bytes)).unzip();
        let right = Self { quantizer, dtype, codes: right_codes, dst: right_dst };
        (Self { quantizer, dtype, codes, dst }, right)
    }
}

impl Dequantize<'_> {
    /// Sums what the codes mean in the arithmetic `A`, which `narrow` rounds to elements `T`.
    fn run<T: Element, A: Real>(self, narrow: impl Fn(&[A], &mut [T])) -> Result<()> {
        let threshold = A::from_f64(self.quantizer.threshold);
        let block_bytes = self.quantizer.code.num_bytes(BLOCK);
        let mut sums = [A::ZERO; BLOCK];
        for (index, dst) in cast_mut::<T>(self.dst)?.chunks_mut(BLOCK).enumerate() {
            let sums = sums.get_mut(..dst.len()).unwrap_or_default();
            for (n, codes) in self.codes.iter().enumerate() {
                let codes = codes.get(index * block_bytes..).unwrap_or_default();
                let add = |sum: &mut A, value| *sum = if n == 0 { value } else { *sum + value };
                match self.quantizer.code {
                    Code::TwoBit => {
                        let values = [A::ZERO, A::ZERO, -threshold, threshold];
                        for (sums, &code) in sums.chunks_mut(4).zip(codes) {
                            for (digit, sum) in sums.iter_mut().enumerate() {
                                add(sum, values[usize::from(code >> (6 - 2 * digit) & 3)]);
                            }
                        }
                    }
                    Code::OneBit => {
                        for (sums, &code) in sums.chunks_mut(8).zip(codes) {
                            for (digit, sum) in sums.iter_mut().enumerate() {
                                let is_set = code >> (7 - digit) & 1 == 1;
                                add(sum, if is_set { A::ONE } else { -A::ONE });
                            }
                        }
                    }
                }
            }
            narrow(sums, dst);
        }
        Ok(())
    }
}
