//! Quantises gradients to codes of one or two bits, and sums codes. Both work in one pass, block by
//! block.

use std::ops::BitOr;

use super::half::{Half, narrow};
use super::in_out::InOutSlice;
use super::memory::{bytes, bytes_mut, cast, cast_mut};
use super::sum::BLOCK;
use super::threads::{Job, Split};
use crate::backend::{DequantizeJob, QuantizeJob, Span};
use crate::codec::{Code, Quantizer};
use crate::rule::Real;
use crate::types::{DType, Element, Error, Result, with_float};

/// Pieces begin at a multiple of this many elements: the number of one-bit codes in a word.
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
        let residual = InOutSlice::open(self.residual.reborrow())?;
        Ok(Quantize { quantizer, dtype, gradient: bytes(self.gradient)?, residual, codes })
    }

    fn run(piece: Quantize<'_>) -> Result<()> {
        with_float!(piece.dtype,
            full A => piece.run::<A, A>(|block, _| block),
            half H => piece.run::<H, f32>(widened),
            integer => Err(no_float())
        )
    }
}

fn no_float() -> Error {
    Error::Internal("integers are not compressed".to_owned())
}

/// Converts a block of half precision to `f32`. May change the bits of a NaN.
fn widened<'a, T: Half>(block: &[T], wide: &'a mut [f32]) -> &'a [f32] {
    let wide = wide.get_mut(..block.len()).unwrap_or_default();
    T::convert_numbers_to(block, wide);
    wide
}

/// Some elements to quantise, as bytes.
pub(super) struct Quantize<'a> {
    quantizer: Quantizer,
    dtype: DType,
    gradient: &'a [u8],
    residual: InOutSlice<'a, u8>,
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
    /// Quantises elements of type `T` in the arithmetic of `A`. `widen` converts a block to `A`.
    fn run<T: Element, A: Lane>(
        self,
        widen: impl for<'b> Fn(&'b [T], &'b mut [A]) -> &'b [A],
    ) -> Result<()> {
        let gradient = cast::<T>(self.gradient)?;
        let mut residual = self.residual.cast::<A>()?;
        let threshold = A::from_f64(self.quantizer.threshold);
        let mut wide = [A::ZERO; BLOCK];
        let block_bytes = self.quantizer.code.num_bytes(BLOCK);
        // Converts and quantises block by block, while the converted block is in cache.
        let blocks = gradient.chunks(BLOCK).zip(self.codes.chunks_mut(block_bytes));
        for (index, (gradient, codes)) in blocks.enumerate() {
            let start = index * BLOCK;
            let residual = residual.block(start, start + gradient.len());
            let gradient = widen(gradient, &mut wide);
            match self.quantizer.code {
                Code::TwoBit => A::two_bits(gradient, residual, threshold, codes),
                Code::OneBit => A::one_bit(gradient, residual, threshold, codes),
            }
        }
        Ok(())
    }
}

/// Floats that can be compressed, with decoding tables. The tables are references, because each use
/// would copy an array.
trait Lane: Real {
    /// For each byte, the values of its four two-bit codes, as multiples of the threshold.
    const TWO_BITS: &[[Self; 4]; 256];
    /// For each byte, the values of its eight one-bit codes.
    const ONE_BIT: &[[Self; 8]; 256];

    /// Adds a block to its residuals, writes the two-bit codes, and subtracts the values that they
    /// represent from the residuals.
    fn two_bits(gradient: &[Self], residual: &mut [Self], threshold: Self, codes: &mut [u8]);
    /// Adds a block to its residuals, writes the one-bit codes, and subtracts the values that they
    /// represent from the residuals.
    fn one_bit(gradient: &[Self], residual: &mut [Self], threshold: Self, codes: &mut [u8]);
}

