//! [`Batch`]: the jobs of one launch, in the form that is copied to the GPU.

use std::fmt::Display;

use kvstore_core::{DType, Error, Result, fallible};

/// An address in the memory of a GPU.
pub type Address = u64;

/// A range of a GPU's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extent {
    /// The address of the first byte.
    pub address: Address,
    /// The length.
    pub num_bytes: usize,
}

/// The number of threads in a block, as in `kernels/kernel.h`.
pub(crate) const THREADS: u32 = 256;

/// The largest number of bytes that a thread loads or stores in one instruction.
pub(crate) const VECTOR_BYTES: u64 = 16;

/// Returns whether an address is aligned for loads of `num_elements` elements in one instruction.
pub(crate) fn is_aligned(address: Address, dtype: DType, num_elements: usize) -> bool {
    address.is_multiple_of(VECTOR_BYTES.min((num_elements * dtype.size()) as u64))
}

/// The argument of a kernel that runs a batch.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Args {
    /// The address of the list of jobs.
    pub jobs: Address,
    /// The address of the list of addends.
    pub addends: Address,
    /// The number of tiles of all jobs.
    pub num_tiles: u64,
    /// The number of jobs.
    pub num_jobs: u32,
    /// Padding.
    pub unused: u32,
}

/// The jobs of a launch in the order of their tiles, and the concatenated lists of their addends.
#[derive(Debug)]
pub struct Batch<J> {
    jobs: Vec<J>,
    addends: Vec<Address>,
    num_tiles: u64,
    num_jobs: u32,
}

impl<J> Default for Batch<J> {
    fn default() -> Self {
        Self { jobs: Vec::new(), addends: Vec::new(), num_tiles: 0, num_jobs: 0 }
    }
}

impl<J> Batch<J> {
    /// Appends a job of `num_tiles` tiles. `job` creates it from its first tile, the position of
    /// its addends in the list, and their number.
    ///
    /// # Errors
    /// - [`Error::OutOfMemory`] if there is not enough memory.
    /// - [`Error::Unsupported`] if the batch would have more than `u32::MAX` jobs or addends.
    pub(crate) fn push_job(
        &mut self,
        addends: &[Address],
        num_tiles: u64,
        job: impl FnOnce(u64, u32, u32) -> J,
    ) -> Result<()> {
        let num_addends = count(addends.len())?;
        let num_jobs = count(self.jobs.len() + 1)?;
        let first = self.push_list(addends.iter().copied())?;
        fallible::push(&mut self.jobs, job(self.num_tiles, first, num_addends))?;
        self.num_jobs = num_jobs;
        self.num_tiles += num_tiles;
        Ok(())
    }

    /// Appends to the list of addends, and returns the position of the first appended one.
    ///
    /// # Errors
    /// - [`Error::OutOfMemory`] if there is not enough memory.
    /// - [`Error::Unsupported`] if the batch would have more than `u32::MAX` jobs or addends.
    pub(crate) fn push_list(&mut self, list: impl ExactSizeIterator<Item = u64>) -> Result<u32> {
        let first = count(self.addends.len())?;
        count(self.addends.len() + list.len())?;
        fallible::reserve(&mut self.addends, list.len())?;
        self.addends.extend(list);
        Ok(first)
    }

    /// Returns the jobs.
    pub fn jobs(&self) -> &[J] {
        &self.jobs
    }

    /// Returns the addends of all jobs.
    pub fn addends(&self) -> &[Address] {
        &self.addends
    }

    /// Returns the number of tiles of all jobs.
    pub fn num_tiles(&self) -> u64 {
        self.num_tiles
    }

    /// Returns the argument of the kernel for lists at these addresses.
    pub fn args(&self, jobs: Address, addends: Address) -> Args {
        Args { jobs, addends, num_tiles: self.num_tiles, num_jobs: self.num_jobs, unused: 0 }
    }
}

/// Converts a number to `u32`, the type of counts in kernels.
///
/// # Errors
/// - [`Error::Unsupported`] if the number is larger. Such a list would take 32 GiB.
pub(crate) fn count(number: impl TryInto<u32> + Copy + Display) -> Result<u32> {
    number.try_into().map_err(|_| {
        let max = u32::MAX;
        Error::Unsupported(format!("lists of one call for a GPU: {number} entries, at most {max}"))
    })
}

#[cfg(test)]
mod tests {
    use super::count;

    #[test]
    fn counts_that_kernels_cannot_have_are_rejected() {
        assert_eq!(count(0xffff_ffff_u64).unwrap(), u32::MAX);
        let text = count(0x1_0000_0000_u64).unwrap_err().to_string();
        assert!(text.contains("4294967296 entries, at most 4294967295"), "{text}");
    }
}
