//! Plans of sums of rows, for the kernels of `kernels/plan_rows.cu`.

use kvstore_core::backend::RowSource;
use kvstore_core::{DType, Error, Result, fallible};

use super::batch::{Address, Batch, Extent, THREADS, count};

/// The kernel that finds the place of every source in the merged order. Its jobs are [`RowList`]s.
pub const MERGE_KERNEL: &str = "kv_merge_rows";
/// The kernel that counts the rows of each chunk of the merged order.
pub const COUNT_KERNEL: &str = "kv_count_rows";
/// The kernel that adds up chunks of counts.
pub const ADD_KERNEL: &str = "kv_add_counts";
/// The kernel that replaces counts with the sums of all earlier counts.
pub const SCAN_KERNEL: &str = "kv_scan_counts";
/// The kernel that writes the start and the index of each row.
pub const LIST_KERNEL: &str = "kv_list_rows";
/// The kernel that writes the addresses of rows with one source. Its jobs are [`LocateJob`]s.
pub const LOCATE_KERNEL: &str = "kv_locate_rows";

/// The number of places in the merged order that a thread processes.
const PLACES: u64 = 32;
/// The number of counts that a thread processes.
const COUNTS: u64 = 256;

/// The rows of an addend of a union, as the kernel reads them.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowList {
    /// The number of tiles of all earlier lists.
    pub first_tile: u64,
    /// The row indices.
    pub ids: Address,
    /// The first row.
    pub rows: Address,
    /// The number of bytes of a row.
    pub row_bytes: u64,
    /// The merged indices of the union.
    pub merged: Address,
    /// The merged source addresses of the union.
    pub sources: Address,
    /// The number of rows.
    pub num_rows: u32,
    /// The position in the batch of the first list of the union.
    pub first_list: u32,
    /// The position after the last list of the union.
    pub end_list: u32,
    /// Padding.
    pub unused: u32,
}

/// The rows of an addend of a union.
#[derive(Clone, Copy, Debug)]
pub struct ListArgs {
    /// The row indices, in ascending order.
    pub ids: Address,
    /// The number of row indices.
    pub num_rows: usize,
    /// The first row.
    pub rows: Address,
}

/// The argument of a kernel that processes chunks, as the kernel reads it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChunkArgs {
    /// The merged indices or the counts to read.
    pub from: Address,
    /// The destination.
    pub to: Address,
    /// The number of rows before each chunk, or the counts of each chunk if `is_top` is 1.
    pub before: Address,
    /// The destination of the row indices.
    pub ids: Address,
    /// The number of places or counts to process.
    pub len: u64,
    /// Whether `before` has counts.
    pub is_top: u32,
    /// Padding.
    pub unused: u32,
}

/// Rows with one source each, as the kernel reads them.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocateJob {
    /// The number of tiles of all earlier jobs.
    pub first_tile: u64,
    /// The row indices of the sources, or 0: row `n` is source `n`.
    pub ids: Address,
    /// The first row of the addend.
    pub rows: Address,
    /// The number of bytes of a row.
    pub row_bytes: u64,
    /// The destination of the source addresses.
    pub sources: Address,
    /// The number of rows.
    pub num_rows: u64,
}

impl Batch<RowList> {
    /// Appends the lists of a union. `merged` and `sources` have room for the rows of all lists.
    ///
    /// # Errors
    /// - [`Error::OutOfMemory`] if there is not enough memory.
    pub fn push(
        &mut self,
        row_bytes: usize,
        lists: &[ListArgs],
        (merged, sources): (Address, Address),
    ) -> Result<()> {
        let first_list = count(self.jobs().len())?;
        let end_list = count(self.jobs().len() + lists.len())?;
        for list in lists {
            let &ListArgs { ids, num_rows, rows } = list;
            let (row_bytes, num_tiles) = (row_bytes as u64, num_tiles(num_rows));
            let num_rows = count(num_rows)?;
            self.push_job(&[], num_tiles, |first_tile, _, _| RowList {
                first_tile,
                ids,
                rows,
                row_bytes,
                merged,
                sources,
                num_rows,
                first_list,
                end_list,
                unused: 0,
            })?;
        }
        Ok(())
    }
}

