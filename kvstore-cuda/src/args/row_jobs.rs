//! Sums of rows, whole values made of rows, and steps on some rows, each as one launch: what the kernels of
//! `kernels/rows.cu` and `kernels/update_rows.cu` get.

use kvstore_core::backend::RowSource;
use kvstore_core::optimizer::{MAX_SCALARS, MAX_STATES, Rule, RuleVisitor, UpdateRule};
use kvstore_core::{DType, Error, Result};

use super::batch::{Address, Batch, Extent, count, is_aligned};
use super::sum;

/// The kernel of whole values, whatever their dtype.
pub const SCATTER_KERNEL: &str = "kv_scatter_rows";

/// Units that a block works on at a time.
const TILE: u64 = 1024;
/// The reciprocal of a number is 2^20 through it.
const SHIFT: u32 = 20;
/// Elements that a thread loads at a time, of 64 bits half as many.
const AT_ONCE: usize = 4;
/// The first start of sums that have one source each.
const NEVER: u32 = u32::MAX;

/// Rows that are added up, as [`RowAddends`](kvstore_core::backend::RowAddends) has them.
#[derive(Clone, Copy, Debug)]
pub struct Rows<'a> {
    /// The number of elements of a row.
    pub row_len: usize,
    /// For each sum which of the sources is its first one, and after the last sum their number.
    pub starts: &'a [usize],
    /// What is added; a sum without any is 0.
    pub sources: &'a [RowSource],
    /// A sum of fewer sources has `+0.0` added.
    pub full: usize,
    /// Where the sources are.
    pub addends: &'a [Extent],
}

/// A whole value that is made of some rows.
#[derive(Clone, Copy, Debug)]
pub struct Scatter<'a> {
    /// The number of bytes of a row.
    pub row_bytes: usize,
    /// Which rows are there, ascending.
    pub indices: &'a [i64],
    /// Those rows.
    pub rows: Extent,
    /// The whole value.
    pub dst: Extent,
}

/// One step on some rows, in place.
#[derive(Clone, Copy, Debug)]
pub struct RowUpdateArgs<'a> {
    /// The formula, and its scalars.
    pub rule: &'a UpdateRule,
    /// Of the weight and of the gradient.
    pub dtype: DType,
    /// What is added up to the gradient.
    pub gradient: Rows<'a>,
    /// Which rows the gradient has, ascending.
    pub indices: &'a [i64],
    /// The whole weight.
    pub weight: Extent,
    /// The whole state; of a weight of half precision its master copy comes first.
    pub states: &'a [Extent],
}

/// How rows are cut into tiles: a tile has some of them, or a part of a long one.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowCut {
    /// How many there are.
    pub num_rows: u64,
    /// How much is in a row, in what a thread loads at a time.
    pub num_units: u64,
    /// Or 1.
    pub rows_per_tile: u32,
    /// Or 1.
    pub tiles_per_row: u32,
    /// 1 through the units that a tile has of a row, times 2^20 and rounded up: up to 1024 times 1024 a product with
    /// it, shifted, is the quotient.
    pub reciprocal: u32,
    /// How many elements a unit has; of whole values how many bytes.
    pub unit: u32,
}

/// What is added up, as the kernel reads it.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowAddends {
    /// Where the addresses of the sources begin in the list of all.
    pub first_source: u32,
    /// Where the starts begin, two to a word, or `u32::MAX` if each sum has one source.
    pub first_start: u32,
    /// A sum of fewer sources has 0 added.
    pub full: u32,
    /// Fills the struct up.
    pub unused: u32,
}

/// One sum of rows, as the kernel reads it.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowSumJob {
    /// The tiles of the jobs before it.
    pub first_tile: u64,
    /// How the sums are cut.
    pub cut: RowCut,
    /// What is added up.
    pub addends: RowAddends,
    /// Where the sums go.
    pub dst: Address,
}

/// One whole value, as the kernel reads it.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowScatterJob {
    /// The tiles of the jobs before it.
    pub first_tile: u64,
    /// How the value is cut.
    pub cut: RowCut,
    /// The rows that are there.
    pub rows: Address,
    /// The value.
    pub dst: Address,
    /// Where the numbers of the rows begin in the list of all.
    pub first_index: u32,
    /// How many there are.
    pub num_indices: u32,
}

/// One step on some rows, as the kernel reads it.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RowUpdateJob {
    /// The tiles of the jobs before it.
    pub first_tile: u64,
    /// How the gradient is cut.
    pub cut: RowCut,
    /// What is added up to it.
    pub addends: RowAddends,
    /// The weight.
    pub weight: Address,
    /// The state.
    pub states: [Address; MAX_STATES],
    /// In the order of the rule's fields.
    pub scalars: [f64; MAX_SCALARS],
    /// Where the numbers of the rows begin in the list of all.
    pub first_index: u32,
    /// Fills the struct up.
    pub unused: u32,
}

