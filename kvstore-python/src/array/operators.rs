//! The operators of `NDArray`: with arrays, numbers, and arrays of other libraries.

use kvstore::{BinaryOp, DType, NDArray, Scalar, UnaryOp};
use pyo3::basic::CompareOp;
use pyo3::prelude::*;

use super::classes::PyArray;
use super::classes::PyRows;
use super::operand;
use crate::convert;
use crate::interpreter::error::{detached, invalid, wrong_class};

/// The right operand.
enum Operand {
    Array(NDArray),
    Number(Scalar),
}

fn operand(object: &Bound<'_, PyAny>, dtype: DType) -> PyResult<Option<Operand>> {
    if let Ok(array) = object.cast::<PyArray>() {
        return Ok(Some(Operand::Array(array.get().array().clone())));
    }
    if let Ok(rows) = object.cast::<PyRows>() {
        let rows = rows.get().value();
        let dense = detached(object.py(), move || rows.to_dense())?;
        return Ok(Some(Operand::Array(NDArray::new(dense))));
    }
    if let Some(number) = convert::number(object, dtype)? {
        return Ok(Some(Operand::Number(number)));
    }
    Ok(operand::array(object)?.map(Operand::Array))
}

/// Returns `slf op other`, or `other op slf` if `reversed`. Returns `NotImplemented` if `other` is
/// not an operand.
pub(crate) fn binary<'py>(
    slf: &Bound<'py, PyArray>,
    op: BinaryOp,
    other: &Bound<'py, PyAny>,
    reversed: bool,
) -> PyResult<Bound<'py, PyAny>> {
    let py = slf.py();
    let array = slf.get().array();
    let result = match operand(other, array.dtype())? {
        None => return Ok(py.NotImplemented().into_bound(py)),
        Some(Operand::Number(number)) => {
            detached(py, || array.binary_scalar(op, number, reversed))?
        }
        Some(Operand::Array(other)) if reversed => detached(py, move || other.binary(op, array))?,
        Some(Operand::Array(other)) => detached(py, move || array.binary(op, &other))?,
    };
    PyArray::as_class_of(slf, result)
}

/// Replaces the elements with `slf op other`.
pub(crate) fn in_place(
    slf: &Bound<'_, PyArray>,
    op: BinaryOp,
    other: &Bound<'_, PyAny>,
) -> PyResult<()> {
    let array = slf.get().array();
    match operand(other, array.dtype())? {
        Some(Operand::Number(number)) => {
            detached(slf.py(), || array.binary_scalar_assign(op, number))
        }
        Some(Operand::Array(other)) => detached(slf.py(), move || array.binary_assign(op, &other)),
        None => Err(not_an_operand(op, other)),
    }
}

/// Returns the error for an operand that is neither an array nor a number.
pub(crate) fn not_an_operand(op: BinaryOp, other: &Bound<'_, PyAny>) -> PyErr {
    wrong_class(other, &format!("{}: expected an array or a number", op.name()))
}

pub(crate) fn compare<'py>(
    slf: &Bound<'py, PyArray>,
    op: CompareOp,
    other: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    binary(slf, comparison(op), other, false)
}

/// Returns the operation of a Python comparison operator.
pub(crate) fn comparison(op: CompareOp) -> BinaryOp {
    match op {
        CompareOp::Eq => BinaryOp::Equal,
        CompareOp::Ne => BinaryOp::NotEqual,
        CompareOp::Lt => BinaryOp::Less,
        CompareOp::Le => BinaryOp::LessEqual,
        CompareOp::Gt => BinaryOp::Greater,
        CompareOp::Ge => BinaryOp::GreaterEqual,
    }
}

/// Returns the unary elementwise function with this name.
pub(crate) fn unary_named(py: Python<'_>, name: &str) -> PyResult<UnaryOp> {
    let op = UnaryOp::ALL.iter().find(|op| op.name() == name).copied();
    op.ok_or_else(|| unknown(py, name))
}

/// Returns the binary elementwise function with this name.
pub(crate) fn binary_named(py: Python<'_>, name: &str) -> PyResult<BinaryOp> {
    let op = BinaryOp::ALL.iter().find(|op| op.name() == name).copied();
    op.ok_or_else(|| unknown(py, name))
}

fn unknown(py: Python<'_>, name: &str) -> PyErr {
    invalid(py, format!("unknown function `{name}`"))
}
