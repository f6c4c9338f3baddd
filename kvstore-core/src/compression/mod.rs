//! Compressed pushes. `push.rs` compresses the values of a push, and `wire.rs` values that leave
//! the process. `codec.rs` defines the codes.

mod push;
mod wire;

pub use crate::codec::{Code, Compression, Quantizer};

pub(crate) use push::{CompressedPush, compress};
