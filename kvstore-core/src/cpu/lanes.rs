//! [`Lanes`]: loops over elements, in the arithmetic of their dtype.

use super::arithmetic::{Arithmetic, Ordered};
use super::half::{narrow, widen};
use super::in_out::InOutSlice;
use super::sum::BLOCK;
use super::threads::Split;
use crate::types::{full_types, half_types, integer_types};

/// The loop of an operation with one operand, and the numbers that it uses. The loop is compiled
/// once per compute type.
///
/// It gets the numbers by value. With a reference, the compiler could not rule out that a write
/// changes a number, and would not vectorise the loop.
#[derive(Clone, Copy)]
pub(super) struct Map<C> {
    pub(super) numbers: (C, C),
    pub(super) run: fn(InOutSlice<'_, C>, C, C),
}

/// The loop of an operation with two operands of the same length.
pub(super) type Zip<C> = fn(InOutSlice<'_, C>, &[C]);

/// Element types with a compute type: their own, or `f32` for half precision. Half precision is
/// converted in blocks, and each result is rounded once.
pub(super) trait Lanes: Ordered {
    type Compute: Arithmetic;

    /// Returns the element in the compute type.
    fn widened(self) -> Self::Compute;

    /// Calls `map` on all elements, in blocks for half precision.
    fn map(elements: InOutSlice<'_, Self>, map: Map<Self::Compute>);

    /// Calls `zip` on all elements and the same number of `others`, in blocks for half precision.
    fn zip(elements: InOutSlice<'_, Self>, others: &[Self], zip: Zip<Self::Compute>);
}

macro_rules! native_lanes {
    ($($Variant:ident: $type:ty),+) => {
        $(impl Lanes for $type {
            type Compute = Self;

            fn widened(self) -> Self {
                self
            }

            fn map(elements: InOutSlice<'_, Self>, map: Map<Self>) {
                (map.run)(elements, map.numbers.0, map.numbers.1);
            }

            fn zip(elements: InOutSlice<'_, Self>, others: &[Self], zip: Zip<Self>) {
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

            fn map(mut elements: InOutSlice<'_, Self>, map: Map<f32>) {
                let mut wide = [0.0; BLOCK];
                let len = elements.len();
                for start in (0..len).step_by(BLOCK) {
                    let block = elements.block(start, len.min(start + BLOCK));
                    let wide = wide.get_mut(..block.len()).unwrap_or_default();
                    widen(block, wide);
                    (map.run)(InOutSlice::InPlace(wide), map.numbers.0, map.numbers.1);
                    narrow(wide, block);
                }
            }

            fn zip(mut elements: InOutSlice<'_, Self>, others: &[Self], zip: Zip<f32>) {
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
