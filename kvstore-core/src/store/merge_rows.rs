//! The rows of a push, before its keys are processed: of each key either all values are whole, or all
//! are rows. Unless a step takes them as they are, one value is left of several of rows, which is
//! their sum.

use super::policy::RowUse;
use super::push::Push;
use crate::backend::registry::Backends;
use crate::fallible;
use crate::rows::{RowSum, Value};
use crate::types::Result;

impl Push<'_> {
    /// Makes rows whole where they meet whole values, and does what is asked for with the values of
    /// the keys that got nothing but rows. Returns the values that replace those of the call, or `None`
    /// if there are no rows.
    pub(crate) fn merge_rows(
        &mut self,
        backends: &Backends,
        values: &[Value],
        row_use: RowUse,
    ) -> Result<Option<Vec<Value>>> {
        if values.iter().all(|value| value.rows().is_none()) {
            return Ok(None);
        }
        let mut merged = fallible::copied(values)?;
        let mut places = fallible::with_capacity(self.keys.len())?;
        let mut sums = fallible::with_capacity(self.keys.len())?;
        let mut dense = fallible::with_capacity(values.len())?;
        for key in &mut self.keys {
            let Some(rows) = key.rows()? else {
                dense.extend(key.positions());
                continue;
            };
            if row_use == RowUse::Step {
                continue;
            }
            let place = key.positions().next();
            if rows.len() > 1 {
                sums.push(RowSum::union(&rows)?);
                places.extend(place);
            }
            key.keep_first();
            dense.extend(place.filter(|_| row_use == RowUse::Whole));
        }
        for (place, sum) in places.into_iter().zip(RowSum::run(backends, sums)?) {
            if let Some(value) = merged.get_mut(place) {
                *value = sum.into();
            }
        }
        for place in dense {
            merged.get_mut(place).map(Value::make_dense).transpose()?;
        }
        Ok(Some(merged))
    }
}
