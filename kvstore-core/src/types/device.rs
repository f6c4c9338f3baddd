//! Devices: names, not handles.

use std::fmt;

use super::error::{Error, Result};

/// What kind of device a tensor lives on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DeviceKind {
    /// The host. Every ordinal names the same memory; ordinals keep replicas apart by name.
    #[default]
    Cpu,
    /// An accelerator with memory of its own.
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
    /// [`Error::InvalidArgument`] for any other name than `cpu` and `gpu`.
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
/// It is a name: making one never touches hardware, and a device that does not exist is an error
/// only when memory on it is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Device {
    kind: DeviceKind,
    ordinal: u32,
}

impl Device {
    /// Returns the device of this kind and ordinal.
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

    /// Returns the kind.
    pub const fn kind(self) -> DeviceKind {
        self.kind
    }

    /// Returns the number among the devices of its kind.
    pub const fn ordinal(self) -> u32 {
        self.ordinal
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}({})", self.kind.name(), self.ordinal)
    }
}
