//! The names and constants of the file format.

use crate::types::{DType, TensorSpec};

/// The version that this library writes. It reads no other version.
pub(super) const VERSION: u32 = 1;
/// The name of the library's entry in the metadata.
pub(super) const METADATA: &str = "kvstore";
/// The name of the last tensor.
pub(super) const CHECKSUM: &str = "checksum";
/// The size of the last tensor.
pub(super) const CHECKSUM_BYTES: usize = 4;
/// The maximum length of a header in the safetensors format.
pub(super) const MAX_HEADER_BYTES: u64 = 100_000_000;

/// The maximum number of deltas in a chain. Reading the newest file reads all of them.
pub(super) const MAX_DELTAS: usize = 1000;

pub(super) fn checksum_spec() -> TensorSpec {
    TensorSpec::new([CHECKSUM_BYTES], DType::U8)
}

pub(super) fn value_name(key: &str) -> String {
    format!("value/{key}")
}

pub(super) fn rows_name(key: &str) -> String {
    format!("rows/{key}")
}

pub(super) fn row_indices_name(key: &str) -> String {
    format!("row_indices/{key}")
}

pub(super) fn state_name(index: usize, key: &str) -> String {
    format!("state/{index}/{key}")
}

pub(super) fn residual_name(index: usize, key: &str) -> String {
    format!("residual/{index}/{key}")
}

/// Returns the name for the rows of a tensor that differ from the base of a delta.
pub(super) fn changed_rows_name(tensor: &str) -> String {
    format!("changed_rows/{tensor}")
}

/// Returns the name for the indices of the rows under [`changed_rows_name`].
pub(super) fn changed_row_indices_name(tensor: &str) -> String {
    format!("changed_row_indices/{tensor}")
}
