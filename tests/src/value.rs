//! Values of the model: a shape, a dtype and one number per element.

use half::{bf16, f16};
use kvstore::DType;

/// Shape and dtype of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    /// Lengths along the axes.
    pub shape: Vec<usize>,
    /// What an element is.
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

/// One element: every float fits into an f64 and every integer into an i64.
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
    /// Shape and dtype.
    pub spec: Spec,
    /// One number per element, each one that the dtype can hold.
    pub numbers: Vec<Number>,
}

impl Value {
    /// Returns a value of these numbers, each cast into the dtype.
    pub fn new(spec: Spec, numbers: &[Number]) -> Self {
        assert_eq!(spec.num_elements(), numbers.len(), "one number per element");
        let numbers = numbers.iter().map(|number| number.cast(spec.dtype)).collect();
        Self { spec, numbers }
    }

    /// Returns a value of zeros.
    pub fn zeros(spec: Spec) -> Self {
        let numbers = vec![Number::Int(0); spec.num_elements()];
        Self::new(spec, &numbers)
    }

    /// Returns the same numbers in another dtype.
    #[must_use]
    pub fn cast(&self, dtype: DType) -> Self {
        Self::new(Spec::new(&self.spec.shape, dtype), &self.numbers)
    }

    /// Returns the little-endian bytes of the elements.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.numbers.len() * self.spec.dtype.size());
        self.numbers.iter().for_each(|number| number.write_to(&mut bytes, self.spec.dtype));
        bytes
    }

    /// Returns the value whose elements have these little-endian bytes.
    pub fn from_bytes(spec: Spec, bytes: &[u8]) -> Self {
        let size = spec.dtype.size();
        let numbers =
            bytes.chunks(size).map(|chunk| Number::from_bytes(spec.dtype, chunk)).collect();
        Self { spec, numbers }
    }
}

impl Number {
    /// Returns the element whose bits are the low ones of `bits`.
    pub fn from_bits(dtype: DType, bits: i64) -> Self {
        Self::from_bytes(dtype, &bits.to_le_bytes()[..dtype.size()])
    }

    fn write_to(self, bytes: &mut Vec<u8>, dtype: DType) {
        match (self, dtype) {
            (Self::Float(x), DType::F64) => bytes.extend_from_slice(&x.to_le_bytes()),
            (_, DType::F32) => bytes.extend_from_slice(&self.to_f32().to_le_bytes()),
            (_, DType::F16) => bytes.extend_from_slice(&f16::from_f32(self.to_f32()).to_le_bytes()),
            (_, DType::Bf16) => {
                bytes.extend_from_slice(&bf16::from_f32(self.to_f32()).to_le_bytes());
            }
            (Self::Int(i), _) => bytes.extend_from_slice(&i.to_le_bytes()[..dtype.size()]),
            (Self::Float(_), _) => unreachable!("a value's numbers are of its dtype"),
        }
    }

    fn from_bytes(dtype: DType, bytes: &[u8]) -> Self {
        fn exact<const N: usize>(bytes: &[u8]) -> [u8; N] {
            bytes.try_into().expect("as many bytes as the dtype has")
        }
        match dtype {
            DType::F32 => Self::Float(f32::from_le_bytes(exact(bytes)).into()),
            DType::F64 => Self::Float(f64::from_le_bytes(exact(bytes))),
            DType::F16 => Self::Float(f16::from_le_bytes(exact(bytes)).into()),
            DType::Bf16 => Self::Float(bf16::from_le_bytes(exact(bytes)).into()),
            DType::I8 => Self::Int(i8::from_le_bytes(exact(bytes)).into()),
            DType::I32 => Self::Int(i32::from_le_bytes(exact(bytes)).into()),
            DType::I64 => Self::Int(i64::from_le_bytes(exact(bytes))),
            DType::U8 => Self::Int(u8::from_le_bytes(exact(bytes)).into()),
        }
    }
}