impl Batch<LocateJob> {
    /// Appends rows with one source each.
    ///
    /// # Errors
    /// - [`Error::OutOfMemory`] if there is not enough memory.
    pub fn push(&mut self, row_bytes: usize, list: &ListArgs, sources: Address) -> Result<()> {
        let &ListArgs { ids, num_rows, rows } = list;
        self.push_job(&[], num_tiles(num_rows), |first_tile, _, _| LocateJob {
            first_tile,
            ids,
            rows,
            row_bytes: row_bytes as u64,
            sources,
            num_rows: num_rows as u64,
        })
    }
}

/// Returns the number of tiles of rows that threads process one by one.
fn num_tiles(num_rows: usize) -> u64 {
    (num_rows as u64).div_ceil(u64::from(THREADS))
}

/// A launch that processes chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// The name of the kernel.
    pub kernel: &'static str,
    /// Its argument.
    pub args: ChunkArgs,
    /// The number of thread blocks with which each thread has at most one chunk.
    pub num_tiles: u64,
}

/// The memory of the lists of a group of unions.
#[derive(Clone, Copy, Debug, Default)]
pub struct UnionLists {
    /// The merged indices: 64 bits for each source.
    pub merged: Address,
    /// The number of sources.
    pub num_sources: usize,
    /// Memory for the counts: [`UnionLists::num_counts`] numbers of 32 bits.
    pub counts: Address,
    /// The destination of the starts: 32 bits for each row, and for the end.
    pub starts: Address,
    /// The destination of the row indices: 64 bits for each row.
    pub ids: Address,
}

impl UnionLists {
    /// Returns the lengths of the lists of counts. Each list has the sums of chunks of the previous
    /// one.
    fn levels(num_sources: usize) -> impl Iterator<Item = u64> {
        let first = (num_sources as u64).div_ceil(PLACES);
        let next = |len: &u64| (*len > COUNTS).then(|| len.div_ceil(COUNTS));
        std::iter::successors(Some(first), next)
    }

    /// Returns the number of counts that the steps need.
    pub fn num_counts(num_sources: usize) -> usize {
        Self::levels(num_sources).map(|len| usize::try_from(len).unwrap_or(usize::MAX)).sum()
    }

    /// Calls `launch` with the steps that follow [`MERGE_KERNEL`], in order.
    ///
    /// # Errors
    /// - The first error of `launch`.
    pub fn for_each_step(&self, mut launch: impl FnMut(&Step) -> Result<()>) -> Result<()> {
        let num_places = self.num_sources as u64;
        let mut address = self.counts;
        // The address and the length of each list of counts.
        let levels: Vec<(Address, u64)> =
            fallible::gather(Self::levels(self.num_sources).map(|len| {
                let level = (address, len);
                address += size_of::<u32>() as u64 * len;
                level
            }))?;
        let top = levels.len().saturating_sub(1);
        let mut step = |kernel, per_thread: u64, args: ChunkArgs| {
            let num_tiles = args.len.div_ceil(per_thread * u64::from(THREADS));
            launch(&Step { kernel, args, num_tiles })
        };
        let (from, none) = (self.merged, ChunkArgs::default());
        let Some(&(counts, _)) = levels.first() else { return Ok(()) };
        step(COUNT_KERNEL, PLACES, ChunkArgs { from, to: counts, len: num_places, ..none })?;
        for pair in levels.windows(2) {
            let &[(from, len), (to, _)] = pair else { continue };
            step(ADD_KERNEL, COUNTS, ChunkArgs { from, to, len, ..none })?;
        }
        for (level, pair) in levels.windows(2).enumerate().rev() {
            let &[(counts, len), (before, _)] = pair else { continue };
            let is_top = u32::from(level + 1 == top);
            let (from, to) = (counts, counts);
            step(SCAN_KERNEL, COUNTS, ChunkArgs { from, to, before, len, is_top, ..none })?;
        }
        let (to, ids, is_top) = (self.starts, self.ids, u32::from(top == 0));
        let args = ChunkArgs { from, to, before: counts, ids, len: num_places, is_top, unused: 0 };
        step(LIST_KERNEL, PLACES, args)
    }
}

