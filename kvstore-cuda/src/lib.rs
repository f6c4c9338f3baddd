//! NVIDIA's devices, where a driver is installed. Nothing of NVIDIA's is linked, shipped or needed beside it.
//!
//! - [`probe`]: is there a driver with a device, and if not, why
//! - [`CudaBackend`]: its devices, as a backend
//! - [`batch`]: the jobs of one launch
//! - [`sum`], [`broadcast`], [`update`], [`norm`], [`row_jobs`], [`compress`], [`cast`], [`elementwise`], [`strided`]: sums, copies to
//!   several places, optimizer steps, norms before steps, sums and steps of rows, codes, conversions, the operations on every element, and
//!   copies of arrays of other libraries, as their kernels read them; [`fan`] is what the first two have in common

#![cfg_attr(test, allow(clippy::disallowed_macros, reason = "a test may abort without memory"))]

mod args;
mod backend;
mod driver;

pub use args::{batch, cast, compress, elementwise, fan, norm, row_jobs, strided, sum, update};
pub use backend::{CudaBackend, broadcast};
pub use driver::probe::{Absence, Driver, probe};
