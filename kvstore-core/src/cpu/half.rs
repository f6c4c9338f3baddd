//! [`Half`]: half-precision element types. They compute in `f32` and round the result.

use ::half::slice::HalfFloatSliceExt;
use ::half::{bf16, f16};

use super::sum::Fold;
use crate::rule::Real;
use crate::types::half_types;

/// A half-precision element type. It computes in `f32` and rounds the result.
pub(super) trait Half: Fold {
    /// Converts a block to `f32`. Both slices have the same length.
    fn convert_to(source: &[Self], dst: &mut [f32]);

    /// Rounds a block to half precision. Both slices have the same length.
    fn convert_from(source: &[f32], dst: &mut [Self]);

    /// Converts a block like [`Half::convert_to`], but may change the bits of a NaN.
    #[inline]
    fn convert_numbers_to(source: &[Self], dst: &mut [f32]) {
        Self::convert_to(source, dst);
    }

    /// Wraps a weight of this type.
    fn weight(weight: &mut [Self]) -> HalfWeight<'_>;
}

macro_rules! half_weights {
    ($($Variant:ident: $type:ty),+) => {
        /// A half-precision weight. Its master copy is `f32`.
        pub(super) enum HalfWeight<'a> {
            $($Variant(&'a mut [$type]),)+
        }

        impl HalfWeight<'_> {
            /// Rounds elements of the master copy into the weight from element `start` on.
            pub(super) fn write<A: Real>(&mut self, start: usize, master: &[A]) {
                let end = start + master.len();
                // The master copy of a half-precision weight is always `f32`.
                let Ok(master) = bytemuck::try_cast_slice::<A, f32>(master) else { return };
                match self {
                    $(Self::$Variant(weight) => {
                        narrow(master, weight.get_mut(start..end).unwrap_or_default());
                    })+
                }
            }
        }
    };
}
half_types!(half_weights);

/// The conversions of a type from the `half` crate.
macro_rules! conversions_of_crate {
    () => {
        #[inline]
        fn convert_to(source: &[Self], dst: &mut [f32]) {
            source.convert_to_f32_slice(dst);
        }

        #[inline]
        fn convert_from(source: &[f32], dst: &mut [Self]) {
            dst.convert_from_f32_slice(source);
        }
    };
}

impl Half for f16 {
    conversions_of_crate!();

    fn weight(weight: &mut [Self]) -> HalfWeight<'_> {
        HalfWeight::F16(weight)
    }
}

impl Half for bf16 {
    conversions_of_crate!();

    /// Shifts the bits into an `f32`. The conversion of the `half` crate checks each element for
    /// NaN.
    #[inline]
    fn convert_numbers_to(source: &[Self], dst: &mut [f32]) {
        for (wide, narrow) in dst.iter_mut().zip(source) {
            *wide = f32::from_bits(u32::from(narrow.to_bits()) << 16);
        }
    }

    fn weight(weight: &mut [Self]) -> HalfWeight<'_> {
        HalfWeight::Bf16(weight)
    }
}

/// Converts a block to `f32`.
#[inline]
pub(super) fn widen<T: Half>(source: &[T], dst: &mut [f32]) {
    if let Some(dst) = dst.get_mut(..source.len()) {
        T::convert_to(source, dst);
    }
}

/// Rounds a block to half precision.
#[inline]
pub(super) fn narrow<T: Half>(source: &[f32], dst: &mut [T]) {
    if let Some(source) = source.get(..dst.len()) {
        T::convert_from(source, dst);
    }
}
