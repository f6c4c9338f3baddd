//! Prepares the row-sparse values of a push. Afterwards, the values of each key are all dense or
//! all row-sparse. Several row-sparse values of a key become their sum, unless the optimizer step
//! sums them.

use super::policy::RowUse;
use super::push::Push;
use crate::fallible;
use crate::rows::{RowSum, Value};
use crate::types::Result;

impl Push<'_> {
    /// Converts row-sparse values to dense ones if their key also has dense values. `row_use`
    /// decides what happens to the values of keys whose values are all row-sparse.
    ///
    /// Returns the values that replace the values of the call.
    pub(super) fn merge_rows(&mut self, values: &[Value], row_use: RowUse) -> Result<Vec<Value>> {
        let mut merged = fallible::copied(values)?;
        let mut places = fallible::with_capacity(self.keys.len())?;
        let mut sums = fallible::with_capacity(self.keys.len())?;
        let mut dense = fallible::with_capacity(values.len())?;
        // The loop only collects, so that all sums of the call run as one batch.
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
            dense.extend(place.filter(|_| row_use == RowUse::Dense));
        }
        for (place, sum) in places.into_iter().zip(RowSum::run(self.backends, sums)?) {
            if let Some(value) = merged.get_mut(place) {
                *value = sum.into();
            }
        }
        // This is last because some of the values to convert are sums.
        for place in dense {
            merged.get_mut(place).map(Value::make_dense).transpose()?;
        }
        Ok(merged)
    }
}
