//! [`Transfers`]: messages on their way, and the buffers that they come from and go to.
//!
//! Verbs are made of messages between two ranks, not of MPI's own verbs. So it is known who is late; both ends of a
//! message that is cut know into how many pieces without asking others; and a rank that does something else, or has
//! another length in mind, is an error and no crash. Each rank sends every other one its bytes, once: no algorithm gets
//! along with fewer. Messages without bytes are sent too, for they say that a rank has come.

#![expect(unsafe_code, reason = "lends memory to MPI")]

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use super::functions::{Failure, Mpi, Request};
use super::patience::{Patience, Pause};
use crate::transport::{Buffer, Call, CallGuard, Fault};

/// Buffers of transfers that were never finished. MPI may write there as long as the process lives.
static ABANDONED: Mutex<Vec<TransferBuffer>> = Mutex::new(Vec::new());

/// The messages of a call.
#[derive(Debug)]
pub(super) struct Transfers<'a> {
    mpi: &'static dyn Mpi,
    guard: &'a CallGuard<'a>,
    max_message: usize,
    buffers: Vec<TransferBuffer>,
    pending: Vec<Pending>,
    num_bytes: usize,
}

/// The index of a buffer among the transfers.
#[derive(Clone, Copy, Debug)]
pub(super) struct BufferId(usize);

#[derive(Debug)]
struct TransferBuffer {
    memory: Memory,
    /// Where its bytes begin, and how many there are: asked once, for as long as MPI has them nobody makes a reference
    /// to them.
    start: *mut u8,
    num_bytes: usize,
}

// SAFETY: it points into memory that it keeps.
unsafe impl Send for TransferBuffer {}

#[derive(Debug)]
enum Memory {
    Owned(Buffer),
    /// Others may read it, too.
    #[expect(dead_code, reason = "it is kept")]
    Shared(Arc<Buffer>),
}

/// A message that is not done.
#[derive(Debug)]
struct Pending {
    request: Request,
    peer: usize,
    /// How many bytes are to come; none for one that is sent.
    expected: Option<usize>,
}

impl<'a> Transfers<'a> {
    /// Begins a call of a library. Messages are cut into pieces of so many bytes at most.
    pub(super) fn new(mpi: &'static dyn Mpi, guard: &'a CallGuard<'a>, max_message: usize) -> Self {
        Self { mpi, guard, max_message, buffers: Vec::new(), pending: Vec::new(), num_bytes: 0 }
    }

    /// Takes a buffer.
    pub(super) fn add(&mut self, mut buffer: Buffer) -> BufferId {
        // Of one look at it: a tensor that cannot be made exclusive to these transfers has no bytes then.
        let bytes = &mut *buffer;
        let (start, num_bytes) = (bytes.as_mut_ptr(), bytes.len());
        self.buffers.push(TransferBuffer { memory: Memory::Owned(buffer), start, num_bytes });
        BufferId(self.buffers.len() - 1)
    }

    /// Takes a share of a buffer, from which is only sent.
    pub(super) fn share(&mut self, buffer: &Arc<Buffer>) -> BufferId {
        let (start, num_bytes) = (buffer.as_ptr().cast_mut(), buffer.len());
        self.buffers.push(TransferBuffer {
            memory: Memory::Shared(Arc::clone(buffer)),
            start,
            num_bytes,
        });
        BufferId(self.buffers.len() - 1)
    }

    /// Takes a request that has no buffer.
    pub(super) fn join(&mut self, request: Result<Request, Failure>) -> Result<(), Fault> {
        let request = request.map_err(|failure| self.failed(failure))?;
        let peer = self.guard.place.rank;
        self.pending.push(Pending { request, peer, expected: None });
        Ok(())
    }

    /// Begins to send bytes of a buffer. Nothing is received there by the same transfers.
    pub(super) fn send(
        &mut self,
        peer: usize,
        buffer_id: BufferId,
        range: Range<usize>,
    ) -> Result<(), Fault> {
        let tag = self.guard.place.call.tag();
        for piece in pieces(range, self.max_message) {
            let (start, num_bytes) = self.bytes(buffer_id, &piece);
            let rank = self.integer(peer)?;
            // SAFETY: the transfers keep the buffer until the request is done, else for ever.
            let request = unsafe { self.mpi.send(start, self.integer(num_bytes)?, rank, tag) };
            let request = request.map_err(|failure| self.failed(failure))?;
            self.pending.push(Pending { request, peer, expected: None });
        }
        Ok(())
    }

