//! [`Sources`]: the file or the base of a delta, where the tensors of a checkpoint come from.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::format::{
    changed_row_indices_name, changed_rows_name, residual_name, row_indices_name, rows_name,
    state_name, value_name,
};
use super::header::{Header, missing};
use crate::backend::{InOut, RowIds};
use crate::fallible;
use crate::file::Input;
use crate::optimizer::OptimizerState;
use crate::rows::{RowSparse, Value};
use crate::store::Snapshot;
use crate::tensor::Tensor;
use crate::types::{DType, Error, Key, Result, TensorSpec};

/// The tensors that a file can use, before they are read.
pub(super) struct Sources {
    pub(super) header: Header,
    /// The tensors of the base, if the file is a delta.
    pub(super) base: Option<BaseTensors>,
}

impl Sources {
    pub(super) fn new(header: Header, base: Option<Snapshot>) -> Result<Self> {
        Ok(Self { header, base: base.map(BaseTensors::new).transpose()? })
    }

    /// Marks a tensor as expected, or its changed rows. A delta may omit it.
    ///
    /// # Errors
    /// - [`Error::InvalidArgument`] if neither the file nor the base has a tensor of this name.
    /// - [`Error::InvalidArgument`] if the tensor or its changed rows have another shape or dtype.
    pub(super) fn expect(&mut self, name: &str, spec: &TensorSpec) -> Result<()> {
        let is_in_file = self.header.contains(name);
        let Some(base) = self.base.as_ref().filter(|_| !is_in_file) else {
            // Frees a tensor that the file replaces before the new one is read.
            drop(self.base.as_mut().and_then(|base| base.tensors.remove(name)));
            return self.header.expect(name, spec);
        };
        let found = base.tensors.get(name).map(Tensor::spec);
        check_base(name, spec, found)?;
        self.expect_changed_rows(name, spec).map(drop)
    }

    /// Marks the rows of a row-sparse value as expected, like [`Sources::expect`].
    ///
    /// # Errors
    /// - The errors of [`Sources::expect`].
    pub(super) fn expect_rows(
        &mut self,
        key: &str,
        spec: &TensorSpec,
        num_rows: usize,
    ) -> Result<()> {
        let (indices, rows) = (row_indices_name(key), rows_name(key));
        let is_in_file = self.header.contains(&indices) || self.header.contains(&rows);
        let Some(base) = self.base.as_ref().filter(|_| !is_in_file) else {
            drop(self.base.as_mut().and_then(|base| base.rows.remove(key)));
            self.header.expect(&indices, &TensorSpec::new([num_rows], DType::I64))?;
            let spec = TensorSpec::new(spec.shape().with_num_rows(num_rows), spec.dtype());
            return self.header.expect(&rows, &spec);
        };
        let found = base.rows.get(key);
        check_base(&rows, spec, found.map(RowSparse::spec))?;
        let old_rows = found.map(RowSparse::num_rows);
        if !self.expect_changed_rows(&rows, spec)? && old_rows != Some(num_rows) {
            return Err(wrong_num_rows(key, num_rows, old_rows.unwrap_or_default()));
        }
        Ok(())
    }

    /// Marks the changed rows of a tensor as expected. Returns whether the file has some.
    fn expect_changed_rows(&mut self, name: &str, spec: &TensorSpec) -> Result<bool> {
        let (indices, rows) = (changed_row_indices_name(name), changed_rows_name(name));
        let Some(found) = self.header.spec(&indices) else { return Ok(false) };
        let num_rows = found.shape().num_rows();
        self.header.expect(&indices, &TensorSpec::new([num_rows], DType::I64))?;
        let spec = TensorSpec::new(spec.shape().with_num_rows(num_rows), spec.dtype());
        self.header.expect(&rows, &spec)?;
        Ok(true)
    }
}

fn check_base(name: &str, expected: &TensorSpec, found: Option<&TensorSpec>) -> Result<()> {
    match found {
        Some(found) if found == expected => Ok(()),
        Some(found) => Err(Error::invalid(format!(
            "tensor `{name}` of the base: expected {expected}, found {found}"
        ))),
        None => Err(Error::invalid(format!("{}, also in the base", missing(name)))),
    }
}

fn wrong_num_rows(key: &str, expected: usize, found: usize) -> Error {
    Error::invalid(format!("key `{key}`: expected {expected} rows, found {found}"))
}

/// The tensors of the base of a delta.
///
/// Trees, because their allocations stay small.
pub(super) struct BaseTensors {
    tensors: BTreeMap<String, Tensor>,
    /// The row-sparse values by key.
    rows: BTreeMap<String, RowSparse>,
}

impl BaseTensors {
    /// Returns the tensors of a snapshot under their names in a file.
    fn new(base: Snapshot) -> Result<Self> {
        let held = base.held()?;
        // If this was the last clone of the snapshot, the caller can change rows in place.
        drop(base);
        let (mut tensors, mut rows) = (BTreeMap::new(), BTreeMap::new());
        for copy in held.copies() {
            let key = copy.key.as_str();
            match &copy.value {
                Value::Dense(value) => drop(tensors.insert(value_name(key), value.clone())),
                Value::Rows(value) => drop(rows.insert(key.to_owned(), value.clone())),
            }
            for (index, residual) in copy.progress.residuals.iter().enumerate() {
                tensors.insert(residual_name(index, key), residual.clone());
            }
            let state = held.state_of(copy).filter(|state| state.outline().is_some());
            for (index, tensor) in
                state.into_iter().flat_map(OptimizerState::all_tensors).enumerate()
            {
                tensors.insert(state_name(index, key), tensor.clone());
            }
        }
        Ok(Self { tensors, rows })
    }
}

