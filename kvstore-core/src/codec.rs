//! [`Compression`]: gradients as one or two bits an element, and what was not sent stays for next time.
//!
//! What the codes mean stands here; a backend runs loops over them. The residual is that of F. Seide et al.,
//! "1-Bit Stochastic Gradient Descent and its Application to Data-Parallel Distributed Training of Speech
//! DNNs", Interspeech 2014, the threshold that of N. Strom's paper on distributed training, Interspeech 2015.

use std::fmt;

use crate::types::{DType, Element, Error, Result, Scalar, with_element};

/// How the values of a push are compressed.
///
/// For each key and each position in the list of its values a residual is kept. An element of a value is added
/// to its residual `r`, and a code for it is sent:
///
/// - `2bit`, threshold `t`: for `r >= t` the code is `11`, which means `t`, for `r <= -t` it is `10`, which means
///   `-t`, and otherwise `00`, which means 0.
/// - `1bit`: for `r > t` the code is `1`, which means 1, and otherwise it is `0`, which means -1.
///
/// What the code means is taken off the residual. What is pushed is the sum of what the codes mean. The threshold
/// is rounded to the values' dtype; residuals are computed in [`DType::arithmetic`].
///
/// An element that is not a number makes its residual none either: the code then is `00` or `0` for good.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Compression {
    code: Code,
    threshold: f64,
}

/// How many bits an element has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// More than the threshold or not.
    OneBit,
    /// Beyond the threshold, beyond its negative, or between.
    TwoBit,
}

impl Code {
    /// Returns the bits of an element.
    pub const fn bits(self) -> usize {
        match self {
            Self::OneBit => 1,
            Self::TwoBit => 2,
        }
    }

    /// Returns the bytes of so many elements: whole words of 32 bits.
    pub const fn num_bytes(self, num_elements: usize) -> usize {
        num_elements.div_ceil(32 / self.bits()) * 4
    }
}

impl Compression {
    /// The threshold of whoever names none.
    pub const DEFAULT_THRESHOLD: f64 = 0.5;

    /// Returns the compression with this name, `1bit` or `2bit`.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for other names, and for a threshold that is not a number above 0.
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
            let text = format!("a compression's threshold is a number above 0, found {threshold}");
            return Err(Error::invalid(text));
        }
        Ok(Self { code, threshold })
    }

    /// Returns the name.
    pub fn name(&self) -> &'static str {
        match self.code {
            Code::OneBit => "1bit",
            Code::TwoBit => "2bit",
        }
    }

    /// Returns the threshold, as it was given.
    pub fn threshold(&self) -> f64 {
        self.threshold
    }

    /// Returns the kind of code.
    pub fn code(&self) -> Code {
        self.code
    }

    /// Returns the compression of values of a dtype.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for integers, and where the threshold is rounded to zero or infinity.
    pub fn of(&self, dtype: DType) -> Result<Quantizer> {
        if !dtype.is_float() {
            return Err(Error::invalid(format!(
                "{self} compresses floating-point numbers, not {dtype}"
            )));
        }
        let threshold =
            with_element!(dtype, T => Scalar::Float(self.threshold).to_element::<T>().to_f64());
        if !(threshold > 0.0 && threshold.is_finite()) {
            return Err(Error::invalid(format!("{self}: in {dtype} the threshold is {threshold}")));
        }
        Ok(Quantizer { code: self.code, threshold })
    }
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} compression with threshold {}", self.name(), self.threshold)
    }
}

/// A compression with a threshold that the values' dtype has.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quantizer {
    /// The kind of code.
    pub code: Code,
    /// The threshold, exact in the values' dtype.
    pub threshold: f64,
}
