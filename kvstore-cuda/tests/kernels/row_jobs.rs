//! Sums of rows, and dense values from rows: any lengths, alignments and bits, with duplicate and
//! missing rows.
#![expect(unsafe_code, reason = "launches kernels on memory of this process")]

use std::mem::offset_of;

use kvstore_core::backend::{self, RowIds, RowSource, RowSources};
use kvstore_core::storage::Span;
use kvstore_core::{DType, Device};
use kvstore_cuda::batch::{Batch, Extent};
use kvstore_cuda::plan_rows::ListedRows;
use kvstore_cuda::row_jobs::{
    Ids, RowAddends, RowCut, RowScatterJob, RowSumJob, Rows, SCATTER_KERNEL, Scatter, sum_kernel,
};
use proptest::prelude::*;

use crate::device::{Memory, launch, layout};
use crate::host::{Block, assert_same, backend, bytes, halves, number};

/// Rows to sum.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) row_len: usize,
    pub(crate) num_rows: usize,
    /// The number of rows of each addend.
    pub(crate) addends: Vec<usize>,
    /// The largest number of sources of a row, or `None` if each row has exactly one.
    pub(crate) most: Option<usize>,
    pub(crate) full: usize,
    /// The offsets of the ranges from an aligned address, in elements, used in turn.
    pub(crate) beyond: Vec<usize>,
    pub(crate) seed: u64,
}

pub(crate) fn cases() -> impl Strategy<Value = Vec<Case>> {
    let row_len = prop_oneof![
        1 => 1_usize..5,
        2 => 1_usize..300,
        4 => (1_usize..75).prop_map(|quarter| 4 * quarter),
        1 => prop::sample::select(vec![32, 64, 128, 1020, 1024, 1028, 4096, 4100, 9003]),
    ];
    let beyond = prop_oneof![3 => Just(vec![0]), 1 => prop::collection::vec(0_usize..5, 1..4)];
    let addends = prop::collection::vec(1_usize..9, 1..4);
    let most = prop::option::weighted(0.8, 0_usize..6);
    let case = (row_len, 0_usize..3000, addends, most, 0_usize..5, beyond, any::<u64>());
    let case = case.prop_map(|(row_len, num_rows, addends, most, full, beyond, seed)| Case {
        row_len,
        num_rows: num_rows % (8000 / row_len + 3),
        addends,
        most,
        full,
        beyond,
        seed,
    });
    prop::collection::vec(case, 1..5)
}

/// Returns a function for pseudorandom numbers below a limit.
pub(crate) fn below(seed: u64) -> impl FnMut(usize) -> usize {
    let mut words = bytes(1 << 12, seed | 1).into_iter().cycle();
    move |limit| {
        let word = std::array::from_fn(|_| words.next().unwrap());
        usize::from(u16::from_le_bytes(word)) % limit
    }
}

/// Sets some elements to 0, and some elements of floats to -0.
pub(crate) fn with_zeros(dtype: DType, mut content: Vec<u8>) -> Vec<u8> {
    let zero = number(dtype, if dtype.is_float() { -0.0 } else { 0.0 });
    for (index, element) in content.chunks_exact_mut(dtype.size()).enumerate() {
        match index % 7 {
            2 => element.copy_from_slice(&zero),
            4 => element.fill(0),
            _ => {}
        }
    }
    content
}

impl Case {
    /// Returns the addends for the host's backend.
    pub(crate) fn row_addends<'a>(
        &self,
        starts: &'a [usize],
        sources: &'a [RowSource],
        spans: &'a [Span<'a>],
    ) -> backend::RowAddends<'a> {
        let (row_len, full) = (self.row_len, self.full);
        let sources = RowSources::Listed { starts, sources };
        backend::RowAddends { row_len, sources, full, spans }
    }

    /// Returns the lists of the sources in these addends, in the form for a kernel.
    pub(crate) fn listed(&self, dtype: DType, addends: &[Extent]) -> ListedRows {
        let (starts, sources) = self.sources();
        ListedRows::new(dtype, self.row_len, (&starts, &sources), addends).unwrap()
    }

    /// Returns the starts and the sources.
    pub(crate) fn sources(&self) -> (Vec<usize>, Vec<RowSource>) {
        let mut below = below(self.seed);
        let (mut starts, mut sources) = (vec![0], Vec::new());
        for _ in 0..self.num_rows {
            for _ in 0..self.most.map_or(1, |most| below(most + 1)) {
                let addend = below(self.addends.len());
                sources.push(RowSource { addend, row: below(self.addends[addend]) });
            }
            starts.push(sources.len());
        }
        (starts, sources)
    }

    /// Returns the contents of the addends.
    pub(crate) fn contents(
        &self,
        dtype: DType,
        make: impl Fn(usize, u64) -> Vec<u8>,
    ) -> Vec<Vec<u8>> {
        let seeds = (0_u64..).map(|number| self.seed.wrapping_add(977 * number));
        let addends = self.addends.iter().zip(seeds);
        addends.map(|(rows, seed)| with_zeros(dtype, make(rows * self.row_len, seed))).collect()
    }

    /// Returns memory with an offset of the case. `number` selects the offset.
    pub(crate) fn place(&self, dtype: DType, number: usize, content: &[u8]) -> Memory {
        Memory::new(content, self.beyond[number % self.beyond.len()] * dtype.size() % 16)
    }
}

