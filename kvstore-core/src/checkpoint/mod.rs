//! Checkpoints: write a [`Snapshot`](crate::store::Snapshot) to a file, and read it.
//!
//! The file has the safetensors format, so other tools can read its tensors. It consists of
//!
//! - the length of the header in bytes (8 bytes, little endian),
//! - the header: JSON with the name, dtype, shape and position of each tensor,
//! - the elements of the tensors, without gaps.
//!
//! | tensor | contents |
//! |---|---|
//! | `value/KEY` | a dense value |
//! | `rows/KEY`, `row_indices/KEY` | a row-sparse value: its rows and their indices |
//! | `state/N/KEY` | optimizer state `N` of the key, from 0 |
//! | `residual/N/KEY` | the residual of the key's value `N`, for compression |
//! | `changed_rows/NAME` | in a delta: the changed rows of tensor `NAME` |
//! | `changed_row_indices/NAME` | their indices |
//! | `checksum` | the last tensor: the CRC-32 of all earlier bytes of the file, little endian |
//!
//! A delta is a file with the changes since another file, its base. It omits the tensors that have
//! the bits of the base: see [`delta`] and [`chain`].
//!
//! The prefixes keep the names of different tensors distinct for any key. All other data is JSON in
//! the header's metadata, under `kvstore`: see [`manifest`].

mod background;
mod base;
mod chain;
mod delta;
mod file_tensor;
mod format;
mod header;
mod limits;
mod manifest;
mod parts;
mod patch;
mod pending;
mod read;
mod state;
mod unescape;
mod write;
mod write_delta;

pub use background::{Checkpoint, CheckpointProgress};
pub use parts::PartList;
pub use pending::Checkpoints;
pub use read::OptimizerStates;
pub use write::SnapshotPieces;
