//! Exchanges rows: sends each pushed row to the rank that owns it, and the stepped rows to all
//! ranks.

use std::slice::from_mut;

use kvstore_core::fallible;
use kvstore_core::{Device, Result, RowSparse, Shape, Tensor, TensorSpec};

use super::partition::Partition;
use super::wire::{Wire, lost, read_u64};
use crate::transport::Slices;

const INDEX_BYTES: usize = size_of::<i64>();

/// A message with rows of a value: first the row indices, then the elements.
struct RowMessage<'a> {
    indices: &'a [i64],
    rows: &'a [u8],
}

impl<'a> RowMessage<'a> {
    /// Returns the rows whose indices are in a range.
    fn of(value: &'a RowSparse, bytes: &'a [u8], range: &std::ops::Range<usize>) -> Result<Self> {
        let place = |row: usize| value.indices().partition_point(|&index| is_below(index, row));
        let (first, end) = (place(range.start), place(range.end));
        let row_bytes = bytes.len().checked_div(value.indices().len()).unwrap_or_default();
        let indices = value.indices().get(first..end).ok_or_else(lost)?;
        let rows = bytes.get(first * row_bytes..end * row_bytes).ok_or_else(lost)?;
        Ok(Self { indices, rows })
    }

    fn write(&self, to: &mut Vec<u8>) -> Result<()> {
        fallible::reserve(to, self.indices.len() * INDEX_BYTES + self.rows.len())?;
        for index in self.indices {
            to.extend(index.to_le_bytes());
        }
        fallible::extend(to, self.rows)
    }
}

fn is_below(index: i64, row: usize) -> bool {
    usize::try_from(index).is_ok_and(|index| index < row)
}

/// Returns a rank's rows of a value, with indices relative to the start of its part. Returns `None`
/// if the rank has no part.
pub(crate) fn part_of_rows(
    partition: &Partition,
    value: &RowSparse,
    rank: usize,
) -> Result<Option<RowSparse>> {
    let Some(part) = partition.part(rank) else { return Ok(None) };
    let range = partition.rows(rank);
    let place = |row: usize| value.indices().partition_point(|&index| is_below(index, row));
    let (first, end) = (place(range.start), place(range.end));
    let own = value.indices().get(first..end).ok_or_else(lost)?;
    let indices = fallible::collect(own.iter().map(|index| index - number(range.start)))?;
    let mut dims = Vec::from([indices.len()]);
    dims.extend(part.shape().row().dims());
    let rows = value.rows().view(first * partition.row_len(), Shape::from(dims))?;
    RowSparse::new(part.shape().clone(), indices, rows.compact()?).map(Some)
}

