//! [`Lanes`]: loops over the elements of one dtype, in the arithmetic that it computes in.

use super::arithmetic::{Arithmetic, Ordered};
use super::half::{narrow, widen};
use super::in_out::InOutSlice;
use super::sum::BLOCK;
use super::threads::Split;
use crate::types::{full_types, half_types, integer_types};

/// What an operation does to elements. The loop over them is compiled once for each type that is computed in.
pub(super) type Map<C> = dyn Fn(InOutSlice<'_, C>) + Sync;
/// What an operation does to elements, with as many others.
pub(super) type Zip<C> = dyn Fn(InOutSlice<'_, C>, &[C]) + Sync;

/// Elements that are computed in their own type, or in `f32` for half precision, block by block and with one rounding.
pub(super) trait Lanes: Ordered {
    type Compute: Arithmetic;

    /// Returns the element in the type that is computed in.
    fn widened(self) -> Self::Compute;

    /// Calls `map` on every element.
    fn map(elements: InOutSlice<'_, Self>, map: &Map<Self::Compute>);

    /// Calls `zip` on every element and the one in its place in `others`, which are as many.
    fn zip(elements: InOutSlice<'_, Self>, others: &[Self], zip: &Zip<Self::Compute>);
}

macro_rules! native_lanes {
    ($($Variant:ident: $type:ty),+) => {
        $(impl Lanes for $type {
            type Compute = Self;

            fn widened(self) -> Self {
                self
            }

            fn map(elements: InOutSlice<'_, Self>, map: &Map<Self>) {
                map(elements);
            }

            fn zip(elements: InOutSlice<'_, Self>, others: &[Self], zip: &Zip<Self>) {
                zip(elements, others);
            }
        })+
    };
}

macro_rules! half_lanes {
    ($($Variant:ident: $type:ty),+) => {
        $(impl Lanes for $type {
            type Compute = f32;

            fn widened(self) -> f32 {
                self.to_f32()
            }

            fn map(mut elements: InOutSlice<'_, Self>, map: &Map<f32>) {
                let mut wide = [0.0; BLOCK];
                let len = elements.len();
                for start in (0..len).step_by(BLOCK) {
                    let block = elements.block(start, len.min(start + BLOCK));
                    let wide = wide.get_mut(..block.len()).unwrap_or_default();
                    widen(block, wide);
                    map(InOutSlice::InPlace(wide));
                    narrow(wide, block);
                }
            }

            fn zip(mut elements: InOutSlice<'_, Self>, others: &[Self], zip: &Zip<f32>) {
                let (mut wide, mut wide_others) = ([0.0; BLOCK], [0.0; BLOCK]);
                let len = elements.len();
                for (start, others) in (0..len).step_by(BLOCK).zip(others.chunks(BLOCK)) {
                    let block = elements.block(start, len.min(start + BLOCK));
                    let wide = wide.get_mut(..block.len()).unwrap_or_default();
                    let wide_others = wide_others.get_mut(..others.len()).unwrap_or_default();
                    widen(block, wide);
                    widen(others, wide_others);
                    zip(InOutSlice::InPlace(wide), wide_others);
                    narrow(wide, block);
                }
            }
        })+
    };
}

full_types!(native_lanes);
integer_types!(native_lanes);
half_types!(half_lanes);