/// Returns the rows to sum. The lists must be kept.
pub(crate) fn rows<'a>(
    (row_len, full): (usize, usize),
    num_rows: usize,
    listed: &ListedRows,
    addends: &'a [Extent],
) -> Rows<'a> {
    let starts = if listed.starts.is_empty() { 0 } else { listed.starts.as_ptr() as u64 };
    Rows { row_len, num_rows, sources: listed.sources.as_ptr() as u64, starts, full, addends }
}

/// Returns row indices in the memory of this process, which must be kept.
pub(crate) fn ids(indices: &[i64]) -> Ids {
    Ids { address: indices.as_ptr() as u64, len: indices.len(), last: indices.last().copied() }
}

pub(crate) fn extent(memory: &mut Memory) -> Extent {
    Extent { address: memory.address(), num_bytes: memory.num_bytes() }
}

/// Returns the result of the host's backend.
fn expected(dtype: DType, case: &Case, contents: &[Vec<u8>]) -> Vec<u8> {
    let (starts, sources) = case.sources();
    let addends: Vec<Block> = contents.iter().map(|bytes| Block::new(bytes)).collect();
    let spans: Vec<Span<'_>> = addends.iter().map(Block::span).collect();
    let mut sum = Block::new(&vec![1; case.num_rows * case.row_len * dtype.size()]);
    let job = backend::RowSumJob {
        device: Device::cpu(0),
        dtype,
        addends: case.row_addends(&starts, &sources, &spans),
        ids: &RowIds::new((0..).take(case.num_rows).collect()),
        dst: sum.span_mut(),
    };
    backend().sum_rows(&mut [job]).unwrap();
    sum.content()
}

fn check(dtype: DType, cases: &[Case], num_blocks: u32, order: u32) {
    let mut batch = Batch::<RowSumJob>::default();
    let mut memory = Vec::new();
    for case in cases {
        let contents = case.contents(dtype, |len, seed| bytes(len * dtype.size(), seed));
        let num_bytes = case.num_rows * case.row_len * dtype.size();
        let mut dst = case.place(dtype, 0, &vec![1; num_bytes]);
        let places = contents.iter().enumerate();
        let mut addends: Vec<Memory> =
            places.map(|(number, it)| case.place(dtype, number + 1, it)).collect();
        let extents: Vec<Extent> = addends.iter_mut().map(extent).collect();
        let listed = case.listed(dtype, &extents);
        let rows = rows((case.row_len, case.full), case.num_rows, &listed, &extents);
        batch.push(dtype, &rows, extent(&mut dst)).unwrap();
        let expected =
            if case.num_rows == 0 { Vec::new() } else { expected(dtype, case, &contents) };
        memory.push((expected, dst, addends, contents, listed));
    }
    let args = batch.args(batch.jobs().as_ptr() as u64, batch.addends().as_ptr() as u64);
    // SAFETY: the batch was built from memory and lists that exist.
    unsafe { launch(&sum_kernel(dtype), &args, num_blocks, order) };
    for (expected, mut dst, mut addends, contents, _) in memory {
        assert_same(dtype, &expected, &dst.content());
        for (addend, content) in addends.iter_mut().zip(&contents) {
            assert_eq!(addend.content(), *content);
        }
    }
}

/// A dense value to write.
#[derive(Clone, Debug)]
struct DenseCase {
    dtype: DType,
    row_len: usize,
    num_rows: usize,
    /// The percentage of rows that are stored.
    share: usize,
    beyond: (usize, usize),
    seed: u64,
}

