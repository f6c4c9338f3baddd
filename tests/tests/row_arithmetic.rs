//! Arithmetic of row-sparse values gives the elements of dense arithmetic, in the documented form.

use kvstore_core::{
    Backends, BinaryOp, DType, ErrorCode, Reduction, RowSparse, Scalar, Tensor, UnaryOp, Value,
};
use kvstore_tests::place;

const SHAPE: [usize; 2] = [5, 3];

fn everywhere(check: impl Fn(&Backends)) {
    for (place, backends) in place::backends(&[1, 7]) {
        println!("{place}");
        check(&backends);
    }
}

/// Returns rows of consecutive integers that start at `first`.
fn rows(backends: &Backends, dtype: DType, indices: &[i64], first: f32) -> RowSparse {
    let len = indices.len() * SHAPE[1];
    let numbers: Vec<f32> =
        std::iter::successors(Some(first), |x| Some(x + 1.0)).take(len).collect();
    let dims = [indices.len(), SHAPE[1]];
    let elements = Tensor::from_slice(backends, place::device(0), dims, &numbers);
    let elements = elements.and_then(|tensor| tensor.cast(dtype)).expect("whole numbers");
    RowSparse::new(SHAPE, indices.to_vec(), elements).expect("ascending rows")
}

fn numbers(value: &Value) -> Vec<f64> {
    value.to_dense().and_then(|tensor| tensor.read_as::<f64>()).expect("a value of this machine")
}

/// Compares elements. NaN equals NaN and 0 equals -0, because absent rows are +0.
#[expect(clippy::float_cmp, reason = "the same operation on the same numbers")]
fn assert_same(found: &Value, expected: &Value, what: &str) {
    let (found, expected) = (numbers(found), numbers(expected));
    assert_eq!(found.len(), expected.len(), "{what}");
    for (a, b) in found.iter().zip(&expected) {
        assert!(a == b || (a.is_nan() && b.is_nan()), "{what}: {found:?}, expected {expected:?}");
    }
}

fn indices(value: &Value) -> Option<&[i64]> {
    value.rows().map(RowSparse::indices)
}

fn dtypes() -> impl Iterator<Item = DType> {
    DType::ALL.into_iter()
}

#[test]
fn binary_operations_agree_with_dense_values() {
    everywhere(|backends| {
        for dtype in dtypes() {
            let a = Value::Rows(rows(backends, dtype, &[1, 3, 4], 1.0));
            let b = Value::Rows(rows(backends, dtype, &[0, 3], 2.0));
            let all = Value::Rows(rows(backends, dtype, &[0, 1, 2, 3, 4], 3.0));
            let dense = Value::Dense(all.to_dense().expect("it fits"));
            for &op in BinaryOp::ALL {
                for (left, right) in [(&a, &b), (&b, &a), (&a, &dense), (&dense, &a), (&a, &a)] {
                    let what = format!("{} of {dtype}: {left:?}, {right:?}", op.name());
                    let [x, y] =
                        [left, right].map(|value| Value::Dense(value.to_dense().expect("it fits")));
                    match (left.binary(op, right), x.binary(op, &y)) {
                        (Ok(found), Ok(expected)) => assert_same(&found, &expected, &what),
                        (Err(found), Err(expected)) => {
                            assert_eq!(found.code(), expected.code(), "{what}");
                        }
                        (found, expected) => panic!("{what}: {found:?}, expected {expected:?}"),
                    }
                }
            }
            let keep_rows = [BinaryOp::Add, BinaryOp::Sub, BinaryOp::Mul];
            for &op in BinaryOp::ALL.iter().filter(|op| **op != BinaryOp::Div) {
                let sum = a.binary(op, &b).expect("equal specs");
                let expected = keep_rows.contains(&op).then_some(&[0, 1, 3, 4][..]);
                assert_eq!(indices(&sum), expected, "{}", op.name());
                let product = a.binary(op, &dense).expect("equal specs");
                let expected = (op == BinaryOp::Mul).then_some(&[1, 3, 4][..]);
                assert_eq!(indices(&product), expected, "{}", op.name());
                assert_eq!(indices(&dense.binary(op, &a).expect("equal specs")), None);
            }
        }
    });
}

#[test]
fn scalar_operations_agree_with_dense_values() {
    everywhere(|backends| {
        for dtype in dtypes() {
            let a = Value::Rows(rows(backends, dtype, &[1, 3, 4], 1.0));
            let dense = Value::Dense(a.to_dense().expect("it fits"));
            for &op in BinaryOp::ALL {
                for (number, reversed) in [(2.0, false), (2.0, true), (0.0, false), (0.0, true)] {
                    // Absent rows stay 0 if divided by 0, dense zeros become NaN.
                    if op == BinaryOp::Div && number == 0.0 && !reversed {
                        continue;
                    }
                    let what = format!("{} of {dtype}, {number}, {reversed}", op.name());
                    let of =
                        |value: &Value| value.binary_scalar(op, Scalar::Float(number), reversed);
                    match (of(&a), of(&dense)) {
                        (Ok(found), Ok(expected)) => assert_same(&found, &expected, &what),
                        (Err(found), Err(expected)) => {
                            assert_eq!(found.code(), expected.code(), "{what}");
                        }
                        (found, expected) => panic!("{what}: {found:?}, expected {expected:?}"),
                    }
                }
            }
        }
    });
}

