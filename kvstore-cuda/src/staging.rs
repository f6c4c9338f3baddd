//! Copies between the host's memory and that of cards, through memory that stands still.

#![expect(unsafe_code, reason = "queues copies of memory")]

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kvstore_core::Result;

use crate::batch::Address;
use crate::driver::Card;
use crate::handles::{Event, Pinned};

/// The bytes of one piece.
const PIECE: usize = 4 << 20;
/// How many pieces are kept; when all are in use, a call waits for the oldest one.
const MAX_PIECES: usize = 8;
/// How many pieces a read is ahead of what it copies out.
const AHEAD: usize = 2;

/// Pieces of pinned memory.
#[derive(Debug, Default)]
pub(crate) struct Staging {
    /// Those that no call holds; the one that was given back first comes first.
    pieces: Mutex<Vec<Piece>>,
}

/// A piece, and what it is in use until.
#[derive(Debug)]
struct Piece {
    memory: Pinned,
    until: Option<(Arc<Card>, Event)>,
}

impl Piece {
    /// Keeps the piece until what is queued now is done.
    fn keep_until_now(&mut self, card: &Arc<Card>) -> Result<()> {
        match card.record() {
            Ok(event) => self.until = Some((Arc::clone(card), event)),
            Err(error) => {
                // A copy may be under way, and nobody would know when it is done.
                if card.synchronize().is_err() {
                    self.memory.leak();
                }
                return Err(error);
            }
        }
        Ok(())
    }

    /// Returns whether nothing uses it any more.
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
    /// Queues a copy of some bytes into the memory of a card.
    ///
    /// # Safety
    /// `dst` is memory of the card, of as many bytes.
    pub(crate) unsafe fn upload(&self, card: &Arc<Card>, dst: Address, bytes: &[u8]) -> Result<()> {
        for (part, start) in bytes.chunks(PIECE).zip((dst..).step_by(PIECE)) {
            let mut piece = self.take(card)?;
            let room = piece.memory.bytes_mut();
            if let Some(room) = room.get_mut(..part.len()) {
                room.copy_from_slice(part);
            }
            // SAFETY: the piece is kept until the copy is done, and `dst` is what the caller promises.
            unsafe { card.copy_in(start, room.as_ptr(), part.len()) }?;
            piece.keep_until_now(card)?;
            self.pieces().push(piece);
        }
        Ok(())
    }

    /// Copies the memory of a card to the host, and returns when it is there.
    ///
    /// # Safety
    /// `src` is memory of the card, of as many bytes.
    pub(crate) unsafe fn download(
        &self,
        card: &Arc<Card>,
        src: Address,
        bytes: &mut [u8],
    ) -> Result<()> {
        let mut under_way = VecDeque::new();
        for (part, start) in bytes.chunks_mut(PIECE).zip((src..).step_by(PIECE)) {
            if under_way.len() == AHEAD {
                self.finish(under_way.pop_front())?;
            }
            let mut piece = self.take(card)?;
            // SAFETY: the piece is kept until the copy is done, and `src` is what the caller promises.
            unsafe { card.copy_out(piece.memory.bytes_mut().as_mut_ptr(), start, part.len()) }?;
            piece.keep_until_now(card)?;
            under_way.push_back((piece, part));
        }
        under_way.into_iter().try_for_each(|piece| self.finish(Some(piece)))
    }

    /// Waits for a piece and copies it to where it was wanted.
    fn finish(&self, piece: Option<(Piece, &mut [u8])>) -> Result<()> {
        let Some((mut piece, part)) = piece else { return Ok(()) };
        piece.wait()?;
        if let Some(room) = piece.memory.bytes_mut().get(..part.len()) {
            part.copy_from_slice(room);
        }
        self.pieces().push(piece);
        Ok(())
    }

    /// Returns a piece that nothing uses.
    fn take(&self, card: &Card) -> Result<Piece> {
        let mut pieces = self.pieces();
        for index in 0..pieces.len() {
            if pieces.get(index).map_or(Ok(false), Piece::is_free)? {
                let mut piece = pieces.remove(index);
                piece.until = None;
                return Ok(piece);
            }
        }
        if pieces.len() < MAX_PIECES {
            drop(pieces);
            return Ok(Piece { memory: Pinned::new(card, PIECE)?, until: None });
        }
        let mut piece = pieces.remove(0);
        drop(pieces);
        piece.wait()?;
        Ok(piece)
    }

    fn pieces(&self) -> MutexGuard<'_, Vec<Piece>> {
        self.pieces.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
