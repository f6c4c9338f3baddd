//! Jobs on rows, for the kernels of `kernels/rows.cu` and `kernels/update_rows.cu`: sums of rows,
//! dense values from rows, and updates of rows.

use kvstore_core::optimizer::{MAX_SCALARS, MAX_STATES, Rule, RuleVisitor, UpdateRule};
use kvstore_core::{DType, Error, Result};

use super::batch::{Address, Batch, Extent, count, is_aligned};
use super::plan_rows::wrong_rows;
use super::sum;

/// The name of the kernel that writes dense values from rows. It works for every dtype.
pub const SCATTER_KERNEL: &str = "kv_scatter_rows";

/// The number of units in a tile.
const TILE: u64 = 1024;
/// Reciprocals are multiplied by 2 to this power.
const SHIFT: u32 = 20;
/// The number of elements that a thread loads at a time. For 64-bit elements it is half as large.
const AT_ONCE: usize = 4;

/// Rows to sum.
#[derive(Clone, Copy, Debug)]
pub struct Rows<'a> {
    /// The number of elements of a row.
    pub row_len: usize,
    /// The number of sums.
    pub num_rows: usize,
    /// The list of the source addresses.
    pub sources: Address,
    /// For each sum, the position of its first source, and at the end the position after the last
    /// source. 0: each sum has exactly one source.
    pub starts: Address,
    /// A sum with fewer sources than this has `+0.0` added.
    pub full: usize,
    /// The memory of the addends that contain the sources.
    pub addends: &'a [Extent],
}

/// The row indices of a value, in ascending order.
#[derive(Clone, Copy, Debug)]
pub struct Ids {
    /// The list of the indices.
    pub address: Address,
    /// The number of indices.
    pub len: usize,
    /// The largest index, or `None` without indices.
    pub last: Option<i64>,
}

/// A dense value to write from some of its rows.
#[derive(Clone, Copy, Debug)]
pub struct Scatter {
    /// The number of bytes of a row.
    pub row_bytes: usize,
    /// The indices of the rows.
    pub ids: Ids,
    /// The rows.
    pub rows: Extent,
    /// The dense value.
    pub dst: Extent,
}

/// An update of some rows of a weight, in place.
#[derive(Clone, Copy, Debug)]
pub struct RowUpdateArgs<'a> {
    /// The formula, and its scalars.
    pub rule: &'a UpdateRule,
    /// The dtype of the weight and of the gradient.
    pub dtype: DType,
    /// The rows that are summed to the gradient.
    pub gradient: Rows<'a>,
    /// The row indices of the gradient.
    pub ids: Ids,
    /// The dense weight.
    pub weight: Extent,
    /// The dense states. For a half-precision weight, the master copy comes first.
    pub states: &'a [Extent],
}

/// The division of rows into tiles. A tile has several rows, or a part of a long row.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowCut {
    /// The row count.
    pub num_rows: u64,
    /// The number of units in a row. A thread loads one unit at a time.
    pub num_units: u64,
    /// The number of rows in a tile, or 1 for long rows.
    pub rows_per_tile: u32,
    /// The number of tiles in a row, or 1 for short rows.
    pub tiles_per_row: u32,
    /// 2^20 divided by the number of units that a tile has of a row, rounded up. Multiplying a
    /// number up to 1024 by it and shifting right by 20 gives the quotient.
    pub reciprocal: u32,
    /// The number of elements in a unit. For dense values, the number of bytes.
    pub unit: u32,
}

/// The rows to sum, as the kernel reads them.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowAddends {
    /// The list of the source addresses.
    pub sources: Address,
    /// The list of the starts, or 0 if each sum has exactly one source.
    pub starts: Address,
    /// A sum with fewer sources than this has 0 added.
    pub full: u32,
    /// Padding.
    pub unused: u32,
}

/// A sum of rows, as the kernel reads it.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowSumJob {
    /// The number of tiles of all earlier jobs.
    pub first_tile: u64,
    /// The division of the sums into tiles.
    pub cut: RowCut,
    /// The rows to sum.
    pub addends: RowAddends,
    /// The destination of the sums.
    pub dst: Address,
}

/// A dense value to write, as the kernel reads it.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowScatterJob {
    /// The number of tiles of all earlier jobs.
    pub first_tile: u64,
    /// The division of the value into tiles.
    pub cut: RowCut,
    /// The rows.
    pub rows: Address,
    /// The dense value.
    pub dst: Address,
    /// The row indices.
    pub ids: Address,
    /// The count of row indices.
    pub num_ids: u32,
    /// Padding.
    pub unused: u32,
}

