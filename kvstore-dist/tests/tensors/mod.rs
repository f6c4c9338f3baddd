//! Tensors with many different elements.

#![allow(clippy::unwrap_used, reason = "a check fails by panicking")]

use kvstore_core::{Backends, DType, Device, Tensor};

/// Returns a tensor of small and large numbers, whose sums depend on the order of the additions.
pub(crate) fn tensor(backends: &Backends, dtype: DType, dims: &[usize], seed: usize) -> Tensor {
    let number = |index: usize| u16::try_from((index * 37 + seed * 101) % 97).unwrap();
    let size = |index: usize| i32::try_from((index * 7 + seed * 13) % 19).unwrap();
    let number =
        |index: usize| (f32::from(number(index)) / 97.0 - 0.5) * 2f32.powi(size(index) - 7);
    let elements: Vec<f32> = (0..dims.iter().product()).map(number).collect();
    Tensor::from_slice(backends, Device::cpu(0), dims, &elements).unwrap().cast(dtype).unwrap()
}
