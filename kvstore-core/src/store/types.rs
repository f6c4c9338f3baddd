//! The argument and result types of store methods, except for keys and values.

use crate::tensor::Tensor;
use crate::types::{Device, Key, TensorSpec};

/// What `init` does with keys that are already initialised.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnExisting {
    /// Fails with [`Error::KeyExists`](crate::Error::KeyExists).
    #[default]
    Reject,
    /// Keeps the stored value and ignores the new one.
    Keep,
    /// Removes the key first. Its optimizer state starts anew, and it becomes the last key in the
    /// order of initialisation.
    Replace,
}

/// A pulled value, with the position of its key.
#[derive(Clone, Debug)]
pub struct PulledValue {
    /// The key's position in the order of initialisation. Outputs are assigned in this order.
    pub order: u64,
    /// The value.
    pub value: Tensor,
}

/// Statistics of a key, for monitoring.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyStats {
    /// The key.
    pub key: Key,
    /// Shape and dtype of the stored value.
    pub spec: TensorSpec,
    /// The device that holds the stored value.
    pub device: Device,
    /// The number of bytes of the stored value, or of the rows and row indices of a row-sparse
    /// value.
    pub value_bytes: usize,
    /// The number of pushes that have changed the key since it was initialised.
    pub num_pushes: u64,
    /// The number of bytes kept beside the value: optimizer state and residuals of compression.
    pub state_bytes: usize,
}

/// The description of a key, without its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// The key's position in the order of initialisation. Keys are processed in this order.
    pub order: u64,
    /// Shape and dtype of the stored value.
    pub spec: TensorSpec,
}
