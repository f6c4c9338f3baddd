//! What verbs take and return besides keys and values.

use crate::tensor::Tensor;
use crate::types::{Device, Key, TensorSpec};

/// The treatment of keys that are already initialised.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnExisting {
    /// The call fails with [`Error::KeyExists`](crate::Error::KeyExists).
    #[default]
    Reject,
    /// The key keeps its value, and the new value is not used.
    Keep,
    /// The key is removed first: its optimizer state starts anew, and it becomes the last key in the
    /// order of initialisation.
    Replace,
}

/// A value that was pulled.
#[derive(Clone, Debug)]
pub struct PulledValue {
    /// The rank of the key by initialisation: the order in which outputs are assigned.
    pub order: u64,
    /// The value.
    pub value: Tensor,
}

/// What a key holds, for people who watch a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyStats {
    /// The key.
    pub key: Key,
    /// Shape and dtype of the stored value.
    pub spec: TensorSpec,
    /// The device where the stored value is.
    pub device: Device,
    /// The bytes of the stored value; where only some rows of it are there, theirs and those of their numbers.
    pub value_bytes: usize,
    /// How many pushes have changed it since it was initialised.
    pub num_pushes: u64,
    /// The bytes that are kept beside the value: optimizer state, residuals of compressed values.
    pub state_bytes: usize,
}

/// What a store knows of a key without its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// The rank of the key by initialisation: the order in which keys are processed.
    pub order: u64,
    /// Shape and dtype of the stored value.
    pub spec: TensorSpec,
}
