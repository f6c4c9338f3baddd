//! The Rust types of tensor elements, and the conversions between them.

use std::fmt;

use bytemuck::Pod;

use super::dtypes::{DType, full_types, half_types, integer_types, with_element};

/// A single number to write to a tensor, not yet rounded to its dtype.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scalar {
    /// A float.
    Float(f64),
    /// An integer.
    Int(i64),
}

impl Scalar {
    /// Converts the number by the rules of [`cast`].
    pub fn to_element<T: Element>(self) -> T {
        match self {
            Self::Float(number) => cast(number),
            Self::Int(number) => cast(number),
        }
    }

    /// Returns the bits of the number converted to `dtype`, in the low bytes.
    pub fn to_bits(self, dtype: DType) -> u64 {
        let mut bytes = [0; 8];
        with_element!(dtype, T => {
            let element: T = self.to_element();
            for (byte, source) in bytes.iter_mut().zip(element.to_le_bytes()) {
                *byte = source;
            }
        });
        u64::from_le_bytes(bytes)
    }

    /// Returns the number as a limit for clipping elements of `dtype`. For an integer dtype,
    /// truncates the number and clamps it to the range of the dtype. NaN becomes the limit on the
    /// side of `unlimited`, so that it does not limit.
    pub(crate) fn to_limit(self, dtype: DType, unlimited: f64) -> Self {
        let Some((lowest, highest)) = dtype.integer_range() else { return self };
        let number = match self {
            Self::Float(number) if number.is_nan() => cast(unlimited),
            Self::Float(number) => cast(number),
            Self::Int(number) => number,
        };
        Self::Int(number.clamp(lowest, highest))
    }
}

impl From<f64> for Scalar {
    fn from(number: f64) -> Self {
        Self::Float(number)
    }
}

impl From<f32> for Scalar {
    fn from(number: f32) -> Self {
        Self::Float(f64::from(number))
    }
}

impl From<i64> for Scalar {
    fn from(number: i64) -> Self {
        Self::Int(number)
    }
}

impl From<i32> for Scalar {
    fn from(number: i32) -> Self {
        Self::Int(i64::from(number))
    }
}

mod sealed {
    pub trait Sealed {}
}

/// A Rust type of tensor elements. Each [`DType`] has exactly one.
pub trait Element:
    sealed::Sealed + Pod + Default + PartialOrd + Send + Sync + fmt::Debug + fmt::Display
{
    /// The dtype of tensors with elements of this type.
    const DTYPE: DType;
    /// Whether a conversion through `f32` can lose digits of this type.
    #[doc(hidden)]
    const NEEDS_F64: bool;

    /// Returns the value as `f64`. Rounds large `i64` values.
    fn to_f64(self) -> f64;
    /// Returns the value as `f32`, rounded if necessary.
    fn to_f32(self) -> f32;
    /// Returns the value as `i64`. Truncates floats and saturates. NaN becomes 0.
    fn to_i64(self) -> i64;
    /// Returns the nearest value. An integer type keeps the low bits of the truncated number.
    fn from_f64(number: f64) -> Self;
    /// Returns the nearest value. An integer type keeps the low bits of the truncated number.
    fn from_f32(number: f32) -> Self;
    /// Returns the nearest value. An integer type keeps the low bits.
    fn from_i64(number: i64) -> Self;
}

/// Converts one element.
///
/// - Float to float: rounds once, to nearest even.
/// - Float to integer: truncates to `i64`, with saturation and NaN as 0, then keeps the low bits.
/// - Integer to float: rounds once, to nearest even.
/// - Integer to integer: keeps the low bits.
#[inline]
pub fn cast<S: Element, D: Element>(source: S) -> D {
    if !S::DTYPE.is_float() || !D::DTYPE.is_float() {
        D::from_i64(source.to_i64())
    } else if S::NEEDS_F64 || D::NEEDS_F64 {
        D::from_f64(source.to_f64())
    } else {
        D::from_f32(source.to_f32())
    }
}

/// Rounds to odd: returns the number in `f32` if it is exact, otherwise the neighbour whose last
/// bit is 1.
///
/// Rounding the result to a shorter type gives the same as rounding the number directly (Boldo and
/// Melquiond, "Emulation of FMA and correctly rounded sums", 2008). This makes half precision the
/// same on every machine, because processors differ in whether they convert `f64` to half precision
/// in one step or two.
#[allow(clippy::cast_possible_truncation, reason = "the code below corrects the rounding")]
fn round_to_odd(number: f64) -> f32 {
    let nearest = number as f32;
    let back = f64::from(nearest);
    if back == number || !number.is_finite() || nearest.to_bits() & 1 == 1 {
        return nearest;
    }
    // The nearest `f32` is even, so its neighbour on the other side of the number is odd.
    if (back < number) == (number > 0.0) {
        f32::from_bits(nearest.to_bits() + 1)
    } else {
        f32::from_bits(nearest.to_bits() - 1)
    }
}

