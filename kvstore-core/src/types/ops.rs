//! The elementwise operations and reductions, as enums.

use super::error::{Error, Result};

/// Defines a field-less enum whose variants have names and append-only codes.
///
/// `operations! { /// doc  Name { /// doc Variant = 0 "variant", .. } }` expands to the enum with
/// `ALL`, `name`, `code` and `from_code`.
macro_rules! operations {
    ($(#[$doc:meta])* $Name:ident {
        $($(#[$variant_doc:meta])* $Variant:ident = $code:literal $text:literal,)+
    }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum $Name { $($(#[$variant_doc])* $Variant = $code,)+ }

        impl $Name {
            /// Every operation, in the order of its code.
            pub const ALL: &'static [Self] = &[$(Self::$Variant,)+];

            /// Returns the name, in lower case with underscores.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$Variant => $text,)+ }
            }

            /// Returns the code of the operation in the interfaces of other languages.
            pub const fn code(self) -> u8 {
                self as u8
            }

            /// Returns the operation with this code.
            ///
            /// # Errors
            /// - [`Error::InvalidArgument`] if no operation has this code.
            pub fn from_code(code: i32) -> Result<Self> {
                let found = Self::ALL.iter().copied().find(|op| i32::from(op.code()) == code);
                found.ok_or_else(|| {
                    Error::invalid(format!("unknown {} {code}", stringify!($Name)))
                })
            }
        }
    };
}

operations! {
    /// An operation on two numbers. Half-precision floats compute in `f32` and round once.
    BinaryOp {
        /// `a + b`. Integers wrap around.
        Add = 0 "add",
        /// `a - b`. Integers wrap around.
        Sub = 1 "sub",
        /// `a * b`. Integers wrap around.
        Mul = 2 "mul",
        /// `a / b`. Integers truncate, and a zero divisor is an error.
        Div = 3 "div",
        /// The remainder, with the sign of the divisor. For integers, `a % 0` is 0.
        Rem = 4 "rem",
        /// `a` to the power of `b`. For integers, the result is computed in `f64` and truncated.
        Pow = 5 "pow",
        /// The larger operand, or NaN if an operand is NaN.
        Maximum = 6 "maximum",
        /// The smaller operand, or NaN if an operand is NaN.
        Minimum = 7 "minimum",
        /// 1 if `a == b`, else 0.
        Equal = 8 "equal",
        /// 1 if `a != b`, else 0.
        NotEqual = 9 "not_equal",
        /// 1 if `a > b`, else 0.
        Greater = 10 "greater",
        /// 1 if `a >= b`, else 0.
        GreaterEqual = 11 "greater_equal",
        /// 1 if `a < b`, else 0.
        Less = 12 "less",
        /// 1 if `a <= b`, else 0.
        LessEqual = 13 "less_equal",
    }
}

impl BinaryOp {
    /// Returns whether the result is a truth value. Such operations broadcast their operands.
    pub const fn is_comparison(self) -> bool {
        match self {
            Self::Equal
            | Self::NotEqual
            | Self::Greater
            | Self::GreaterEqual
            | Self::Less
            | Self::LessEqual => true,
            Self::Add
            | Self::Sub
            | Self::Mul
            | Self::Div
            | Self::Rem
            | Self::Pow
            | Self::Maximum
            | Self::Minimum => false,
        }
    }
}

operations! {
    /// An operation on one number. For integers, an operation whose result may not be an integer
    /// computes in `f64` and truncates.
    UnaryOp {
        /// `-x`. Integers wrap around.
        Negate = 0 "negate",
        /// The absolute value.
        Abs = 1 "abs",
        /// -1, 0 or 1, with the sign of `x`. NaN stays NaN.
        Sign = 2 "sign",
        /// `x * x`. Integers wrap around.
        Square = 3 "square",
        /// The square root.
        Sqrt = 4 "sqrt",
        /// `1 / sqrt(x)`.
        Rsqrt = 5 "rsqrt",
        /// e to the power of `x`.
        Exp = 6 "exp",
        /// The natural logarithm.
        Log = 7 "log",
        /// The sine.
        Sin = 8 "sin",
        /// The cosine.
        Cos = 9 "cos",
        /// The hyperbolic tangent.
        Tanh = 10 "tanh",
        /// `1 / (1 + exp(-x))`.
        Sigmoid = 11 "sigmoid",
        /// The larger of `x` and 0. NaN stays NaN.
        Relu = 12 "relu",
        /// The smallest integer that is not below `x`.
        Ceil = 13 "ceil",
        /// The largest integer that is not above `x`.
        Floor = 14 "floor",
        /// The nearest integer. Halves round away from zero.
        Round = 15 "round",
        /// The nearest integer. Halves round down.
        Rint = 16 "rint",
        /// The integer part: rounds towards zero.
        Fix = 17 "fix",
    }
}

operations! {
    /// An operation that reduces all elements to one.
    Reduction {
        /// The sum.
        Sum = 0 "sum",
        /// The sum divided by the number of elements.
        Mean = 1 "mean",
        /// The largest element, or NaN if an element is NaN.
        Max = 2 "max",
        /// The smallest element, or NaN if an element is NaN.
        Min = 3 "min",
        /// The square root of the sum of the squares.
        Norm = 4 "norm",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_is_in_the_order_of_codes() {
        assert!(BinaryOp::ALL.is_sorted_by_key(|op| op.code()));
        assert!(UnaryOp::ALL.is_sorted_by_key(|op| op.code()));
        assert!(Reduction::ALL.is_sorted_by_key(|op| op.code()));
        for op in UnaryOp::ALL {
            assert_eq!(UnaryOp::from_code(op.code().into()).unwrap(), *op);
        }
        assert!(UnaryOp::from_code(-1).is_err());
    }
}
