//! The verbs, as messages between two ranks.

use std::ops::Range;
use std::sync::Arc;

use super::flight::{Flight, Hold};
use super::process::Process;
use crate::transport::{Buffer, CallGuard, Fault, SharedSlices, Slices};

/// More bytes than that are cut up for a broadcast, where there are others who can pass them on.
const MAX_WHOLE: usize = 64 << 10;

/// The other ranks, the next one first, so that not all begin with the same one.
fn others(process: &Process) -> impl Iterator<Item = usize> + use<> {
    let (rank, size) = (process.rank, process.size);
    (1..size).map(move |step| (rank + step) % size)
}

fn flight<'a>(process: &Process, guard: &'a CallGuard<'a>) -> Flight<'a> {
    Flight::new(process.mpi, guard, process.max_message)
}

/// A message without bytes from everyone to everyone: then it is known who has not come.
pub(super) fn barrier(process: &Process, guard: &CallGuard<'_>) -> Result<(), Fault> {
    let mut flight = flight(process, guard);
    let nothing = flight.load(Buffer::default());
    for peer in others(process) {
        flight.receive(peer, nothing, 0..0)?;
    }
    for peer in others(process) {
        flight.send(peer, nothing, 0..0)?;
    }
    flight.land().map(drop)
}

pub(super) fn all_to_all(
    process: &Process,
    guard: &CallGuard<'_>,
    sent: &[SharedSlices],
    received: &mut [Slices],
) -> Result<(), Fault> {
    let mut flight = flight(process, guard);
    let ends = receive_all(process, &mut flight, received)?;
    for sent in sent {
        let hold = flight.share(sent.buffer());
        for peer in others(process) {
            flight.send(peer, hold, sent.range(peer))?;
        }
    }
    give_back(flight.land()?, ends, received);
    Ok(())
}

pub(super) fn all_gather(
    process: &Process,
    guard: &CallGuard<'_>,
    slices: &mut [Slices],
) -> Result<(), Fault> {
    let mut flight = flight(process, guard);
    let ends = receive_all(process, &mut flight, slices)?;
    for (hold, ends) in &ends {
        for peer in others(process) {
            flight.send(peer, *hold, Slices::range_of(ends, process.rank))?;
        }
    }
    give_back(flight.land()?, ends, slices);
    Ok(())
}

/// Slices that a flight has: the buffer, and where each of them ends.
type Taken = (Hold, Vec<usize>);

/// Takes slices, and begins to receive those of the other ranks.
fn receive_all(
    process: &Process,
    flight: &mut Flight<'_>,
    all: &mut [Slices],
) -> Result<Vec<Taken>, Fault> {
    let mut taken = Vec::new();
    for slices in all {
        let (buffer, ends) = std::mem::take(slices).into_parts();
        let hold = flight.load(buffer);
        for peer in others(process) {
            flight.receive(peer, hold, Slices::range_of(&ends, peer))?;
        }
        taken.push((hold, ends));
    }
    Ok(taken)
}

/// Puts slices back that were taken.
fn give_back(buffers: impl Iterator<Item = Buffer>, taken: Vec<Taken>, all: &mut [Slices]) {
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
    let mut flight = flight(process, guard);
    let buffer = std::mem::take(bytes);
    if process.rank == root {
        // The root only sends, so a shared tensor needs no copy.
        let buffer = Arc::new(buffer);
        let hold = flight.share(&buffer);
        for peer in others(process) {
            flight.send(peer, hold, part(peer))?;
        }
        flight.land().map(drop)?;
        *bytes = Arc::into_inner(buffer).unwrap_or_default();
        return Ok(());
    }
    let hold = flight.load(buffer);
    flight.receive(root, hold, part(process.rank))?;
    *bytes = flight.land()?.next().unwrap_or_default();
    if !is_cut {
        return Ok(());
    }
    let mut flight = self::flight(process, guard);
    let hold = flight.load(std::mem::take(bytes));
    for peer in others(process).filter(|peer| *peer != root) {
        flight.receive(peer, hold, part(peer))?;
    }
    for peer in others(process).filter(|peer| *peer != root) {
        flight.send(peer, hold, part(process.rank))?;
    }
    *bytes = flight.land()?.next().unwrap_or_default();
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
    fn parts_are_the_whole() {
        for (len, num_parts) in [(0, 1), (1, 3), (10, 3), (12, 4)] {
            let parts = Parts { len, num_parts };
            let all: Vec<usize> = (0..num_parts).flat_map(|index| parts.range(index)).collect();
            assert_eq!(all, (0..len).collect::<Vec<_>>());
        }
    }
}
