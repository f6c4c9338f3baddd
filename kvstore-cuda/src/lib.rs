//! NVIDIA's devices, where a driver is installed. Nothing of NVIDIA's is linked, shipped or needed beside it.
//!
//! - [`probe`]: is there a driver with a device, and if not, why
//! - [`batch`]: the jobs of one launch
//! - `emulated`, a feature: a driver and two devices on any machine, for tests
//! - [`sum`], [`update`], [`compress`], [`cast`]: sums, optimizer steps, codes and conversions, as their kernels read them

mod backend;
pub mod batch;
mod call;
pub mod cast;
pub mod compress;
mod driver;
#[cfg(feature = "emulated")]
pub mod emulated;
mod handles;
mod host;
mod launch;
mod memory;
mod modules;
mod probe;
mod staging;
pub mod sum;
pub mod update;

pub use backend::CudaBackend;
pub use probe::{Absence, Driver, probe};
