//! [`Device`]: the name of a device. It is not a handle.

use std::fmt;

use super::error::{Error, Result};

/// The kind of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DeviceKind {
    /// The host. Every ordinal names the same memory. Ordinals distinguish replicas by name only.
    #[default]
    Cpu,
    /// An accelerator with its own memory.
    Gpu,
}

impl DeviceKind {
    /// Returns the name, `cpu` or `gpu`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Gpu => "gpu",
        }
    }

    /// Returns the kind with this name.
    ///
    /// # Errors
    /// - [`Error::InvalidArgument`] if the name is neither `cpu` nor `gpu`.
    pub fn from_name(name: &str) -> Result<Self> {
        match name {
            "cpu" => Ok(Self::Cpu),
            "gpu" => Ok(Self::Gpu),
            _ => Err(Error::invalid(format!(
                "unknown device type `{name}`: expected `cpu` or `gpu`"
            ))),
        }
    }
}

/// A device by kind and ordinal, such as `cpu(0)`.
///
/// A `Device` is a name. Creating one never accesses hardware. A device that does not exist becomes
/// an error when memory on it is requested.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Device {
    kind: DeviceKind,
    ordinal: u32,
}

impl Device {
    /// Returns the device with this kind and ordinal.
    pub const fn new(kind: DeviceKind, ordinal: u32) -> Self {
        Self { kind, ordinal }
    }

    /// Returns `cpu(ordinal)`.
    pub const fn cpu(ordinal: u32) -> Self {
        Self::new(DeviceKind::Cpu, ordinal)
    }

    /// Returns `gpu(ordinal)`.
    pub const fn gpu(ordinal: u32) -> Self {
        Self::new(DeviceKind::Gpu, ordinal)
    }

    /// Returns the kind of the device.
    pub const fn kind(self) -> DeviceKind {
        self.kind
    }

    /// Returns the index of the device among those of its kind.
    pub const fn ordinal(self) -> u32 {
        self.ordinal
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}({})", self.kind.name(), self.ordinal)
    }
}
