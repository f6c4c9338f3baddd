//! The kernels, compiled as C++, give the same bits as the host's backend.

#![allow(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    reason = "a test may abort without memory"
)]
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a check fails by panicking")]

mod argmax;
mod broadcast;
mod cast;
mod device;
mod dtypes;
mod elementwise;
mod host;
mod norm;
mod plan_rows;
mod quantize;
mod random;
mod reduce;
mod row_jobs;
mod strided;
mod sum;
mod transpose;
mod update;
mod update_rows;
