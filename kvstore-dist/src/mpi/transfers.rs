//! [`Transfers`]: messages in progress, and their buffers.
//!
//! Verbs use point-to-point messages instead of the collective operations of MPI:
//!
//! - Errors can name the ranks that are late.
//! - The sender and the receiver of a long message both know the number of pieces.
//! - If a rank makes another call or uses another length, this is an error instead of a crash.
//!
//! Each rank sends its bytes once to every other rank, and no algorithm needs fewer bytes. Empty
//! messages are sent too, because they show that a rank has made the call.

#![expect(
    unsafe_code,
    reason = "passes pointers to MPI, which uses them after the function returns"
)]

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use super::functions::{Failure, Mpi, Request};
use super::patience::{Patience, Pause};
use crate::transport::{Buffer, Call, CallGuard, Fault};

/// Buffers of transfers that never finished. MPI may write to them until the process ends.
static ABANDONED: Mutex<Vec<TransferBuffer>> = Mutex::new(Vec::new());

/// The messages of a call.
#[derive(Debug)]
pub(super) struct Transfers<'a> {
    mpi: &'static dyn Mpi,
    guard: &'a CallGuard<'a>,
    max_message: usize,
    buffers: Vec<TransferBuffer>,
    pending: Vec<Pending>,
    /// The total length of all messages.
    num_bytes: usize,
}

/// The index of a buffer among the transfers.
#[derive(Clone, Copy, Debug)]
pub(super) struct BufferId(usize);

#[derive(Debug)]
struct TransferBuffer {
    memory: Memory,
    /// The address and the length of the bytes. They are determined once, because no reference to
    /// the bytes may exist while MPI uses them.
    start: *mut u8,
    num_bytes: usize,
}

// SAFETY: `start` points into `memory`, which moves to the other thread together with it.
unsafe impl Send for TransferBuffer {}

#[derive(Debug)]
enum Memory {
    Owned(Buffer),
    /// Other code may read the buffer at the same time.
    #[expect(dead_code, reason = "keeps the memory alive")]
    Shared(Arc<Buffer>),
}

/// A message in progress.
#[derive(Debug)]
struct Pending {
    request: Request,
    peer: usize,
    /// The number of bytes to receive, or `None` for a message to send.
    expected: Option<usize>,
}

impl<'a> Transfers<'a> {
    /// Returns the transfers of a call. Messages longer than `max_message` are sent in pieces.
    pub(super) fn new(mpi: &'static dyn Mpi, guard: &'a CallGuard<'a>, max_message: usize) -> Self {
        Self { mpi, guard, max_message, buffers: Vec::new(), pending: Vec::new(), num_bytes: 0 }
    }

    /// Takes ownership of a buffer.
    pub(super) fn add(&mut self, mut buffer: Buffer) -> BufferId {
        // Takes address and length from the same reference. If a shared tensor cannot be copied,
        // the reference is empty.
        let bytes = &mut *buffer;
        let (start, num_bytes) = (bytes.as_mut_ptr(), bytes.len());
        self.buffers.push(TransferBuffer { memory: Memory::Owned(buffer), start, num_bytes });
        BufferId(self.buffers.len() - 1)
    }

    /// Takes a shared reference to a buffer. Its bytes can be sent only.
    pub(super) fn share(&mut self, buffer: &Arc<Buffer>) -> BufferId {
        let (start, num_bytes) = (buffer.as_ptr().cast_mut(), buffer.len());
        self.buffers.push(TransferBuffer {
            memory: Memory::Shared(Arc::clone(buffer)),
            start,
            num_bytes,
        });
        BufferId(self.buffers.len() - 1)
    }

    /// Adds a request without a buffer.
    pub(super) fn join(&mut self, request: Result<Request, Failure>) -> Result<(), Fault> {
        let request = request.map_err(|failure| self.failed(failure))?;
        let peer = self.guard.place.rank;
        self.pending.push(Pending { request, peer, expected: None });
        Ok(())
    }

