//! Plans of sums of rows: lists of the sources of each row, in the memory of GPUs.
//!
//! The GPU plans unions and copies of rows from the row indices alone. The lists of other sums,
//! which are rare, come from the host.

#![expect(unsafe_code, reason = "queues work on memory of GPUs")]

use std::sync::Arc;

use kvstore_core::backend::{RowAddends, RowIds, RowSources};
use kvstore_core::{DType, Device, Error, Result, fallible};

use super::CudaBackend;
use super::launch::{Launches, TableRow};
use super::row_ids::{LONG, keep, resident, upload};
use crate::args::batch::{Address, Extent, count};
use crate::args::plan_rows::{
    LOCATE_KERNEL, ListArgs, ListedRows, LocateJob, MERGE_KERNEL, RowList, UnionLists, wrong_rows,
};
use crate::args::row_jobs::Rows;
use crate::driver::card::Card;
use crate::driver::memory::{CudaStorage, extent};

// SAFETY: tests compare the fields with those of the struct in C.
unsafe impl TableRow for RowList {}
// SAFETY: as above.
unsafe impl TableRow for LocateJob {}

/// The rows that a job adds up.
pub(super) struct Request<'j> {
    pub(super) card: &'j Arc<Card>,
    /// The row indices of the sum.
    pub(super) ids: &'j RowIds,
    dtype: DType,
    addends: RowAddends<'j>,
    extents: Vec<Extent>,
}

/// The lists of a sum in the memory of its GPU, as in [`Rows`].
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Lists {
    sources: Address,
    starts: Address,
}

impl<'j> Request<'j> {
    /// # Errors
    /// - [`Error::Internal`] if a row of the sum is outside of its range. Lists of the host are
    ///   checked later.
    pub(super) fn new(
        backend: &'j CudaBackend,
        device: Device,
        dtype: DType,
        addends: RowAddends<'j>,
        ids: &'j RowIds,
    ) -> Result<Self> {
        let card = backend.card(device)?;
        let extents = addends.spans.iter().map(|span| extent(card, *span));
        let extents = fallible::try_collect(extents)?;
        let request = Self { card, ids, dtype, addends, extents };
        if request.has_rows() { Ok(request) } else { Err(wrong_rows()) }
    }

    /// Returns whether the ranges have the rows.
    fn has_rows(&self) -> bool {
        let has = |extent: &Extent, num_rows: usize| {
            num_rows.saturating_mul(self.row_bytes()) <= extent.num_bytes
        };
        match (self.addends.sources, self.extents.as_slice()) {
            (RowSources::Listed { starts, .. }, _) => starts.len() == self.ids.len() + 1,
            (RowSources::Union(lists), extents) => {
                let mut pairs = lists.iter().zip(extents);
                lists.len() == extents.len() && pairs.all(|(ids, extent)| has(extent, ids.len()))
            }
            (RowSources::InOrder, [only]) => has(only, self.ids.len()),
            (RowSources::Gathered, [only]) => self.ids.indices().last().is_none_or(|last| {
                usize::try_from(*last).is_ok_and(|last| has(only, last.saturating_add(1)))
            }),
            (RowSources::InOrder | RowSources::Gathered, _) => false,
        }
    }

    fn row_bytes(&self) -> usize {
        self.addends.row_len * self.dtype.size()
    }

    /// Returns whether the sum has no elements, and needs no lists.
    fn is_empty(&self) -> bool {
        self.ids.is_empty() || self.row_bytes() == 0
    }

    pub(super) fn is_union(&self) -> bool {
        matches!(self.addends.sources, RowSources::Union(_))
    }

    /// Returns the rows in the form for a kernel.
    pub(super) fn rows(&self, lists: Lists) -> Rows<'_> {
        let (row_len, full) = (self.addends.row_len, self.addends.full);
        let Lists { sources, starts } = lists;
        let (num_rows, addends) = (self.ids.len(), self.extents.as_slice());
        Rows { row_len, num_rows, sources, starts, full, addends }
    }
}

/// The lists of the sums of a call.
pub(super) struct Plans {
    lists: Vec<Lists>,
    /// The memory of the lists. It returns to the pool when the kernels that read it are queued.
    blocks: Vec<CudaStorage>,
}