/// Lists of sources that the host has planned, in the form for a GPU.
#[derive(Debug)]
pub struct ListedRows {
    /// The address of each source.
    pub sources: Vec<Address>,
    /// For each row, the position of its first source, and at the end the number of sources. Empty
    /// if each row has exactly one source.
    pub starts: Vec<u32>,
}

impl ListedRows {
    /// Converts lists of the host. `addends` are the ranges that the sources refer to.
    ///
    /// # Errors
    /// - [`Error::Internal`] if a row does not exist, or if the starts are invalid.
    /// - [`Error::OutOfMemory`] if there is not enough memory.
    pub fn new(
        dtype: DType,
        row_len: usize,
        (starts, sources): (&[usize], &[RowSource]),
        addends: &[Extent],
    ) -> Result<Self> {
        let row_bytes = row_len * dtype.size();
        let address_of = |source: &RowSource| {
            let addend = addends.get(source.addend)?;
            let end = source.row.saturating_add(1).saturating_mul(row_bytes);
            (end <= addend.num_bytes).then(|| addend.address + (source.row * row_bytes) as u64)
        };
        let ends_well = starts.last().is_none_or(|last| *last == sources.len());
        if !ends_well || !starts.is_sorted() {
            return Err(wrong_rows());
        }
        count(sources.len())?;
        let sources = sources.iter().map(|source| address_of(source).ok_or_else(wrong_rows));
        let sources = fallible::try_collect(sources)?;
        let is_plain = starts.iter().enumerate().all(|(row, start)| row == *start);
        let starts = starts.iter().map(|start| count(*start));
        let starts = if is_plain { Vec::new() } else { fallible::try_collect(starts)? };
        Ok(Self { sources, starts })
    }
}

pub(crate) fn wrong_rows() -> Error {
    Error::Internal("row indices outside of their value".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_scan_the_counts_of_every_level() {
        for (num_sources, expected) in [
            (1, &[COUNT_KERNEL, LIST_KERNEL][..]),
            (32 * 256, &[COUNT_KERNEL, LIST_KERNEL]),
            (32 * 256 + 1, &[COUNT_KERNEL, ADD_KERNEL, SCAN_KERNEL, LIST_KERNEL]),
            (
                32 * 256 * 256 + 1,
                &[COUNT_KERNEL, ADD_KERNEL, ADD_KERNEL, SCAN_KERNEL, SCAN_KERNEL, LIST_KERNEL],
            ),
        ] {
            let lists = UnionLists { counts: 1 << 40, num_sources, ..UnionLists::default() };
            let end = lists.counts + 4 * UnionLists::num_counts(num_sources) as u64;
            let (mut kernels, mut scanned) = (Vec::new(), Vec::new());
            let steps = lists.for_each_step(|step| {
                kernels.push(step.kernel);
                if step.kernel == SCAN_KERNEL {
                    scanned.push(step.args.to);
                }
                if step.args.is_top == 1 {
                    // The counts of the top are the last ones, and few.
                    assert!(end - step.args.before <= 4 * COUNTS);
                } else if matches!(step.kernel, SCAN_KERNEL | LIST_KERNEL) {
                    assert_eq!(
                        scanned.iter().rev().find(|to| **to == step.args.before),
                        Some(&step.args.before)
                    );
                }
                Ok(())
            });
            steps.unwrap();
            assert_eq!(kernels, expected, "{num_sources}");
        }
    }
}
