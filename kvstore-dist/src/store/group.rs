//! [`Group`]: the thread that makes the collective calls of this process, in the same order as the
//! other ranks.
//!
//! In each round, every rank sends the number of its ready calls and their fingerprints to all
//! other ranks. The calls that all ranks have ready are the same, so every rank chooses the same
//! ones: the call of the highest priority, and later pushes that can be combined with it. Local
//! actions (such as setting an optimizer) are in the same queue. Calls after a local action are not
//! ready until the action is done. All stores of a process share one queue. With one queue per
//! store, ranks could wait for each other in different queues.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::slice::from_mut;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use kvstore_core::fallible;
use kvstore_core::{Error, Result};

use super::call::{Call, Operation, select, subject_of};
use super::difference::describe;
use super::local_stores::Stores;
use super::operations::make;
use super::ticket::Ticket;
use super::wire::{MessageBuffers, Wire, lost, read_u64};
use crate::transport::{Collective, DEFAULT_TIMEOUT, LastCalls, Slices, Wait};

/// The maximum number of calls that ranks compare in a round. Later calls wait, whatever their
/// priority.
const WINDOW: usize = 32;
/// The maximum number of queued bytes. A push beyond it waits until the ranks have made earlier
/// calls. This cannot deadlock, because no rank waits for calls that this rank has not queued yet.
const MAX_QUEUED: usize = 256 << 20;
/// The number of words that a rank sends for each call: the fingerprint of the call and the
/// fingerprint of its store's configuration.
const WORDS: usize = 2;

/// The name of the group in [`Error::Closed`].
const WHAT: &str = "the group of processes";

thread_local! {
    /// The address of the [`Shared`] of this thread's group, or 0 if this is not the thread of a
    /// group. It has no destructor, so it can be read while the process exits.
    static OWN: Cell<usize> = const { Cell::new(0) };
}

/// An entry of the queue.
enum Item {
    Collective(Call),
    /// An action of this rank alone.
    Local(LocalAction, Arc<Ticket>),
}

/// The next thing for the thread to do.
enum Next {
    Local(LocalAction, Arc<Ticket>),
    /// Make one of the queued calls with the other ranks.
    Collective,
}

/// An action of one rank alone.
type LocalAction = Box<dyn FnOnce() -> Result<()> + Send>;

impl Item {
    fn ticket(&self) -> &Arc<Ticket> {
        match self {
            Self::Collective(call) => &call.ticket,
            Self::Local(_, ticket) => ticket,
        }
    }
}

#[derive(Default)]
struct Queue {
    items: VecDeque<Item>,
    /// The bytes of the pushes that are queued or in progress.
    num_bytes: usize,
    /// No new items are accepted. Queued items are still done.
    is_closed: bool,
    /// The thread has terminated.
    has_ended: bool,
    /// The error with which all later calls fail.
    fault: Option<Error>,
}

/// The state that the thread of the group shares with its callers.
struct Shared {
    collective: Arc<dyn Collective>,
    queue: Mutex<Queue>,
    changed: Condvar,
    timeout: Mutex<Duration>,
    /// The number of rounds so far. The same on every rank.
    num_rounds: Arc<AtomicU64>,
}

/// A group of processes that share stores. All of them make the same calls in the same order.
pub struct Group {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    num_stores: AtomicU64,
}

impl Group {
    /// Creates a group that communicates through `collective`. The caller must not use the
    /// collective for other operations from now on.
    ///
    /// # Errors
    /// - [`Error::Internal`] if the operating system cannot create a thread.
    pub fn new(collective: Arc<dyn Collective>) -> Result<Arc<Self>> {
        let shared = Arc::new(Shared {
            collective,
            queue: Mutex::default(),
            changed: Condvar::new(),
            timeout: Mutex::new(DEFAULT_TIMEOUT),
            num_rounds: Arc::default(),
        });
        let own = Arc::clone(&shared);
        let last: Arc<dyn LastCalls> = shared.clone();
        let thread = std::thread::Builder::new().name("kvstore-dist".to_owned());
        let thread = thread
            .spawn(move || own.run())
            .map_err(|error| Error::Internal(format!("no thread for calls of ranks: {error}")))?;
        shared.collective.before_end(Arc::downgrade(&last));
        Ok(Arc::new(Self { shared, thread: Some(thread), num_stores: AtomicU64::new(0) }))
    }

    /// Sets how long a call waits for other ranks before it fails. The default is 300 seconds.
    pub fn set_timeout(&self, timeout: Duration) {
        *self.shared.timeout.lock().unwrap_or_else(PoisonError::into_inner) = timeout;
    }

