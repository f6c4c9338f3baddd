//! [`Partition`]: the part of a value that each rank steps.

use std::ops::Range;

use super::row_messages::number;
use kvstore_core::fallible;
use kvstore_core::norm::{BLOCK, num_blocks};
use kvstore_core::{Result, RowSparse, Shape, StepUnit, TensorSpec};

/// Smaller values stay on one rank: below this size, a shorter message costs the same.
const SMALL_BYTES: usize = 4096;
/// With fewer rows per rank, a value is split between elements if the optimizer allows it, because
/// parts made of complete rows would differ too much in size.
const FEW_ROWS: usize = 8;

/// The partition of a value among the ranks, the same on every rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Partition {
    spec: TensorSpec,
    size: usize,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// One rank owns the value.
    Single {
        owner: usize,
    },
    Rows,
    Elements,
    /// Each part starts at the boundary of a block of the norm.
    Blocks,
}

impl Partition {
    /// Partitions a value among `size` ranks without splitting a `unit`. `order` is the position of
    /// the key in the order of initialisation. Small values are assigned to the ranks in turn.
    pub(crate) fn new(spec: &TensorSpec, order: u64, size: usize, unit: StepUnit) -> Self {
        let num_bytes = spec.num_elements() * spec.dtype().size();
        let kind = if num_bytes < SMALL_BYTES || size == 1 {
            let owner = usize::try_from(order % size as u64).unwrap_or_default();
            Kind::Single { owner }
        } else {
            let has_many_rows = spec.shape().num_rows() >= FEW_ROWS * size;
            match unit {
                StepUnit::Block => Kind::Blocks,
                StepUnit::Row => Kind::Rows,
                StepUnit::Element | StepUnit::Weight if has_many_rows => Kind::Rows,
                StepUnit::Element | StepUnit::Weight => Kind::Elements,
            }
        };
        Self { spec: spec.clone(), size, kind }
    }

    /// Returns the spec of the complete value.
    pub(crate) fn spec(&self) -> &TensorSpec {
        &self.spec
    }

    /// Returns the listed spec: the spec of the value if it is split between rows, or the spec of a
    /// vector of its elements if rows can be split. Each row of the listed spec is on one rank.
    pub(crate) fn listed(&self) -> TensorSpec {
        match self.kind {
            Kind::Single { .. } | Kind::Rows => self.spec.clone(),
            Kind::Elements | Kind::Blocks => {
                TensorSpec::new([self.spec.num_elements()], self.spec.dtype())
            }
        }
    }

    /// Returns whether a row may be split between ranks.
    fn divides_rows(&self) -> bool {
        matches!(self.kind, Kind::Elements | Kind::Blocks)
    }

    /// Returns whether the blocks of the norm are distributed among the ranks.
    pub(crate) fn has_blocks(&self) -> bool {
        self.kind == Kind::Blocks
    }

    /// Returns the number of blocks of the norm in a rank's part.
    pub(crate) fn num_blocks(&self, rank: usize) -> usize {
        num_blocks(self.elements(rank).len())
    }

    /// Converts rows of the value to rows of the listed spec.
    pub(crate) fn list(&self, rows: &RowSparse) -> Result<RowSparse> {
        if !self.divides_rows() {
            return Ok(rows.clone());
        }
        let row_len = self.spec.shape().row().num_elements();
        let mut indices: Vec<i64> = fallible::with_capacity(rows.indices().len() * row_len)?;
        let row_len = number(row_len);
        for index in rows.indices() {
            indices.extend(index * row_len..(index + 1) * row_len);
        }
        let elements = rows.rows().view(0, Shape::from([indices.len()]))?;
        RowSparse::new(self.listed().shape().clone(), indices, elements)
    }

    /// Converts rows of the listed spec to rows of the value. `listed` must contain all elements of
    /// a row of the value, or none.
    pub(crate) fn unlist(&self, listed: RowSparse) -> Result<RowSparse> {
        if !self.divides_rows() {
            return Ok(listed);
        }
        let row = self.spec.shape().row();
        let row_len = row.num_elements();
        // The first element of each row determines the index of the row.
        let first_elements = listed.indices().iter().step_by(row_len);
        let indices = fallible::collect(first_elements.map(|index| index / number(row_len)))?;
        let mut dims = Vec::from([indices.len()]);
        dims.extend(row.dims());
        let rows = listed.rows().view(0, Shape::from(dims))?;
        RowSparse::new(self.spec.shape().clone(), indices, rows)
    }

    /// Returns the elements of a rank's part.
    pub(crate) fn elements(&self, rank: usize) -> Range<usize> {
        match self.kind {
            Kind::Single { owner } if owner == rank => 0..self.spec.num_elements(),
            Kind::Single { .. } => 0..0,
            Kind::Rows => {
                let (rows, row_len) = (self.rows(rank), self.row_len());
                rows.start * row_len..rows.end * row_len
            }
            Kind::Elements => share(self.spec.num_elements(), rank, self.size),
            Kind::Blocks => {
                let num_elements = self.spec.num_elements();
                let blocks = share(num_blocks(num_elements), rank, self.size);
                (blocks.start * BLOCK).min(num_elements)..(blocks.end * BLOCK).min(num_elements)
            }
        }
    }

