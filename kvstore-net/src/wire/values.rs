//! Keys, specs and values as messages.

use kvstore_core::{DType, Error, Key, Result, Shape, TensorSpec, Value, fallible};

use super::elements::Elements;
use crate::proto;

pub(crate) fn spec_of(spec: &TensorSpec) -> proto::Spec {
    let shape = spec.shape().dims().iter().map(|dim| *dim as u64).collect();
    proto::Spec { dtype: spec.dtype().name().to_owned(), shape }
}

/// # Errors
/// - [`Error::InvalidArgument`] if the spec is missing, its dtype is unknown, or a dimension does
///   not fit this machine.
pub(crate) fn parse_spec(spec: Option<&proto::Spec>) -> Result<TensorSpec> {
    let spec = spec.ok_or_else(|| Error::invalid("a value without a type"))?;
    let dim = |dim: &u64| {
        usize::try_from(*dim)
            .map_err(|_| Error::invalid(format!("a dimension of {dim}: expected less than 2^32")))
    };
    let dims = spec.shape.iter().map(dim).collect::<Result<Vec<usize>>>()?;
    Ok(TensorSpec::new(Shape::from(dims), DType::from_name(&spec.dtype)?))
}

pub(crate) fn parse_keys(texts: &[String]) -> Result<Vec<Key>> {
    fallible::try_collect(texts.iter().map(|text| Key::new(text)))
}

pub(crate) fn keys_of(keys: &[Key]) -> Vec<String> {
    keys.iter().map(|key| key.as_str().to_owned()).collect()
}

/// Returns the description of a value, and appends its elements.
pub(crate) fn value_of(key: &Key, value: &Value, elements: &mut Elements) -> Result<proto::Value> {
    match value {
        Value::Dense(tensor) => elements.push(tensor)?,
        Value::Rows(rows) => elements.push_rows(rows)?,
    }
    Ok(head_of(key, value))
}

/// Returns the description of a value.
pub(crate) fn head_of(key: &Key, value: &Value) -> proto::Value {
    let num_rows = value.rows().map(|rows| rows.indices().len() as u64);
    let (key, spec) = (key.as_str().to_owned(), Some(spec_of(value.spec())));
    proto::Value { key, spec, num_rows, ..proto::Value::default() }
}

/// Divides the row indices of a request among its keys. `num_rows` has the number of each key.
///
/// # Errors
/// - [`Error::LengthMismatch`] if `num_rows` has not one number for each key.
/// - [`Error::Corrupt`] if there are fewer indices.
pub(crate) fn divide_indices<'a>(
    mut indices: &'a [i64],
    num_rows: &[u64],
    num_keys: usize,
) -> Result<Vec<&'a [i64]>> {
    if num_rows.len() != num_keys {
        let what = "lists of row indices for keys".to_owned();
        return Err(Error::LengthMismatch { what, expected: num_keys, found: num_rows.len() });
    }
    fallible::try_collect(num_rows.iter().map(|num_rows| {
        let num_rows = usize::try_from(*num_rows).unwrap_or(usize::MAX);
        let (now, later) = indices.split_at_checked(num_rows).ok_or_else(|| Error::Corrupt {
            subject: "the message".to_owned(),
            reason: "row indices are missing".to_owned(),
        })?;
        indices = later;
        Ok(now)
    }))
}