/// Implements [`Lane`] for a float type. The arguments are the integer type of its bits and the
/// number of code bytes to write at once: the most for which compilers still unroll the loop over
/// the elements.
///
/// Masks select the value to send, because compilers vectorise them. For an `if` they generated a
/// branch per element.
macro_rules! lane {
    ($($Float:ident: $Bits:ident, $bytes:literal);+) => {
        $(impl Lane for $Float {
            const TWO_BITS: &[[Self; 4]; 256] = &{
                let mut table = [[0.0; 4]; 256];
                let mut index = 0;
                while index < 256 * 4 {
                    let (byte, digit) = (index / 4, index % 4);
                    let code = byte >> (6 - 2 * digit) & 3;
                    table[byte][digit] = match code {
                        3 => 1.0,
                        2 => -1.0,
                        _ => 0.0,
                    };
                    index += 1;
                }
                table
            };
            const ONE_BIT: &[[Self; 8]; 256] = &{
                let mut table = [[0.0; 8]; 256];
                let mut index = 0;
                while index < 256 * 8 {
                    let (byte, digit) = (index / 8, index % 8);
                    table[byte][digit] = if byte >> (7 - digit) & 1 == 1 { 1.0 } else { -1.0 };
                    index += 1;
                }
                table
            };

            fn two_bits(
                gradient: &[Self],
                residual: &mut [Self],
                threshold: Self,
                codes: &mut [u8],
            ) {
                let all_if = |is_set| $Bits::from(is_set).wrapping_neg();
                quantize::<_, _, { 4 * $bytes }, $bytes>(gradient, residual, codes, |sum, place| {
                    let (above, below) = (all_if(sum >= threshold), all_if(sum <= -threshold));
                    let sent = above & threshold.to_bits() | below & (-threshold).to_bits();
                    ($Float::from_bits(sent), above & 3 << place | below & 2 << place)
                });
            }

            fn one_bit(
                gradient: &[Self],
                residual: &mut [Self],
                threshold: Self,
                codes: &mut [u8],
            ) {
                const MINUS_ONE: $Bits = $Float::to_bits(-1.0);
                const DIFFERENCE: $Bits = $Float::to_bits(1.0) ^ MINUS_ONE;
                quantize::<_, _, { 8 * $bytes }, $bytes>(gradient, residual, codes, |sum, place| {
                    let above = $Bits::from(sum > threshold).wrapping_neg();
                    ($Float::from_bits(MINUS_ONE ^ above & DIFFERENCE), above & 1 << place)
                });
            }
        })+
    };
}

lane!(f32: u32, 4; f64: u64, 2);

/// Quantises a block, `N` elements at a time. Their codes take `BYTES` bytes.
///
/// `encode` receives the sum of an element and its residual, and the bit position of its code in
/// these bytes. It returns the value that the code represents, and the code at its position.
#[inline(never)]
#[allow(clippy::indexing_slicing, reason = "the remainder has less than `N` elements")]
fn quantize<A, B, const N: usize, const BYTES: usize>(
    gradient: &[A],
    residual: &mut [A],
    codes: &mut [u8],
    encode: impl Fn(A, usize) -> (A, B),
) where
    A: Real,
    B: Copy + Default + BitOr<Output = B> + Into<u64>,
{
    let (gradients, gradient) = gradient.as_chunks::<N>();
    let (residuals, residual) = residual.as_chunks_mut::<N>();
    let (complete, rest) = codes.split_at_mut(gradients.len() * BYTES);
    let complete_words = gradients.iter().zip(residuals).zip(complete.as_chunks_mut::<BYTES>().0);
    for ((gradient, residual), codes) in complete_words {
        *codes = quantize_some(gradient, residual, &encode);
    }
    rest.fill(0);
    if let Some(codes) = rest.first_chunk_mut::<BYTES>() {
        // Pads the last elements with zeros, whose code is 0.
        let (mut gradients, mut residuals) = ([A::ZERO; N], [A::ZERO; N]);
        gradients[..gradient.len()].copy_from_slice(gradient);
        residuals[..residual.len()].copy_from_slice(residual);
        *codes = quantize_some(&gradients, &mut residuals, &encode);
        residual.copy_from_slice(&residuals[..residual.len()]);
    }
}

/// Quantises `N` elements and returns their codes.
#[inline(always)]
#[allow(clippy::inline_always, reason = "a call would load all constants again for `N` elements")]
#[allow(clippy::needless_range_loop, reason = "three arrays share the index")]
fn quantize_some<A, B, const N: usize, const BYTES: usize>(
    gradient: &[A; N],
    residual: &mut [A; N],
    encode: impl Fn(A, usize) -> (A, B),
) -> [u8; BYTES]
where
    A: Real,
    B: Copy + Default + BitOr<Output = B> + Into<u64>,
{
    let num_bits = 8 * BYTES / N;
    let mut codes = [B::default(); N];
    for index in 0..N {
        let first_bit = num_bits * index;
        // The first code of a byte is in its highest bits.
        let place = first_bit / 8 * 8 + 8 - num_bits - first_bit % 8;
        let sum = residual[index] + gradient[index];
        let (sent, code) = encode(sum, place);
        residual[index] = sum - sent;
        codes[index] = code;
    }
    // Combines the codes in four lanes first, so that the compiler vectorises the loop.
    let mut combined = [B::default(); 4];
    for (index, code) in codes.into_iter().enumerate() {
        combined[index % 4] = combined[index % 4] | code;
    }
    let [first, second, third, fourth] = combined;
    let bytes = (first | second | third | fourth).into().to_le_bytes();
    std::array::from_fn(|index| bytes[index])
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
        let codes = self.codes;
        let dst = bytes_mut(self.dst.reborrow())?;
        let num_bytes = quantizer.code.num_bytes(dst.len() / dtype.size());
        if codes.is_empty() || codes.iter().any(|codes| codes.num_bytes != num_bytes) {
            return Err(Error::Internal("codes of another length than their sum".to_owned()));
        }
        Ok(Dequantize { quantizer, dtype, codes, first_byte: 0, dst })
    }

    fn run(piece: Dequantize<'_>) -> Result<()> {
        with_float!(piece.dtype,
            full A => piece.run_full::<A>(),
            half H => piece.run_half::<H>(),
            integer => Err(no_float())
        )
    }
}

