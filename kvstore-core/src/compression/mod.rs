//! Compressed pushes: the residuals of a key in `push.rs`, values sent as codes in `wire.rs`.
//!
//! What a code means is in `codec.rs`.

mod push;
mod wire;

pub use crate::codec::{Code, Compression, Quantizer};

pub(crate) use push::{Compressed, compress};