/// An update of some rows, as the kernel reads it.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RowUpdateJob {
    /// The number of tiles of all earlier jobs.
    pub first_tile: u64,
    /// The division of the gradient into tiles.
    pub cut: RowCut,
    /// The rows that are summed to the gradient.
    pub addends: RowAddends,
    /// The weight.
    pub weight: Address,
    /// The states.
    pub states: [Address; MAX_STATES],
    /// The scalars, in the order of the rule's fields.
    pub scalars: [f64; MAX_SCALARS],
    /// The row indices.
    pub ids: Address,
}

impl Batch<RowSumJob> {
    /// Appends a sum of rows. All sums of a batch have the same dtype. Does nothing without rows.
    ///
    /// # Errors
    /// - [`Error::Internal`] if `dst` has another length. The batch is then unchanged.
    /// - [`Error::OutOfMemory`] if there is not enough memory.
    pub fn push(&mut self, dtype: DType, rows: &Rows<'_>, dst: Extent) -> Result<()> {
        if dst.num_bytes != rows.num_rows * rows.row_len * dtype.size() {
            return Err(wrong_rows());
        }
        if dst.num_bytes == 0 {
            return Ok(());
        }
        let unit = rows.unit(dtype, [(dst, dtype)]);
        let (cut, num_tiles) = RowCut::new(rows.num_rows, rows.row_len, unit)?;
        let addends = rows.lists()?;
        self.push_job(&[], num_tiles, |first_tile, _, _| RowSumJob {
            first_tile,
            cut,
            addends,
            dst: dst.address,
        })
    }
}

impl Batch<RowScatterJob> {
    /// Appends a dense value. The values of a batch may have different dtypes. Does nothing for an
    /// empty value.
    ///
    /// # Errors
    /// - [`Error::Internal`] if a row does not exist. The batch is then unchanged.
    /// - [`Error::OutOfMemory`] if there is not enough memory.
    pub fn push(&mut self, scatter: &Scatter) -> Result<()> {
        let &Scatter { row_bytes, ids, rows, dst } = scatter;
        if dst.num_bytes == 0 {
            return Ok(());
        }
        let num_rows = dst.num_bytes.checked_div(row_bytes).unwrap_or_default();
        let is_there = rows.num_bytes / row_bytes.max(1) >= ids.len;
        if num_rows * row_bytes != dst.num_bytes || !is_there || !ids.are_below(num_rows) {
            return Err(wrong_rows());
        }
        let places = [row_bytes as u64, rows.address, dst.address];
        // Use the largest unit that divides the row length and both addresses.
        let fits = |unit: &usize| places.iter().all(|place| place.is_multiple_of(*unit as u64));
        let unit = [16, 8, 4, 2].into_iter().find(fits).unwrap_or(1);
        let (cut, num_tiles) = RowCut::new(num_rows, row_bytes, unit)?;
        let num_ids = count(ids.len)?;
        self.push_job(&[], num_tiles, |first_tile, _, _| RowScatterJob {
            first_tile,
            cut,
            rows: rows.address,
            dst: dst.address,
            ids: ids.address,
            num_ids,
            unused: 0,
        })
    }
}

impl Batch<RowUpdateJob> {
    /// Appends an update. All updates of a batch have the same formula and dtype: see
    /// [`update_kernels`]. The states of a row-wise rule have one number for each row of the
    /// weight, except the master copy. Does nothing without rows.
    ///
    /// # Errors
    /// - [`Error::Internal`] if a row does not exist or a state has the wrong size. The batch is
    ///   then unchanged.
    /// - [`Error::OutOfMemory`] if there is not enough memory.
    pub fn push(&mut self, step: &RowUpdateArgs<'_>) -> Result<()> {
        let &RowUpdateArgs { rule, dtype, gradient, ids, weight, states } = step;
        let num_elements = weight.num_bytes / dtype.size();
        let num_rows = num_elements.checked_div(gradient.row_len).unwrap_or(usize::MAX);
        if gradient.num_rows != ids.len || !ids.are_below(num_rows) {
            return Err(wrong_rows());
        }
        let arithmetic = dtype.arithmetic().ok_or_else(wrong_states)?;
        let num_states = rule.initial().len() + usize::from(arithmetic != dtype);
        let (master, others) = states.split_at(states.len().min(num_states - rule.initial().len()));
        let num_numbers = if rule.is_rowwise() { num_rows } else { num_elements };
        let fits = |states: &[Extent], len: usize| {
            states.iter().all(|state| state.num_bytes == len * arithmetic.size())
        };
        if states.len() != num_states || !fits(master, num_elements) || !fits(others, num_numbers) {
            return Err(wrong_states());
        }
        if ids.len == 0 || gradient.row_len == 0 {
            return Ok(());
        }
        // A row-wise state has one number per row, which is loaded on its own and needs no
        // alignment.
        let vectors = if rule.is_rowwise() { master } else { states };
        let changed = vectors.iter().map(|state| (*state, arithmetic));
        let unit = gradient.unit(dtype, changed.chain([(weight, dtype)]));
        let (cut, num_tiles) = RowCut::new(ids.len, gradient.row_len, unit)?;
        let addends = gradient.lists()?;
        let mut addresses = [0; MAX_STATES];
        for (slot, state) in addresses.iter_mut().zip(states) {
            *slot = state.address;
        }
        self.push_job(&[], num_tiles, |first_tile, _, _| RowUpdateJob {
            first_tile,
            cut,
            addends,
            weight: weight.address,
            states: addresses,
            scalars: rule.scalars(),
            ids: ids.address,
        })
    }
}

