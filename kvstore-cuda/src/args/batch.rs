//! [`Batch`]: the jobs of one launch, as they are copied to the device.

use kvstore_core::{DType, Result, fallible};

/// An address in the memory of a device.
pub type Address = u64;

/// Some memory of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extent {
    /// Where it begins.
    pub address: Address,
    /// How long it is.
    pub num_bytes: usize,
}

/// Threads of a block, as in `kernels/kernel.h`.
pub(crate) const THREADS: u32 = 256;

/// The most bytes that a thread loads or stores at a time.
pub(crate) const VECTOR_BYTES: u64 = 16;

/// Returns whether so many elements can be loaded at a time from an address, and from every multiple of them on.
pub(crate) fn is_aligned(address: Address, dtype: DType, num_elements: usize) -> bool {
    address.is_multiple_of(VECTOR_BYTES.min((num_elements * dtype.size()) as u64))
}

/// The argument of a kernel.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Args {
    /// A list of jobs.
    pub jobs: Address,
    /// A list of addresses, for rows also of their numbers.
    pub addends: Address,
    /// Of all jobs.
    pub num_tiles: u64,
    /// How many jobs there are.
    pub num_jobs: u32,
    /// Fills the struct up.
    pub unused: u32,
}

/// Jobs in the order of their tiles, and their addends one after the other.
#[derive(Debug)]
pub struct Batch<J> {
    jobs: Vec<J>,
    addends: Vec<Address>,
    num_tiles: u64,
}

impl<J> Default for Batch<J> {
    fn default() -> Self {
        Self { jobs: Vec::new(), addends: Vec::new(), num_tiles: 0 }
    }
}

impl<J> Batch<J> {
    /// Adds a job of so many tiles, made from where its tiles and its addends begin and the number of those.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`](kvstore_core::Error::OutOfMemory).
    pub(crate) fn push_job(
        &mut self,
        addends: &[Address],
        num_tiles: u64,
        job: impl FnOnce(u64, u32, u32) -> J,
    ) -> Result<()> {
        let first = self.push_list(addends.iter().copied())?;
        let job = job(self.num_tiles, first, count(addends.len()));
        fallible::push(&mut self.jobs, job)?;
        self.num_tiles += num_tiles;
        Ok(())
    }

    /// Adds to the list of addends, and returns where in it this begins.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`](kvstore_core::Error::OutOfMemory).
    pub(crate) fn push_list(&mut self, list: impl ExactSizeIterator<Item = u64>) -> Result<u32> {
        let first = count(self.addends.len());
        fallible::reserve(&mut self.addends, list.len())?;
        self.addends.extend(list);
        Ok(first)
    }

    /// Returns the jobs.
    pub fn jobs(&self) -> &[J] {
        &self.jobs
    }

    /// Returns the addends of all jobs; of rows their numbers stand in the same list.
    pub fn addends(&self) -> &[Address] {
        &self.addends
    }

    /// Returns how many tiles a grid of blocks shares.
    pub fn num_tiles(&self) -> u64 {
        self.num_tiles
    }

    /// Returns the argument of the kernel, given where the lists are.
    pub fn args(&self, jobs: Address, addends: Address) -> Args {
        let num_jobs = count(self.jobs.len());
        Args { jobs, addends, num_tiles: self.num_tiles, num_jobs, unused: 0 }
    }
}

/// Returns a number as kernels read it. A list of more would have 32 GiB.
pub(crate) fn count(number: impl TryInto<u32>) -> u32 {
    number.try_into().unwrap_or(u32::MAX)
}
