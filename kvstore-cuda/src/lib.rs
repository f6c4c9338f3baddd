//! NVIDIA's devices, where a driver is installed. Nothing of NVIDIA's is linked, shipped or needed beside it.
//!
//! - [`probe`]: is there a driver with a device, and if not, why
//! - [`CudaBackend`]: its devices, as a backend
//! - [`batch`]: the jobs of one launch
//! - [`sum`], [`update`], [`rows`], [`compress`], [`cast`], [`elementwise`]: sums, optimizer steps, both of rows, codes,
//!   conversions and the operations on every element, as their kernels read them
//! - `emulated`, a feature: a driver and two devices on any machine, for tests

mod backend;
pub mod batch;
mod call;
pub mod cast;
pub mod compress;
mod context;
mod devices;
mod driver;
pub mod elementwise;
#[cfg(feature = "emulated")]
pub mod emulated;
mod handles;
mod host;
mod launch;
mod memory;
mod modules;
mod operations;
mod probe;
pub mod rows;
mod staging;
pub mod sum;
pub mod update;

pub use backend::CudaBackend;
pub use probe::{Absence, Driver, probe};
