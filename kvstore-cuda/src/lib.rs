//! NVIDIA's devices, where a driver is installed. Nothing of NVIDIA's is linked, shipped or needed beside it.
//!
//! - [`probe`]: is there a driver with a device, and if not, why
//! - [`batch`]: the jobs of one launch
//! - [`sum`], [`update`], [`compress`], [`cast`]: sums, optimizer steps, codes and conversions, as their kernels read them

pub mod batch;
pub mod cast;
pub mod compress;
mod probe;
pub mod sum;
pub mod update;

pub use probe::{Absence, Driver, probe};
