//! The rows of a push, before its keys are processed: of each key either all values are whole, or all are rows.
//! Unless a step takes them as they are, one value is left of several of rows, which is their sum.

use super::policy::RowUse;
use super::push::{Push, Pushed};
use crate::fallible;
use crate::rows::{RowSum, Value};
use crate::types::Result;

/// The values that take the place of those of a call.
pub(crate) struct Merged {
    values: Vec<Value>,
    pushed: Vec<Pushed>,
}

impl Merged {
    /// Returns the push of these values.
    pub(crate) fn push<'a>(&'a self, of: Push<'a>) -> Push<'a> {
        Push { values: &self.values, pushed: &self.pushed, ..of }
    }
}

impl Push<'_> {
    /// Makes rows whole where they meet whole values, and does what is asked for with the values of the keys that
    /// got nothing but rows. None when there are no rows.
    pub(crate) fn merge_rows(&self, row_use: RowUse) -> Result<Option<Merged>> {
        if self.values.iter().all(|value| value.rows().is_none()) {
            return Ok(None);
        }
        let mut values = fallible::copied(self.values)?;
        let mut pushed = fallible::with_capacity(self.pushed.len())?;
        let mut places = fallible::with_capacity(self.entries.len())?;
        let mut sums = fallible::with_capacity(self.entries.len())?;
        let mut dense = fallible::with_capacity(self.pushed.len())?;
        for group in self.groups() {
            let Some(rows) = group.rows()? else {
                fallible::extend(&mut pushed, group.pushed)?;
                dense.extend(group.pushed.iter().map(|pushed| pushed.position));
                continue;
            };
            if row_use == RowUse::Step {
                fallible::extend(&mut pushed, group.pushed)?;
                continue;
            }
            pushed.extend(group.pushed.first());
            let place = group.pushed.first().map(|first| first.position);
            if rows.len() > 1 {
                sums.push(RowSum::union(&rows)?);
                places.extend(place);
            }
            dense.extend(place.filter(|_| row_use == RowUse::Whole));
        }
        for (place, sum) in places.into_iter().zip(RowSum::run(self.backends, sums)?) {
            if let Some(value) = values.get_mut(place) {
                *value = sum.into();
            }
        }
        for place in dense {
            values.get_mut(place).map(Value::make_dense).transpose()?;
        }
        Ok(Some(Merged { values, pushed }))
    }
}
