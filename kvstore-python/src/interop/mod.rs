//! Arrays of other libraries, and arrays exported to them.

pub(crate) mod block;
pub(crate) mod dlpack;
pub(crate) mod dtypes;
pub(crate) mod export;
pub(crate) mod foreign;
pub(crate) mod pytorch;
pub(crate) mod stream;
pub(crate) mod to_numpy;
