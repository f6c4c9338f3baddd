//! Operators of `RowSparseNDArray` with row-sparse arrays, dense arrays, numbers and arrays of
//! other libraries.

use kvstore::{BinaryOp, NDArray, RowSparse, Scalar, UnaryOp, Value};
use pyo3::prelude::*;

use super::classes::PyArray;
use super::classes::PyRows;
use super::operand;
use super::operators;
use crate::convert;
use crate::interpreter::error::detached;

/// The right operand.
enum Operand {
    Value(Value),
    Number(Scalar),
}

fn operand(object: &Bound<'_, PyAny>, rows: &RowSparse) -> PyResult<Option<Operand>> {
    if let Ok(rows) = object.cast::<PyRows>() {
        return Ok(Some(Operand::Value(rows.get().value().into())));
    }
    if let Ok(array) = object.cast::<PyArray>() {
        return Ok(Some(Operand::Value(array.get().array().tensor().into())));
    }
    if let Some(number) = convert::number(object, rows.dtype())? {
        return Ok(Some(Operand::Number(number)));
    }
    let array = operand::array(object)?;
    Ok(array.map(|array| Operand::Value(array.tensor().into())))
}

/// Returns a value as a Python object: a row-sparse or a dense array.
pub(crate) fn object(py: Python<'_>, value: Value) -> PyResult<Bound<'_, PyAny>> {
    Ok(match value {
        Value::Rows(rows) => Bound::new(py, PyRows::from(rows))?.into_any(),
        Value::Dense(tensor) => Bound::new(py, PyArray::from(NDArray::new(tensor)))?.into_any(),
    })
}

/// Computes `slf op other`, or `other op slf` if `reversed`. Returns `None` if `other` is not an
/// operand.
fn computed(
    slf: &Bound<'_, PyRows>,
    op: BinaryOp,
    other: &Bound<'_, PyAny>,
    reversed: bool,
) -> PyResult<Option<Value>> {
    let rows = slf.get().value();
    let Some(operand) = operand(other, &rows)? else { return Ok(None) };
    let value = Value::Rows(rows);
    let work = move || match operand {
        Operand::Number(number) => value.binary_scalar(op, number, reversed),
        Operand::Value(other) if reversed => other.binary(op, &value),
        Operand::Value(other) => value.binary(op, &other),
    };
    detached(slf.py(), work).map(Some)
}

/// Returns `slf op other`, or `other op slf` if `reversed`. Returns `NotImplemented` if `other` is
/// not an operand.
pub(crate) fn binary<'py>(
    slf: &Bound<'py, PyRows>,
    op: BinaryOp,
    other: &Bound<'py, PyAny>,
    reversed: bool,
) -> PyResult<Bound<'py, PyAny>> {
    let py = slf.py();
    match computed(slf, op, other, reversed)? {
        Some(value) => object(py, value),
        None => Ok(py.NotImplemented().into_bound(py)),
    }
}

/// Replaces the array with `slf op other`. A dense result fills every row.
pub(crate) fn in_place(
    slf: &Bound<'_, PyRows>,
    op: BinaryOp,
    other: &Bound<'_, PyAny>,
) -> PyResult<()> {
    match computed(slf, op, other, false)? {
        Some(value) => slf.get().receive(slf.py(), &value),
        None => Err(operators::not_an_operand(op, other)),
    }
}

pub(crate) fn unary(py: Python<'_>, rows: RowSparse, op: UnaryOp) -> PyResult<Bound<'_, PyAny>> {
    object(py, detached(py, || Value::Rows(rows).unary(op))?)
}
