//! The verbs, as messages between two ranks.

use std::ops::Range;
use std::sync::Arc;

use super::process::Process;
use super::transfers::{BufferId, Transfers};
use crate::transport::{Buffer, CallGuard, Fault, SharedSlices, Slices};

/// More bytes than that are cut up for a broadcast, where there are others who can pass them on.
const MAX_WHOLE: usize = 64 << 10;

/// The other ranks, the next one first, so that not all begin with the same one.
fn others(process: &Process) -> impl Iterator<Item = usize> + use<> {
    let (rank, size) = (process.rank, process.size);
    (1..size).map(move |step| (rank + step) % size)
}

fn begin<'a>(process: &Process, guard: &'a CallGuard<'a>) -> Transfers<'a> {
    Transfers::new(process.mpi, guard, process.max_message)
}

/// A message without bytes from everyone to everyone: then it is known who has not come.
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

/// Slices that the transfers have: the buffer, and where each of them ends.
type ReceivingSlices = (BufferId, Vec<usize>);

/// Takes slices, and begins to receive those of the other ranks.
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

/// Puts slices back that were taken.
fn give_back(
    buffers: impl Iterator<Item = Buffer>,
    taken: Vec<ReceivingSlices>,
    all: &mut [Slices],
) {
    for ((slices, (_, ends)), buffer) in all.iter_mut().zip(taken).zip(buffers) {
        *slices = Slices::from_parts((buffer, ends));
    }
}

/// Long messages leave the root once: each of the others gets a part, and passes it on.
pub(super) fn broadcast(
    process: &Process,
    guard: &CallGuard<'_>,
    root: usize,
    bytes: &mut Buffer,
) -> Result<(), Fault> {
    let is_cut = process.size > 2 && bytes.len() > MAX_WHOLE;
    let parts = Parts { len: bytes.len(), num_parts: if is_cut { process.size - 1 } else { 1 } };
    let part = |rank| {
        parts.range(if is_cut { (rank + process.size - root) % process.size - 1 } else { 0 })
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
    if !is_cut {
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

/// Bytes in parts that differ by one in length at most.
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
    fn parts_are_complete() {
        for (len, num_parts) in [(0, 1), (1, 3), (10, 3), (12, 4)] {
            let parts = Parts { len, num_parts };
            let all: Vec<usize> = (0..num_parts).flat_map(|index| parts.range(index)).collect();
            assert_eq!(all, (0..len).collect::<Vec<_>>());
        }
    }
}