    /// Returns the rows of a rank's part, as rows of the listed spec.
    pub(crate) fn rows(&self, rank: usize) -> Range<usize> {
        let num_rows = self.spec.shape().num_rows();
        match self.kind {
            Kind::Single { owner } if owner == rank => 0..num_rows,
            Kind::Single { .. } => 0..0,
            Kind::Elements | Kind::Blocks => self.elements(rank),
            Kind::Rows => share(num_rows, rank, self.size),
        }
    }

    /// Returns the size of a rank's part in bytes.
    pub(crate) fn num_bytes(&self, rank: usize) -> usize {
        self.elements(rank).len() * self.spec.dtype().size()
    }

    /// Returns the spec of a rank's part, or `None` if the part is empty.
    pub(crate) fn part(&self, rank: usize) -> Option<TensorSpec> {
        let len = self.elements(rank).len();
        let shape = match self.kind {
            Kind::Single { .. } => self.spec.shape().clone(),
            Kind::Elements | Kind::Blocks => Shape::from([len]),
            Kind::Rows => {
                let mut dims = Vec::from(self.spec.shape().dims());
                *dims.first_mut()? = self.rows(rank).len();
                Shape::from(dims)
            }
        };
        (len > 0).then(|| TensorSpec::new(shape, self.spec.dtype()))
    }

    /// Returns the number of elements in a row of the listed spec.
    pub(crate) fn row_len(&self) -> usize {
        match self.kind {
            Kind::Single { .. } | Kind::Rows => self.spec.shape().row().num_elements(),
            Kind::Elements | Kind::Blocks => 1,
        }
    }
}

/// Returns a rank's share of `count` items. The shares of two ranks differ by at most one item.
fn share(count: usize, rank: usize, size: usize) -> Range<usize> {
    let (each, more) = (count / size, count % size);
    let begin = |rank: usize| rank * each + rank.min(more);
    begin(rank)..begin(rank + 1)
}

#[cfg(test)]
mod tests {
    use kvstore_core::DType;

    use super::*;

    #[test]
    fn parts_cover_the_value() {
        let shapes: [&[usize]; 7] =
            [&[1], &[1023], &[1024], &[100, 300], &[7, 5000], &[1 << 20], &[64, 3, 3, 3]];
        for dims in shapes {
            let spec = TensorSpec::new(dims, DType::F32);
            let units = [StepUnit::Element, StepUnit::Block, StepUnit::Row, StepUnit::Weight];
            for (size, unit) in
                [1, 2, 3, 4, 7].into_iter().flat_map(|size| units.map(|unit| (size, unit)))
            {
                for order in 0..5 {
                    let partition = Partition::new(&spec, order, size, unit);
                    let mut end = 0;
                    for rank in 0..size {
                        let elements = partition.elements(rank);
                        if let Some(part) = partition.part(rank) {
                            assert_eq!(elements.start, end);
                            assert_eq!(part.num_elements(), elements.len());
                            end = elements.end;
                        } else {
                            assert!(elements.is_empty());
                        }
                        assert_eq!(
                            partition.rows(rank).len() * partition.row_len(),
                            elements.len()
                        );
                    }
                    assert_eq!(end, spec.num_elements());
                }
            }
        }
    }

    #[test]
    fn large_values_are_split_evenly_and_small_values_are_assigned_in_turn() {
        let lens = |spec: &TensorSpec, order| {
            let partition = Partition::new(spec, order, 4, StepUnit::Element);
            [0, 1, 2, 3].map(|rank| partition.elements(rank).len())
        };
        let small = TensorSpec::new([10, 3], DType::F32);
        assert_eq!(lens(&small, 0), [30, 0, 0, 0]);
        assert_eq!(lens(&small, 6), [0, 0, 30, 0]);
        // Many rows are split between rows, few rows between elements.
        assert_eq!(lens(&TensorSpec::new([33, 300], DType::F32), 1), [2700, 2400, 2400, 2400]);
        assert_eq!(lens(&TensorSpec::new([3, 3000], DType::F32), 1), [2250; 4]);
    }

    #[test]
    fn parts_start_at_unit_boundaries() {
        let lens = |dims: [usize; 2], unit| {
            let partition = Partition::new(&TensorSpec::new(dims, DType::F32), 1, 4, unit);
            [0, 1, 2, 3].map(|rank| partition.elements(rank).len())
        };
        assert_eq!(lens([200, 300], StepUnit::Block), [16384, 16384, 16384, 10848]);
        assert_eq!(lens([2, 4000], StepUnit::Block), [4096, 3904, 0, 0]);
        assert_eq!(lens([1, 1024], StepUnit::Block), [1024, 0, 0, 0]);
        assert_eq!(lens([3, 5000], StepUnit::Row), [5000, 5000, 5000, 0]);
        assert_eq!(lens([33, 300], StepUnit::Row), [2700, 2400, 2400, 2400]);
    }
}
