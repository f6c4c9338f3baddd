//! The model's row-sparse values: a list of row indices and rows.

use kvstore::RowSparse;

use crate::arrays::{from_tensor, to_array};
use crate::samples::{nasty, words};
use crate::value::{Number, Spec, Value};

/// Some rows of a value, in ascending order of their indices.
#[derive(Clone, Debug)]
pub struct NaiveRows {
    /// The spec of the dense value.
    pub spec: Spec,
    /// The row indices.
    pub indices: Vec<i64>,
    /// The elements of the rows, concatenated.
    pub numbers: Vec<Number>,
}

impl NaiveRows {
    /// Returns pseudo-random rows. Each row of the shape is present with probability `in_8 / 8`.
    pub fn sample(spec: Spec, seed: u64, in_8: u64) -> Self {
        Self::sample_of(spec, seed, in_8, nasty)
    }

    /// Works like [`NaiveRows::sample`], with another source of numbers.
    pub fn sample_of(spec: Spec, seed: u64, in_8: u64, numbers: fn(Spec, u64) -> Value) -> Self {
        let num_rows = i64::try_from(spec.shape[0]).expect("a small shape");
        let there = (0..num_rows).zip(words(!seed)).filter(|(_, word)| word % 8 < in_8);
        let indices: Vec<i64> = there.map(|(index, _)| index).collect();
        let numbers = numbers(rows_spec(&spec, indices.len()), seed).numbers;
        Self { spec, indices, numbers }
    }

    /// Returns the rows of a value that `is_there` selects.
    pub fn of(value: &Value, is_there: impl Fn(usize) -> bool) -> Self {
        let row_len: usize = value.spec.shape[1..].iter().product();
        let rows = value.numbers.chunks(row_len).enumerate().filter(|(row, _)| is_there(*row));
        let (indices, numbers): (Vec<_>, Vec<_>) = rows.unzip();
        let indices = indices.into_iter().map(|row| i64::try_from(row).expect("a small shape"));
        Self { spec: value.spec.clone(), indices: indices.collect(), numbers: numbers.concat() }
    }

    /// Returns the dense value. Missing rows are 0.
    pub fn to_dense(&self) -> Value {
        let mut dense = Value::zeros(self.spec.clone());
        let row_len: usize = self.spec.shape[1..].iter().product();
        for (row, index) in self.indices.iter().enumerate() {
            let start = usize::try_from(*index).expect("a row index") * row_len;
            for column in 0..row_len {
                dense.numbers[start + column] = self.numbers[row * row_len + column];
            }
        }
        dense
    }

    /// Returns one row, or `None` if it is missing.
    pub fn row(&self, index: i64) -> Option<Value> {
        let spec = rows_spec(&self.spec, 1);
        let row = self.indices.iter().position(|other| *other == index)?;
        let numbers = self.numbers[row * spec.num_elements()..][..spec.num_elements()].to_vec();
        Some(Value { spec, numbers })
    }

    /// Returns the row-sparse value for the store.
    pub fn to_rows(&self) -> RowSparse {
        let spec = rows_spec(&self.spec, self.indices.len());
        let rows = to_array(&Value { spec, numbers: self.numbers.clone() }).tensor();
        RowSparse::new(self.spec.shape.clone(), self.indices.clone(), rows)
            .expect("ascending rows of the shape")
    }

    /// Returns the rows of a row-sparse value of the store.
    pub fn from_rows(rows: &RowSparse) -> Self {
        let spec = Spec::new(rows.shape().dims(), rows.dtype());
        let numbers = from_tensor(rows.rows()).numbers;
        Self { spec, indices: rows.indices().to_vec(), numbers }
    }
}

/// A pushed value: dense or row-sparse.
#[derive(Clone, Debug)]
pub enum ValueOrRows {
    /// A dense value.
    Value(Value),
    /// A row-sparse value.
    Rows(NaiveRows),
}

impl ValueOrRows {
    /// Returns the dense value.
    pub fn to_dense(&self) -> Value {
        match self {
            Self::Value(value) => value.clone(),
            Self::Rows(rows) => rows.to_dense(),
        }
    }

    /// Returns the rows, or `None` for a dense value.
    pub fn rows(&self) -> Option<&NaiveRows> {
        match self {
            Self::Value(_) => None,
            Self::Rows(rows) => Some(rows),
        }
    }
}

/// Returns the spec of `num_rows` rows of a value.
pub fn rows_spec(spec: &Spec, num_rows: usize) -> Spec {
    let mut shape = spec.shape.clone();
    shape[0] = num_rows;
    Spec::new(&shape, spec.dtype)
}
