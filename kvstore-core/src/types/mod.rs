//! Plain data that all other folders use: devices, dtypes, shapes, keys, operations and errors.

mod device;
// Macros name the types that they define by their path.
pub(crate) mod dtypes;
mod element;
mod error;
pub mod key;
mod layout;
mod ops;
mod shape;

/// The types of tensor elements, and the conversions between them.
pub mod dtype {
    pub use super::dtypes::DType;
    pub use super::element::{Element, Scalar, cast};
}

pub use device::{Device, DeviceKind};
pub use dtypes::DType;
pub use element::{Element, Scalar};
pub use error::{BoxError, Error, ErrorCode, Result, panic_text};
pub use key::Key;
pub use layout::{Axis, Layout};
pub use ops::{BinaryOp, Reduction, UnaryOp};
pub use shape::{Shape, TensorSpec};

pub(crate) use dtypes::{full_types, half_types, integer_types, with_element, with_float};
pub(crate) use element::cast;
pub(crate) use key::check_lengths;