impl Batch<RowSumJob> {
    /// Adds a sum of rows. All of a batch have one dtype. Nothing is done for no rows, here and below.
    ///
    /// # Errors
    /// - [`Error::Internal`] when a row is not there; the batch is as it was.
    /// - [`Error::OutOfMemory`].
    pub fn push(&mut self, dtype: DType, rows: &Rows<'_>, dst: Extent) -> Result<()> {
        rows.check(dtype)?;
        if dst.num_bytes != rows.num_rows() * rows.row_len * dtype.size() {
            return Err(wrong_rows());
        }
        if dst.num_bytes == 0 {
            return Ok(());
        }
        let unit = rows.unit(dtype, [(dst, dtype)]);
        let (cut, num_tiles) = RowCut::new(rows.num_rows(), rows.row_len, unit);
        let addends = rows.push_lists(dtype, self)?;
        self.push_job(&[], num_tiles, |first_tile, _, _| RowSumJob {
            first_tile,
            cut,
            addends,
            dst: dst.address,
        })
    }
}

impl Batch<RowScatterJob> {
    /// Adds a whole value. A batch may have all dtypes.
    ///
    /// # Errors
    /// - [`Error::Internal`] when a row is not there; the batch is as it was.
    /// - [`Error::OutOfMemory`].
    pub fn push(&mut self, scatter: &Scatter<'_>) -> Result<()> {
        let &Scatter { row_bytes, indices, rows, dst } = scatter;
        if dst.num_bytes == 0 {
            return Ok(());
        }
        let num_rows = dst.num_bytes.checked_div(row_bytes).unwrap_or_default();
        let is_there = rows.num_bytes / row_bytes.max(1) >= indices.len();
        if num_rows * row_bytes != dst.num_bytes || !is_there || !are_rows(indices, num_rows) {
            return Err(wrong_rows());
        }
        let places = [row_bytes as u64, rows.address, dst.address];
        let fits = |unit: &usize| places.iter().all(|place| place.is_multiple_of(*unit as u64));
        let unit = [16, 8, 4, 2].into_iter().find(fits).unwrap_or(1);
        let (cut, num_tiles) = RowCut::new(num_rows, row_bytes, unit);
        let first_index = self.push_list(indices.iter().map(|index| index.cast_unsigned()))?;
        self.push_job(&[], num_tiles, |first_tile, _, _| RowScatterJob {
            first_tile,
            cut,
            rows: rows.address,
            dst: dst.address,
            first_index,
            num_indices: count(indices.len()),
        })
    }
}

impl Batch<RowUpdateJob> {
    /// Adds a step. All of a batch are of one formula and one dtype: see [`update_kernels`]. The states of a row-wise rule
    /// have one number for each row of the weight, but for a master copy.
    ///
    /// # Errors
    /// - [`Error::Internal`] when a row is not there or a state has the wrong form. The batch is
    ///   then unchanged.
    /// - [`Error::OutOfMemory`].
    pub fn push(&mut self, step: &RowUpdateArgs<'_>) -> Result<()> {
        let &RowUpdateArgs { rule, dtype, gradient, indices, weight, states } = step;
        gradient.check(dtype)?;
        let num_elements = weight.num_bytes / dtype.size();
        let num_rows = num_elements.checked_div(gradient.row_len).unwrap_or(usize::MAX);
        if gradient.num_rows() != indices.len() || !are_rows(indices, num_rows) {
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
        if indices.is_empty() || gradient.row_len == 0 {
            return Ok(());
        }
        // Of rows a thread loads one number of state.
        let vectors = if rule.is_rowwise() { master } else { states };
        let changed = vectors.iter().map(|state| (*state, arithmetic));
        let unit = gradient.unit(dtype, changed.chain([(weight, dtype)]));
        let (cut, num_tiles) = RowCut::new(indices.len(), gradient.row_len, unit);
        let addends = gradient.push_lists(dtype, self)?;
        let first_index = self.push_list(indices.iter().map(|index| index.cast_unsigned()))?;
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
            first_index,
            unused: 0,
        })
    }
}

