//! The binary formats of dtypes: the model's own table, which uses no conversion of the core.

use kvstore::DType;

use crate::value::Number;

/// The meaning of the bits of an element.
#[derive(Clone, Copy, Debug)]
pub enum Format {
    /// An `f64`.
    Double,
    /// An `f32`.
    Single,
    /// A float whose arithmetic is done in `f32`.
    Half(HalfFormat),
    /// An integer. A signed one is in two's complement.
    Integer {
        /// The number of bits.
        bits: u32,
        /// Whether it is signed.
        is_signed: bool,
    },
}

/// An IEEE 754 float whose arithmetic is done in `f32`. From the highest bit down, it has a sign,
/// an exponent and a mantissa.
#[derive(Clone, Copy, Debug)]
pub struct HalfFormat {
    /// The number of bits of the exponent.
    pub exponent: u32,
    /// The number of bits of the mantissa.
    pub mantissa: u32,
}

impl Format {
    /// Returns the format of a dtype.
    pub fn of(dtype: DType) -> Self {
        let half = |exponent, mantissa| Self::Half(HalfFormat { exponent, mantissa });
        let signed = |bits| Self::Integer { bits, is_signed: true };
        match dtype {
            DType::F64 => Self::Double,
            DType::F32 => Self::Single,
            DType::F16 => half(5, 10),
            DType::Bf16 => half(8, 7),
            DType::I8 => signed(8),
            DType::I32 => signed(32),
            DType::I64 => signed(64),
            DType::U8 => Self::Integer { bits: 8, is_signed: false },
        }
    }

    /// Returns the half-precision format, or `None` for another dtype.
    pub fn half(self) -> Option<HalfFormat> {
        if let Self::Half(half) = self { Some(half) } else { None }
    }

    /// Returns the smallest and the largest integer, or `None` for a float.
    pub fn integers(self) -> Option<(i64, i64)> {
        match self {
            Self::Double | Self::Single | Self::Half(_) => None,
            Self::Integer { bits, is_signed: true } => {
                Some((i64::MIN >> (64 - bits), i64::MAX >> (64 - bits)))
            }
            Self::Integer { bits, is_signed: false } => Some((0, i64::MAX >> (63 - bits))),
        }
    }

    /// Returns the number that an element stores after `number` is written to it.
    ///
    /// A float is rounded to the nearest float. An integer keeps its low bits. A float is converted
    /// to an integer through i64: towards zero, saturating, NaN as 0.
    #[must_use]
    pub fn nearest(self, number: Number) -> Number {
        match self {
            Self::Double => Number::Float(number.to_f64()),
            Self::Single => Number::Float(number.to_f32().into()),
            Self::Half(half) => Number::Float(half.nearest(number.to_f64_for_rounding())),
            Self::Integer { .. } => self.read(number.to_i64().cast_unsigned()),
        }
    }

    /// Returns the number that the low bits represent.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "the high bits mean nothing")]
    pub fn read(self, bits: u64) -> Number {
        match self {
            Self::Double => Number::Float(f64::from_bits(bits)),
            Self::Single => Number::Float(f32::from_bits(bits as u32).into()),
            Self::Half(half) => Number::Float(half.read(bits)),
            Self::Integer { bits: length, is_signed } => {
                let (high, unused) = (bits << (64 - length), 64 - length);
                let signed = high.cast_signed() >> unused;
                Number::Int(if is_signed { signed } else { (high >> unused).cast_signed() })
            }
        }
    }

    /// Returns the bits of a number that an element can store, in the low bits. The other bits are
    /// unspecified.
    pub(crate) fn bits(self, number: Number) -> u64 {
        match self {
            Self::Double => number.to_f64().to_bits(),
            Self::Single => number.to_f32().to_bits().into(),
            Self::Half(half) => half.bits(number.to_f64()),
            Self::Integer { .. } => number.to_i64().cast_unsigned(),
        }
    }
}

impl HalfFormat {
    /// Returns the exponent of the smallest normal number.
    fn smallest_exponent(self) -> i32 {
        2 - (1 << (self.exponent - 1))
    }

    /// Returns the largest finite number.
    pub fn largest(self) -> f64 {
        power_of_two(2 - self.smallest_exponent()) * (1.0 - self.rounding())
    }

    /// Returns the largest relative error of rounding.
    #[expect(clippy::cast_possible_wrap, reason = "mantissas are short")]
    pub fn rounding(self) -> f64 {
        power_of_two(-1 - self.mantissa as i32)
    }

    /// Returns the distance from a number to the next.
    pub fn step(self, x: f64) -> f64 {
        let exponent = (x.to_bits() >> 52 & 0x7ff) as i32 - 1023;
        2.0 * self.rounding() * power_of_two(exponent.max(self.smallest_exponent()))
    }

    /// Returns the nearest number. In a tie, returns the one whose last bit is 0.
    fn nearest(self, x: f64) -> f64 {
        if !x.is_finite() {
            return x;
        }
        let rounded = (x / self.step(x)).round_ties_even() * self.step(x);
        if rounded.abs() > self.largest() { f64::INFINITY.copysign(x) } else { rounded }
    }

    /// Returns the factor between a number and the f64 with the same exponent and mantissa bits.
    fn scale(self) -> f64 {
        power_of_two(1022 + self.smallest_exponent())
    }

    fn read(self, bits: u64) -> f64 {
        let Self { exponent, mantissa } = self;
        let size = f64::from_bits((bits % (1 << (exponent + mantissa))) << (52 - mantissa));
        let is_finite = bits >> mantissa & ((1 << exponent) - 1) != (1 << exponent) - 1;
        let size = if is_finite {
            size * self.scale()
        } else {
            f64::from_bits(size.to_bits() | f64::INFINITY.to_bits())
        };
        if bits >> (exponent + mantissa) & 1 == 1 { -size } else { size }
    }

    fn bits(self, x: f64) -> u64 {
        let Self { exponent, mantissa } = self;
        let (size, all) = (x.abs(), (1 << (exponent + mantissa)) - 1);
        let size = if x.is_finite() {
            (size / self.scale()).to_bits() >> (52 - mantissa)
        } else {
            // A NaN keeps the first bits of its fraction. At least one of them must be set.
            (size.to_bits() >> (52 - mantissa) | u64::from(x.is_nan())) & all
        };
        size | u64::from(x.is_sign_negative()) << (exponent + mantissa)
    }
}

/// Returns the floating-point dtypes, which optimizers accept.
pub fn float_dtypes() -> impl Iterator<Item = DType> {
    DType::ALL.into_iter().filter(|dtype| Format::of(*dtype).integers().is_none())
}

/// Returns 2 to a power that is in the range of f64.
#[expect(clippy::cast_sign_loss, reason = "exponents of f64 are positive")]
fn power_of_two(power: i32) -> f64 {
    f64::from_bits(((1023 + power) as u64) << 52)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_half_float_has_its_bits() {
        for dtype in DType::ALL {
            let Some(half) = Format::of(dtype).half() else { continue };
            // A prime, so that all fields of the format vary.
            let step = if cfg!(miri) { 97 } else { 1 };
            for bits in (0..1 << (8 * dtype.size())).step_by(step) {
                let number = half.read(bits);
                assert!(number.is_nan() || half.bits(number) == bits, "{bits:#x} of {dtype}");
                assert!(number.is_nan() || half.nearest(number).to_bits() == number.to_bits());
            }
            assert_eq!(half.nearest(half.largest()).to_bits(), half.largest().to_bits());
        }
    }
}
