//! Operations on every element of a range: what the kernels of `kernels/elementwise.cu` get.
//!
//! Each argument is one range, and one launch.

use kvstore_core::{BinaryOp, DType, Scalar, UnaryOp};

use super::batch::{Address, THREADS, VECTOR_BYTES, is_aligned};
use super::update::FromTo;

/// The elements that a thread works on at a time; of more than two bytes fewer, whose alignment is the same.
const AT_ONCE: usize = 8;

/// The argument of a kernel that writes one number to every element.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FillArgs {
    /// Is written.
    pub to: Address,
    /// In elements.
    pub len: u64,
    /// The bits of an element.
    pub number: u64,
    /// Whether as many elements as a thread works on can be stored at a time.
    pub is_aligned: u32,
    /// Fills the struct up.
    pub unused: u32,
}

/// The argument of a kernel for two numbers.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BinaryArgs {
    /// The first operand.
    pub from: Address,
    /// Where the result goes.
    pub to: Address,
    /// The address of the second operand, or the bits of an element.
    pub rhs: u64,
    /// In elements.
    pub len: u64,
    /// The number of the operation.
    pub op: u32,
    /// Whether the second operand is one number.
    pub is_scalar: u32,
    /// Whether the operands change places.
    pub is_reversed: u32,
    /// Whether as many elements as a thread works on can be loaded and stored at a time.
    pub is_aligned: u32,
}

/// The argument of a kernel for one number.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnaryArgs {
    /// Is read.
    pub from: Address,
    /// Is written.
    pub to: Address,
    /// In elements.
    pub len: u64,
    /// The number of the operation.
    pub op: u32,
    /// Whether as many elements as a thread works on can be loaded and stored at a time.
    pub is_aligned: u32,
}

/// The argument of a kernel that moves numbers between two limits.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClipArgs {
    /// Is read.
    pub from: Address,
    /// Is written.
    pub to: Address,
    /// In elements.
    pub len: u64,
    /// The bits of the lower limit.
    pub low: u64,
    /// The bits of the upper limit.
    pub high: u64,
    /// Whether as many elements as a thread works on can be loaded and stored at a time.
    pub is_aligned: u32,
    /// Fills the struct up.
    pub unused: u32,
}

/// The argument of a kernel that looks for a zero.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnyZeroArgs {
    /// Is read.
    pub from: Address,
    /// In elements.
    pub len: u64,
    /// A `u32` that is 0 before, and after that 1 if there is a zero.
    pub found: Address,
    /// Whether as many elements as a thread works on can be loaded at a time.
    pub is_aligned: u32,
    /// Fills the struct up.
    pub unused: u32,
}

/// The second operand of a [`Binary`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Operand {
    /// As many elements as the first one has.
    Range(Address),
    /// One number for every element.
    Scalar(Scalar),
}

/// `lhs = lhs op rhs`, or `rhs op lhs` when `is_reversed`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Binary {
    /// The operation.
    pub op: BinaryOp,
    /// The type of the elements.
    pub dtype: DType,
    /// The first operand, and where the result goes.
    pub lhs: FromTo,
    /// The second operand.
    pub rhs: Operand,
    /// Whether the operands change places.
    pub is_reversed: bool,
    /// In elements.
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
    /// Returns the argument. Zero divisors are [looked for](Binary::divisor) before.
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
    /// Returns the operand that must have no zero; none where zeros are as good as other numbers.
    pub fn divisor(&self) -> Option<Operand> {
        let is_refused = self.op == BinaryOp::Div && !self.dtype.is_float();
        is_refused.then_some(if self.is_reversed {
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

/// Returns how many blocks are useful for so many elements: each thread then works once.
pub(crate) fn num_tiles(dtype: DType, len: u64) -> u64 {
    let at_once = (VECTOR_BYTES / dtype.size() as u64).min(AT_ONCE as u64);
    len.div_ceil(u64::from(THREADS) * at_once)
}

/// Returns 1 if from all addresses as many elements as a thread works on can be loaded at a time.
fn is_at_once(dtype: DType, addresses: &[Address]) -> u32 {
    addresses.iter().all(|address| is_aligned(*address, dtype, AT_ONCE)).into()
}

/// Returns the kernel that writes one number to every element.
pub fn fill_kernel(dtype: DType) -> String {
    format!("kv_fill_{}", 8 * dtype.size())
}

/// Returns the kernel of an operation of two numbers; none for powers, whose bits are those of a library.
pub fn binary_kernel(op: BinaryOp, dtype: DType) -> Option<String> {
    (op != BinaryOp::Pow).then(|| format!("kv_binary_{dtype}"))
}

/// Returns the kernel of an operation of one number; none for exponentials and their like, whose bits are those of a
/// library.
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

/// Returns the kernel that moves numbers between two limits.
pub fn clip_kernel(dtype: DType) -> String {
    format!("kv_clip_{dtype}")
}

/// Returns the kernel that looks for a zero; none for floats, where a zero is a divisor as good as any.
pub fn any_zero_kernel(dtype: DType) -> Option<String> {
    (!dtype.is_float()).then(|| format!("kv_any_zero_{}", 8 * dtype.size()))
}
