//! The arguments and names of the kernels in `kernels/elementwise.cu`, which apply an operation to
//! every element of a range. Each launch processes one range.

use kvstore_core::{BinaryOp, DType, Scalar, UnaryOp};

use super::batch::{Address, THREADS, VECTOR_BYTES, is_aligned};
use super::update::FromTo;

/// The number of elements that a thread processes at a time. For elements of more than two bytes it
/// is smaller, but the alignment is the same.
const AT_ONCE: usize = 8;

/// The argument of a kernel that fills a range with one number.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FillArgs {
    /// The destination.
    pub to: Address,
    /// The number of elements.
    pub len: u64,
    /// The bits of the number in the dtype of the elements.
    pub number: u64,
    /// 1 if the elements of a thread can be stored in one instruction, otherwise 0.
    pub is_aligned: u32,
    /// Padding.
    pub unused: u32,
}

/// The argument of a kernel for a binary operation.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BinaryArgs {
    /// The left operand.
    pub from: Address,
    /// The destination.
    pub to: Address,
    /// The address of the right operand, or the bits of a scalar.
    pub rhs: u64,
    /// The number of elements.
    pub len: u64,
    /// The code of the operation.
    pub op: u32,
    /// 1 if the right operand is a scalar, otherwise 0.
    pub is_scalar: u32,
    /// 1 if the operands are swapped, otherwise 0.
    pub is_reversed: u32,
    /// 1 if the elements of a thread can be loaded and stored in one instruction, otherwise 0.
    pub is_aligned: u32,
}

/// The argument of a kernel for a unary operation.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnaryArgs {
    /// The source.
    pub from: Address,
    /// The destination.
    pub to: Address,
    /// The number of elements.
    pub len: u64,
    /// The code of the operation.
    pub op: u32,
    /// 1 if the elements of a thread can be loaded and stored in one instruction, otherwise 0.
    pub is_aligned: u32,
}

/// The argument of a kernel that clamps every element.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClipArgs {
    /// The source.
    pub from: Address,
    /// The destination.
    pub to: Address,
    /// The number of elements.
    pub len: u64,
    /// The bits of the lower limit.
    pub low: u64,
    /// The bits of the upper limit.
    pub high: u64,
    /// 1 if the elements of a thread can be loaded and stored in one instruction, otherwise 0.
    pub is_aligned: u32,
    /// Padding.
    pub unused: u32,
}

/// The argument of a kernel that searches for a zero.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnyZeroArgs {
    /// The source.
    pub from: Address,
    /// The number of elements.
    pub len: u64,
    /// The address of a `u32`, which must be 0. The kernel sets it to 1 if there is a zero.
    pub found: Address,
    /// 1 if the elements of a thread can be loaded in one instruction, otherwise 0.
    pub is_aligned: u32,
    /// Padding.
    pub unused: u32,
}

/// The right operand of a [`Binary`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Operand {
    /// A range with as many elements as the left operand.
    Range(Address),
    /// A number for every element.
    Scalar(Scalar),
}

/// The operation `lhs = lhs op rhs`, or `lhs = rhs op lhs` if `is_reversed`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Binary {
    /// The operation.
    pub op: BinaryOp,
    /// The dtype of the elements.
    pub dtype: DType,
    /// The left operand, and the destination.
    pub lhs: FromTo,
    /// The right operand.
    pub rhs: Operand,
    /// Whether the operands are swapped.
    pub is_reversed: bool,
    /// The number of elements.
    pub len: u64,
}

impl FillArgs {
    /// Returns the argument for `len` elements.
    pub fn new(dtype: DType, to: Address, number: Scalar, len: u64) -> Self {
        let is_aligned = is_at_once(dtype, &[to]);
        Self { to, len, number: number.to_bits(dtype), is_aligned, unused: 0 }
    }
}

impl BinaryArgs {
    /// Returns the argument. The caller must first search the [divisor](Binary::divisor) for zeros.
    pub fn new(binary: &Binary) -> Self {
        let FromTo { from, to } = binary.lhs;
        let (rhs, is_scalar, is_aligned) = match binary.rhs {
            Operand::Range(rhs) => (rhs, false, is_at_once(binary.dtype, &[from, to, rhs])),
            Operand::Scalar(number) => {
                let bits = number.to_bits(binary.dtype);
                (bits, true, is_at_once(binary.dtype, &[from, to]))
            }
        };
        Self {
            from,
            to,
            rhs,
            len: binary.len,
            op: binary.op.code().into(),
            is_scalar: is_scalar.into(),
            is_reversed: binary.is_reversed.into(),
            is_aligned,
        }
    }
}

