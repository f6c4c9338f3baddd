//! Elements at regular distances, one after the other, and back: what the kernels of `kernels/strided.cu` get.

use kvstore_core::{Axis, Layout};

use super::batch::{Address, THREADS};

/// The most axes that a kernel knows.
const MAX_AXES: usize = 8;

/// The argument of a kernel: one array.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StridedArgs {
    /// Where elements stand one after the other.
    pub packed: Address,
    /// The first one of those at regular distances.
    pub strided: Address,
    /// In elements.
    pub len: u64,
    /// How many axes there are.
    pub num_axes: u32,
    /// Fills the struct up.
    pub unused: u32,
    /// The length of each axis.
    pub lengths: [u64; MAX_AXES],
    /// From one element to the next along each axis, in bytes.
    pub strides: [i64; MAX_AXES],
}

impl StridedArgs {
    /// Returns the argument for the elements of a layout, whose first one is at `first`; none for more axes than a kernel knows. Axes whose elements
    /// follow each other are one.
    pub fn new(packed: Address, first: Address, layout: &Layout) -> Option<Self> {
        let mut merged: Vec<Axis> = Vec::new();
        for axis in layout.axes.iter().filter(|axis| axis.length != 1) {
            match merged.last_mut() {
                Some(outer) if Some(outer.stride) == reach(axis) => {
                    *outer = Axis { length: outer.length * axis.length, stride: axis.stride };
                }
                _ => merged.push(*axis),
            }
        }
        let (mut lengths, mut strides) = ([0; MAX_AXES], [0; MAX_AXES]);
        if merged.len() > MAX_AXES {
            return None;
        }
        for (axis, (length, stride)) in merged.iter().zip(lengths.iter_mut().zip(&mut strides)) {
            (*length, *stride) = (axis.length as u64, axis.stride as i64);
        }
        let len = layout.axes.iter().map(|axis| axis.length as u64).product();
        let num_axes = u32::try_from(merged.len()).ok()?;
        Some(Self { packed, strided: first, len, num_axes, unused: 0, lengths, strides })
    }

    /// Returns how many blocks are useful: each thread then works once.
    pub(crate) fn num_tiles(&self) -> u64 {
        self.len.div_ceil(THREADS.into())
    }
}

/// Returns how far the elements of an axis reach, if that is a distance at all.
fn reach(axis: &Axis) -> Option<isize> {
    axis.stride.checked_mul(isize::try_from(axis.length).ok()?)
}

/// Returns the kernel that copies elements of so many bytes to one after the other, or from there.
pub fn kernel(size: usize, is_gather: bool) -> String {
    format!("kv_{}_{size}", if is_gather { "gather" } else { "scatter" })
}
