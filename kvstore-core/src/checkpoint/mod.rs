//! Checkpoints: a [`Snapshot`] as a file, and back.
//!
//! The file is one in the safetensors format, so that other tools read the tensors in it: the number of bytes
//! of the header (8 bytes, little endian); the header, JSON that names every tensor with its dtype, its shape
//! and its place; the tensors' elements, without gaps. Its tensors are
//!
//! | name | |
//! |---|---|
//! | `value/KEY` | the value of a key |
//! | `rows/KEY`, `row_indices/KEY` | instead, where only some rows of it are there: those, and their numbers |
//! | `state/N/KEY` | what the optimizer keeps for it, from 0 |
//! | `residual/N/KEY` | what compressed values have not sent, by their position in the list |
//! | `checksum` | the last one: the CRC-32 of every byte of the file before it, little endian |
//!
//! so no key gets in the way of another name. Everything else is a JSON text in the header's metadata, under
//! `kvstore`: see [`manifest`].

mod background;
mod header;
mod limits;
mod manifest;
mod pending;
mod read;
mod state;
mod unescape;
mod write;

pub use background::{Checkpoint, CheckpointProgress};
pub use pending::Checkpoints;
pub use read::OptimizerStates;

use crate::dtype::DType;
use crate::shape::TensorSpec;

/// What this version writes, and the only one that it reads.
const VERSION: u32 = 1;
/// The name of the metadata.
const METADATA: &str = "kvstore";
/// The name of the last tensor, and its bytes.
const CHECKSUM: &str = "checksum";
const CHECKSUM_BYTES: usize = 4;
/// The format allows no longer header.
const MAX_HEADER_BYTES: u64 = 100_000_000;
fn checksum_spec() -> TensorSpec {
    TensorSpec::new([CHECKSUM_BYTES], DType::U8)
}

fn value_name(key: &str) -> String {
    format!("value/{key}")
}

fn rows_name(key: &str) -> String {
    format!("rows/{key}")
}

fn row_indices_name(key: &str) -> String {
    format!("row_indices/{key}")
}

fn state_name(index: usize, key: &str) -> String {
    format!("state/{index}/{key}")
}

fn residual_name(index: usize, key: &str) -> String {
    format!("residual/{index}/{key}")
}

/// The names that the format and this crate have for the same types.
const DTYPES: [(DType, safetensors::Dtype); 8] = [
    (DType::F32, safetensors::Dtype::F32),
    (DType::F64, safetensors::Dtype::F64),
    (DType::F16, safetensors::Dtype::F16),
    (DType::Bf16, safetensors::Dtype::BF16),
    (DType::U8, safetensors::Dtype::U8),
    (DType::I8, safetensors::Dtype::I8),
    (DType::I32, safetensors::Dtype::I32),
    (DType::I64, safetensors::Dtype::I64),
];