/// Returns the integer in `f64`. If it has too many digits, returns a neighbour whose last bit is
/// 1.
#[allow(clippy::cast_precision_loss, reason = "the result has at most 53 significant bits")]
fn exact_or_odd(number: i64) -> f64 {
    const SPARE: i64 = (1 << 11) - 1;
    let short = number.unsigned_abs() < 1 << 53;
    let odd = (number & !SPARE) | (i64::from(number & SPARE != 0) << 11);
    (if short { number } else { odd }) as f64
}

macro_rules! integer_element {
    ($($Variant:ident: $type:ty),+) => {$(
        impl sealed::Sealed for $type {}

        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_possible_wrap,
            clippy::cast_precision_loss,
            clippy::cast_sign_loss,
            clippy::cast_lossless,
            reason = "these conversions are defined to keep the low bits or to round"
        )]
        impl Element for $type {
            const DTYPE: DType = DType::$Variant;
            const NEEDS_F64: bool = true;

            #[inline]
            fn to_f64(self) -> f64 {
                self as f64
            }
            #[inline]
            fn to_f32(self) -> f32 {
                self as f32
            }
            #[inline]
            fn to_i64(self) -> i64 {
                self as i64
            }
            #[inline]
            fn from_f64(number: f64) -> Self {
                number as i64 as Self
            }
            #[inline]
            fn from_f32(number: f32) -> Self {
                number as i64 as Self
            }
            #[inline]
            fn from_i64(number: i64) -> Self {
                number as Self
            }
        }
    )+};
}

macro_rules! full_element {
    ($($Variant:ident: $type:ty),+) => {$(
        impl sealed::Sealed for $type {}

        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_precision_loss,
            clippy::cast_lossless,
            reason = "these conversions are defined to round"
        )]
        impl Element for $type {
            const DTYPE: DType = DType::$Variant;
            const NEEDS_F64: bool = size_of::<Self>() > size_of::<f32>();

            #[inline]
            fn to_f64(self) -> f64 {
                self as f64
            }
            #[inline]
            fn to_f32(self) -> f32 {
                self as f32
            }
            #[inline]
            fn to_i64(self) -> i64 {
                self as i64
            }
            #[inline]
            fn from_f64(number: f64) -> Self {
                number as Self
            }
            #[inline]
            fn from_f32(number: f32) -> Self {
                number as Self
            }
            #[inline]
            fn from_i64(number: i64) -> Self {
                number as Self
            }
        }
    )+};
}

macro_rules! half_element {
    ($($Variant:ident: $type:ty),+) => {$(
        impl sealed::Sealed for $type {}

        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_precision_loss,
            reason = "these conversions are defined to round"
        )]
        impl Element for $type {
            const DTYPE: DType = DType::$Variant;
            const NEEDS_F64: bool = false;

            #[inline]
            fn to_f64(self) -> f64 {
                self.to_f64()
            }
            #[inline]
            fn to_f32(self) -> f32 {
                self.to_f32()
            }
            #[inline]
            fn to_i64(self) -> i64 {
                self.to_f32() as i64
            }
            #[inline]
            fn from_f64(number: f64) -> Self {
                Self::from_f32(round_to_odd(number))
            }
            #[inline]
            fn from_f32(number: f32) -> Self {
                Self::from_f32(number)
            }
            #[inline]
            fn from_i64(number: i64) -> Self {
                Self::from_f32(round_to_odd(exact_or_odd(number)))
            }
        }
    )+};
}

full_types!(full_element);
half_types!(half_element);
integer_types!(integer_element);

#[cfg(test)]
mod tests {
    use half::{bf16, f16};

    use super::*;

    #[test]
    fn float_to_integer_truncates_into_i64_and_keeps_the_low_bits() {
        assert_eq!(cast::<f32, u8>(-1.9), 255);
        assert_eq!(cast::<f64, i8>(300.7), 44);
        assert_eq!(cast::<f32, i64>(f32::NAN), 0);
        assert_eq!(cast::<f32, i64>(f32::INFINITY), i64::MAX);
        assert_eq!(cast::<f32, i32>(f32::INFINITY), -1);
    }

    #[test]
    fn half_precision_is_rounded_once() {
        // If these were rounded to `f32` first, they would become ties, which round to even.
        let above_tie = 1.0 + 1.0 / 2048.0 + 1.0 / f64::from(1 << 30);
        assert_eq!(cast::<f64, f16>(above_tie).to_f64(), 1.0 + 1.0 / 1024.0);
        assert_eq!(cast::<f64, f16>(-above_tie).to_f64(), -1.0 - 1.0 / 1024.0);
        let above_tie = (1 << 62) + (1 << 54) + 1;
        let rounded = cast::<i64, bf16>(above_tie);
        assert_eq!(cast::<bf16, i64>(rounded), (1 << 62) + (1 << 55));
        let tie = 1.0 + 1.0 / 2048.0;
        assert_eq!(cast::<f64, f16>(tie).to_f64(), 1.0);
        assert!(cast::<f64, f16>(f64::NAN).is_nan());
        assert_eq!(cast::<f64, f16>(1e300), f16::INFINITY);
    }

    #[test]
    fn types_and_dtypes_match() {
        for dtype in DType::ALL {
            with_element!(dtype, T => {
                assert_eq!(T::DTYPE, dtype);
                assert_eq!(size_of::<T>(), dtype.size());
            });
        }
    }
}
