//! The arguments and names of the kernels in `kernels/argmax.cu`. Each launch reduces groups of
//! columns to one column.

use kvstore_core::{DType, Result, fallible};

use super::batch::{Address, THREADS};

/// The number of columns in a group.
const GROUP: u64 = 256;
/// The bytes of a chosen column.
const COLUMN_BYTES: u64 = 8;

/// The argument of a launch: one matrix.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArgmaxArgs {
    /// The source.
    pub from: Address,
    /// The columns to choose from, or 0 to choose from all columns.
    pub candidates: Address,
    /// The destination of the chosen columns.
    pub to: Address,
    /// The number of rows.
    pub rows: u64,
    /// The number of columns.
    pub columns: u64,
    /// The number of columns to choose from, in each row.
    pub len: u64,
    /// 1 if the launch writes elements, otherwise 0: then it writes 64-bit integers.
    pub is_last: u32,
    /// Padding.
    pub unused: u32,
}

/// A matrix, and the destination of the column of the largest element of each row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Matrix {
    /// The source.
    pub from: Address,
    /// The destination.
    pub to: Address,
    /// The number of rows.
    pub rows: u64,
    /// The number of columns, at least 1.
    pub columns: u64,
}

impl Matrix {
    /// Returns the number of bytes that the launches need for their columns.
    pub fn scratch_bytes(&self) -> u64 {
        self.lengths().map(|len| self.rows * len.div_ceil(GROUP) * COLUMN_BYTES).sum()
    }

    /// Returns the arguments of the launches, in their order. `scratch` has
    /// [`Matrix::scratch_bytes`] bytes.
    ///
    /// # Errors
    /// - [`Error::OutOfMemory`](kvstore_core::Error::OutOfMemory) if there is not enough memory.
    pub fn launches(&self, scratch: Address) -> Result<Vec<ArgmaxArgs>> {
        let Self { from, to, rows, columns } = *self;
        let mut launches = Vec::new();
        let (mut candidates, mut next) = (0, scratch);
        for len in self.lengths() {
            let (to, is_last, unused) = (next, 0, 0);
            let args = ArgmaxArgs { from, candidates, to, rows, columns, len, is_last, unused };
            fallible::push(&mut launches, args)?;
            candidates = next;
            next += rows * len.div_ceil(GROUP) * COLUMN_BYTES;
        }
        let len = self.lengths().last().map_or(columns, |len| len.div_ceil(GROUP));
        let (is_last, unused) = (1, 0);
        let args = ArgmaxArgs { from, candidates, to, rows, columns, len, is_last, unused };
        fallible::push(&mut launches, args)?;
        Ok(launches)
    }

    /// Returns the number of columns before each launch except the last one.
    fn lengths(&self) -> impl Iterator<Item = u64> {
        let lengths = std::iter::successors(Some(self.columns), |len| Some(len.div_ceil(GROUP)));
        lengths.take_while(|len| *len > GROUP)
    }
}

impl ArgmaxArgs {
    /// Returns the number of blocks with which each thread has one iteration.
    pub(crate) fn num_tiles(&self) -> u64 {
        (self.rows * self.len.div_ceil(GROUP)).div_ceil(THREADS.into())
    }
}

/// Returns the name of the kernel for a dtype.
pub fn kernel(dtype: DType) -> String {
    format!("kv_argmax_{dtype}")
}
