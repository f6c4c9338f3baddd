//! Row-sparse values, which contain only some rows of a tensor, and their sums.

mod arithmetic;
mod count_union;
mod merge_indices;
mod plan;
mod row_sparse;
mod sum;
mod value;

pub use row_sparse::{RowSparse, check_ids};
pub use value::Value;

pub(crate) use plan::RowPlan;
pub(crate) use row_sparse::row_len;
pub(crate) use sum::RowSum;
