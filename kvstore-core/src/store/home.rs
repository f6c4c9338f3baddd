//! [`Home`]: the device on which the values of a key are summed.

use crate::tensor::Tensor;
use crate::types::Device;

/// The device that sums the values of a key and runs its optimizer.
///
/// The choice does not change the bits of a sum: on every device, a sum is the left fold in call
/// order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Home {
    /// The host.
    Host,
    /// The device of the key's first value in the call.
    FirstValue,
}

impl Home {
    /// Returns the home for the name of a store kind, in lower case, or `None` if the name is
    /// unknown.
    pub(crate) fn of_kind(name: &str) -> Option<Self> {
        match name {
            "local" | "local_update_cpu" | "local_allreduce_cpu" => Some(Self::Host),
            "device" | "local_allreduce_device" => Some(Self::FirstValue),
            _ => None,
        }
    }

    /// Returns the device that sums the values of a key. `first` is the key's first value.
    pub(crate) fn device(self, first: &Tensor) -> Device {
        match self {
            Self::Host => Device::default(),
            Self::FirstValue => first.device(),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;
    use crate::backend::registry::Backends;
    use crate::cpu::CpuBackend;
    use crate::types::{DType, TensorSpec};

    #[test]
    fn the_home_is_the_host_or_the_device_of_the_first_value() {
        let backends = Backends::new(vec![CpuBackend::with_threads(1)]);
        let spec = TensorSpec::new([2], DType::F32);
        let value = Tensor::allocate(&backends, Device::cpu(3), spec).unwrap();
        let home = |kind| Home::of_kind(kind).unwrap().device(&value);
        assert_eq!(home("local"), Device::cpu(0));
        assert_eq!(home("device"), Device::cpu(3));
        assert_eq!(Home::of_kind("LOCAL"), None);
    }
}
