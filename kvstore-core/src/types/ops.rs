//! The elementwise operations and reductions, as data.

use super::error::{Error, Result};

/// Defines a field-less enum whose variants have names and append-only numbers.
///
/// `operations! { /// doc  Name { /// doc Variant = "variant", .. } }` expands to the enum with
/// `ALL`, `name` and `from_code`.
macro_rules! operations {
    ($(#[$doc:meta])* $Name:ident { $($(#[$variant_doc:meta])* $Variant:ident = $text:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum $Name { $($(#[$variant_doc])* $Variant,)+ }

        impl $Name {
            /// Every operation, in the order of its number.
            pub const ALL: &'static [Self] = &[$(Self::$Variant,)+];

            /// Returns the name in lower case with underscores.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$Variant => $text,)+ }
            }

            /// Returns the operation with this number.
            ///
            /// # Errors
            /// [`Error::InvalidArgument`] when there is none.
            pub fn from_code(code: i32) -> Result<Self> {
                usize::try_from(code).ok().and_then(|code| Self::ALL.get(code).copied()).ok_or_else(
                    || Error::invalid(format!("unknown {} {code}", stringify!($Name))),
                )
            }
        }
    };
}

operations! {
    /// An operation of two numbers. Half-precision floats compute in `f32` and round once.
    BinaryOp {
        /// `a + b`; integers wrap.
        Add = "add",
        /// `a - b`; integers wrap.
        Sub = "sub",
        /// `a * b`; integers wrap.
        Mul = "mul",
        /// `a / b`; integers truncate, and a zero divisor is an error.
        Div = "div",
        /// The remainder with the sign of the divisor; for integers `a % 0` is 0.
        Rem = "rem",
        /// `a` to the power of `b`; for integers computed in `f64` and truncated.
        Pow = "pow",
        /// The larger one; NaN wins.
        Maximum = "maximum",
        /// The smaller one; NaN wins.
        Minimum = "minimum",
        /// 1 when equal, else 0.
        Equal = "equal",
        /// 1 when not equal, else 0.
        NotEqual = "not_equal",
        /// 1 when `a > b`, else 0.
        Greater = "greater",
        /// 1 when `a >= b`, else 0.
        GreaterEqual = "greater_equal",
        /// 1 when `a < b`, else 0.
        Less = "less",
        /// 1 when `a <= b`, else 0.
        LessEqual = "less_equal",
    }
}

impl BinaryOp {
    /// Returns whether the result is a truth value; such operations broadcast their operands.
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
    /// An operation of one number. Integers compute in `f64` and truncate, where the result of
    /// the operation is not an integer anyway.
    UnaryOp {
        /// `-x`; integers wrap.
        Negate = "negate",
        /// The absolute value.
        Abs = "abs",
        /// -1, 0 or 1 with the sign of `x`; NaN stays.
        Sign = "sign",
        /// `x * x`; integers wrap.
        Square = "square",
        /// The square root.
        Sqrt = "sqrt",
        /// `1 / sqrt(x)`.
        Rsqrt = "rsqrt",
        /// e to the power of `x`.
        Exp = "exp",
        /// The natural logarithm.
        Log = "log",
        /// The sine.
        Sin = "sin",
        /// The cosine.
        Cos = "cos",
        /// The hyperbolic tangent.
        Tanh = "tanh",
        /// `1 / (1 + exp(-x))`.
        Sigmoid = "sigmoid",
        /// The larger one of `x` and 0; NaN stays.
        Relu = "relu",
        /// The next integer above.
        Ceil = "ceil",
        /// The next integer below.
        Floor = "floor",
        /// The nearest integer, half away from zero.
        Round = "round",
        /// The nearest integer, half down.
        Rint = "rint",
        /// The next integer towards zero.
        Fix = "fix",
    }
}

operations! {
    /// An operation that turns all elements into one.
    Reduction {
        /// The sum.
        Sum = "sum",
        /// The sum divided by the number of elements.
        Mean = "mean",
        /// The largest element; NaN wins.
        Max = "max",
        /// The smallest element; NaN wins.
        Min = "min",
        /// The square root of the sum of the squares.
        Norm = "norm",
    }
}
