//! Values of the model: a shape, a dtype and one number per element.

use kvstore::DType;

use crate::format::Format;

/// Shape and dtype of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    /// Lengths along the axes.
    pub shape: Vec<usize>,
    /// The type of the elements.
    pub dtype: DType,
}

impl Spec {
    /// Returns the spec of this shape and dtype.
    pub fn new(shape: &[usize], dtype: DType) -> Self {
        Self { shape: shape.to_vec(), dtype }
    }

    /// Returns the number of elements.
    pub fn num_elements(&self) -> usize {
        self.shape.iter().product()
    }
}

/// One element. Every float fits into an f64 and every integer into an i64.
#[derive(Clone, Copy, Debug)]
pub enum Number {
    /// An element of a float dtype.
    Float(f64),
    /// An element of an integer dtype.
    Int(i64),
}

/// A dense, row-major value.
#[derive(Clone, Debug)]
pub struct Value {
    /// The shape and the dtype.
    pub spec: Spec,
    /// One number per element, each valid for the dtype.
    pub numbers: Vec<Number>,
}

impl Value {
    /// Returns a value of these numbers, each cast to the dtype.
    pub fn new(spec: Spec, numbers: &[Number]) -> Self {
        assert_eq!(spec.num_elements(), numbers.len(), "one number per element");
        let format = Format::of(spec.dtype);
        Self { numbers: numbers.iter().map(|number| format.nearest(*number)).collect(), spec }
    }

    /// Returns a value of zeros.
    pub fn zeros(spec: Spec) -> Self {
        let zero = Format::of(spec.dtype).nearest(Number::Int(0));
        Self { numbers: vec![zero; spec.num_elements()], spec }
    }

    /// Returns the same numbers in another dtype.
    #[must_use]
    pub fn cast(&self, dtype: DType) -> Self {
        Self::new(Spec::new(&self.spec.shape, dtype), &self.numbers)
    }

    /// Returns the little-endian bytes of the elements.
    pub fn to_bytes(&self) -> Vec<u8> {
        let (format, size) = (Format::of(self.spec.dtype), self.spec.dtype.size());
        let mut bytes = Vec::with_capacity(self.numbers.len() * size);
        for number in &self.numbers {
            bytes.extend_from_slice(&format.bits(*number).to_le_bytes()[..size]);
        }
        bytes
    }

    /// Returns the value whose elements have these little-endian bytes.
    pub fn from_bytes(spec: Spec, bytes: &[u8]) -> Self {
        let (format, size) = (Format::of(spec.dtype), spec.dtype.size());
        let number = |chunk: &[u8]| {
            let mut bits = [0; 8];
            bits[..size].copy_from_slice(chunk);
            format.read(u64::from_le_bytes(bits))
        };
        Self { numbers: bytes.chunks(size).map(number).collect(), spec }
    }
}

impl Number {
    /// Returns the element with the low bits of `bits`.
    pub fn from_bits(dtype: DType, bits: i64) -> Self {
        Format::of(dtype).read(bits.cast_unsigned())
    }
}