    /// Starts to send a range of a buffer. The same transfers must not receive into this range.
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
            // SAFETY: The transfers keep the buffer alive until the request is done. If it is never
            // done, `drop` leaks the buffer. No code writes to the buffer meanwhile: the transfers
            // own it, or it is shared and read-only.
            let request = unsafe { self.mpi.send(start, self.integer(num_bytes)?, rank, tag) };
            let request = request.map_err(|failure| self.failed(failure))?;
            self.pending.push(Pending { request, peer, expected: None });
        }
        Ok(())
    }

    /// Starts to receive into a range of an owned buffer.
    pub(super) fn receive(
        &mut self,
        peer: usize,
        buffer_id: BufferId,
        range: Range<usize>,
    ) -> Result<(), Fault> {
        let memory = &self.buffers[buffer_id.0].memory;
        assert!(matches!(memory, Memory::Owned(_)), "the receive buffer has another reference");
        for piece in pieces(range, self.max_message) {
            let (start, num_bytes) = self.bytes(buffer_id, &piece);
            let rank = self.integer(peer)?;
            // SAFETY: The transfers own the buffer until the request is done, and do not access it.
            // If the request is never done, `drop` leaks the buffer.
            let request = unsafe { self.mpi.receive(start, self.integer(num_bytes)?, rank) };
            let request = request.map_err(|failure| self.failed(failure))?;
            self.pending.push(Pending { request, peer, expected: Some(num_bytes) });
        }
        Ok(())
    }

    /// Waits for all messages. Returns the owned buffers in the order in which they were added.
    pub(super) fn wait_all(mut self) -> Result<impl Iterator<Item = Buffer>, Fault> {
        let patience = Patience::for_bytes(self.num_bytes);
        // Polls instead of calling `MPI_Wait`, which has no deadline.
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

    /// Tests every message once, and removes those that are done.
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
                    // A message of another call may be too long for this one. Then the fault names
                    // the other call instead of the length.
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
            // Skips requests without a peer, which have this rank: they do not show who is late.
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

    /// Returns the address and the length of a range of a buffer.
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
        // MPI may still use the buffers, so they must not be freed.
        if !self.pending.is_empty() {
            ABANDONED.lock().unwrap_or_else(PoisonError::into_inner).append(&mut self.buffers);
        }
    }
}

/// Splits a range into pieces of at most `longest` bytes. An empty range has one empty piece.
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

    /// A library that never completes a request, and may write at any time.
    #[derive(Debug)]
    struct Slow {
        /// The buffer of the last `receive`.
        received: AtomicPtr<u8>,
    }

    impl Slow {
        const fn new() -> Self {
            Self { received: AtomicPtr::new(ptr::null_mut()) }
        }

        fn write(&self, byte: u8) {
            let received = self.received.load(Ordering::Relaxed);
            // SAFETY: `receive` got this pointer. It stays valid, because `test` never completes.
            unsafe { ptr::write(received, byte) };
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
            self.received.store(bytes, Ordering::Relaxed);
            Ok(Request::for_tests())
        }

        fn test(&self, _: &mut Request) -> Result<Option<MessageStatus>, (Failure, c_int)> {
            self.write(1);
            Ok(None)
        }
    }

    /// Makes a call that receives into a buffer and ends with a fault.
    fn receive_and_fail(
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
        // Under Miri, this fails if the memory has been freed.
        mpi.write(2);
    }

    #[test]
    fn a_buffer_is_kept_while_mpi_may_write_to_it() {
        static MPI: Slow = Slow::new();
        receive_and_fail(&MPI, |_, _| Ok(()));
        let mut kept = ABANDONED.lock().unwrap();
        let received = MPI.received.load(Ordering::Relaxed);
        let found = kept.iter_mut().find(|buffer| buffer.start == received).unwrap();
        assert!(matches!(&found.memory, Memory::Owned(buffer) if buffer[0] == 2));
    }

    #[test]
    fn a_buffer_is_kept_if_the_next_message_cannot_start() {
        static MPI: Slow = Slow::new();
        receive_and_fail(&MPI, |transfers, buffer_id| transfers.send(1, buffer_id, 0..8));
    }

    #[test]
    fn pieces_cover_the_range() {
        let cut = |range, longest| {
            pieces(range, longest).map(|piece| (piece.start, piece.end)).collect::<Vec<_>>()
        };
        assert_eq!(cut(5..5, 4), [(5, 5)]);
        assert_eq!(cut(5..9, 4), [(5, 9)]);
        assert_eq!(cut(5..10, 4), [(5, 9), (9, 10)]);
        assert_eq!(cut(1..usize::MAX, usize::MAX), [(1, usize::MAX)]);
    }
}
