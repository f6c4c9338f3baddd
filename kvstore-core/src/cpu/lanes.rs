//! [`Lanes`]: loops over the elements of one dtype, in the arithmetic that it computes in.

use half::{bf16, f16};

use super::arithmetic::{Arithmetic, Ordered};
use super::slot::Slot;
use super::sum::{BLOCK, narrow, widen};
use super::workers::Split;

/// Elements that functions of a [`Compute`](Lanes::Compute) are applied to: the type itself, or
/// `f32` for half precision, block by block and with one rounding.
pub(super) trait Lanes: Ordered {
    type Compute: Arithmetic;

    /// Returns the element in the type that is computed in.
    fn widened(self) -> Self::Compute;

    /// `x = f(x)` for every element.
    fn map(elements: Slot<'_, Self>, f: impl Fn(Self::Compute) -> Self::Compute);

    /// `x = f(x, y)` for every element and the one in its place in `others`, which are as many.
    fn zip(
        elements: Slot<'_, Self>,
        others: &[Self],
        f: impl Fn(Self::Compute, Self::Compute) -> Self::Compute,
    );
}

macro_rules! native_lanes {
    ($($type:ty),+) => {
        $(impl Lanes for $type {
            type Compute = Self;

            fn widened(self) -> Self {
                self
            }

            #[inline]
            fn map(elements: Slot<'_, Self>, f: impl Fn(Self) -> Self) {
                match elements {
                    Slot::InPlace(elements) => {
                        for element in elements {
                            *element = f(*element);
                        }
                    }
                    Slot::Into(src, dst) => {
                        for (dst, &src) in dst.iter_mut().zip(src) {
                            *dst = f(src);
                        }
                    }
                }
            }

            #[inline]
            fn zip(elements: Slot<'_, Self>, others: &[Self], f: impl Fn(Self, Self) -> Self) {
                match elements {
                    Slot::InPlace(elements) => {
                        for (element, &other) in elements.iter_mut().zip(others) {
                            *element = f(*element, other);
                        }
                    }
                    Slot::Into(src, dst) => {
                        for ((dst, &src), &other) in dst.iter_mut().zip(src).zip(others) {
                            *dst = f(src, other);
                        }
                    }
                }
            }
        })+
    };
}

macro_rules! half_lanes {
    ($($type:ty),+) => {
        $(impl Lanes for $type {
            type Compute = f32;

            fn widened(self) -> f32 {
                self.to_f32()
            }

            #[inline]
            fn map(mut elements: Slot<'_, Self>, f: impl Fn(f32) -> f32) {
                let mut wide = [0.0; BLOCK];
                let len = elements.len();
                for start in (0..len).step_by(BLOCK) {
                    let block = elements.block(start, len.min(start + BLOCK));
                    let wide = wide.get_mut(..block.len()).unwrap_or_default();
                    widen(block, wide);
                    f32::map(Slot::InPlace(wide), &f);
                    narrow(wide, block);
                }
            }

            #[inline]
            fn zip(mut elements: Slot<'_, Self>, others: &[Self], f: impl Fn(f32, f32) -> f32) {
                let (mut wide, mut wide_others) = ([0.0; BLOCK], [0.0; BLOCK]);
                let len = elements.len();
                for (start, others) in (0..len).step_by(BLOCK).zip(others.chunks(BLOCK)) {
                    let block = elements.block(start, len.min(start + BLOCK));
                    let wide = wide.get_mut(..block.len()).unwrap_or_default();
                    let wide_others = wide_others.get_mut(..others.len()).unwrap_or_default();
                    widen(block, wide);
                    widen(others, wide_others);
                    f32::zip(Slot::InPlace(wide), wide_others, &f);
                    narrow(wide, block);
                }
            }
        })+
    };
}

native_lanes!(f32, f64, u8, i8, i32, i64);
half_lanes!(f16, bf16);