impl Plans {
    /// Queues the work that writes the lists. The row indices of unions are kept with the
    /// [`RowIds`] of the sum.
    pub(super) fn new(backend: &CudaBackend, requests: &[Request<'_>]) -> Result<Self> {
        upload(backend, &wanted_ids(requests)?)?;
        let lists = fallible::filled(Lists::default(), requests.len())?;
        let mut plans = Self { lists, blocks: fallible::with_capacity(requests.len())? };
        plans.list(backend, requests)?;
        plans.locate(backend, requests)?;
        plans.unite(backend, requests)?;
        Ok(plans)
    }

    /// Returns the lists, in the order of the requests.
    pub(super) fn lists(&self) -> &[Lists] {
        &self.lists
    }

    /// Returns memory that is kept until the plans are dropped.
    fn block(&mut self, backend: &CudaBackend, card: &Card, num_bytes: usize) -> Result<Address> {
        let block = backend.pool().allocate(card.device(), num_bytes)?;
        let address = block.address();
        fallible::push(&mut self.blocks, block)?;
        Ok(address)
    }

    fn set(&mut self, number: usize, lists: Lists) {
        if let Some(slot) = self.lists.get_mut(number) {
            *slot = lists;
        }
    }

    /// Copies the lists of the host.
    fn list(&mut self, backend: &CudaBackend, requests: &[Request<'_>]) -> Result<()> {
        for (number, request) in requests.iter().enumerate() {
            let RowSources::Listed { starts, sources } = request.addends.sources else { continue };
            let row_len = request.addends.row_len;
            let lists = (starts, sources);
            let listed = ListedRows::new(request.dtype, row_len, lists, &request.extents)?;
            if request.is_empty() {
                continue;
            }
            let parts = [bytes_of(&listed.sources), bytes_of(&listed.starts)];
            let num_bytes = parts.iter().map(|part| part.len()).sum();
            let address = self.block(backend, request.card, num_bytes)?;
            // SAFETY: the block has the length of both lists.
            unsafe { backend.staging().upload(request.card, address, &parts) }?;
            let has_starts = !listed.starts.is_empty();
            let starts = if has_starts { address + parts[0].len() as u64 } else { 0 };
            self.set(number, Lists { sources: address, starts });
        }
        Ok(())
    }

    /// Queues the work for rows with one source each.
    fn locate(&mut self, backend: &CudaBackend, requests: &[Request<'_>]) -> Result<()> {
        let mut launches = Launches::<_, LocateJob>::new();
        for (number, request) in requests.iter().enumerate() {
            let ids = match request.addends.sources {
                RowSources::Gathered => resident(request.card, request.ids).unwrap_or_default(),
                RowSources::InOrder => 0,
                RowSources::Listed { .. } | RowSources::Union(_) => continue,
            };
            let &[only] = request.extents.as_slice() else { continue };
            if request.is_empty() {
                continue;
            }
            let num_rows = request.ids.len();
            let sources = self.block(backend, request.card, num_rows * size_of::<Address>())?;
            let list = ListArgs { ids, num_rows, rows: only.address };
            let kernel = || Ok(LOCATE_KERNEL.to_owned());
            let batch = launches.batch(request.card, (), kernel)?;
            batch.push(request.row_bytes(), &list, sources)?;
            self.set(number, Lists { sources, starts: 0 });
        }
        // SAFETY: the lists have room for the rows, and the indices are in the memory of the GPU.
        unsafe { launches.run(backend) }
    }

    /// Queues the work for unions.
    fn unite(&mut self, backend: &CudaBackend, requests: &[Request<'_>]) -> Result<()> {
        let groups = Group::of(requests)?;
        let mut launches = Launches::<_, RowList>::new();
        let mut planned = fallible::with_capacity(groups.len())?;
        for group in groups {
            let num_bytes = group.num_rows * size_of::<u64>();
            let ids = backend.pool().allocate(group.card.device(), num_bytes)?;
            let lists = self.union_lists(backend, &group, ids.address())?;
            let (mut first_source, mut first_row) = (0, 0);
            for &(number, request) in &group.members {
                let places = (lists.merged + 8 * first_source, lists.sources + 8 * first_source);
                let kernel = || Ok(MERGE_KERNEL.to_owned());
                let batch = launches.batch(group.card, (), kernel)?;
                batch.push(request.row_bytes(), &list_args(request)?, places)?;
                // Starts count from the first source of the group.
                let starts = lists.union.starts + 4 * first_row;
                self.set(number, Lists { sources: lists.sources, starts });
                first_source += num_sources(request) as u64;
                first_row += request.ids.len() as u64;
            }
            planned.push((group, lists.union, ids));
        }
        // SAFETY: the lists have room for the sources, and the indices are in the memory of the
        // GPU.
        unsafe { launches.run(backend) }?;
        for (group, union, ids) in planned {
            union.for_each_step(|step| {
                let function = group.card.function(step.kernel)?;
                // SAFETY: the lists have room for the rows, and for the counts of all steps.
                unsafe { group.card.launch(function, &step.args, step.num_tiles) }
            })?;
            let (block, mut start) = (Arc::new(ids), 0);
            for (_, request) in &group.members {
                keep(request.ids, &block, start)?;
                start += request.ids.len() * size_of::<u64>();
            }
        }
        Ok(())
    }

    /// Allocates the lists of a group.
    fn union_lists(
        &mut self,
        backend: &CudaBackend,
        group: &Group<'_, '_>,
        ids: Address,
    ) -> Result<GroupLists> {
        let num_sources = group.num_sources;
        let of_sources = num_sources * size_of::<u64>();
        let of_starts = (group.num_rows + 1) * size_of::<u32>();
        let of_counts = UnionLists::num_counts(num_sources) * size_of::<u32>();
        let num_bytes = 2 * of_sources + of_starts + of_counts;
        let merged = self.block(backend, group.card, num_bytes)?;
        let sources = merged + of_sources as u64;
        let starts = sources + of_sources as u64;
        let counts = starts + of_starts as u64;
        let union = UnionLists { merged, num_sources, counts, starts, ids };
        Ok(GroupLists { merged, sources, union })
    }
}

/// The memory of a group of unions.
struct GroupLists {
    merged: Address,
    sources: Address,
    union: UnionLists,
}

/// Unions that are planned together. Their row indices share a block of memory, so a long union has
/// its own group.
struct Group<'j, 'r> {
    card: &'j Arc<Card>,
    is_long: bool,
    /// The position of each request in the call, and the request.
    members: Vec<(usize, &'r Request<'j>)>,
    num_sources: usize,
    num_rows: usize,
}

impl<'j, 'r> Group<'j, 'r> {
    /// Returns the groups of all unions.
    fn of(requests: &'r [Request<'j>]) -> Result<Vec<Self>> {
        let mut groups: Vec<Self> = Vec::new();
        for (number, request) in requests.iter().enumerate() {
            if !request.is_union() || request.is_empty() {
                continue;
            }
            let is_long = request.ids.len() >= LONG;
            let fits = |group: &Self| !group.is_long && Arc::ptr_eq(group.card, request.card);
            let position = groups.iter().position(fits).filter(|_| !is_long);
            let position = if let Some(position) = position {
                position
            } else {
                let (card, members) = (request.card, Vec::new());
                let group = Self { card, is_long, members, num_sources: 0, num_rows: 0 };
                fallible::push(&mut groups, group)?;
                groups.len() - 1
            };
            let Some(group) = groups.get_mut(position) else { continue };
            fallible::push(&mut group.members, (number, request))?;
            group.num_sources += num_sources(request);
            group.num_rows += request.ids.len();
            // Starts and counts have 32 bits.
            count(group.num_sources)?;
        }
        Ok(groups)
    }
}

/// Returns the row indices that the GPUs need for their plans.
fn wanted_ids<'j>(requests: &[Request<'j>]) -> Result<Vec<(&'j Arc<Card>, &'j RowIds)>> {
    let mut wanted = fallible::with_capacity(requests.len())?;
    for request in requests {
        match request.addends.sources {
            RowSources::Gathered => fallible::push(&mut wanted, (request.card, request.ids))?,
            RowSources::Union(lists) => {
                fallible::reserve(&mut wanted, lists.len())?;
                wanted.extend(lists.iter().map(|ids| (request.card, &**ids)));
            }
            RowSources::Listed { .. } | RowSources::InOrder => {}
        }
    }
    Ok(wanted)
}

fn union_of<'j>(request: &Request<'j>) -> &'j [Arc<RowIds>] {
    match request.addends.sources {
        RowSources::Union(lists) => lists,
        RowSources::Listed { .. } | RowSources::InOrder | RowSources::Gathered => &[],
    }
}

fn num_sources(request: &Request<'_>) -> usize {
    union_of(request).iter().map(|ids| ids.len()).sum()
}

/// Returns the lists of a union. Their row indices must be in the memory of the GPU.
fn list_args(request: &Request<'_>) -> Result<Vec<ListArgs>> {
    fallible::try_collect(union_of(request).iter().zip(&request.extents).map(|(ids, extent)| {
        let address = resident(request.card, ids);
        if address.is_none() && !ids.is_empty() {
            return Err(Error::Internal("row indices that are not on their GPU".to_owned()));
        }
        let (ids, num_rows) = (address.unwrap_or_default(), ids.len());
        Ok(ListArgs { ids, num_rows, rows: extent.address })
    }))
}

fn bytes_of<T: Number>(numbers: &[T]) -> &[u8] {
    // SAFETY: integers have no padding.
    unsafe { std::slice::from_raw_parts(numbers.as_ptr().cast(), size_of_val(numbers)) }
}

/// An integer type.
trait Number {}
impl Number for u32 {}
impl Number for u64 {}
