//! The backend for NVIDIA GPUs, on machines with a driver. The crate links and ships no NVIDIA
//! library and needs only the driver.
//!
//! - [`probe`]: looks for a driver with a GPU
//! - [`CudaBackend`]: the GPUs as a backend
//! - [`compiled`]: the code and the PTX of the kernels
//! - [`batch`]: the jobs of one launch
//! - [`sum`], [`broadcast`], [`update`], [`norm`], [`plan_rows`], [`row_jobs`], [`quantize`],
//!   [`cast`], [`elementwise`], [`strided`], [`transpose`], [`random`], [`reduce`], [`argmax`]: the
//!   arguments and names of kernels
//! - [`fan`]: the jobs that [`sum`] and [`broadcast`] share

#![cfg_attr(test, allow(clippy::disallowed_macros, reason = "a test may abort without memory"))]

mod args;
mod backend;
pub mod compiled;
mod driver;

pub use args::{
    argmax, batch, cast, elementwise, fan, norm, plan_rows, quantize, random, reduce, row_jobs,
    strided, sum, transpose, update,
};
pub use backend::{CudaBackend, broadcast};
pub use driver::probe::{Absence, Driver, probe};
