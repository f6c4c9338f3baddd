//! Compressed pushes: `push.rs` has the residuals of a key, `wire.rs` the values sent as codes.
//!
//! What a code means is in `codec.rs`.

mod push;
mod wire;

pub use crate::codec::{Code, Compression, Quantizer};

pub(crate) use push::{CompressedPush, compress};