fn dense_cases() -> impl Strategy<Value = Vec<DenseCase>> {
    let row_len = prop_oneof![
        1_usize..300,
        (1_usize..75).prop_map(|quarter| 4 * quarter),
        prop::sample::select(vec![1024, 1025, 4096, 4100, 9001]),
    ];
    let beyond = prop_oneof![2 => Just((0, 0)), 1 => (0_usize..9, 0_usize..9)];
    let share = prop::sample::select(vec![0_usize, 1, 10, 50, 100]);
    let dtype = prop::sample::select(DType::ALL.to_vec());
    let dense = (dtype, row_len, 0_usize..3000, share, beyond, any::<u64>());
    let dense = dense.prop_map(|(dtype, row_len, num_rows, share, beyond, seed)| DenseCase {
        dtype,
        row_len,
        num_rows: num_rows % (12_000 / row_len + 3),
        share,
        beyond,
        seed,
    });
    prop::collection::vec(dense, 1..5)
}

impl DenseCase {
    fn row_bytes(&self) -> usize {
        self.row_len * self.dtype.size()
    }

    fn indices(&self) -> Vec<i64> {
        let mut below = below(self.seed);
        let all = (0_i64..).take(self.num_rows);
        all.filter(|_| below(100) < self.share).collect()
    }

    /// Returns the result of the host's backend.
    fn expected(&self, rows: &[u8]) -> Vec<u8> {
        if self.num_rows == 0 {
            return Vec::new();
        }
        let (rows, indices) = (Block::new(rows), self.indices());
        let mut dst = Block::new(&vec![1; self.num_rows * self.row_bytes()]);
        let job = backend::RowScatterJob {
            device: Device::cpu(0),
            dtype: self.dtype,
            row_len: self.row_len,
            ids: &RowIds::new(indices),
            rows: rows.span(),
            dst: dst.span_mut(),
        };
        backend().scatter_rows(&mut [job]).unwrap();
        dst.content()
    }
}

