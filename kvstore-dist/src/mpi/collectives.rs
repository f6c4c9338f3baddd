//! The verbs of the collective, built from point-to-point messages.

use std::ops::Range;
use std::sync::Arc;

use super::process::Process;
use super::transfers::{BufferId, Transfers};
use crate::transport::{Buffer, CallGuard, Fault, SharedSlices, Slices};

/// The maximum length of a broadcast that the root sends in one part. With three or more ranks,
/// longer broadcasts are split, and ranks forward parts to each other.
const MAX_UNSPLIT: usize = 64 << 10;

/// Returns the other ranks, beginning with the next one, so that not all ranks begin with the same
/// peer.
fn others(process: &Process) -> impl Iterator<Item = usize> + use<> {
    let (rank, size) = (process.rank, process.size);
    (1..size).map(move |step| (rank + step) % size)
}

fn begin<'a>(process: &Process, guard: &'a CallGuard<'a>) -> Transfers<'a> {
    Transfers::new(process.mpi, guard, process.max_message)
}

/// Sends an empty message from every rank to every other rank. This way, an error can name the
/// ranks that are late.
pub(super) fn barrier(process: &Process, guard: &CallGuard<'_>) -> Result<(), Fault> {
    let mut transfers = begin(process, guard);
    let nothing = transfers.add(Buffer::default());
    for peer in others(process) {
        transfers.receive(peer, nothing, 0..0)?;
    }
    for peer in others(process) {
        transfers.send(peer, nothing, 0..0)?;
    }
    transfers.wait_all().map(drop)
}

pub(super) fn all_to_all(
    process: &Process,
    guard: &CallGuard<'_>,
    sent: &[SharedSlices],
    received: &mut [Slices],
) -> Result<(), Fault> {
    let mut transfers = begin(process, guard);
    let ends = receive_all(process, &mut transfers, received)?;
    for sent in sent {
        let buffer_id = transfers.share(sent.buffer());
        for peer in others(process) {
            transfers.send(peer, buffer_id, sent.range(peer))?;
        }
    }
    give_back(transfers.wait_all()?, ends, received);
    Ok(())
}

pub(super) fn all_gather(
    process: &Process,
    guard: &CallGuard<'_>,
    slices: &mut [Slices],
) -> Result<(), Fault> {
    let mut transfers = begin(process, guard);
    let ends = receive_all(process, &mut transfers, slices)?;
    for (buffer_id, ends) in &ends {
        for peer in others(process) {
            transfers.send(peer, *buffer_id, Slices::range_of(ends, process.rank))?;
        }
    }
    give_back(transfers.wait_all()?, ends, slices);
    Ok(())
}

/// Slices whose buffer the transfers own: the buffer and the end of each slice.
type ReceivingSlices = (BufferId, Vec<usize>);

/// Moves the buffers of all slices into the transfers, and starts to receive the slices of the
/// other ranks.
fn receive_all(
    process: &Process,
    transfers: &mut Transfers<'_>,
    all: &mut [Slices],
) -> Result<Vec<ReceivingSlices>, Fault> {
    let mut taken = Vec::new();
    for slices in all {
        let (buffer, ends) = std::mem::take(slices).into_parts();
        let buffer_id = transfers.add(buffer);
        for peer in others(process) {
            transfers.receive(peer, buffer_id, Slices::range_of(&ends, peer))?;
        }
        taken.push((buffer_id, ends));
    }
    Ok(taken)
}

/// Moves the buffers back to the slices.
fn give_back(
    buffers: impl Iterator<Item = Buffer>,
    taken: Vec<ReceivingSlices>,
    all: &mut [Slices],
) {
    for ((slices, (_, ends)), buffer) in all.iter_mut().zip(taken).zip(buffers) {
        *slices = Slices::from_parts((buffer, ends));
    }
}

/// Sends the bytes of the root to all ranks. The root sends a long message only once: each of the
/// other ranks receives a part from the root, and then exchanges parts with the others.
pub(super) fn broadcast(
    process: &Process,
    guard: &CallGuard<'_>,
    root: usize,
    bytes: &mut Buffer,
) -> Result<(), Fault> {
    let is_split = process.size > 2 && bytes.len() > MAX_UNSPLIT;
    let parts = Parts { len: bytes.len(), num_parts: if is_split { process.size - 1 } else { 1 } };
    let part = |rank| {
        parts.range(if is_split { (rank + process.size - root) % process.size - 1 } else { 0 })
    };
    let mut transfers = begin(process, guard);
    let buffer = std::mem::take(bytes);
    if process.rank == root {
        // The root only sends, so a shared tensor needs no copy.
        let buffer = Arc::new(buffer);
        let buffer_id = transfers.share(&buffer);
        for peer in others(process) {
            transfers.send(peer, buffer_id, part(peer))?;
        }
        transfers.wait_all().map(drop)?;
        *bytes = Arc::into_inner(buffer).unwrap_or_default();
        return Ok(());
    }
    let buffer_id = transfers.add(buffer);
    transfers.receive(root, buffer_id, part(process.rank))?;
    *bytes = transfers.wait_all()?.next().unwrap_or_default();
    if !is_split {
        return Ok(());
    }
    let mut transfers = begin(process, guard);
    let buffer_id = transfers.add(std::mem::take(bytes));
    for peer in others(process).filter(|peer| *peer != root) {
        transfers.receive(peer, buffer_id, part(peer))?;
    }
    for peer in others(process).filter(|peer| *peer != root) {
        transfers.send(peer, buffer_id, part(process.rank))?;
    }
    *bytes = transfers.wait_all()?.next().unwrap_or_default();
    Ok(())
}

/// A division of `len` bytes into parts whose lengths differ by at most one.
#[derive(Clone, Copy)]
struct Parts {
    len: usize,
    num_parts: usize,
}

impl Parts {
    fn range(self, index: usize) -> Range<usize> {
        let start =
            |index: usize| self.len / self.num_parts * index + index.min(self.len % self.num_parts);
        start(index)..start(index + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_cover_each_byte_once() {
        for (len, num_parts) in [(0, 1), (1, 3), (10, 3), (12, 4)] {
            let parts = Parts { len, num_parts };
            let all: Vec<usize> = (0..num_parts).flat_map(|index| parts.range(index)).collect();
            assert_eq!(all, (0..len).collect::<Vec<_>>());
        }
    }
}