    /// Begins to receive bytes of a buffer that no one else has.
    pub(super) fn receive(
        &mut self,
        peer: usize,
        buffer_id: BufferId,
        range: Range<usize>,
    ) -> Result<(), Fault> {
        let memory = &self.buffers[buffer_id.0].memory;
        assert!(matches!(memory, Memory::Owned(_)), "nobody reads what is written");
        for piece in pieces(range, self.max_message) {
            let (start, num_bytes) = self.bytes(buffer_id, &piece);
            let rank = self.integer(peer)?;
            // SAFETY: the transfers keep the buffer until the request is done, else for ever.
            let request = unsafe { self.mpi.receive(start, self.integer(num_bytes)?, rank) };
            let request = request.map_err(|failure| self.failed(failure))?;
            self.pending.push(Pending { request, peer, expected: Some(num_bytes) });
        }
        Ok(())
    }

    /// Waits for all messages, and returns the buffers in the order in which they were taken, without shared ones.
    pub(super) fn wait_all(mut self) -> Result<impl Iterator<Item = Buffer>, Fault> {
        let patience = Patience::for_bytes(self.num_bytes);
        loop {
            self.look()?;
            if self.pending.is_empty() {
                let own = |buffer: TransferBuffer| match buffer.memory {
                    Memory::Owned(buffer) => Some(buffer),
                    Memory::Shared(_) => None,
                };
                return Ok(std::mem::take(&mut self.buffers).into_iter().filter_map(own));
            }
            let left = self.guard.place.wait.left();
            if left.is_zero() {
                return Err(self.late());
            }
            match patience.rest() {
                Pause::Spin => std::hint::spin_loop(),
                Pause::Yield => std::thread::yield_now(),
                Pause::Sleep(time) => self.guard.pause(time.min(left))?,
            }
        }
    }

    /// Asks after every message once.
    fn look(&mut self) -> Result<(), Fault> {
        let mut index = 0;
        while let Some(pending) = self.pending.get_mut(index) {
            let place = &self.guard.place;
            match self.mpi.test(&mut pending.request) {
                Ok(None) => index += 1,
                Ok(Some(received)) => {
                    if let Some(expected) = pending.expected {
                        let found = usize::try_from(received.num_bytes).unwrap_or(usize::MAX);
                        place.check(pending.peer, Call::of_tag(received.tag), (expected, found))?;
                    }
                    // The last message moves to `index` and is tested next.
                    self.pending.swap_remove(index);
                }
                Err((failure, tag)) => {
                    // Bytes of another call may be too many for this one: the call is what to tell.
                    let came = Call::of_tag(tag).filter(|_| pending.expected.is_some());
                    if came.is_some() {
                        place.check(pending.peer, came, (0, 0))?;
                    }
                    return Err(self.failed(failure));
                }
            }
        }
        Ok(())
    }

    fn late(&self) -> Fault {
        let peers = |is_incoming: bool| {
            let pending = self.pending.iter();
            let pending = pending.filter(|pending| pending.expected.is_some() == is_incoming);
            // A request of all ranks tells nothing of any.
            let own = self.guard.place.rank;
            let pending = pending.filter(|pending| pending.peer != own);
            let mut peers: Vec<usize> = pending.map(|pending| pending.peer).collect();
            peers.sort_unstable();
            peers.dedup();
            peers
        };
        Fault::late(&self.guard.place, &peers(true), &peers(false))
    }

    fn failed(&self, failure: Failure) -> Fault {
        let operation = format!("{}, {}", self.guard.place, failure.function);
        Fault::Failed { operation, reason: failure.reason }
    }

    /// Returns where a range of a buffer begins, and its length.
    fn bytes(&mut self, buffer_id: BufferId, range: &Range<usize>) -> (*mut u8, usize) {
        let buffer = &self.buffers[buffer_id.0];
        assert!(range.end <= buffer.num_bytes, "a range of the buffer");
        self.num_bytes += range.len();
        (buffer.start.wrapping_add(range.start), range.len())
    }

    fn integer(&self, number: usize) -> Result<i32, Fault> {
        i32::try_from(number).map_err(|_| Fault::Failed {
            operation: self.guard.place.to_string(),
            reason: format!("{number} is more than MPI counts"),
        })
    }
}

impl Drop for Transfers<'_> {
    #[expect(clippy::disallowed_methods, reason = "a few words per buffer of one transfer")]
    fn drop(&mut self) {
        if !self.pending.is_empty() {
            ABANDONED.lock().unwrap_or_else(PoisonError::into_inner).append(&mut self.buffers);
        }
    }
}

/// Cuts a range into pieces that are no longer than that; of an empty one there is one piece.
fn pieces(range: Range<usize>, longest: usize) -> impl Iterator<Item = Range<usize>> {
    let num_pieces = range.len().div_ceil(longest).max(1);
    (0..num_pieces).map(move |index| {
        let start = range.start + index * longest;
        start..range.end.min(start.saturating_add(longest))
    })
}

