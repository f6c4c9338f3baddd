//! Values of rows as simply as they can be written: a list of numbers and rows.

use kvstore::RowSparse;

use crate::arrays::{from_tensor, to_array};
use crate::samples::{nasty, words};
use crate::value::{Number, Spec, Value};

/// Some rows of a value, by ascending number.
#[derive(Clone, Debug)]
pub struct NaiveRows {
    /// Of the whole value.
    pub spec: Spec,
    /// Which rows.
    pub indices: Vec<i64>,
    /// Their elements, one row after the other.
    pub numbers: Vec<Number>,
}

impl NaiveRows {
    /// Returns rows that look random, each row of the shape being there in so many of 8 cases.
    pub fn sample(spec: Spec, seed: u64, in_8: u64) -> Self {
        Self::sample_of(spec, seed, in_8, nasty)
    }

    /// As [`NaiveRows::sample`], with numbers of another kind.
    pub fn sample_of(spec: Spec, seed: u64, in_8: u64, numbers: fn(Spec, u64) -> Value) -> Self {
        let num_rows = i64::try_from(spec.shape[0]).expect("a small shape");
        let there = (0..num_rows).zip(words(!seed)).filter(|(_, word)| word % 8 < in_8);
        let indices: Vec<i64> = there.map(|(index, _)| index).collect();
        let numbers = numbers(rows_spec(&spec, indices.len()), seed).numbers;
        Self { spec, indices, numbers }
    }

    /// Returns some rows of a value.
    pub fn of(value: &Value, is_there: impl Fn(usize) -> bool) -> Self {
        let row_len: usize = value.spec.shape[1..].iter().product();
        let rows = value.numbers.chunks(row_len).enumerate().filter(|(row, _)| is_there(*row));
        let (indices, numbers): (Vec<_>, Vec<_>) = rows.unzip();
        let indices = indices.into_iter().map(|row| i64::try_from(row).expect("a small shape"));
        Self { spec: value.spec.clone(), indices: indices.collect(), numbers: numbers.concat() }
    }

    /// Returns the value with the others as 0.
    pub fn to_dense(&self) -> Value {
        let mut dense = Value::zeros(self.spec.clone());
        let row_len: usize = self.spec.shape[1..].iter().product();
        for (row, index) in self.indices.iter().enumerate() {
            let start = usize::try_from(*index).expect("a row number") * row_len;
            for column in 0..row_len {
                dense.numbers[start + column] = self.numbers[row * row_len + column];
            }
        }
        dense
    }

    /// Returns one row; none when it is not there.
    pub fn row(&self, index: i64) -> Option<Value> {
        let spec = rows_spec(&self.spec, 1);
        let row = self.indices.iter().position(|other| *other == index)?;
        let numbers = self.numbers[row * spec.num_elements()..][..spec.num_elements()].to_vec();
        Some(Value { spec, numbers })
    }

    /// Returns the value that a store takes.
    pub fn to_rows(&self) -> RowSparse {
        let spec = rows_spec(&self.spec, self.indices.len());
        let rows = to_array(&Value { spec, numbers: self.numbers.clone() }).tensor();
        RowSparse::new(self.spec.shape.clone(), self.indices.clone(), rows)
            .expect("ascending rows of the shape")
    }

    /// Returns the rows of a store's value.
    pub fn from_rows(rows: &RowSparse) -> Self {
        let spec = Spec::new(rows.shape().dims(), rows.dtype());
        let numbers = from_tensor(rows.rows()).numbers;
        Self { spec, indices: rows.indices().to_vec(), numbers }
    }
}

/// What a push gives a key: a whole value, or some rows of one.
#[derive(Clone, Debug)]
pub enum ValueOrRows {
    /// All of it.
    Value(Value),
    /// Some rows.
    Rows(NaiveRows),
}

impl ValueOrRows {
    /// Returns the whole value.
    pub fn to_dense(&self) -> Value {
        match self {
            Self::Value(value) => value.clone(),
            Self::Rows(rows) => rows.to_dense(),
        }
    }

    /// Returns the rows, where only some are there.
    pub fn rows(&self) -> Option<&NaiveRows> {
        match self {
            Self::Value(_) => None,
            Self::Rows(rows) => Some(rows),
        }
    }
}

/// Returns the spec of so many rows of a value.
pub fn rows_spec(spec: &Spec, num_rows: usize) -> Spec {
    let mut shape = spec.shape.clone();
    shape[0] = num_rows;
    Spec::new(&shape, spec.dtype)
}
