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
mod format;
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