impl Wire<'_> {
    /// Sends every rank its rows of each sum. Returns the rows that this rank receives for each
    /// sum, in the order of the sending ranks, with indices relative to the start of its part. The
    /// list is empty if this rank has no part of the sum.
    pub(crate) fn scatter_rows(
        &self,
        partitions: &[&Partition],
        sums: &[RowSparse],
    ) -> Result<Vec<Vec<RowSparse>>> {
        let (own, size) = (self.collective.rank(), self.collective.size());
        let contents = fallible::try_collect(sums.iter().map(|sum| sum.rows().seen_bytes()))?;
        let (mut counts, mut bodies) = (Vec::new(), Vec::new());
        for rank in 0..size {
            let (mut count, mut body) = (Vec::new(), Vec::new());
            for ((partition, sum), content) in partitions.iter().zip(sums).zip(&contents) {
                let packed = RowMessage::of(sum, content, &partition.rows(rank))?;
                fallible::extend(&mut count, &(packed.indices.len() as u64).to_le_bytes())?;
                packed.write(&mut body)?;
            }
            counts.push(count);
            bodies.push(body);
        }
        // The counts are sent first, because receivers need the lengths of the bodies.
        let counts = self.all_to_all(&counts, &fallible::filled(8 * partitions.len(), size)?)?;
        let num_rows = |rank: usize| numbers(counts.slice(rank));
        let lens = |rank: usize| {
            let rows = num_rows(rank).zip(partitions);
            rows.map(|(count, partition)| count * (INDEX_BYTES + row_bytes(partition))).sum()
        };
        let bodies = self.all_to_all(&bodies, &(0..size).map(lens).collect::<Vec<_>>())?;
        let mut parts = fallible::filled(Vec::new(), partitions.len())?;
        for rank in 0..size {
            let mut rest = bodies.slice(rank);
            for ((partition, count), parts) in partitions.iter().zip(num_rows(rank)).zip(&mut parts)
            {
                if let Some(part) = partition.part(own) {
                    let first = number(partition.rows(own).start);
                    parts.push(self.unpack(&mut rest, &part, count, |index| index - first)?);
                }
            }
        }
        Ok(parts)
    }

    /// Returns the rows of all ranks' parts of each value. `parts` has the rows of this rank, or
    /// `None` if the rank has no part of the value.
    pub(crate) fn gather_rows(
        &self,
        partitions: &[&Partition],
        parts: &[Option<RowSparse>],
    ) -> Result<Vec<RowSparse>> {
        let (own, size) = (self.collective.rank(), self.collective.size());
        let (mut counts, mut body) = (Vec::new(), Vec::new());
        for (partition, part) in partitions.iter().zip(parts) {
            let count = part.as_ref().map_or(0, |part| part.indices().len());
            fallible::extend(&mut counts, &(count as u64).to_le_bytes())?;
            if let Some(part) = part {
                let first = number(partition.rows(own).start);
                let indices = fallible::collect(part.indices().iter().map(|index| index + first))?;
                RowMessage { indices: &indices, rows: &part.rows().seen_bytes()? }
                    .write(&mut body)?;
            }
        }
        // Parts are in the order of ranks, so the gathered indices ascend.
        let counts = self.gather_bytes(&counts)?;
        let bodies = self.gather_bytes(&body)?;
        let counts = (0..size).map(|rank| fallible::gather(numbers(counts.slice(rank))));
        let counts = fallible::try_collect(counts)?;
        let mut rests: Vec<&[u8]> = (0..size).map(|rank| bodies.slice(rank)).collect();
        let mut values = fallible::with_capacity(partitions.len())?;
        for (number, partition) in partitions.iter().enumerate() {
            let (mut indices, mut rows) = (Vec::new(), Vec::new());
            for (rest, counts) in rests.iter_mut().zip(&counts) {
                let count = *counts.get(number).ok_or_else(lost)?;
                fallible::extend(&mut indices, &take_indices(rest, count)?)?;
                fallible::extend(&mut rows, take(rest, count * row_bytes(partition))?)?;
            }
            values.push(self.value(&partition.listed(), indices, &rows)?);
        }
        Ok(values)
    }

    fn all_to_all(&self, bodies: &[Vec<u8>], lens: &[usize]) -> Result<Slices> {
        let counts: Vec<usize> = bodies.iter().map(Vec::len).collect();
        let mut sent = Slices::with_counts(&counts)?;
        for (slice, body) in sent.iter_mut().zip(bodies) {
            slice.copy_from_slice(body);
        }
        let mut received = Slices::with_counts(lens)?;
        self.collective.all_to_all(&[sent.into()], from_mut(&mut received), &self.wait())?;
        Ok(received)
    }

    fn unpack(
        &self,
        rest: &mut &[u8],
        spec: &TensorSpec,
        count: usize,
        renumber: impl Fn(i64) -> i64,
    ) -> Result<RowSparse> {
        let mut indices = take_indices(rest, count)?;
        for index in &mut indices {
            *index = renumber(*index);
        }
        let row_len = spec.shape().row().num_elements();
        let rows = take(rest, count * row_len * spec.dtype().size())?;
        self.value(spec, indices, rows)
    }

    fn value(&self, spec: &TensorSpec, indices: Vec<i64>, rows: &[u8]) -> Result<RowSparse> {
        let mut dims = Vec::from([indices.len()]);
        dims.extend(spec.shape().row().dims());
        let rows_spec = TensorSpec::new(Shape::from(dims), spec.dtype());
        let rows = Tensor::from_bytes(self.backends, Device::cpu(0), rows_spec, rows)?;
        RowSparse::new(spec.shape().clone(), indices, rows)
    }
}

/// Converts a row index to `i64`. No value has so many rows that this overflows.
pub(crate) fn number(row: usize) -> i64 {
    i64::try_from(row).unwrap_or(i64::MAX)
}

fn row_bytes(partition: &Partition) -> usize {
    partition.row_len() * partition.spec().dtype().size()
}

fn numbers(bytes: &[u8]) -> impl Iterator<Item = usize> {
    let number = |bytes: &[u8]| read_u64(bytes).and_then(|number| usize::try_from(number).ok());
    bytes.chunks(8).filter_map(number)
}

fn take<'a>(rest: &mut &'a [u8], len: usize) -> Result<&'a [u8]> {
    let (taken, after) = rest.split_at_checked(len).ok_or_else(lost)?;
    *rest = after;
    Ok(taken)
}

fn take_indices(rest: &mut &[u8], count: usize) -> Result<Vec<i64>> {
    let bytes = take(rest, count * INDEX_BYTES)?;
    fallible::collect(bytes.as_chunks().0.iter().map(|bytes| i64::from_le_bytes(*bytes)))
}