impl RowCut {
    /// Returns how rows are cut that have as much as some units, and the number of tiles. There is a row at least.
    fn new(num_rows: usize, row_len: usize, unit: usize) -> (Self, u64) {
        let (num_rows, num_units) = (num_rows as u64, (row_len / unit) as u64);
        let rows_per_tile = (TILE / num_units).max(1);
        let tiles_per_row = num_units.div_ceil(TILE);
        let cut = Self {
            num_rows,
            num_units,
            rows_per_tile: count(rows_per_tile),
            tiles_per_row: count(tiles_per_row),
            reciprocal: count((1_u64 << SHIFT).div_ceil(num_units.min(TILE))),
            unit: count(unit as u64),
        };
        (cut, num_rows.div_ceil(rows_per_tile) * tiles_per_row)
    }
}

impl Rows<'_> {
    /// Returns the number of sums.
    fn num_rows(&self) -> usize {
        self.starts.len().saturating_sub(1)
    }

    /// Fails when a source is not there.
    fn check(&self, dtype: DType) -> Result<()> {
        let row_bytes = self.row_len * dtype.size();
        let is_there = |source: &RowSource| {
            let addend = self.addends.get(source.addend);
            addend.is_some_and(|it| {
                source.row.saturating_add(1).saturating_mul(row_bytes) <= it.num_bytes
            })
        };
        let ends_well = self.starts.last().is_none_or(|last| *last == self.sources.len());
        if ends_well && self.starts.is_sorted() && self.sources.iter().all(is_there) {
            return Ok(());
        }
        Err(wrong_rows())
    }

    /// Returns how many elements a thread loads at a time: as many as it could, or one.
    fn unit(&self, dtype: DType, others: impl IntoIterator<Item = (Extent, DType)>) -> usize {
        let unit = if dtype.size() == 8 { AT_ONCE / 2 } else { AT_ONCE };
        let is_aligned = |address, dtype| is_aligned(address, dtype, unit);
        let is_unit = self.row_len.is_multiple_of(unit)
            && self.addends.iter().all(|addend| is_aligned(addend.address, dtype))
            && others.into_iter().all(|(other, dtype)| is_aligned(other.address, dtype));
        if is_unit { unit } else { 1 }
    }

    /// Adds what a kernel reads of the rows to the lists of a batch.
    fn push_lists<J>(&self, dtype: DType, batch: &mut Batch<J>) -> Result<RowAddends> {
        let row_bytes = self.row_len * dtype.size();
        let first_source = batch.push_list(self.sources.iter().map(|source| {
            let addend = self.addends.get(source.addend).copied().unwrap_or_default();
            addend.address + (source.row * row_bytes) as u64
        }))?;
        let is_plain = self.starts.iter().enumerate().all(|(sum, start)| sum == *start);
        let starts = self.starts.chunks(2).map(|pair| {
            let half = |index: usize| pair.get(index).map_or(0, |start| u64::from(count(*start)));
            half(0) | half(1) << 32
        });
        let first_start = if is_plain { NEVER } else { batch.push_list(starts)? };
        Ok(RowAddends { first_source, first_start, full: count(self.full), unused: 0 })
    }
}

/// Returns whether these are numbers of rows, ascending.
fn are_rows(indices: &[i64], num_rows: usize) -> bool {
    let ends_well =
        indices.last().is_none_or(|last| usize::try_from(*last).is_ok_and(|last| last < num_rows));
    ends_well && indices.is_sorted_by(|one, next| 0 <= *one && one < next)
}

fn wrong_rows() -> Error {
    Error::Internal("rows that do not lie within their value".to_owned())
}

fn wrong_states() -> Error {
    Error::Internal("the state of an optimizer step has the wrong form".to_owned())
}

/// Returns the kernel that sums rows of a dtype.
pub fn sum_kernel(dtype: DType) -> String {
    format!("kv_sum_rows_{}", sum::suffix(dtype))
}

/// Returns the kernels of a formula and a dtype, which run one after the other on the same jobs. Returns `None` for
/// integers, and for formulas that step no rows.
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
    fn products_with_a_reciprocal_are_quotients() {
        for num_units in 1..=TILE {
            let (cut, _) = RowCut::new(1, num_units.try_into().unwrap(), 1);
            for number in 0..u32::try_from(TILE).unwrap() {
                let quotient = number.checked_mul(cut.reciprocal).unwrap() >> SHIFT;
                assert_eq!(u64::from(quotient), u64::from(number) / num_units);
            }
        }
    }

    #[test]
    fn tiles_have_all_units_and_at_least_half_of_what_they_could() {
        for (num_rows, num_units, expected) in [
            (1, 1, 1),
            (1024, 1, 1),
            (1025, 1, 2),
            (7, 300, 3),
            (5, 513, 5),
            (5, 1024, 5),
            (3, 1025, 6),
        ] {
            assert_eq!(RowCut::new(num_rows, 4 * num_units, 4).1, expected, "{num_units}");
        }
    }
}
