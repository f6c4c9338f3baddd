//! Checks of elementwise operations: an element's result does not depend on the length, the
//! position in a block, the thread, or whether the operation is in place.

use kvstore_core::{Backends, BinaryOp, DType, Scalar, Tensor, TensorSpec, UnaryOp};

use crate::arrays::from_tensor;
use crate::compare::assert_same_bits;
use crate::format::Format;
use crate::place::device;
use crate::reduced;
use crate::samples::{nasty, tame};
use crate::value::{Number, Spec, Value};

/// The period of repeated elements. It divides no block or vector, so a misplaced element is wrong.
const PERIOD: usize = 251;

/// A length of several blocks, for several threads.
const LENGTH: usize = reduced::length(PERIOD * 400);

/// Returns a short tensor, and a long one that repeats its elements.
fn short_and_long(backends: &Backends, short: &Value) -> (Tensor, Tensor) {
    let tensor = |value: &Value| {
        let spec = TensorSpec::new(value.spec.shape.clone(), value.spec.dtype);
        Tensor::from_bytes(backends, device(0), spec, &value.to_bytes()).expect("enough memory")
    };
    (tensor(short), tensor(&repeated(short)))
}

fn repeated(short: &Value) -> Value {
    let numbers = short.numbers.iter().copied().cycle().take(LENGTH).collect();
    Value { spec: Spec::new(&[LENGTH], short.spec.dtype), numbers }
}

/// Returns short values of a dtype, one with arbitrary bits and one with ordinary numbers. Integers
/// contain no zero, because a division by zero is an error.
fn samples(dtype: DType) -> [Value; 2] {
    let spec = || Spec::new(&[PERIOD], dtype);
    let samples = [nasty(spec(), 1), tame(spec(), 2)];
    samples.map(|mut value| {
        for number in &mut value.numbers {
            if matches!(number, Number::Float(0.0) | Number::Int(0)) {
                *number = Number::Int(1).cast(dtype);
            }
        }
        value
    })
}

/// Operations of two tensors, of a tensor and a number, and in place.
pub fn binary_operations_agree_for_short_and_long_values(backends: &Backends) {
    for dtype in DType::ALL {
        let [left, right] = samples(dtype);
        let (short, long) = short_and_long(backends, &left);
        let (short_right, long_right) = short_and_long(backends, &right);
        for &op in BinaryOp::ALL {
            let expected = repeated(&from_tensor(&short.binary(op, &short_right).unwrap()));
            let found = from_tensor(&long.binary(op, &long_right).unwrap());
            assert_same_bits(&expected, &found, &(dtype, op));
            let mut changed = long.compact().unwrap();
            changed.binary_assign(op, &long_right).unwrap();
            assert_same_bits(&expected, &from_tensor(&changed), &(dtype, op, "in place"));
            for reversed in [false, true] {
                let number = Scalar::from(3.0);
                let expected = short.binary_scalar(op, number, reversed).unwrap();
                let found = long.binary_scalar(op, number, reversed).unwrap();
                let what = (dtype, op, "a number", reversed);
                assert_same_bits(&repeated(&from_tensor(&expected)), &from_tensor(&found), &what);
            }
        }
    }
}

/// Functions of one number, including limits of dtypes.
pub fn unary_operations_agree_for_short_and_long_values(backends: &Backends) {
    for dtype in DType::ALL {
        for sample in samples(dtype) {
            let (short, long) = short_and_long(backends, &sample);
            for &op in UnaryOp::ALL {
                let expected = repeated(&from_tensor(&short.unary(op).unwrap()));
                assert_same_bits(&expected, &from_tensor(&long.unary(op).unwrap()), &(dtype, op));
            }
            let (low, high) = (Scalar::from(1.5), Scalar::from(100));
            let expected = repeated(&from_tensor(&short.clip(low, high).unwrap()));
            let found = from_tensor(&long.clip(low, high).unwrap());
            assert_same_bits(&expected, &found, &(dtype, "clip"));
            let lowest = short.binary_scalar(BinaryOp::Maximum, low, false).unwrap();
            let clipped = lowest.binary_scalar(BinaryOp::Minimum, high, false).unwrap();
            assert_same_bits(&repeated(&from_tensor(&clipped)), &found, &(dtype, "two limits"));
        }
    }
}