impl RowCut {
    /// Returns the division of rows of `row_len` elements into units of `unit`, and the number of
    /// tiles. There must be at least one row.
    fn new(num_rows: usize, row_len: usize, unit: usize) -> Result<(Self, u64)> {
        let (num_rows, num_units) = (num_rows as u64, (row_len / unit) as u64);
        let rows_per_tile = (TILE / num_units).max(1);
        let tiles_per_row = num_units.div_ceil(TILE);
        let cut = Self {
            num_rows,
            num_units,
            rows_per_tile: count(rows_per_tile)?,
            tiles_per_row: count(tiles_per_row)?,
            reciprocal: count((1_u64 << SHIFT).div_ceil(num_units.min(TILE)))?,
            unit: count(unit as u64)?,
        };
        Ok((cut, num_rows.div_ceil(rows_per_tile) * tiles_per_row))
    }
}

impl Rows<'_> {
    /// Returns the number of elements in a unit: the full number if everything is aligned to it,
    /// otherwise 1.
    fn unit(&self, dtype: DType, others: impl IntoIterator<Item = (Extent, DType)>) -> usize {
        let unit = if dtype.size() == 8 { AT_ONCE / 2 } else { AT_ONCE };
        let is_aligned = |address, dtype| is_aligned(address, dtype, unit);
        let is_unit = self.row_len.is_multiple_of(unit)
            && self.addends.iter().all(|addend| is_aligned(addend.address, dtype))
            && others.into_iter().all(|(other, dtype)| is_aligned(other.address, dtype));
        if is_unit { unit } else { 1 }
    }

    /// Returns the lists in the form for the kernel.
    fn lists(&self) -> Result<RowAddends> {
        let Self { sources, starts, full, .. } = *self;
        Ok(RowAddends { sources, starts, full: count(full)?, unused: 0 })
    }
}

impl Ids {
    /// Returns whether all indices are below `num_rows`.
    fn are_below(&self, num_rows: usize) -> bool {
        self.last.is_none_or(|last| usize::try_from(last).is_ok_and(|last| last < num_rows))
    }
}

fn wrong_states() -> Error {
    Error::Internal("the state of an optimizer step has the wrong form".to_owned())
}

/// Returns the name of the kernel that sums rows of a dtype.
pub fn sum_kernel(dtype: DType) -> String {
    format!("kv_sum_rows_{}", sum::suffix(dtype))
}

/// Returns the names of the kernels for a formula and a dtype, which run one after the other on the
/// same jobs. Returns `None` for integer dtypes, and for formulas that cannot update single rows.
pub fn update_kernels(rule: &UpdateRule, dtype: DType) -> Option<Vec<String>> {
    struct IsLazy;
    impl RuleVisitor for IsLazy {
        type Output = ();
        fn visit<R: Rule<N>, const N: usize>(self) {}
    }
    let formula = rule.formula();
    if !dtype.is_float() {
        return None;
    }
    if rule.is_rowwise() {
        let kernels = ["row_states", "rowwise"].map(|name| format!("kv_{name}_{formula}_{dtype}"));
        return Some(Vec::from(kernels));
    }
    rule.visit_lazy(IsLazy).map(|()| Vec::from([format!("kv_rows_{formula}_{dtype}")]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn multiplying_by_the_reciprocal_gives_the_quotient() {
        for num_units in 1..=TILE {
            let (cut, _) = RowCut::new(1, num_units.try_into().unwrap(), 1).unwrap();
            for number in 0..u32::try_from(TILE).unwrap() {
                let quotient = number.checked_mul(cut.reciprocal).unwrap() >> SHIFT;
                assert_eq!(u64::from(quotient), u64::from(number) / num_units);
            }
        }
    }

    #[test]
    fn tiles_cover_all_units() {
        for (num_rows, num_units, expected) in [
            (1, 1, 1),
            (1024, 1, 1),
            (1025, 1, 2),
            (7, 300, 3),
            (5, 513, 5),
            (5, 1024, 5),
            (3, 1025, 6),
        ] {
            assert_eq!(RowCut::new(num_rows, 4 * num_units, 4).unwrap().1, expected, "{num_units}");
        }
    }
}
