//! [`Compression`]: sends one or two bits per element of a gradient, and keeps the rest for later
//! pushes.
//!
//! This file defines the codes. Backends compute them: `cpu/quantize.rs` here. The residual is from
//! F. Seide et al., "1-Bit Stochastic Gradient Descent and its Application to Data-Parallel
//! Distributed Training of Speech DNNs", Interspeech 2014. The threshold is from N. Strom's paper
//! on distributed training, Interspeech 2015.

use std::fmt;

use crate::types::{DType, Element, Error, Result, Scalar, with_element};

/// The compression of pushed values.
///
/// The store keeps a residual for each key and each position in the list of its values. It adds
/// each element to its residual `r`, and sends a code for the result:
///
/// - `2bit` with threshold `t`: the code is `11` for `r >= t` and represents `t`. It is `10` for
///   `r <= -t` and represents `-t`. Otherwise it is `00` and represents 0.
/// - `1bit`: the code is `1` for `r > t` and represents 1. Otherwise it is `0` and represents -1.
///
/// The store subtracts the represented number from the residual. A push adds up the represented
/// numbers. The threshold is rounded to the dtype of the values. Residuals are computed in
/// [`DType::arithmetic`].
///
/// A NaN element makes its residual NaN. The code of that element is then always `00` or `0`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Compression {
    code: Code,
    threshold: f64,
}

/// The kind of code, by the number of bits per element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// One bit: above the threshold or not.
    OneBit,
    /// Two bits: at or above the threshold, at or below its negative, or between.
    TwoBit,
}

impl Code {
    /// Returns the number of bits per element.
    pub const fn bits(self) -> usize {
        match self {
            Self::OneBit => 1,
            Self::TwoBit => 2,
        }
    }

    /// Returns the number of bytes of the codes for this number of elements. It is a multiple of 4.
    pub const fn num_bytes(self, num_elements: usize) -> usize {
        num_elements.div_ceil(32 / self.bits()) * 4
    }
}

impl Compression {
    /// The threshold if none is given.
    pub const DEFAULT_THRESHOLD: f64 = 0.5;

    /// Returns the compression with this name, `1bit` or `2bit`.
    ///
    /// # Errors
    /// - [`Error::InvalidArgument`] if the name is unknown.
    /// - [`Error::InvalidArgument`] if the threshold is not a finite number above 0.
    pub fn new(name: &str, threshold: f64) -> Result<Self> {
        let code = match name {
            "1bit" => Code::OneBit,
            "2bit" => Code::TwoBit,
            _ => {
                let text = format!("unknown compression `{name}`: expected `1bit` or `2bit`");
                return Err(Error::invalid(text));
            }
        };
        if !(threshold > 0.0 && threshold.is_finite()) {
            let text =
                format!("compression threshold: expected a number above 0, found {threshold}");
            return Err(Error::invalid(text));
        }
        Ok(Self { code, threshold })
    }

    /// Returns the name, `1bit` or `2bit`.
    pub fn name(&self) -> &'static str {
        match self.code {
            Code::OneBit => "1bit",
            Code::TwoBit => "2bit",
        }
    }

    /// Returns the threshold that was passed to [`Compression::new`].
    pub fn threshold(&self) -> f64 {
        self.threshold
    }

    /// Returns the kind of code.
    pub fn code(&self) -> Code {
        self.code
    }

    /// Returns the compression for values of a dtype.
    ///
    /// # Errors
    /// - [`Error::InvalidArgument`] if the dtype is an integer dtype.
    /// - [`Error::InvalidArgument`] if the threshold rounds to 0 or infinity in the dtype.
    pub fn of(&self, dtype: DType) -> Result<Quantizer> {
        if !dtype.is_float() {
            return Err(Error::invalid(format!("{self} needs floating-point values, not {dtype}")));
        }
        let threshold =
            with_element!(dtype, T => Scalar::Float(self.threshold).to_element::<T>().to_f64());
        if !(threshold > 0.0 && threshold.is_finite()) {
            return Err(Error::invalid(format!(
                "{self}: as {dtype} the threshold becomes {threshold}"
            )));
        }
        Ok(Quantizer { code: self.code, threshold })
    }
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} compression with threshold {}", self.name(), self.threshold)
    }
}

/// A compression whose threshold is rounded to the dtype of the values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quantizer {
    /// The kind of code.
    pub code: Code,
    /// The threshold, which the dtype of the values represents exactly.
    pub threshold: f64,
}