    /// Returns the number of a new store. All ranks create their stores in the same order, so the
    /// same store has the same number.
    pub(crate) fn new_store(&self) -> u64 {
        self.num_stores.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn num_rounds(&self) -> &Arc<AtomicU64> {
        &self.shared.num_rounds
    }

    pub(crate) fn collective(&self) -> &Arc<dyn Collective> {
        &self.shared.collective
    }

    /// Returns whether the current thread is the thread of the group. That thread runs the updaters
    /// of users.
    pub(crate) fn is_this_thread(&self) -> bool {
        self.shared.is_this_thread()
    }

    /// Queues a collective call.
    ///
    /// # Errors
    /// - [`Error::Closed`] if the group is closed.
    /// - [`Error::OutOfMemory`] if there is not enough memory for the queue.
    /// - The error of the earlier call that ended the group.
    pub(crate) fn call(
        &self,
        stores: &Arc<Stores>,
        operation: Operation,
        priority: i32,
    ) -> Result<Arc<Ticket>> {
        let stores = Arc::clone(stores);
        let num_bytes = operation.num_bytes();
        self.queue(num_bytes, |ticket| {
            Item::Collective(Call::new(stores, operation, priority, ticket))
        })
    }

    /// Queues an action of this rank alone.
    ///
    /// # Errors
    /// - The errors of [`Group::call`].
    pub(crate) fn run_locally(
        &self,
        stores: &Arc<Stores>,
        action: impl FnOnce(&Stores) -> Result<()> + Send + 'static,
    ) -> Result<Arc<Ticket>> {
        let stores = Arc::clone(stores);
        self.queue(0, |ticket| Item::Local(Box::new(move || action(&stores)), ticket))
    }

    fn queue(
        &self,
        num_bytes: usize,
        item: impl FnOnce(Arc<Ticket>) -> Item,
    ) -> Result<Arc<Ticket>> {
        // A push larger than the limit is accepted if no other push is queued. A closed or failed
        // queue ends the wait.
        let is_full = |queue: &mut Queue| {
            let has_room = num_bytes == 0 || queue.num_bytes == 0;
            let is_open = queue.fault.is_none() && !queue.is_closed;
            is_open && !has_room && queue.num_bytes + num_bytes > MAX_QUEUED
        };
        let queue = self.shared.changed.wait_while(self.shared.queue(), is_full);
        let mut queue = queue.unwrap_or_else(PoisonError::into_inner);
        if let Some(fault) = &queue.fault {
            return Err(fault.duplicate());
        }
        if queue.is_closed {
            return Err(Error::Closed { what: WHAT.to_owned() });
        }
        let reserved = queue.items.try_reserve(1);
        reserved.map_err(|_| fallible::out_of_memory::<Item>(queue.items.len() + 1))?;
        let ticket = Arc::<Ticket>::default();
        queue.items.push_back(item(Arc::clone(&ticket)));
        queue.num_bytes += num_bytes;
        self.shared.changed.notify_all();
        Ok(ticket)
    }
}

impl Drop for Group {
    /// Waits until the thread has made the queued calls and has terminated.
    fn drop(&mut self) {
        self.shared.queue().is_closed = true;
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            // The panic hook has already reported a panic of the thread.
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.shared.fmt(f)
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let queued = self.queue().items.len();
        f.debug_struct("Group").field("queued", &queued).finish_non_exhaustive()
    }
}

impl LastCalls for Shared {
    /// Closes the queue, and waits until the thread has made the queued calls and has terminated.
    ///
    /// A call that other ranks do not make fails at its own deadline. An updater has no deadline,
    /// so this function also gives up when no round finishes for twice the timeout.
    fn make(&self, wait: &Wait<'_>) -> Result<()> {
        if self.is_this_thread() {
            let text = format!(
                "{}: cannot be called from an updater of a distributed store",
                wait.subject()
            );
            return Err(Error::InvalidArgument(text));
        }
        let stall_limit = self.timeout().saturating_mul(2);
        let mut queue = self.queue();
        let was_reported = queue.fault.is_some();
        queue.is_closed = true;
        self.changed.notify_all();
        let (mut since, mut rounds) = (Instant::now(), self.num_rounds.load(Ordering::Relaxed));
        while !queue.has_ended {
            let now = self.num_rounds.load(Ordering::Relaxed);
            if now != rounds {
                (since, rounds) = (Instant::now(), now);
            }
            let left = wait.left().min(stall_limit.saturating_sub(since.elapsed()));
            if left.is_zero() {
                let (subject, queued) = (wait.subject(), queue.items.len());
                let text = format!(
                    "{subject}: a collective call has not finished, {queued} more are queued"
                );
                return Err(Error::Timeout(text));
            }
            queue =
                self.changed.wait_timeout(queue, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        match &queue.fault {
            Some(Error::Closed { .. }) | None => Ok(()),
            // Earlier calls have already returned this error.
            Some(_) if was_reported => Ok(()),
            Some(fault) => Err(fault.duplicate()),
        }
    }
}

impl Shared {
    fn is_this_thread(&self) -> bool {
        OWN.get() == std::ptr::from_ref(self).addr()
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn timeout(&self) -> Duration {
        *self.timeout.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes calls until the queue is closed and empty, or until an error leaves the ranks in
    /// different states.
    fn run(&self) {
        OWN.set(std::ptr::from_ref(self).addr());
        let (end, buffers) = (FailOnDrop(self), RefCell::default());
        while let Some(first) = self.first() {
            match first {
                Next::Local(action, ticket) => {
                    let end = TicketGuard(&ticket);
                    ticket.end(action());
                    drop(end);
                }
                Next::Collective => {
                    if let Err(error) = self.make_collective_calls(&buffers) {
                        self.fail(error);
                        break;
                    }
                }
            }
        }
        drop(end);
    }

    /// Waits for the next thing to do. Returns `None` if the queue is closed and empty.
    fn first(&self) -> Option<Next> {
        let mut queue = self.queue();
        loop {
            match queue.items.pop_front() {
                Some(Item::Local(action, ticket)) => return Some(Next::Local(action, ticket)),
                Some(call) => {
                    queue.items.push_front(call);
                    return Some(Next::Collective);
                }
                None if queue.is_closed => return None,
                None => queue = self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }

    /// Makes the next call with the other ranks, or several pushes at once.
    ///
    /// # Errors
    /// - Errors that can leave the ranks in different states. An error that is the same on all
    ///   ranks only fails the call.
    fn make_collective_calls(&self, buffers: &RefCell<MessageBuffers>) -> Result<()> {
        let (collective, size) = (&*self.collective, self.collective.size());
        // The number is the same on every rank, so timeout messages of different ranks can be
        // matched.
        let round = 1 + self.num_rounds.load(Ordering::Relaxed);
        let (mut calls, mut subject) = (Vec::new(), String::new());
        for call in ready(&self.queue().items).take(WINDOW) {
            if calls.is_empty() {
                subject = format!("{}, round {round}", call.subject());
            }
            calls.push((call.fingerprint, Arc::clone(&call.stores)));
        }
        // The message has a fixed length: the number of calls, then the words of each, then zeros.
        let mut words = Vec::from([calls.len() as u64]);
        for (fingerprint, stores) in calls {
            words.extend([fingerprint, stores.config().fingerprint()?]);
        }
        words.extend(std::iter::repeat_n(0, 1 + WINDOW * WORDS - words.len()));
        let mut ready_words = Slices::with_counts(&fallible::filled(8 * words.len(), size)?)?;
        let own = ready_words.slice_mut(collective.rank());
        for (to, word) in own.as_chunks_mut().0.iter_mut().zip(&words) {
            *to = word.to_le_bytes();
        }
        collective.all_gather(from_mut(&mut ready_words), &Wait::new(&subject, self.timeout()))?;
        self.num_rounds.fetch_add(1, Ordering::Relaxed);
        let word = |rank: usize, index: usize| {
            ready_words.slice(rank).get(8 * index..).and_then(read_u64).unwrap_or_default()
        };
        let fingerprint = |rank: usize, index: usize| word(rank, 1 + WORDS * index);
        let num_ready = (0..size).map(|rank| word(rank, 0)).min().unwrap_or_default();
        let num_ready = usize::try_from(num_ready).unwrap_or_default();
        // Only the common prefix is used. After the first difference, the lists of the ranks no
        // longer correspond.
        let own = collective.rank();
        let other_at = |index: &usize| {
            (0..size).find(|&rank| fingerprint(rank, *index) != fingerprint(own, *index))
        };
        let num_same = (0..num_ready).take_while(|index| other_at(index).is_none()).count();
        let config = |rank: usize, index: usize| word(rank, 2 + WORDS * index);
        let agree = |index: usize| (0..size).all(|rank| config(rank, index) == config(own, index));
        let (index, calls) = {
            let mut queue = self.queue();
            let mut indices =
                select(&ready(&queue.items).take(num_same).collect::<Vec<_>>(), agree)?;
            // If the first call differs between ranks, take it anyway: every rank must report it.
            let index = *indices.first().unwrap_or(&0);
            if indices.is_empty() {
                indices.push(index);
            }
            (index, take(&mut queue.items, &indices))
        };
        let configs: Vec<u64> = (0..size).map(|rank| config(rank, index)).collect();
        let subject = format!("{}, round {round}", subject_of(&calls));
        let wire = Wire {
            backends: &calls.first().ok_or_else(lost)?.stores.backends,
            collective,
            subject: &subject,
            timeout: self.timeout(),
            buffers,
        };
        if num_same == 0 {
            return self.reject(&wire, &calls);
        }
        match make(&wire, &calls, &configs) {
            Ok(result) => {
                self.end(&calls, result);
                Ok(())
            }
            Err(error) => {
                for call in &calls {
                    call.ticket.end(Err(error.duplicate()));
                }
                Err(error)
            }
        }
    }

    /// Rejects a call that differs between ranks, before it changes anything.
    ///
    /// # Errors
    /// - Errors of exchanging the descriptions.
    fn reject(&self, wire: &Wire<'_>, calls: &[Call]) -> Result<()> {
        let described = describe(wire, calls.first().ok_or_else(lost)?);
        let text = described.as_ref().map_or_else(
            |error| {
                let subject = subject_of(calls);
                format!("the ranks make different calls (this rank: {subject}): {}", error.chain())
            },
            String::clone,
        );
        self.end(calls, Err(Error::InvalidArgument(text)));
        described.map(drop)
    }

    /// Ends these calls with a result. Other queued calls are not affected.
    fn end(&self, calls: &[Call], result: Result<()>) {
        let is_closed = {
            let mut queue = self.queue();
            queue.num_bytes -= calls.iter().map(|call| call.operation.num_bytes()).sum::<usize>();
            queue.is_closed
        };
        self.changed.notify_all();
        if let Err(error) = &result
            && is_closed
        {
            let (call, error) = (subject_of(calls), error.chain());
            tracing::error!(call, error, "a queued call failed while the process exits");
        }
        let mut result = Some(result);
        for call in calls {
            let again =
                result.as_ref().map(|result| result.as_ref().copied().map_err(Error::duplicate));
            // The first call gets the original error with its sources, the others get copies.
            call.ticket.end(std::mem::replace(&mut result, again).unwrap_or(Ok(())));
        }
    }

    /// Ends all queued calls with this error. Later calls are rejected with the first such error.
    fn fail(&self, error: Error) {
        let mut queue = self.queue();
        for item in queue.items.drain(..) {
            item.ticket().end(Err(error.duplicate()));
        }
        queue.fault.get_or_insert(error);
        self.changed.notify_all();
    }
}

/// Returns the calls that are ready: those before the first local action.
fn ready(items: &VecDeque<Item>) -> impl Iterator<Item = &Call> {
    items.iter().map_while(|item| match item {
        Item::Collective(call) => Some(call),
        Item::Local(..) => None,
    })
}

/// Removes the calls at these indices from the queue and returns them in the order of the indices.
fn take(items: &mut VecDeque<Item>, indices: &[usize]) -> Vec<Call> {
    let mut calls = Vec::new();
    for (place, index) in indices.iter().enumerate() {
        // Earlier removals have moved the later items to the front.
        let removed = indices[..place].iter().filter(|removed| *removed < index).count();
        if let Some(Item::Collective(call)) = items.remove(index - removed) {
            calls.push(call);
        }
    }
    calls
}

/// Ends the ticket of a local action that panics, so that no thread waits for it.
struct TicketGuard<'a>(&'a Ticket);

impl Drop for TicketGuard<'_> {
    fn drop(&mut self) {
        self.0.end(Err(Error::Internal("a call of one rank has panicked".to_owned())));
    }
}

/// Ends all queued calls when the thread terminates or panics, so that no other thread waits for
/// them.
struct FailOnDrop<'a>(&'a Shared);

impl Drop for FailOnDrop<'_> {
    fn drop(&mut self) {
        let what = WHAT.to_owned();
        self.0.fail(if std::thread::panicking() {
            Error::Internal("the thread of a store has panicked".to_owned())
        } else {
            Error::Closed { what }
        });
        self.0.queue().has_ended = true;
        self.0.changed.notify_all();
    }
}