/// The tensors of a file, and of the base of a delta. [`Sources`] has expected each of them.
pub(super) struct Found {
    /// A tree, because its allocations stay small. A list or hash table of many small tensors would
    /// become longer than the file.
    pub(super) tensors: BTreeMap<String, Tensor>,
    pub(super) base: Option<BaseTensors>,
}

impl Found {
    /// Removes a tensor.
    ///
    /// # Errors
    /// - [`Error::Corrupt`] if the row indices of its changes are not ascending or out of range.
    /// - [`Error::OutOfMemory`] if there is not enough memory.
    pub(super) fn take(&mut self, input: &Input<'_>, name: &str) -> Result<Tensor> {
        if let Some(tensor) = self.tensors.remove(name) {
            return Ok(tensor);
        }
        let base = self.base.as_mut().and_then(|base| base.tensors.remove(name));
        let mut tensor = base.ok_or_else(|| input.corrupt(missing(name)))?;
        if let Some((indices, rows)) = self.take_changed_rows(name)? {
            let changed = RowSparse::new(tensor.shape().clone(), indices, rows);
            let changed =
                changed.map_err(|error| input.corrupt(format!("tensor `{name}`: {error}")))?;
            tensor.overwrite_rows(changed.indices(), changed.rows())?;
        }
        Ok(tensor)
    }

    /// Removes a row-sparse value.
    ///
    /// # Errors
    /// - [`Error::Corrupt`] if the row indices are not ascending or out of range.
    /// - [`Error::Corrupt`] if the value does not have `num_rows` rows.
    /// - [`Error::OutOfMemory`] if there is not enough memory.
    pub(super) fn rows(
        &mut self,
        input: &Input<'_>,
        key: &Key,
        spec: &TensorSpec,
        num_rows: usize,
    ) -> Result<Value> {
        let name = rows_name(key.as_str());
        let value = |indices, rows| {
            let value = RowSparse::new(spec.shape().clone(), indices, rows);
            value.map_err(|error| input.corrupt(format!("key `{key}`: {error}")))
        };
        if let Some(indices) = self.tensors.remove(&row_indices_name(key.as_str())) {
            let rows = self.take(input, &name)?;
            return value(indices.to_vec::<i64>()?, rows).map(Value::Rows);
        }
        let base = self.base.as_mut().and_then(|base| base.rows.remove(key.as_str()));
        let base = base.ok_or_else(|| input.corrupt(missing(&name)))?;
        let Some((indices, rows)) = self.take_changed_rows(&name)? else {
            return Ok(Value::Rows(base));
        };
        let merged = with_rows_of(base, &value(indices, rows)?)?;
        if merged.num_rows() != num_rows {
            let error = wrong_num_rows(key.as_str(), num_rows, merged.num_rows());
            return Err(input.corrupt(error.to_string()));
        }
        Ok(Value::Rows(merged))
    }

    fn take_changed_rows(&mut self, name: &str) -> Result<Option<(Vec<i64>, Tensor)>> {
        let indices = self.tensors.remove(&changed_row_indices_name(name));
        let rows = self.tensors.remove(&changed_rows_name(name));
        indices.zip(rows).map(|(indices, rows)| Ok((indices.to_vec::<i64>()?, rows))).transpose()
    }
}

/// Returns `base` with the rows of `changed`, which replace rows with the same index.
fn with_rows_of(base: RowSparse, changed: &RowSparse) -> Result<RowSparse> {
    let mut places = fallible::with_capacity(changed.num_rows())?;
    for index in changed.indices() {
        let place = base.indices().binary_search(index).ok();
        places.extend(place.and_then(|place| i64::try_from(place).ok()));
    }
    let spec = base.spec().clone();
    if places.len() == changed.num_rows() {
        let (ids, mut rows) = base.into_parts();
        rows.overwrite_rows(&places, changed.rows())?;
        return Ok(RowSparse::from_parts(spec, ids, rows));
    }
    let num_rows = base.num_rows() + changed.num_rows() - places.len();
    let mut indices = fallible::with_capacity(num_rows)?;
    let shape = base.rows().shape().with_num_rows(num_rows);
    let mut rows = base.rows().allocate_like(TensorSpec::new(shape, spec.dtype()))?;
    let row_len = base.rows().shape().row().num_elements();
    let row_bytes = row_len * spec.dtype().size();
    let [old_bytes, new_bytes] = [base.rows().seen_bytes()?, changed.rows().seen_bytes()?];
    let mut old = base.indices().iter().zip(old_bytes.chunks(row_bytes.max(1))).peekable();
    let mut new = changed.indices().iter().zip(new_bytes.chunks(row_bytes.max(1))).peekable();
    loop {
        let order = match (old.peek(), new.peek()) {
            (None, None) => break,
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some((old, _)), Some((new, _))) => old.cmp(new),
        };
        let skipped = if order.is_le() { old.next() } else { None };
        let row = if order.is_ge() { new.next() } else { skipped };
        let Some((index, bytes)) = row else { break };
        rows.mutate_part(indices.len() * row_len, row_len, |backend, in_out| match in_out {
            InOut::InPlace(dst) | InOut::Into { dst, .. } => backend.write(dst, bytes),
        })?;
        indices.push(*index);
    }
    Ok(RowSparse::from_parts(spec, Arc::new(RowIds::new(indices)), rows))
}
