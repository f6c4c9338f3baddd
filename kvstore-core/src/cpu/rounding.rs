//! Rounding to integers that stay floating-point numbers.
//!
//! The functions of the standard library are calls on processors that are only known to have the
//! least instructions of their kind. These are a few comparisons, so a loop over them becomes whole
//! vectors; the results have the same bits.

/// Floating-point numbers that can be rounded.
pub(super) trait Rounding: Sized {
    /// The next integer towards zero.
    fn fix(self) -> Self;
    /// The next integer below.
    fn floor(self) -> Self;
    /// The next integer above.
    fn ceil(self) -> Self;
    /// The nearest integer, of two equally near ones that farther from zero.
    fn round(self) -> Self;
    /// The nearest integer, of two equally near ones the lower.
    fn half_down(self) -> Self;
}

macro_rules! rounding {
    ($float:ident, $integer:ident, $digits:expr) => {
        impl Rounding for $float {
            #[inline]
            #[allow(
                clippy::cast_possible_truncation,
                clippy::cast_precision_loss,
                reason = "what has digits behind the point fits the integer, and that the float"
            )]
            fn fix(self) -> Self {
                // From here on every number is an integer, or is none at all.
                const INTEGERS: $float = (1u64 << $digits) as $float;
                let fixed = ((self as $integer) as $float).copysign(self);
                if self.abs() < INTEGERS { fixed } else { self }
            }
            #[inline]
            fn floor(self) -> Self {
                let fixed = self.fix();
                if fixed > self { fixed - 1.0 } else { fixed }
            }
            #[inline]
            fn ceil(self) -> Self {
                let fixed = self.fix();
                if fixed < self { fixed + 1.0 } else { fixed }
            }
            #[inline]
            fn round(self) -> Self {
                let fixed = self.fix();
                let is_far = (self - fixed).abs() >= 0.5;
                if is_far { fixed + (1.0 as $float).copysign(self) } else { fixed }
            }
            #[inline]
            fn half_down(self) -> Self {
                let fixed = self.fix();
                let rest = self - fixed;
                let up = if rest > 0.5 { fixed + 1.0 } else { fixed };
                if rest <= -0.5 { fixed - 1.0 } else { up }
            }
        }
    };
}

rounding!(f32, i32, f32::MANTISSA_DIGITS - 1);
rounding!(f64, i64, f64::MANTISSA_DIGITS - 1);

#[cfg(test)]
mod tests {
    use super::Rounding;

    /// The nearest integer, of two equally near ones the lower, without any loss.
    fn half_down(number: f64) -> f64 {
        if number.fract().abs() == 0.5 { number.floor() } else { number.round() }
    }

    /// `assert_rounds!(assert_rounds_32, f32)` is a function that compares every rounding of an `f32`
    /// with the standard library's.
    macro_rules! assert_rounds {
        ($name:ident, $float:ty) => {
            fn $name(x: $float) {
                let cases = [
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
    fn the_edges_round_as_the_standard_library_does() {
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
    #[allow(clippy::cast_possible_truncation, reason = "any bits will do")]
    #[allow(clippy::cast_precision_loss, reason = "and any number")]
    fn any_bits_round_as_the_standard_library_does() {
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
