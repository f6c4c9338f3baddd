//! [`NormExchange`]: computes the norms of values whose parts are on several ranks.

use std::collections::HashMap;
use std::slice::from_mut;

use kvstore_core::fallible;
use kvstore_core::{BlockSums, Key, Result};

use super::partition::Partition;
use super::wire::{Wire, lost};
use crate::transport::Slices;

/// The bytes of the two sums of a block.
const BLOCK_BYTES: usize = 2 * size_of::<f64>();

/// Exchanges the sums of blocks during a push of parts. Every rank participates exactly once, even
/// if it has no part of any key.
pub(super) struct NormExchange<'a> {
    wire: &'a Wire<'a>,
    keys: &'a [Key],
    partitions: &'a [&'a Partition],
    is_done: bool,
}

impl<'a> NormExchange<'a> {
    pub(super) fn new(
        wire: &'a Wire<'a>,
        keys: &'a [Key],
        partitions: &'a [&'a Partition],
    ) -> Self {
        Self { wire, keys, partitions, is_done: false }
    }

    /// Replaces the sums of this rank's parts with the sums of the complete values.
    pub(super) fn complete(&mut self, sums: &mut [BlockSums]) -> Result<()> {
        self.is_done = true;
        let (own, size) = (self.wire.collective.rank(), self.wire.collective.size());
        let divided = || {
            let keys = self.keys.iter().zip(self.partitions);
            keys.filter(|(_, partition)| partition.has_blocks())
        };
        // All ranks have the same partitions, so all of them return here or none does.
        if divided().next().is_none() {
            return Ok(());
        }
        let mut counts = fallible::zeroed::<usize>(size)?;
        for (rank, count) in counts.iter_mut().enumerate() {
            let num_blocks = divided().map(|(_, partition)| partition.num_blocks(rank));
            *count = num_blocks.sum::<usize>() * BLOCK_BYTES;
        }
        let mut slices = Slices::with_counts(&counts)?;
        let mut blocks_by_key: HashMap<&Key, &mut Vec<[f64; 2]>> = fallible::hash_map(sums.len())?;
        blocks_by_key.extend(sums.iter_mut().map(|sums| (&sums.key, &mut sums.blocks)));
        let mut sent = slices.slice_mut(own).as_chunks_mut::<BLOCK_BYTES>().0.iter_mut();
        for (key, partition) in divided() {
            let num_blocks = partition.num_blocks(own);
            // An optimizer may exempt keys, such as biases, on every rank. They have no sums.
            let Some(blocks) = blocks_by_key.get(key) else {
                sent.by_ref().take(num_blocks).for_each(|to| to.fill(0));
                continue;
            };
            if blocks.len() != num_blocks {
                return Err(lost());
            }
            for (block, to) in blocks.iter().zip(sent.by_ref()) {
                *to = bytemuck::cast(block.map(f64::to_le_bytes));
            }
        }
        self.wire.collective.all_gather(from_mut(&mut slices), &self.wire.wait())?;
        // Blocks follow each other in the order of ranks, as in the complete value.
        let mut rest = fallible::gather((0..size).map(|rank| slices.slice(rank)))?;
        for (key, partition) in divided() {
            let blocks = blocks_by_key.get_mut(key);
            let mut all = Vec::new();
            for (rank, rest) in rest.iter_mut().enumerate() {
                let len = partition.num_blocks(rank) * BLOCK_BYTES;
                let (received, after) = rest.split_at_checked(len).ok_or_else(lost)?;
                *rest = after;
                if blocks.is_some() {
                    let (received, _) = received.as_chunks::<BLOCK_BYTES>();
                    fallible::reserve(&mut all, received.len())?;
                    all.extend(received.iter().map(|block| {
                        bytemuck::cast::<_, [[u8; 8]; 2]>(*block).map(f64::from_le_bytes)
                    }));
                }
            }
            if let Some(blocks) = blocks {
                **blocks = all;
            }
        }
        Ok(())
    }

    /// Participates in the exchange if no step of this rank has done so.
    pub(super) fn finish(mut self) -> Result<()> {
        if self.is_done { Ok(()) } else { self.complete(&mut []) }
    }
}
