//! [`Lanes`]: loops over elements, in the arithmetic of their dtype.

use super::arithmetic::{Arithmetic, Ordered};
use super::half::{narrow, widen};
use super::in_out::InOutSlice;
use super::sum::BLOCK;
use super::threads::Split;
use crate::types::{full_types, half_types, integer_types};

// Not `dyn Fn`, because it has three methods instead of one. There are hundreds of loops, and the
// system writes an address for each method of each loop when it loads the library.

/// The loop of an operation with one operand. It is compiled once per compute type.
pub(super) trait Map<C>: Sync {
    fn run(&self, elements: InOutSlice<'_, C>);
}

impl<C, F: Fn(InOutSlice<'_, C>) + Sync> Map<C> for F {
    fn run(&self, elements: InOutSlice<'_, C>) {
        self(elements);
    }
}

/// The loop of an operation with two operands of the same length.
pub(super) trait Zip<C>: Sync {
    fn run(&self, elements: InOutSlice<'_, C>, others: &[C]);
}

impl<C, F: Fn(InOutSlice<'_, C>, &[C]) + Sync> Zip<C> for F {
    fn run(&self, elements: InOutSlice<'_, C>, others: &[C]) {
        self(elements, others);
    }
}

/// Element types with a compute type: their own, or `f32` for half precision. Half precision is
/// converted in blocks, and each result is rounded once.
pub(super) trait Lanes: Ordered {
    type Compute: Arithmetic;

    /// Returns the element in the compute type.
    fn widened(self) -> Self::Compute;

    /// Calls `map` on all elements, in blocks for half precision.
    fn map(elements: InOutSlice<'_, Self>, map: &dyn Map<Self::Compute>);

    /// Calls `zip` on all elements and the same number of `others`, in blocks for half precision.
    fn zip(elements: InOutSlice<'_, Self>, others: &[Self], zip: &dyn Zip<Self::Compute>);
}

macro_rules! native_lanes {
    ($($Variant:ident: $type:ty),+) => {
        $(impl Lanes for $type {
            type Compute = Self;

            fn widened(self) -> Self {
                self
            }

            fn map(elements: InOutSlice<'_, Self>, map: &dyn Map<Self>) {
                map.run(elements);
            }

            fn zip(elements: InOutSlice<'_, Self>, others: &[Self], zip: &dyn Zip<Self>) {
                zip.run(elements, others);
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

            fn map(mut elements: InOutSlice<'_, Self>, map: &dyn Map<f32>) {
                let mut wide = [0.0; BLOCK];
                let len = elements.len();
                for start in (0..len).step_by(BLOCK) {
                    let block = elements.block(start, len.min(start + BLOCK));
                    let wide = wide.get_mut(..block.len()).unwrap_or_default();
                    widen(block, wide);
                    map.run(InOutSlice::InPlace(wide));
                    narrow(wide, block);
                }
            }

            fn zip(mut elements: InOutSlice<'_, Self>, others: &[Self], zip: &dyn Zip<f32>) {
                let (mut wide, mut wide_others) = ([0.0; BLOCK], [0.0; BLOCK]);
                let len = elements.len();
                for (start, others) in (0..len).step_by(BLOCK).zip(others.chunks(BLOCK)) {
                    let block = elements.block(start, len.min(start + BLOCK));
                    let wide = wide.get_mut(..block.len()).unwrap_or_default();
                    let wide_others = wide_others.get_mut(..others.len()).unwrap_or_default();
                    widen(block, wide);
                    widen(others, wide_others);
                    zip.run(InOutSlice::InPlace(wide), wide_others);
                    narrow(wide, block);
                }
            }
        })+
    };
}

full_types!(native_lanes);
integer_types!(native_lanes);
half_types!(half_lanes);
