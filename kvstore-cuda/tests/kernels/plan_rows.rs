//! Plans of sums of rows: the lists that the kernels write equal those of a naive plan.
#![expect(unsafe_code, reason = "launches kernels on memory of this process")]

use std::collections::{BTreeMap, BTreeSet};
use std::mem::offset_of;

use kvstore_cuda::batch::Batch;
use kvstore_cuda::plan_rows::{
    ChunkArgs, LOCATE_KERNEL, ListArgs, LocateJob, MERGE_KERNEL, RowList, UnionLists,
};
use proptest::prelude::*;

use crate::device::{Memory, launch, layout};

/// A union of lists of row indices.
#[derive(Clone, Debug)]
struct Union {
    lists: Vec<Vec<i64>>,
    /// The number of bytes of a row.
    row_bytes: usize,
}

/// A list of row indices in relation to the previous list of its union.
#[derive(Clone, Debug)]
enum List {
    Random(BTreeSet<i64>),
    Equal,
    /// After all indices of the previous list.
    Disjoint(BTreeSet<i64>),
    /// Between the indices of the previous list.
    Interleaved,
}

fn unions() -> impl Strategy<Value = Vec<Union>> {
    let random = |below: i64, most: usize| prop::collection::btree_set(0..below, 0..most);
    let list = prop_oneof![
        1 => Just(List::Random(BTreeSet::new())),
        4 => random(60, 40).prop_map(List::Random),
        2 => random(5000, 900).prop_map(List::Random),
        1 => Just(List::Equal),
        1 => random(300, 50).prop_map(List::Disjoint),
        1 => Just(List::Interleaved),
    ];
    // The largest offset leads to the largest index of all.
    let offset = prop_oneof![3 => Just(0), 1 => Just(1 << 32), 1 => Just(i64::MAX - 300_000)];
    let lists = prop::collection::vec(list, 1..18);
    let union = (lists, offset, 0_usize..5000).prop_map(|(lists, offset, row_bytes)| {
        let mut made: Vec<Vec<i64>> = Vec::new();
        for list in lists {
            let previous = made.last().cloned().unwrap_or_default();
            made.push(match list {
                List::Random(indices) => indices.into_iter().map(|id| offset + id).collect(),
                List::Equal => previous,
                List::Disjoint(indices) => {
                    let first = previous.last().map_or(offset, |last| last + 1);
                    indices.into_iter().map(|id| first + id).collect()
                }
                List::Interleaved => previous.iter().map(|id| id + 1).collect(),
            });
        }
        Union { lists: made, row_bytes }
    });
    prop::collection::vec(union, 1..4)
}

/// Returns memory for some numbers, surrounded by marked bytes.
fn words(numbers: &[u64]) -> Memory {
    Memory::new(&numbers.iter().flat_map(|number| number.to_ne_bytes()).collect::<Vec<_>>(), 0)
}

fn room(num_bytes: usize) -> Memory {
    Memory::new(&vec![0x55; num_bytes], 0)
}

fn numbers_of(memory: &mut Memory) -> Vec<u64> {
    let content = memory.content();
    content.as_chunks().0.iter().map(|word| u64::from_ne_bytes(*word)).collect()
}

fn short_numbers_of(memory: &mut Memory) -> Vec<u32> {
    let content = memory.content();
    content.as_chunks().0.iter().map(|word| u32::from_ne_bytes(*word)).collect()
}

/// The address of the first row of an addend. Kernels compute with it, but do not read the row.
fn first_row(union: usize, list: usize) -> u64 {
    0x1000_0000_0000 * (1 + union as u64) + 0x1_0000_0000 * list as u64
}

/// The lists of the sources, starts and row indices of all unions in one merged order.
fn expected(unions: &[Union]) -> (Vec<u64>, Vec<u32>, Vec<u64>) {
    let (mut sources, mut starts, mut ids) = (Vec::new(), Vec::new(), Vec::new());
    for (number, union) in unions.iter().enumerate() {
        let mut rows: BTreeMap<i64, Vec<u64>> = BTreeMap::new();
        for (list, indices) in union.lists.iter().enumerate() {
            for (row, id) in indices.iter().enumerate() {
                let address = first_row(number, list) + (row * union.row_bytes) as u64;
                rows.entry(*id).or_default().push(address);
            }
        }
        for (id, addresses) in rows {
            starts.push(u32::try_from(sources.len()).unwrap());
            sources.extend(addresses);
            ids.push(id.cast_unsigned());
        }
    }
    starts.push(u32::try_from(sources.len()).unwrap());
    (sources, starts, ids)
}

