//! The classes of arrays, and the functions that create and save arrays.

pub(crate) mod classes;
pub(crate) mod file;
pub(crate) mod indexing;
pub(crate) mod making;
pub(crate) mod ndarray;
pub(crate) mod operand;
pub(crate) mod operators;
pub(crate) mod row_operators;
pub(crate) mod row_sparse;