#[test]
fn scalar_operations_that_keep_0_keep_the_rows() {
    everywhere(|backends| {
        let a = Value::Rows(rows(backends, DType::F32, &[1, 4], 1.0));
        let keeps = |op, number: f64, reversed| {
            let value = a.binary_scalar(op, Scalar::Float(number), reversed).expect("any number");
            indices(&value) == Some(&[1, 4])
        };
        for number in [2.0, 0.0, f64::INFINITY, f64::NAN] {
            assert!(keeps(BinaryOp::Mul, number, false) && keeps(BinaryOp::Mul, number, true));
            assert!(keeps(BinaryOp::Div, number, false) && !keeps(BinaryOp::Div, number, true));
        }
        assert!(keeps(BinaryOp::Add, 0.0, true) && keeps(BinaryOp::Sub, 0.0, false));
        assert!(!keeps(BinaryOp::Add, 1.0, false) && !keeps(BinaryOp::Sub, 0.0, true));
        assert!(keeps(BinaryOp::Equal, 2.0, false) && !keeps(BinaryOp::Equal, 0.0, false));
        assert!(keeps(BinaryOp::Less, -1.0, false) && !keeps(BinaryOp::Less, 1.0, false));
        for op in [BinaryOp::Rem, BinaryOp::Pow, BinaryOp::Maximum, BinaryOp::Minimum] {
            assert!(!keeps(op, 2.0, false), "{}", op.name());
        }
        let infinite = a.binary_scalar(BinaryOp::Mul, Scalar::Float(f64::INFINITY), false);
        assert_eq!(numbers(&infinite.expect("any number"))[..3], [0.0; 3]);
    });
}

#[test]
fn unary_operations_agree_with_dense_values() {
    everywhere(|backends| {
        for dtype in dtypes() {
            let a = Value::Rows(rows(backends, dtype, &[0, 2], 1.0));
            let dense = Value::Dense(a.to_dense().expect("it fits"));
            for &op in UnaryOp::ALL {
                let (found, expected) = (a.unary(op).expect("any"), dense.unary(op).expect("any"));
                assert_same(&found, &expected, op.name());
                // Computed in f32: integer dtypes truncate the result.
                let of_0 = Tensor::from_slice(backends, place::device(0), [1], &[0f32]);
                let of_0 = of_0.and_then(|zero| zero.unary(op)?.to_scalar()).expect("any");
                assert_eq!(found.rows().is_some(), of_0 == 0.0, "{}", op.name());
            }
            for (low, high, keeps) in [(-1.0, 1.0, true), (0.0, 2.0, true), (1.0, 2.0, false)] {
                let of = |value: &Value| {
                    value.clip(Scalar::Float(low), Scalar::Float(high)).expect("any")
                };
                assert_same(&of(&a), &of(&dense), "clip");
                assert_eq!(of(&a).rows().is_some(), keeps);
            }
            for &op in Reduction::ALL {
                let of =
                    |value: &Value| value.reduce(op).and_then(|sum| sum.to_scalar()).expect("any");
                assert!((of(&a) - of(&dense)).abs() <= of(&dense).abs() * 1e-6, "{}", op.name());
            }
            let cast = a.cast(DType::F64).expect("any");
            assert_eq!((cast.spec().dtype(), indices(&cast)), (DType::F64, Some(&[0, 2][..])));
            assert_same(&cast, &dense, "cast");
        }
    });
}

#[test]
fn operations_accept_values_with_no_rows_and_with_all_rows() {
    everywhere(|backends| {
        let none = Value::Rows(rows(backends, DType::F32, &[], 1.0));
        let some = Value::Rows(rows(backends, DType::F32, &[2], 1.0));
        let sum = none.binary(BinaryOp::Add, &some).expect("equal specs");
        assert_eq!((indices(&sum), numbers(&sum)), (Some(&[2][..]), numbers(&some)));
        assert_eq!(indices(&none.binary(BinaryOp::Mul, &none).expect("equal")), Some(&[][..]));
        assert_eq!(numbers(&none.unary(UnaryOp::Exp).expect("any")), [1.0; 15]);
        let all = Value::Dense(some.to_dense().expect("it fits")).into_rows().expect("axes");
        assert_eq!(all.indices(), [0, 1, 2, 3, 4]);
        assert_same(&Value::Rows(all), &some, "all rows");
        let scalar = Tensor::from_slice(backends, place::device(0), [0usize; 0], &[1f32]);
        let error = Value::Dense(scalar.expect("one element")).into_rows().expect_err("no axes");
        assert_eq!(error.code(), ErrorCode::InvalidArgument);
    });
}

#[test]
fn different_specs_are_rejected_before_memory_is_allocated() {
    everywhere(|backends| {
        // No machine holds this shape as a dense value.
        let row =
            Tensor::from_slice(backends, place::device(0), [1, 1], &[1f32]).expect("an element");
        let huge = RowSparse::new([1usize << 44, 1], vec![7], row).expect("a row");
        let huge = Value::Rows(huge);
        let small = Value::Rows(rows(backends, DType::F32, &[1], 1.0));
        for &op in BinaryOp::ALL.iter().filter(|op| !op.is_comparison()) {
            let error = huge.binary(op, &small).expect_err("other shapes");
            assert_eq!(error.code(), ErrorCode::SpecMismatch, "{}", op.name());
        }
        let twice = huge.binary(BinaryOp::Add, &huge).expect("one row");
        assert_eq!(
            twice.rows().map(|sum| sum.rows().to_vec::<f32>().expect("f32")),
            Some(vec![2.0])
        );
    });
}