fn check(unions: &[Union], num_blocks: u32, order: u32) {
    let (sources, starts, ids) = expected(unions);
    if sources.is_empty() {
        return;
    }
    let num_sources = sources.len();
    let (mut merged, mut found_sources) = (room(8 * num_sources), room(8 * num_sources));
    let mut counts = room(4 * UnionLists::num_counts(num_sources));
    let (mut found_starts, mut found_ids) = (room(4 * starts.len()), room(8 * ids.len()));
    let mut kept = Vec::new();
    let mut batch = Batch::<RowList>::default();
    let mut place = 0;
    for (number, union) in unions.iter().enumerate() {
        let mut lists = Vec::new();
        for (list, indices) in union.lists.iter().enumerate() {
            let indices: Vec<u64> = indices.iter().map(|id| id.cast_unsigned()).collect();
            let mut memory = words(&indices);
            let (ids, num_rows) = (memory.address(), indices.len());
            lists.push(ListArgs { ids, num_rows, rows: first_row(number, list) });
            kept.push((memory, indices));
        }
        let places = (merged.address() + place, found_sources.address() + place);
        batch.push(union.row_bytes, &lists, places).unwrap();
        place += 8 * lists.iter().map(|list| list.num_rows as u64).sum::<u64>();
    }
    let args = batch.args(batch.jobs().as_ptr() as u64, 0);
    // SAFETY: the batch was built from memory that exists, with room for all sources.
    unsafe { launch(MERGE_KERNEL, &args, num_blocks, order) };
    let lists = UnionLists {
        merged: merged.address(),
        num_sources,
        counts: counts.address(),
        starts: found_starts.address(),
        ids: found_ids.address(),
    };
    let steps = lists.for_each_step(|step| {
        // SAFETY: the lists have room for all rows, and for the counts of all steps.
        unsafe { launch(step.kernel, &step.args, num_blocks, order) };
        Ok(())
    });
    steps.unwrap();
    assert_eq!(numbers_of(&mut found_sources), sources);
    assert_eq!(short_numbers_of(&mut found_starts), starts);
    assert_eq!(numbers_of(&mut found_ids), ids);
    merged.content();
    counts.content();
    for (mut memory, indices) in kept {
        assert_eq!(numbers_of(&mut memory), indices);
    }
}

fn check_located(cases: &[(BTreeSet<u32>, bool, usize)], num_blocks: u32, order: u32) {
    let mut batch = Batch::<LocateJob>::default();
    let mut kept = Vec::new();
    for (number, (indices, is_in_order, row_bytes)) in cases.iter().enumerate() {
        let rows = first_row(number, 0);
        let indices: Vec<u64> = indices.iter().map(|id| u64::from(*id)).collect();
        let (mut memory, mut sources) = (words(&indices), room(8 * indices.len()));
        let ids = if *is_in_order { 0 } else { memory.address() };
        let list = ListArgs { ids, num_rows: indices.len(), rows };
        batch.push(*row_bytes, &list, sources.address()).unwrap();
        let row_of = |(row, id)| if *is_in_order { row } else { id };
        let located = (0_u64..).zip(indices).map(row_of).map(|row| rows + row * *row_bytes as u64);
        kept.push((located.collect::<Vec<_>>(), memory, sources));
    }
    let args = batch.args(batch.jobs().as_ptr() as u64, 0);
    // SAFETY: the batch was built from memory that exists, with room for all sources.
    unsafe { launch(LOCATE_KERNEL, &args, num_blocks, order) };
    for (expected, _, mut sources) in kept {
        assert_eq!(numbers_of(&mut sources), expected);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn planned_unions_equal_naive_ones(
        unions in unions(),
        num_blocks in 1_u32..6,
        order in 0_u32..1000,
    ) {
        check(&unions, num_blocks, order);
    }

    #[test]
    fn located_rows_have_the_addresses_of_their_indices(
        cases in prop::collection::vec(
            (prop::collection::btree_set(any::<u32>(), 0..700), any::<bool>(), 0_usize..5000),
            1..5,
        ),
        num_blocks in 1_u32..6,
        order in 0_u32..1000,
    ) {
        check_located(&cases, num_blocks, order);
    }
}

/// Counts of rows have up to three levels.
#[test]
fn long_unions_equal_naive_ones() {
    for len in [32 * 256 - 1, 32 * 256, 32 * 256 + 1, 300_000, 32 * 256 * 256 + 77] {
        let half = i64::from(len) / 2;
        let lists = vec![
            (0..half).map(|row| 3 * row).collect(),
            (0..i64::from(len) - half).map(|row| 2 * row).collect(),
        ];
        check(&[Union { lists, row_bytes: 512 }], 300, 1);
    }
}

#[test]
fn structs_have_the_same_layout_as_in_c() {
    let expected = [
        size_of::<RowList>(),
        offset_of!(RowList, first_tile),
        offset_of!(RowList, ids),
        offset_of!(RowList, rows),
        offset_of!(RowList, row_bytes),
        offset_of!(RowList, merged),
        offset_of!(RowList, sources),
        offset_of!(RowList, num_rows),
        offset_of!(RowList, first_list),
        offset_of!(RowList, end_list),
        size_of::<ChunkArgs>(),
        offset_of!(ChunkArgs, from),
        offset_of!(ChunkArgs, to),
        offset_of!(ChunkArgs, before),
        offset_of!(ChunkArgs, ids),
        offset_of!(ChunkArgs, len),
        offset_of!(ChunkArgs, is_top),
        size_of::<LocateJob>(),
        offset_of!(LocateJob, first_tile),
        offset_of!(LocateJob, ids),
        offset_of!(LocateJob, rows),
        offset_of!(LocateJob, row_bytes),
        offset_of!(LocateJob, sources),
        offset_of!(LocateJob, num_rows),
    ];
    assert_eq!(layout::<24>("kv_plan_rows_layout"), expected.map(|number| number as u64));
}
