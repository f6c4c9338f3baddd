//! Copies between the host and GPUs through pinned memory.

#![expect(unsafe_code, reason = "queues copies of memory")]

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kvstore_core::{Device, Error, Result};

use super::card::Card;
use super::handles::{Event, Pinned};
use crate::args::batch::Address;

/// The length of a long piece in bytes.
const LONG: usize = 4 << 20;
/// The length of a short piece in bytes. Short pieces are for lists of jobs: many queued calls have
/// one each.
const SHORT: usize = 64 << 10;
/// The largest number of pieces of each length. If all are in use, a call waits for the oldest one.
const MAX_LONG: usize = 8;
const MAX_SHORT: usize = 256;
/// The number of short pieces in an allocation.
const PER_ALLOCATION: usize = 16;
/// The number of pieces that a read requests before it copies the first one out.
const AHEAD: usize = 2;

/// Pieces of pinned memory.
#[derive(Debug, Default)]
pub(crate) struct Staging {
    long: Pieces,
    short: Pieces,
}

/// The pieces of one length that no call uses. Free pieces come first, followed by the others in
/// the order in which their copies were queued.
type Pieces = Mutex<VecDeque<Piece>>;

/// A piece of pinned memory, and the event until which it is in use.
#[derive(Debug)]
struct Piece {
    memory: Pinned,
    until: Option<(Arc<Card>, Event)>,
}

impl Piece {
    /// Marks the piece as in use until the work that is queued now is done.
    fn keep_until_now(&mut self, card: &Arc<Card>) -> Result<()> {
        match card.record() {
            Ok(event) => self.until = Some((Arc::clone(card), event)),
            Err(error) => {
                // A copy may be in progress without an event. Wait for it, or leak the memory.
                if card.synchronize().is_err() {
                    self.memory.leak();
                }
                return Err(error);
            }
        }
        Ok(())
    }

    /// Returns whether no work uses the piece.
    fn is_free(&self) -> Result<bool> {
        self.until.as_ref().map_or(Ok(true), |(card, event)| card.is_there(event))
    }

    fn wait(&mut self) -> Result<()> {
        if let Some((card, event)) = &self.until {
            card.wait(event)?;
        }
        self.until = None;
        Ok(())
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        let Some((card, event)) = &self.until else { return };
        if card.wait(event).or_else(|_| card.synchronize()).is_err() {
            self.memory.leak();
        }
    }
}

impl Staging {
    /// Queues a copy of parts, one after the other, to the memory of a GPU.
    ///
    /// # Safety
    /// - `dst` is memory of the GPU, of as many bytes as the parts have together.
    pub(crate) unsafe fn upload(
        &self,
        card: &Arc<Card>,
        dst: Address,
        parts: &[&[u8]],
    ) -> Result<()> {
        let num_bytes: usize = parts.iter().map(|part| part.len()).sum();
        let (mut parts, mut rest) = (parts.iter(), &[][..]);
        for (done, start) in (0..num_bytes).step_by(LONG).zip((dst..).step_by(LONG)) {
            let len = LONG.min(num_bytes - done);
            let mut piece = self.take(card, len)?;
            let room = piece.memory.bytes_mut();
            let mut free = room.get_mut(..len).unwrap_or_default();
            while !free.is_empty() {
                if rest.is_empty() {
                    let Some(part) = parts.next() else { break };
                    rest = part;
                }
                let (now, later) = rest.split_at(rest.len().min(free.len()));
                let (place, after) = free.split_at_mut(now.len());
                place.copy_from_slice(now);
                (rest, free) = (later, after);
            }
            // SAFETY: the piece is kept until the copy is done, and the caller guarantees `dst`.
            unsafe { card.copy_in(start, room.as_ptr(), len) }?;
            piece.keep_until_now(card)?;
            lock(self.pieces(len)).push_back(piece);
        }
        Ok(())
    }

