//! The model of compression, one element at a time.

use kvstore::DType;

use crate::arithmetic::Operator;
use crate::value::{Number, Spec, Value};

/// How values are compressed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Compression {
    /// Whether a code has two bits. Otherwise it has one.
    pub has_two_bits: bool,
    /// The residual from which on a code sends the threshold.
    pub threshold: f64,
}

impl Compression {
    /// Returns the name that stores use.
    pub fn name(&self) -> &'static str {
        if self.has_two_bits { "2bit" } else { "1bit" }
    }

    /// Returns the decoded value that the store receives, and keeps the rest in `residual`.
    #[must_use]
    pub fn send(&self, value: &Value, residual: &mut Value) -> Value {
        let dtype = value.spec.dtype;
        let numbers = value.numbers.iter().zip(&mut residual.numbers);
        let numbers = numbers.map(|(number, residual)| {
            let sum = residual.operate(Operator::Add, *number, arithmetic(dtype));
            let sent = Number::Float(self.code_of(sum.to_f64(), dtype));
            *residual = sum.operate(Operator::Sub, sent, arithmetic(dtype));
            sent.cast(dtype)
        });
        Value { spec: value.spec.clone(), numbers: numbers.collect() }
    }

    /// Returns the codes of a decoded value: words of 32 bits, with the first code in the highest
    /// bits of the first byte.
    pub fn codes(&self, arrived: &Value) -> Vec<u8> {
        let num_bits = if self.has_two_bits { 2 } else { 1 };
        let mut bytes = vec![0; (num_bits * arrived.numbers.len()).div_ceil(32) * 4];
        for (index, number) in arrived.numbers.iter().enumerate() {
            let code = match (self.has_two_bits, number.to_f64()) {
                (true, sent) if sent > 0.0 => 3,
                (true, sent) if sent < 0.0 => 2,
                (false, sent) if sent > 0.0 => 1,
                _ => 0,
            };
            bytes[num_bits * index / 8] |= code << (8 - num_bits - num_bits * index % 8);
        }
        bytes
    }

    fn code_of(&self, sum: f64, dtype: DType) -> f64 {
        let threshold = Number::Float(self.threshold).cast(dtype).to_f64();
        match (self.has_two_bits, sum) {
            (true, sum) if sum >= threshold => threshold,
            (true, sum) if sum <= -threshold => -threshold,
            (true, _) => 0.0,
            (false, sum) if sum > threshold => 1.0,
            (false, _) => -1.0,
        }
    }
}

/// Returns the initial residual of a value: zeros.
pub fn no_residual(spec: &Spec) -> Value {
    let spec = Spec { shape: spec.shape.clone(), dtype: arithmetic(spec.dtype) };
    let zeros = vec![Number::Float(0.0); spec.num_elements()];
    Value::new(spec, &zeros)
}

fn arithmetic(dtype: DType) -> DType {
    if dtype == DType::F64 { DType::F64 } else { DType::F32 }
}