/// Some elements of a sum of codes.
///
/// It borrows the list of codes, because an allocation could fail. The residuals have already
/// changed when the sum runs, so a failure would lose gradients.
pub(super) struct Dequantize<'a> {
    quantizer: Quantizer,
    dtype: DType,
    /// The codes of all elements of the job: one range per addend.
    codes: &'a [Span<'a>],
    /// The index of the byte with the code of the first element, in each range.
    first_byte: usize,
    dst: &'a mut [u8],
}

impl Split for Dequantize<'_> {
    fn len(&self) -> usize {
        self.dst.len() / self.dtype.size()
    }

    fn split_at(self, middle: usize) -> (Self, Self) {
        let Self { quantizer, dtype, codes, first_byte, dst } = self;
        let middle = middle - middle % WORD;
        let (dst, right_dst) = dst.split_at_mut(middle * dtype.size());
        let right_byte = first_byte + quantizer.code.num_bytes(middle);
        let right = Self { quantizer, dtype, codes, first_byte: right_byte, dst: right_dst };
        (Self { quantizer, dtype, codes, first_byte, dst }, right)
    }
}

impl Dequantize<'_> {
    /// Sums the values of the codes in the arithmetic of the element type.
    fn run_full<A: Lane>(self) -> Result<()> {
        let block_bytes = self.quantizer.code.num_bytes(BLOCK);
        let starts = (self.first_byte..).step_by(block_bytes);
        for (start, dst) in starts.zip(cast_mut::<A>(self.dst)?.chunks_mut(BLOCK)) {
            sum_block(self.quantizer, self.codes, start, dst)?;
        }
        Ok(())
    }

    /// Sums the values of the codes in `f32` and rounds once.
    fn run_half<T: Half>(self) -> Result<()> {
        let mut sums = [0f32; BLOCK];
        let block_bytes = self.quantizer.code.num_bytes(BLOCK);
        let starts = (self.first_byte..).step_by(block_bytes);
        for (start, dst) in starts.zip(cast_mut::<T>(self.dst)?.chunks_mut(BLOCK)) {
            let sums = sums.get_mut(..dst.len()).unwrap_or_default();
            sum_block(self.quantizer, self.codes, start, sums)?;
            narrow(sums, dst);
        }
        Ok(())
    }
}

/// Sums the values of the codes of a block. The codes begin at byte `start` of each range.
fn sum_block<A: Lane>(
    quantizer: Quantizer,
    codes: &[Span<'_>],
    start: usize,
    sums: &mut [A],
) -> Result<()> {
    let threshold = A::from_f64(quantizer.threshold);
    for (index, codes) in codes.iter().enumerate() {
        let codes = bytes(*codes)?.get(start..).unwrap_or_default();
        match (quantizer.code, index) {
            (Code::TwoBit, 0) => put(sums, codes, A::TWO_BITS, |_, unit| unit * threshold),
            (Code::TwoBit, _) => put(sums, codes, A::TWO_BITS, |sum, unit| sum + unit * threshold),
            (Code::OneBit, 0) => put(sums, codes, A::ONE_BIT, |_, unit| unit),
            (Code::OneBit, _) => put(sums, codes, A::ONE_BIT, |sum, unit| sum + unit),
        }
    }
    Ok(())
}

/// Replaces each sum with `put(sum, value)`, where `value` is the value of its code in `table`.
#[inline(never)]
#[allow(clippy::indexing_slicing, reason = "the table has a row for every byte")]
fn put<A: Lane, const N: usize>(
    sums: &mut [A],
    codes: &[u8],
    table: &[[A; N]; 256],
    put: impl Fn(A, A) -> A,
) {
    let (complete, rest) = sums.as_chunks_mut::<N>();
    let last = codes.get(complete.len());
    for (sums, code) in complete.iter_mut().zip(codes) {
        for (sum, unit) in sums.iter_mut().zip(&table[usize::from(*code)]) {
            *sum = put(*sum, *unit);
        }
    }
    if let Some(code) = last {
        for (sum, unit) in rest.iter_mut().zip(&table[usize::from(*code)]) {
            *sum = put(*sum, *unit);
        }
    }
}