/// Comparisons with broadcast shapes, also where several threads share a row.
pub fn comparisons_broadcast_their_operands(backends: &Backends) {
    let long = reduced::length(70_001);
    let shapes: [[[usize; 3]; 2]; 9] = [
        [[1, 1, long], [2, 3, 1]],
        [[3, 1, 1], [1, 1, long]],
        [[long, 1, 1], [1, 3, 1]],
        [[2, long, 1], [2, 1, 3]],
        [[1, 1, 1], [2, 3, 4]],
        [[1, 2, 1], [1, 1, 1]],
        [[1, 2, long], [3, 1, long]],
        [[2, 1, 300], [1, 3, 300]],
        [[1, 1, 129], [5, 4, 129]],
    ];
    for [left, right] in shapes {
        let values =
            [(left, 1), (right, 2)].map(|(shape, seed)| tame(Spec::new(&shape, DType::F32), seed));
        let [tensor, other] = [&values[0], &values[1]].map(|value| {
            let spec = TensorSpec::new(value.spec.shape.clone(), DType::F32);
            Tensor::from_bytes(backends, device(0), spec, &value.to_bytes()).unwrap()
        });
        let shape: Vec<usize> = (0..3).map(|axis| left[axis].max(right[axis])).collect();
        let at = |value: &Value, index: [usize; 3]| {
            let place = |axis: usize| index[axis] % value.spec.shape[axis];
            let [_, rows, columns] = value.spec.shape[..] else { unreachable!() };
            value.numbers[(place(0) * rows + place(1)) * columns + place(2)].to_f64()
        };
        let mut numbers = Vec::new();
        for index in 0..shape.iter().product() {
            let place =
                [index / shape[2] / shape[1], index / shape[2] % shape[1], index % shape[2]];
            let holds = at(&values[0], place) > at(&values[1], place);
            numbers.push(Number::Float(f64::from(u8::from(holds))));
        }
        let expected = Value { spec: Spec::new(&shape, DType::F32), numbers };
        let found = from_tensor(&tensor.binary(BinaryOp::Greater, &other).unwrap());
        assert_same_bits(&expected, &found, &(left, right));
    }
}

/// `clip`, also with limits outside the range of the dtype.
pub fn clip_accepts_limits_outside_the_dtype(backends: &Backends) {
    let (nan, inf) = (f64::NAN, f64::INFINITY);
    let limits = [
        (-5.0, 300.0),
        (0.0, inf),
        (-inf, 50.0),
        (-200.5, 200.5),
        (1e30, 1e31),
        (nan, 3.0),
        (3.0, nan),
    ];
    for dtype in DType::ALL {
        for sample in samples(dtype) {
            let (short, _) = short_and_long(backends, &sample);
            for (low, high) in limits {
                let mut expected = sample.clone();
                for number in &mut expected.numbers {
                    *number = clipped(*number, low, high, dtype);
                }
                let found = short.clip(Scalar::from(low), Scalar::from(high)).unwrap();
                assert_same_bits(&expected, &from_tensor(&found), &(dtype, low, high));
            }
        }
    }
}

/// Returns the number clamped to the limits. For an integer dtype, the limits are truncated and
/// clamped to the dtype's range.
#[expect(clippy::cast_possible_truncation, reason = "limits beyond 64 bits are the last ones")]
fn clipped(number: Number, low: f64, high: f64, dtype: DType) -> Number {
    let Number::Int(integer) = number else {
        let (Number::Float(low), Number::Float(high)) =
            (Number::Float(low).cast(dtype), Number::Float(high).cast(dtype))
        else {
            return number;
        };
        let x = number.to_f64();
        let x = if x < low { low } else { x };
        return Number::Float(if x > high { high } else { x });
    };
    let (lowest, highest) = Format::of(dtype).integers().expect("the number is an integer");
    let low = if low.is_nan() { lowest } else { (low as i64).clamp(lowest, highest) };
    let high = if high.is_nan() { highest } else { (high as i64).clamp(lowest, highest) };
    Number::Int(integer.max(low).min(high))
}

/// Casts, also of numbers that do not fit next to numbers that do.
pub fn casts_agree_with_the_model(backends: &Backends) {
    for from in DType::ALL {
        for sample in samples(from) {
            let (_, long) = short_and_long(backends, &sample);
            for to in DType::ALL {
                let found = from_tensor(&long.cast(to).unwrap());
                assert_same_bits(&repeated(&sample.cast(to)), &found, &(from, to));
            }
        }
    }
}
