//! Plain data that every other folder uses: devices, dtypes, shapes, keys, operations, errors.

mod device;
pub mod dtype;
mod error;
pub mod key;
mod layout;
mod ops;
mod shape;

pub use device::{Device, DeviceKind};
pub use dtype::{DType, Element, Scalar};
pub use error::{BoxError, Error, ErrorCode, Result};
pub use key::Key;
pub use layout::{Axis, Layout};
pub use ops::{BinaryOp, Reduction, UnaryOp};
pub use shape::{Shape, TensorSpec};

pub(crate) use dtype::{cast, with_element};
pub(crate) use key::check_lengths;
