//! NVIDIA's devices, where a driver is installed. Nothing of NVIDIA's is linked, shipped or needed beside it.
//!
//! - [`probe`]: is there a driver with a device, and if not, why
//! - [`sum`]: sums of a batch as one launch

mod probe;
pub mod sum;

pub use probe::{Absence, Driver, probe};