fn check_dense_cases(dense_cases: &[DenseCase], num_blocks: u32, order: u32) {
    let mut batch = Batch::<RowScatterJob>::default();
    let mut memory = Vec::new();
    for dense in dense_cases {
        let (indices, row_bytes) = (dense.indices(), dense.row_bytes());
        let content = bytes(indices.len() * row_bytes, dense.seed);
        let place = |beyond: usize| beyond * dense.dtype.size() % 16;
        let mut rows = Memory::new(&content, place(dense.beyond.0));
        let mut dst = Memory::new(&vec![1; dense.num_rows * row_bytes], place(dense.beyond.1));
        let (from, to) = (extent(&mut rows), extent(&mut dst));
        batch.push(&Scatter { row_bytes, ids: ids(&indices), rows: from, dst: to }).unwrap();
        memory.push((dense.expected(&content), rows, dst, content, indices));
    }
    let args = batch.args(batch.jobs().as_ptr() as u64, batch.addends().as_ptr() as u64);
    // SAFETY: the batch was built from memory and lists that exist.
    unsafe { launch(SCATTER_KERNEL, &args, num_blocks, order) };
    for (expected, mut rows, mut dst, content, _) in memory {
        assert_eq!(dst.content(), expected);
        assert_eq!(rows.content(), content);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn sums_of_rows_agree_with_the_host(
        dtype in prop::sample::select(DType::ALL.to_vec()),
        cases in cases(),
        num_blocks in 1_u32..6,
        order in 0_u32..1000,
    ) {
        check(dtype, &cases, num_blocks, order);
    }

    #[test]
    fn dense_values_agree_with_the_host(
        dense_cases in dense_cases(),
        num_blocks in 1_u32..6,
        order in 0_u32..1000,
    ) {
        check_dense_cases(&dense_cases, num_blocks, order);
    }
}

/// A gathered row is a copy with the same bits, including NaN.
#[test]
fn every_half_precision_number_is_gathered_unchanged() {
    let all: Vec<u8> = (0..=u16::MAX).flat_map(u16::to_le_bytes).collect();
    let starts: Vec<usize> = (0..=256).collect();
    let sources: Vec<RowSource> = (0..256).rev().map(|row| RowSource { addend: 0, row }).collect();
    let expected: Vec<u8> = all.chunks(512).rev().flatten().copied().collect();
    for dtype in halves() {
        let row_len = 512 / dtype.size();
        let (mut from, mut to) = (Memory::new(&all, 0), Memory::new(&vec![0; all.len()], 0));
        let addends = [extent(&mut from)];
        let listed = ListedRows::new(dtype, row_len, (&starts, &sources), &addends).unwrap();
        let rows = rows((row_len, 1), 256, &listed, &addends);
        let mut batch = Batch::<RowSumJob>::default();
        batch.push(dtype, &rows, extent(&mut to)).unwrap();
        let args = batch.args(batch.jobs().as_ptr() as u64, batch.addends().as_ptr() as u64);
        // SAFETY: as above.
        unsafe { launch(&sum_kernel(dtype), &args, 3, 0) };
        assert_eq!(to.content(), expected);
    }
}

#[test]
fn missing_rows_are_errors() {
    let addends = [Extent { address: 64, num_bytes: 3 * 16 }];
    let dst = Extent { address: 128, num_bytes: 16 };
    let listed = |starts: &[usize], addend, row| {
        let sources = [RowSource { addend, row }];
        ListedRows::new(DType::F32, 4, (starts, &sources), &addends).ok()
    };
    let found = listed(&[0, 1], 0, 2).unwrap();
    assert_eq!((found.sources, found.starts), (vec![64 + 32], vec![]));
    let found = listed(&[0, 1, 1], 0, 0).unwrap();
    assert_eq!((found.sources, found.starts), (vec![64], vec![0, 1, 1]));
    assert!(listed(&[0, 1], 0, 3).is_none());
    assert!(listed(&[0, 1], 1, 0).is_none());
    assert!(listed(&[0, 1], 0, usize::MAX).is_none());
    assert!(listed(&[0, 2], 0, 0).is_none());
    assert!(listed(&[2, 1], 0, 0).is_none());

    let mut sums = Batch::<RowSumJob>::default();
    let found = listed(&[0, 1], 0, 0).unwrap();
    assert!(sums.push(DType::F32, &rows((4, 1), 2, &found, &addends), dst).is_err());
    assert!(sums.push(DType::F32, &rows((4, 1), 1, &found, &addends), dst).is_ok());
    assert_eq!(sums.jobs().len(), 1);

    let mut dense_cases = Batch::<RowScatterJob>::default();
    let mut push = |row_bytes, indices: &[i64]| {
        let rows = Extent { address: 64, num_bytes: 16 };
        let dst = Extent { address: 128, num_bytes: 3 * 16 };
        dense_cases.push(&Scatter { row_bytes, ids: ids(indices), rows, dst }).is_ok()
    };
    assert!(push(16, &[2]) && push(8, &[0, 5]) && push(16, &[]));
    for (row_bytes, indices) in [(16, &[3][..]), (16, &[-1]), (16, &[0, 1]), (7, &[0]), (0, &[])] {
        assert!(!push(row_bytes, indices), "{row_bytes}, {indices:?}");
    }
    assert_eq!(dense_cases.jobs().len(), 3);
}

/// Returns the offsets of the fields of a `RowCut` in a job.
fn cut_layout(job: usize) -> [usize; 6] {
    [
        offset_of!(RowCut, num_rows),
        offset_of!(RowCut, num_units),
        offset_of!(RowCut, rows_per_tile),
        offset_of!(RowCut, tiles_per_row),
        offset_of!(RowCut, reciprocal),
        offset_of!(RowCut, unit),
    ]
    .map(|offset| job + offset)
}

#[test]
fn structs_have_the_same_layout_as_in_c() {
    let sum = [size_of::<RowSumJob>(), offset_of!(RowSumJob, first_tile)];
    let addends = [
        offset_of!(RowAddends, sources),
        offset_of!(RowAddends, starts),
        offset_of!(RowAddends, full),
    ]
    .map(|offset| offset_of!(RowSumJob, addends) + offset);
    let scatter = [size_of::<RowScatterJob>(), offset_of!(RowScatterJob, first_tile)];
    let fields = [
        offset_of!(RowScatterJob, rows),
        offset_of!(RowScatterJob, dst),
        offset_of!(RowScatterJob, ids),
        offset_of!(RowScatterJob, num_ids),
    ];
    let expected: Vec<u64> = sum
        .into_iter()
        .chain(cut_layout(offset_of!(RowSumJob, cut)))
        .chain(addends)
        .chain([offset_of!(RowSumJob, dst)])
        .chain(scatter)
        .chain(cut_layout(offset_of!(RowScatterJob, cut)))
        .chain(fields)
        .map(|number| number as u64)
        .collect();
    assert_eq!(layout::<24>("kv_rows_layout").to_vec(), expected);
}
