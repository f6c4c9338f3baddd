//! The argument and names of the kernels in `kernels/strided.cu`, which copy between contiguous and
//! strided elements.

use kvstore_core::{Axis, Layout};

use super::batch::{Address, THREADS};

/// The largest number of axes that the kernels support.
const MAX_AXES: usize = 8;

/// The argument of a kernel: one array.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StridedArgs {
    /// The address of the contiguous elements.
    pub packed: Address,
    /// The address of the first strided element.
    pub strided: Address,
    /// The number of elements.
    pub len: u64,
    /// The number of axes.
    pub num_axes: u32,
    /// Padding.
    pub unused: u32,
    /// The length of each axis.
    pub lengths: [u64; MAX_AXES],
    /// The distance between neighbouring elements along each axis, in bytes.
    pub strides: [i64; MAX_AXES],
}

impl StridedArgs {
    /// Returns the argument for a layout whose first element is at `first`, or `None` if it has too
    /// many axes. Merges axes that are contiguous with each other.
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

    /// Returns the number of blocks with which each thread has one iteration.
    pub(crate) fn num_tiles(&self) -> u64 {
        self.len.div_ceil(THREADS.into())
    }
}

/// Returns the length of an axis in bytes, or `None` if it overflows.
fn reach(axis: &Axis) -> Option<isize> {
    axis.stride.checked_mul(isize::try_from(axis.length).ok()?)
}

/// Returns the name of the kernel that gathers strided elements of `size` bytes into contiguous
/// memory, or that scatters them.
pub fn kernel(size: usize, is_gather: bool) -> String {
    format!("kv_{}_{size}", if is_gather { "gather" } else { "scatter" })
}