#[cfg(test)]
mod tests {
    use std::ffi::c_int;
    use std::ptr;
    use std::sync::atomic::{AtomicPtr, Ordering};
    use std::time::Duration;

    use super::*;
    use crate::mpi::functions::MessageStatus;
    use crate::transport::CallOrder;
    use crate::transport::Verb;
    use crate::transport::Wait;

    /// A library that never gets done, and may write at any time.
    #[derive(Debug)]
    struct Slow {
        lent: AtomicPtr<u8>,
    }

    impl Slow {
        const fn new() -> Self {
            Self { lent: AtomicPtr::new(ptr::null_mut()) }
        }

        fn write(&self, byte: u8) {
            let lent = self.lent.load(Ordering::Relaxed);
            // SAFETY: it was lent, and not taken back.
            unsafe { ptr::write(lent, byte) };
        }
    }

    fn failure<T>() -> Result<T, Failure> {
        Err(Failure { function: "Slow", reason: "it can only receive".to_owned() })
    }

    impl Mpi for Slow {
        fn is_initialized(&self) -> Result<bool, Failure> {
            failure()
        }

        fn is_finalized(&self) -> Result<bool, Failure> {
            failure()
        }

        fn init(&self) -> Result<(), Failure> {
            failure()
        }

        fn allows_turns(&self) -> Result<bool, Failure> {
            failure()
        }

        fn finalize(&self) -> Result<(), Failure> {
            failure()
        }

        fn abort(&self, _: c_int) -> Failure {
            Failure { function: "Slow", reason: "it does not end".to_owned() }
        }

        fn rank_and_size(&self) -> Result<(c_int, c_int), Failure> {
            failure()
        }

        fn begin_own(&self) -> Result<Request, Failure> {
            failure()
        }

        fn adopt_own(&self) -> Result<(), Failure> {
            failure()
        }

        unsafe fn send(
            &self,
            _: *const u8,
            _: c_int,
            _: c_int,
            _: c_int,
        ) -> Result<Request, Failure> {
            failure()
        }

        unsafe fn receive(&self, bytes: *mut u8, _: c_int, _: c_int) -> Result<Request, Failure> {
            self.lent.store(bytes, Ordering::Relaxed);
            Ok(Request::for_tests())
        }

        fn test(&self, _: &mut Request) -> Result<Option<MessageStatus>, (Failure, c_int)> {
            self.write(1);
            Ok(None)
        }
    }

    /// Lends a buffer to a library in a call that is ended by a fault.
    fn lend(
        mpi: &'static Slow,
        act: impl FnOnce(&mut Transfers<'_>, BufferId) -> Result<(), Fault>,
    ) {
        let (calls, wait) = (CallOrder::default(), Wait::new(&"a test", Duration::ZERO));
        let guard = calls.begin(Verb::Barrier, (0, 2), &wait).unwrap();
        let mut transfers = Transfers::new(mpi, &guard, 100);
        let buffer_id = transfers.add(Buffer::zeroed(8));
        let begun =
            transfers.receive(1, buffer_id, 0..8).and_then(|()| act(&mut transfers, buffer_id));
        let fault = begun.and_then(|()| transfers.wait_all().map(drop));
        assert!(guard.end(fault).is_err());
        // Miri finds out when that memory is nobody's.
        mpi.write(2);
    }

    #[test]
    fn a_buffer_is_kept_as_long_as_mpi_may_write_there() {
        static MPI: Slow = Slow::new();
        lend(&MPI, |_, _| Ok(()));
        let mut kept = ABANDONED.lock().unwrap();
        let lent = MPI.lent.load(Ordering::Relaxed);
        let found = kept.iter_mut().find(|buffer| buffer.start == lent).unwrap();
        assert!(matches!(&found.memory, Memory::Owned(buffer) if buffer[0] == 2));
    }

    #[test]
    fn a_buffer_is_kept_when_the_next_message_cannot_be_begun() {
        static MPI: Slow = Slow::new();
        lend(&MPI, |transfers, buffer_id| transfers.send(1, buffer_id, 0..8));
    }

    #[test]
    fn pieces_are_the_range() {
        let cut = |range, longest| {
            pieces(range, longest).map(|piece| (piece.start, piece.end)).collect::<Vec<_>>()
        };
        assert_eq!(cut(5..5, 4), [(5, 5)]);
        assert_eq!(cut(5..9, 4), [(5, 9)]);
        assert_eq!(cut(5..10, 4), [(5, 9), (9, 10)]);
        assert_eq!(cut(1..usize::MAX, usize::MAX), [(1, usize::MAX)]);
    }
}