    /// Copies memory of a GPU to the host, and waits for it.
    ///
    /// # Safety
    /// - `src` is memory of the GPU, of as many bytes as `bytes`.
    pub(crate) unsafe fn download(
        &self,
        card: &Arc<Card>,
        src: Address,
        bytes: &mut [u8],
    ) -> Result<()> {
        let mut under_way = VecDeque::new();
        for (part, start) in bytes.chunks_mut(LONG).zip((src..).step_by(LONG)) {
            if under_way.len() == AHEAD {
                self.finish(under_way.pop_front())?;
            }
            let mut piece = match self.take(card, part.len()) {
                // This read itself may hold all the memory that can be pinned.
                Err(Error::OutOfMemory { .. }) if !under_way.is_empty() => {
                    self.finish(under_way.pop_front())?;
                    self.take(card, part.len())?
                }
                taken => taken?,
            };
            // SAFETY: the piece is kept until the copy is done, and the caller guarantees `src`.
            unsafe { card.copy_out(piece.memory.bytes_mut().as_mut_ptr(), start, part.len()) }?;
            piece.keep_until_now(card)?;
            under_way.push_back((piece, part));
        }
        under_way.into_iter().try_for_each(|piece| self.finish(Some(piece)))
    }

    /// Waits for a piece, and copies it to its destination.
    fn finish(&self, piece: Option<(Piece, &mut [u8])>) -> Result<()> {
        let Some((mut piece, part)) = piece else { return Ok(()) };
        piece.wait()?;
        if let Some(room) = piece.memory.bytes_mut().get(..part.len()) {
            part.copy_from_slice(room);
        }
        let mut pieces = lock(self.pieces(part.len()));
        // Short pieces share their allocations, so dropping one frees nothing.
        if part.len() <= SHORT || pieces.len() < MAX_LONG {
            pieces.push_front(piece);
        }
        Ok(())
    }

    /// Returns an unused piece for `num_bytes` bytes. Waits for one if all pieces are in use, or if
    /// no more memory can be pinned.
    ///
    /// # Errors
    /// - [`Error::OutOfMemory`] if no more memory can be pinned and other calls have all pieces.
    fn take(&self, card: &Card, num_bytes: usize) -> Result<Piece> {
        let mut pieces = lock(self.pieces(num_bytes));
        // Drop pieces of a GPU that has failed.
        let is_free = loop {
            match pieces.front().map(Piece::is_free) {
                Some(Err(_)) => drop(pieces.pop_front()),
                Some(Ok(is_free)) => break is_free,
                None => break false,
            }
        };
        if !is_free && pieces.len() < max_pieces(num_bytes) {
            drop(pieces);
            if let Some(piece) = self.grow(card, num_bytes)? {
                return Ok(piece);
            }
            pieces = lock(self.pieces(num_bytes));
        }
        let piece = pieces.pop_front();
        drop(pieces);
        let requested = piece_bytes(num_bytes);
        let mut piece = piece.ok_or_else(|| Error::OutOfMemory {
            device: Device::cpu(0),
            requested,
            in_use: 0,
            limit: None,
        })?;
        piece.wait()?;
        Ok(piece)
    }

    /// Allocates pieces for copies of `num_bytes` bytes, and returns one of them. Returns `None` if
    /// no more memory can be pinned.
    fn grow(&self, card: &Card, num_bytes: usize) -> Result<Option<Piece>> {
        let num_parts = if num_bytes <= SHORT { PER_ALLOCATION } else { 1 };
        let Some(parts) = Pinned::allocate(card, piece_bytes(num_bytes), num_parts)? else {
            return Ok(None);
        };
        let mut parts = parts.into_iter().map(|memory| Piece { memory, until: None });
        let first = parts.next();
        let mut pieces = lock(self.pieces(num_bytes));
        for piece in parts {
            pieces.push_front(piece);
        }
        Ok(first)
    }

    /// Returns the list of pieces for copies of `num_bytes` bytes.
    fn pieces(&self, num_bytes: usize) -> &Pieces {
        if num_bytes <= SHORT { &self.short } else { &self.long }
    }
}

/// Returns the length of the pieces for copies of `num_bytes` bytes.
fn piece_bytes(num_bytes: usize) -> usize {
    if num_bytes <= SHORT { SHORT } else { LONG }
}

/// Returns the largest number of pieces for copies of `num_bytes` bytes.
fn max_pieces(num_bytes: usize) -> usize {
    if num_bytes <= SHORT { MAX_SHORT } else { MAX_LONG }
}

fn lock(pieces: &Pieces) -> MutexGuard<'_, VecDeque<Piece>> {
    pieces.lock().unwrap_or_else(PoisonError::into_inner)
}