impl Binary {
    /// Returns the operand that must not contain zeros, or `None` if zeros are allowed.
    pub fn divisor(&self) -> Option<Operand> {
        let rejects_zeros = self.op == BinaryOp::Div && !self.dtype.is_float();
        rejects_zeros.then_some(if self.is_reversed {
            Operand::Range(self.lhs.from)
        } else {
            self.rhs
        })
    }
}

impl UnaryArgs {
    /// Returns the argument for `len` elements.
    pub fn new(op: UnaryOp, dtype: DType, operand: FromTo, len: u64) -> Self {
        let FromTo { from, to } = operand;
        Self { from, to, len, op: op.code().into(), is_aligned: is_at_once(dtype, &[from, to]) }
    }
}

impl ClipArgs {
    /// Returns the argument for `len` elements.
    pub fn new(dtype: DType, operand: FromTo, (low, high): (Scalar, Scalar), len: u64) -> Self {
        let FromTo { from, to } = operand;
        let (low, high) = (low.to_bits(dtype), high.to_bits(dtype));
        let is_aligned = is_at_once(dtype, &[from, to]);
        Self { from, to, len, low, high, is_aligned, unused: 0 }
    }
}

impl AnyZeroArgs {
    /// Returns the argument for `len` elements.
    pub fn new(dtype: DType, from: Address, found: Address, len: u64) -> Self {
        Self { from, len, found, is_aligned: is_at_once(dtype, &[from]), unused: 0 }
    }
}

/// Returns the number of blocks with which each thread has one iteration.
pub(crate) fn num_tiles(dtype: DType, len: u64) -> u64 {
    let at_once = (VECTOR_BYTES / dtype.size() as u64).min(AT_ONCE as u64);
    len.div_ceil(u64::from(THREADS) * at_once)
}

/// Returns 1 if the elements of a thread can be loaded in one instruction from all addresses,
/// otherwise 0.
fn is_at_once(dtype: DType, addresses: &[Address]) -> u32 {
    addresses.iter().all(|address| is_aligned(*address, dtype, AT_ONCE)).into()
}

/// Returns the name of the kernel that fills a range.
pub fn fill_kernel(dtype: DType) -> String {
    format!("kv_fill_{}", 8 * dtype.size())
}

/// Returns the name of the kernel for a binary operation, or `None` for powers, whose bits depend
/// on the math library.
pub fn binary_kernel(op: BinaryOp, dtype: DType) -> Option<String> {
    (op != BinaryOp::Pow).then(|| format!("kv_binary_{dtype}"))
}

/// Returns the name of the kernel for a unary operation, or `None` for exponentials and similar
/// functions, whose bits depend on the math library.
pub fn unary_kernel(op: UnaryOp, dtype: DType) -> Option<String> {
    match op {
        UnaryOp::Exp
        | UnaryOp::Log
        | UnaryOp::Sin
        | UnaryOp::Cos
        | UnaryOp::Tanh
        | UnaryOp::Sigmoid => None,
        UnaryOp::Negate
        | UnaryOp::Abs
        | UnaryOp::Sign
        | UnaryOp::Square
        | UnaryOp::Sqrt
        | UnaryOp::Rsqrt
        | UnaryOp::Relu
        | UnaryOp::Ceil
        | UnaryOp::Floor
        | UnaryOp::Round
        | UnaryOp::Rint
        | UnaryOp::Fix => Some(format!("kv_unary_{dtype}")),
    }
}

/// Returns the name of the kernel that clamps.
pub fn clip_kernel(dtype: DType) -> String {
    format!("kv_clip_{dtype}")
}

/// Returns the name of the kernel that searches for a zero, or `None` for floating-point dtypes,
/// where a division by zero is allowed.
pub fn any_zero_kernel(dtype: DType) -> Option<String> {
    (!dtype.is_float()).then(|| format!("kv_any_zero_{}", 8 * dtype.size()))
}
