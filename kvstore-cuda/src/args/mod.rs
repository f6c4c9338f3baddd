//! The arguments of kernels: what a launch passes, as the structs of `kernels/*.h` lay it out.

pub mod batch;
pub mod cast;
pub mod compress;
pub mod elementwise;
pub mod fan;
pub mod norm;
pub mod row_jobs;
pub mod strided;
pub mod sum;
pub mod update;
