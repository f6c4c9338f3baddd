//! Elementwise operations. Operations with a kernel are queued on the GPU. The host runs the
//! others.

#![expect(unsafe_code, reason = "launches kernels on memory of a GPU")]

use std::sync::Arc;

use kvstore_core::backend::Operand;
use kvstore_core::storage::{InOut, Span, SpanMut};
use kvstore_core::{Backend, BinaryOp, DType, Distribution, Error, Result, Scalar, UnaryOp};

use super::CudaBackend;
use super::host;
use crate::args::elementwise::{
    self, AnyZeroArgs, Binary, BinaryArgs, ClipArgs, FillArgs, UnaryArgs, any_zero_kernel,
    binary_kernel, clip_kernel, fill_kernel, num_tiles, unary_kernel,
};
use crate::args::random::{self, RandomArgs};
use crate::args::update::FromTo;
use crate::driver::card::Card;
use crate::driver::memory::{address_on, from_to, locate, reading};

/// `Backend::fill`.
pub(crate) fn fill(dtype: DType, dst: &SpanMut<'_>, value: Scalar) -> Result<()> {
    let (card, address) = locate(reading(dst))?;
    let len = (dst.num_bytes / dtype.size()) as u64;
    let args = FillArgs::new(dtype, address, value, len);
    // SAFETY: the range is memory of the GPU and has `len` elements.
    unsafe { card.launch(card.function(&fill_kernel(dtype))?, &args, num_tiles(dtype, len)) }
}

/// `Backend::random`.
pub(crate) fn random(
    dtype: DType,
    dst: &SpanMut<'_>,
    distribution: Distribution,
    stream: [u32; 2],
    call: u64,
) -> Result<()> {
    let (card, address) = locate(reading(dst))?;
    let kernel = random::kernel(distribution, dtype)
        .ok_or_else(|| Error::Internal(format!("random numbers of the dtype {dtype}")))?;
    let len = (dst.num_bytes / dtype.size()) as u64;
    let args = RandomArgs::new(address, len, distribution, stream, call);
    // SAFETY: the range is memory of the GPU and has `len` elements.
    unsafe { card.launch(card.function(&kernel)?, &args, args.num_tiles()) }
}

/// `Backend::binary`.
pub(crate) fn binary(
    backend: &CudaBackend,
    op: BinaryOp,
    dtype: DType,
    lhs: InOut<'_>,
    rhs: Operand<'_>,
    is_reversed: bool,
) -> Result<()> {
    let Some(kernel) = binary_kernel(op, dtype) else {
        return host::binary(backend, op, dtype, lhs, rhs, is_reversed);
    };
    let (card, from_to, len) = open(dtype, &lhs)?;
    let rhs = match rhs {
        Operand::Span(span) if span.num_bytes == lhs.num_bytes() => {
            elementwise::Operand::Range(address_on(card, span)?)
        }
        Operand::Span(_) => {
            return Err(Error::Internal("operands of different lengths".to_owned()));
        }
        Operand::Scalar(number) => elementwise::Operand::Scalar(number),
    };
    let binary = Binary { op, dtype, lhs: from_to, rhs, is_reversed, len };
    if let Some(divisor) = binary.divisor() {
        reject_zeros(backend, card, dtype, divisor, len)?;
    }
    // SAFETY: the ranges are memory of the GPU and have `len` elements.
    unsafe {
        card.launch(card.function(&kernel)?, &BinaryArgs::new(&binary), num_tiles(dtype, len))
    }
}

/// `Backend::unary`.
pub(crate) fn unary(
    backend: &CudaBackend,
    op: UnaryOp,
    dtype: DType,
    operand: InOut<'_>,
) -> Result<()> {
    let Some(kernel) = unary_kernel(op, dtype) else {
        return host::change(backend, operand, |host, operand| host.unary(op, dtype, operand));
    };
    let (card, from_to, len) = open(dtype, &operand)?;
    let args = UnaryArgs::new(op, dtype, from_to, len);
    // SAFETY: the ranges are memory of the GPU and have `len` elements.
    unsafe { card.launch(card.function(&kernel)?, &args, num_tiles(dtype, len)) }
}

/// `Backend::clip`.
pub(crate) fn clip(dtype: DType, operand: &InOut<'_>, limits: (Scalar, Scalar)) -> Result<()> {
    let (card, from_to, len) = open(dtype, operand)?;
    let args = ClipArgs::new(dtype, from_to, limits, len);
    // SAFETY: the ranges are memory of the GPU and have `len` elements.
    unsafe { card.launch(card.function(&clip_kernel(dtype))?, &args, num_tiles(dtype, len)) }
}

/// Returns the GPU of an operand, its addresses, and its number of elements.
fn open<'a>(dtype: DType, in_out: &'a InOut<'_>) -> Result<(&'a Arc<Card>, FromTo, u64)> {
    let (InOut::InPlace(written) | InOut::Into { dst: written, .. }) = in_out;
    let (card, _) = locate(reading(written))?;
    let len = (in_out.num_bytes() / dtype.size()) as u64;
    if let InOut::Into { src, dst } = in_out
        && src.num_bytes != dst.num_bytes
    {
        return Err(Error::Internal("operands of different lengths".to_owned()));
    }
    Ok((card, from_to(card, in_out)?, len))
}

/// Fails if a divisor contains a zero. Waits for the search, so that nothing is written before it.
fn reject_zeros(
    backend: &CudaBackend,
    card: &Arc<Card>,
    dtype: DType,
    divisor: elementwise::Operand,
    len: u64,
) -> Result<()> {
    let found = match divisor {
        elementwise::Operand::Scalar(number) => number.to_bits(dtype) == 0,
        elementwise::Operand::Range(address) => has_zero(backend, card, dtype, address, len)?,
    };
    if found {
        return Err(Error::invalid(format!("division by zero of {dtype} values")));
    }
    Ok(())
}

fn has_zero(
    backend: &CudaBackend,
    card: &Arc<Card>,
    dtype: DType,
    address: u64,
    len: u64,
) -> Result<bool> {
    let Some(kernel) = any_zero_kernel(dtype) else { return Ok(false) };
    let mut flag = backend.pool().allocate(card.device(), size_of::<u32>())?;
    let num_bytes = size_of::<u32>();
    fill(DType::I32, &SpanMut { storage: &mut flag, start: 0, num_bytes }, 0.into())?;
    let args = AnyZeroArgs::new(dtype, address, flag.address(), len);
    // SAFETY: the range is memory of the GPU and has `len` elements. The flag has four bytes.
    unsafe { card.launch(card.function(&kernel)?, &args, num_tiles(dtype, len)) }?;
    let mut word = [0; 4];
    backend.read(Span { storage: &flag, start: 0, num_bytes }, &mut word)?;
    Ok(word != [0; 4])
}
