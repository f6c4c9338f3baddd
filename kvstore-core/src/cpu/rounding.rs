//! [`Rounding`]: rounds floats to integers, and converts them to integer types.
//!
//! In a build for baseline processors, the rounding functions of the standard library are function
//! calls, and its conversions handle one element at a time. The functions here use a few additions
//! and comparisons, so compilers vectorise loops over them. The results have the same bits.

/// Floating-point types with rounding functions.
pub(super) trait Rounding: Copy {
    /// Returns the nearest integer. Ties go to the even integer.
    fn nearest(self) -> Self;
    /// Rounds towards zero.
    fn fix(self) -> Self;
    /// Rounds down.
    fn floor(self) -> Self;
    /// Rounds up.
    fn ceil(self) -> Self;
    /// Returns the nearest integer. Ties go away from zero.
    fn round(self) -> Self;
    /// Returns the nearest integer. Ties go down.
    fn half_down(self) -> Self;
    /// Returns whether [`to_integer`](Self::to_integer) supports the number.
    fn is_short(self) -> bool;
    /// Rounds towards zero.
    fn to_integer(self) -> i64;
}

macro_rules! rounding {
    ($float:ident, $integer:ident) => {
        #[allow(clippy::cast_precision_loss, reason = "sums of one or two powers of two")]
        impl Rounding for $float {
            #[inline]
            fn nearest(self) -> Self {
                // Every float from this one on is an integer. Adding it to a smaller float leaves
                // no bits for the fraction, so the addition rounds.
                const INTEGERS: $float = (1u64 << ($float::MANTISSA_DIGITS - 1)) as $float;
                let size = self.abs();
                let near = ((size + INTEGERS) - INTEGERS).copysign(self);
                if size < INTEGERS { near } else { self }
            }
            #[inline]
            fn fix(self) -> Self {
                let (size, near) = (self.abs(), self.nearest().abs());
                let fixed = if near > size { near - 1.0 } else { near };
                fixed.copysign(self)
            }
            #[inline]
            fn floor(self) -> Self {
                let near = self.nearest();
                if near > self { near - 1.0 } else { near }
            }
            #[inline]
            fn ceil(self) -> Self {
                let near = self.nearest();
                let above = if near < self { near + 1.0 } else { near };
                above.copysign(self)
            }
            #[inline]
            fn round(self) -> Self {
                let (size, near) = (self.abs(), self.nearest().abs());
                let far = if size - near == 0.5 { near + 1.0 } else { near };
                far.copysign(self)
            }
            #[inline]
            fn half_down(self) -> Self {
                let near = self.nearest();
                if near - self == 0.5 { near - 1.0 } else { near }
            }
            #[inline]
            fn is_short(self) -> bool {
                self.abs() < (1u64 << ($float::MANTISSA_DIGITS - 2)) as $float
            }
            #[inline]
            #[allow(clippy::cast_possible_wrap, reason = "a difference of bits may be negative")]
            fn to_integer(self) -> i64 {
                // The last bit of this number has the value 1, also after a short number is added.
                // So the difference of the bits is the rounded number.
                const UNITS: $float = (3u64 << ($float::MANTISSA_DIGITS - 2)) as $float;
                let sum = self + UNITS;
                let near = sum - UNITS;
                let integer = sum.to_bits().wrapping_sub(UNITS.to_bits()) as $integer;
                let above = $integer::from(near > self && self > 0.0);
                let below = $integer::from(near < self && self < 0.0);
                i64::from(integer - above + below)
            }
        }
    };
}

rounding!(f32, i32);
rounding!(f64, i64);

#[cfg(test)]
mod tests {
    use super::Rounding;

    /// Returns the nearest integer, exactly. Ties go down.
    fn half_down(number: f64) -> f64 {
        if number.fract().abs() == 0.5 { number.floor() } else { number.round() }
    }

    /// Defines a function that compares every rounding of a number with the standard library's:
    /// `assert_rounds!(assert_rounds_32, f32)`.
    macro_rules! assert_rounds {
        ($name:ident, $float:ty) => {
            #[allow(clippy::cast_possible_truncation, reason = "takes the integer part")]
            fn $name(x: $float) {
                let cases = [
                    ("nearest", x.nearest(), x.round_ties_even()),
                    ("fix", Rounding::fix(x), x.trunc()),
                    ("floor", Rounding::floor(x), x.floor()),
                    ("ceil", Rounding::ceil(x), x.ceil()),
                    ("round", Rounding::round(x), x.round()),
                ];
                for (name, found, expected) in cases {
                    let same = found.to_bits() == expected.to_bits();
                    let no_number = found.is_nan() && x.is_nan();
                    assert!(same || no_number, "{name} {x:e}: {found:e}, expected {expected:e}");
                }
                if x.is_short() {
                    assert_eq!(x.to_integer(), x as i64, "integer {x:e}");
                }
                let found = x.half_down();
                let no_number = found.is_nan() && x.is_nan();
                let same = f64::from(found) == half_down(f64::from(x));
                assert!(same || no_number, "half down {x:e}: {found:e}");
            }
        };
    }

    assert_rounds!(assert_rounds_32, f32);
    assert_rounds!(assert_rounds_64, f64);

    #[test]
    fn edge_cases_round_as_in_the_standard_library() {
        let edges =
            [0.0, 0.5, 1.0, 1.5, 2.5, 8_388_607.5, 8_388_608.0, 16_777_217.0, 2e9, 3e9, 1e30];
        for edge in edges.into_iter().chain([f32::MIN_POSITIVE, f32::INFINITY, f32::NAN]) {
            for x in [edge.next_down(), edge, edge.next_up()] {
                assert_rounds_32(x);
                assert_rounds_32(-x);
            }
        }
        let edges =
            [0.0, 0.5, 1.5, 4_503_599_627_370_495.5, 9_007_199_254_740_993.0, 1e19, f64::NAN];
        for edge in edges.into_iter().chain([f64::MIN_POSITIVE, f64::INFINITY]) {
            for x in [edge.next_down(), edge, edge.next_up()] {
                assert_rounds_64(x);
                assert_rounds_64(-x);
            }
        }
    }

    #[test]
    #[allow(clippy::cast_possible_truncation, reason = "the test needs arbitrary bits")]
    #[allow(clippy::cast_precision_loss, reason = "the test needs arbitrary numbers")]
    fn arbitrary_bits_round_as_in_the_standard_library() {
        let count = if cfg!(miri) { 100 } else { 200_000 };
        for i in 0..count {
            let bits = 0x9E37_79B9_7F4A_7C15_u64.wrapping_mul(i);
            assert_rounds_32(f32::from_bits(bits as u32));
            assert_rounds_64(f64::from_bits(bits));
            let small = (bits >> 40) as f32 / 131_072.0 - 64.0;
            for x in [small, (small * 2.0).round() / 2.0] {
                assert_rounds_32(x);
                assert_rounds_64(f64::from(x));
            }
        }
    }
}
