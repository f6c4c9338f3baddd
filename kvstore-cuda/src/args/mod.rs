//! The arguments of kernels. Their structs have the layout of the structs in `kernels/*.h`.

pub mod argmax;
pub mod batch;
pub mod cast;
pub mod elementwise;
pub mod fan;
pub mod norm;
pub mod plan_rows;
pub mod quantize;
pub mod random;
pub mod reduce;
pub mod row_jobs;
pub mod strided;
pub mod sum;
pub mod transpose;
pub mod update;
