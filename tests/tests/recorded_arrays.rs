//! Array operations with recorded results. The recording uses the names of Clojure.

use kvstore::{BinaryOp, NDArray, Reduction, Result, Scalar, UnaryOp};
use kvstore_tests::arrays::{from_array, to_array};
use kvstore_tests::json::{list, text, value_of};
use kvstore_tests::recorded;
use kvstore_tests::value::{Number, Value};
use serde_json::Value as Json;

/// Operations whose last bits depend on the library. Their error bounds are relative, with one for
/// `float16`.
const INEXACT: [&str; 10] =
    ["exp", "log", "sin", "cos", "rsqrt", "**", "sum", "mean", "norm", "dot"];
const TOLERANCE: f64 = 1e-6;
const HALF_TOLERANCE: f64 = 1e-3;

#[test]
fn every_recorded_operation_has_its_result() {
    let file = recorded::load_file();
    let cases = list(&file["ndarray_ops"]);
    let failures: Vec<String> = cases.iter().filter_map(|case| failure(case).err()).collect();
    println!("{} operations replayed", cases.len());
    assert!(failures.is_empty(), "{} fail:\n{}", failures.len(), failures.join("\n"));
    assert!(cases.len() >= 376, "operations are missing from the file");
}

fn failure(case: &Json) -> Result<(), String> {
    let name = text(&case["clj"]);
    let a = value_of(&case["a"]);
    let expected = value_of(&case["expect"]);
    let found = result(name, &to_array(&a), case).map_err(|error| format!("{name}: {error}"))?;
    let found = from_array(&found);
    let tolerance = match (INEXACT.contains(&name), a.spec.dtype.name()) {
        (false, _) => 0.0,
        (true, "float16") => HALF_TOLERANCE,
        (true, _) => TOLERANCE,
    };
    if is_close(&expected, &found, tolerance) {
        return Ok(());
    }
    Err(format!("{name} of {:?}: expected {expected:?}, found {found:?}", a.spec))
}

fn result(name: &str, a: &NDArray, case: &Json) -> Result<NDArray> {
    if let Some(op) = binary(name) {
        return match case["scalar"].as_f64() {
            Some(scalar) => a.binary_scalar(op, Scalar::Float(scalar), false),
            None => a.binary(op, &to_array(&value_of(&case["b"]))),
        };
    }
    if let Some(op) = unary(name) {
        return a.unary(op);
    }
    match name {
        "sum" => a.reduce(Reduction::Sum),
        "mean" => a.reduce(Reduction::Mean),
        "max" => a.reduce(Reduction::Max),
        "min" => a.reduce(Reduction::Min),
        "norm" => a.reduce(Reduction::Norm),
        "t" => a.transpose(),
        "dot" => a.dot(&to_array(&value_of(&case["b"]))),
        "as-type" => a.as_type(kvstore::DType::from_name(text(&case["dtype"]))?),
        "clip" => {
            let limit = |index: usize| case["args"][index].as_f64().expect("a limit");
            a.clip(limit(0), limit(1))
        }
        _ => panic!("`{name}` is not known here"),
    }
}

fn binary(name: &str) -> Option<BinaryOp> {
    Some(match name {
        "+" => BinaryOp::Add,
        "-" => BinaryOp::Sub,
        "*" => BinaryOp::Mul,
        "div" => BinaryOp::Div,
        "%" => BinaryOp::Rem,
        "**" => BinaryOp::Pow,
        "maximum" => BinaryOp::Maximum,
        "minimum" => BinaryOp::Minimum,
        ">" => BinaryOp::Greater,
        ">=" => BinaryOp::GreaterEqual,
        "<" => BinaryOp::Less,
        "<=" => BinaryOp::LessEqual,
        "equal" => BinaryOp::Equal,
        "not-equal" => BinaryOp::NotEqual,
        _ => return None,
    })
}

fn unary(name: &str) -> Option<UnaryOp> {
    Some(match name {
        "abs" => UnaryOp::Abs,
        "sign" => UnaryOp::Sign,
        "square" => UnaryOp::Square,
        "sqrt" => UnaryOp::Sqrt,
        "rsqrt" => UnaryOp::Rsqrt,
        "exp" => UnaryOp::Exp,
        "log" => UnaryOp::Log,
        "sin" => UnaryOp::Sin,
        "cos" => UnaryOp::Cos,
        "ceil" => UnaryOp::Ceil,
        "floor" => UnaryOp::Floor,
        "round" => UnaryOp::Round,
        _ => return None,
    })
}

/// Returns whether both have the same spec, and numbers that are equal, both NaN, or within the
/// tolerance.
fn is_close(expected: &Value, found: &Value, tolerance: f64) -> bool {
    let is_close = |(a, b): (&Number, &Number)| {
        let (a, b) = (a.to_f64(), b.to_f64());
        let distance = if a.total_cmp(&b).is_eq() { 0.0 } else { (a - b).abs() };
        distance <= tolerance * a.abs() || (a.is_nan() && b.is_nan())
    };
    expected.spec == found.spec && expected.numbers.iter().zip(&found.numbers).all(is_close)
}
