//! Copies between the host's memory and that of cards, through memory that stands still.

#![expect(unsafe_code, reason = "queues copies of memory")]

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kvstore_core::{Error, Result};

use super::card::Card;
use super::handles::{Event, Pinned};
use crate::args::batch::Address;

/// The bytes of a long piece.
const LONG: usize = 4 << 20;
/// Of short ones, for lists of jobs: many calls may be queued that each have one.
const SHORT: usize = 64 << 10;
/// How many pieces of a length there are; when all are in use, a call waits for the oldest one.
const MAX_LONG: usize = 8;
const MAX_SHORT: usize = 256;
/// How many pieces a read is ahead of what it copies out.
const AHEAD: usize = 2;

/// Pieces of pinned memory.
#[derive(Debug, Default)]
pub(crate) struct Staging {
    long: Pieces,
    short: Pieces,
}

/// The pieces of one length that no call holds. Those that are free come first, then the one whose copy was queued
/// first.
type Pieces = Mutex<VecDeque<Piece>>;

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
        for (part, start) in bytes.chunks(LONG).zip((dst..).step_by(LONG)) {
            let mut piece = self.take(card, part.len())?;
            let room = piece.memory.bytes_mut();
            if let Some(room) = room.get_mut(..part.len()) {
                room.copy_from_slice(part);
            }
            // SAFETY: the piece is kept until the copy is done, and `dst` is what the caller promises.
            unsafe { card.copy_in(start, room.as_ptr(), part.len()) }?;
            piece.keep_until_now(card)?;
            lock(self.pieces(part.len())).push_back(piece);
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
        for (part, start) in bytes.chunks_mut(LONG).zip((src..).step_by(LONG)) {
            if under_way.len() == AHEAD {
                self.finish(under_way.pop_front())?;
            }
            let mut piece = self.take(card, part.len())?;
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
        let mut pieces = lock(self.pieces(part.len()));
        if pieces.len() < MAX_LONG {
            pieces.push_front(piece);
        }
        Ok(())
    }

    /// Returns a piece that nothing uses and that has room for so many bytes.
    fn take(&self, card: &Card, num_bytes: usize) -> Result<Piece> {
        let (most, len) = if num_bytes <= SHORT { (MAX_SHORT, SHORT) } else { (MAX_LONG, LONG) };
        let mut pieces = lock(self.pieces(num_bytes));
        // One of a card that fails is nobody's any more.
        let is_free = loop {
            match pieces.front().map(Piece::is_free) {
                Some(Err(_)) => drop(pieces.pop_front()),
                Some(Ok(is_free)) => break is_free,
                None => break false,
            }
        };
        if !is_free && pieces.len() < most {
            drop(pieces);
            return Ok(Piece { memory: Pinned::new(card, len)?, until: None });
        }
        let piece = pieces.pop_front();
        drop(pieces);
        let mut piece = piece.ok_or_else(|| Error::Internal("no piece to wait for".to_owned()))?;
        piece.wait()?;
        Ok(piece)
    }

    /// Returns the pieces that so many bytes go through.
    fn pieces(&self, num_bytes: usize) -> &Pieces {
        if num_bytes <= SHORT { &self.short } else { &self.long }
    }
}

fn lock(pieces: &Pieces) -> MutexGuard<'_, VecDeque<Piece>> {
    pieces.lock().unwrap_or_else(PoisonError::into_inner)
}
