//! The [`Reducer`] seam: where the values of one key become one.

use std::fmt::Debug;

use crate::tensor::Tensor;
use crate::types::Device;

/// Decides where the values of one key become one, and its optimizer runs.
///
/// The bits of a sum do not depend on it: a sum is the left fold in call order everywhere.
pub trait Reducer: Send + Sync + Debug {
    /// Returns the device on which the values of a key are summed, given the first of them.
    fn home(&self, first: &Tensor) -> Device;
}

/// Sums on the host.
#[derive(Clone, Copy, Debug, Default)]
pub struct HostReducer;

impl Reducer for HostReducer {
    fn home(&self, _first: &Tensor) -> Device {
        Device::default()
    }
}

/// Sums on the device of the first value.
#[derive(Clone, Copy, Debug, Default)]
pub struct DeviceReducer;

impl Reducer for DeviceReducer {
    fn home(&self, first: &Tensor) -> Device {
        first.device()
    }
}
