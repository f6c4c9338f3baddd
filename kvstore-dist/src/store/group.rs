//! [`Group`]: the thread that makes the calls of this process with other ranks, in an order that all of them find.
//!
//! Whenever a rank has calls to make, it tells the others how many are ready and what they are. Those that every rank has
//! ready are the same ones, so each rank picks the same: the one of the highest priority, and pushes behind it that can be
//! made with it. What only this rank does (an optimizer that is set) stands in the same queue, and calls behind it are not
//! ready before it is done. All stores of a process share the queue: with one each, ranks could wait for each other in
//! different ones.

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
use super::operations::make;
use super::stores::Stores;
use super::ticket::Ticket;
use super::wire::{MessageBuffers, Wire, lost, read_u64};
use crate::transport::{Collective, DEFAULT_TIMEOUT, LastCalls, Slices, Wait};

/// Of how many calls ranks tell each other: no more are looked through for those of the highest priority.
const WINDOW: usize = 32;
/// So many bytes may be queued. Whoever pushes more waits for the other ranks, as they cannot wait for its later calls.
const MAX_QUEUED: usize = 256 << 20;
/// Words of what a rank tells of a call: its fingerprint, and that of its store's configuration.
const WORDS: usize = 2;

/// What is closed, in words.
const WHAT: &str = "the group of processes";

thread_local! {
    /// Where what this thread shares with others is, if it is the thread of a group. It has no destructor, so it can be
    /// read when the process ends.
    static OWN: Cell<usize> = const { Cell::new(0) };
}

/// What stands in a queue.
enum Item {
    Collective(Call),
    /// What this rank does by itself, to a store.
    Local(LocalAction, Arc<Ticket>),
}

/// What is done first.
enum Next {
    Local(LocalAction, Arc<Ticket>),
    /// One of the calls that stand there.
    Collective,
}

/// What a rank does by itself.
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
    /// What is pushed in calls that are not done.
    num_bytes: usize,
    /// What is queued is still done, and nothing is queued any more.
    is_closed: bool,
    /// The thread has made its last call.
    has_ended: bool,
    /// Why there will be no more calls.
    fault: Option<Error>,
}

/// What threads share.
struct Shared {
    collective: Arc<dyn Collective>,
    queue: Mutex<Queue>,
    changed: Condvar,
    timeout: Mutex<Duration>,
    /// How many calls have been made: the same number on every rank.
    num_rounds: Arc<AtomicU64>,
}

/// The processes that share stores, all of which make the same calls in the same order.
pub struct Group {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    num_stores: AtomicU64,
}

impl Group {
    /// Returns the group of a collective, which nobody else uses from now on.
    ///
    /// # Errors
    /// [`Error::Internal`] when there is no thread to be had.
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

    /// Sets how long a call waits for other ranks before it fails: 300 seconds, if nobody says otherwise.
    pub fn set_timeout(&self, timeout: Duration) {
        *self.shared.timeout.lock().unwrap_or_else(PoisonError::into_inner) = timeout;
    }

    /// Returns the number of a new store. Ranks make their stores in the same order.
    pub(crate) fn new_store(&self) -> u64 {
        self.num_stores.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn num_rounds(&self) -> &Arc<AtomicU64> {
        &self.shared.num_rounds
    }

    pub(crate) fn collective(&self) -> &Arc<dyn Collective> {
        &self.shared.collective
    }

    /// Returns whether this is the thread itself, which runs the updaters of users.
    pub(crate) fn is_this_thread(&self) -> bool {
        self.shared.is_this_thread()
    }

    /// Queues a call of all ranks.
    ///
    /// # Errors
    /// Why there are no more calls.
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

    /// Queues something that only this rank does.
    ///
    /// # Errors
    /// As [`Group::call`].
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
    /// Ends the thread, when it has made the calls that are queued.
    fn drop(&mut self) {
        self.shared.queue().is_closed = true;
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            // It reports its own panics.
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
    /// Waits until the thread has made the calls that are queued, and has ended. A call that other ranks do not make has
    /// its own deadline; an updater has none, so there is one for a thread that gets nowhere, behind that one.
    fn make(&self, wait: &Wait<'_>) -> Result<()> {
        if self.is_this_thread() {
            let text = format!(
                "{}: cannot be called from an updater of a distributed store",
                wait.subject()
            );
            return Err(Error::InvalidArgument(text));
        }
        let stands_still = self.timeout().saturating_mul(2);
        let mut queue = self.queue();
        let was_told = queue.fault.is_some();
        queue.is_closed = true;
        self.changed.notify_all();
        let (mut since, mut rounds) = (Instant::now(), self.num_rounds.load(Ordering::Relaxed));
        while !queue.has_ended {
            let now = self.num_rounds.load(Ordering::Relaxed);
            if now != rounds {
                (since, rounds) = (Instant::now(), now);
            }
            let left = wait.left().min(stands_still.saturating_sub(since.elapsed()));
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
            Some(_) if was_told => Ok(()),
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

    /// Makes calls until the queue is closed and empty, or a call has failed so that ranks are in different places.
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

    /// Waits for something to do; none when it is over.
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

    /// Makes the next call with the other ranks.
    ///
    /// # Errors
    /// What leaves ranks in different places. What fails alike everywhere ends the call alone.
    fn make_collective_calls(&self, buffers: &RefCell<MessageBuffers>) -> Result<()> {
        let (collective, size) = (&*self.collective, self.collective.size());
        // The same number on every rank, which is how they name the call at a deadline.
        let round = 1 + self.num_rounds.load(Ordering::Relaxed);
        let (mut calls, mut subject) = (Vec::new(), String::new());
        for call in ready(&self.queue().items).take(WINDOW) {
            if calls.is_empty() {
                subject = format!("{}, round {round}", call.subject());
            }
            calls.push((call.fingerprint, Arc::clone(&call.stores)));
        }
        let mut words = Vec::from([calls.len() as u64]);
        for (fingerprint, stores) in calls {
            words.extend([fingerprint, stores.config().fingerprint()?]);
        }
        words.extend(std::iter::repeat_n(0, 1 + WINDOW * WORDS - words.len()));
        let mut told = Slices::with_counts(&fallible::filled(8 * words.len(), size)?)?;
        let own = told.slice_mut(collective.rank());
        for (to, word) in own.as_chunks_mut().0.iter_mut().zip(&words) {
            *to = word.to_le_bytes();
        }
        collective.all_gather(from_mut(&mut told), &Wait::new(&subject, self.timeout()))?;
        self.num_rounds.fetch_add(1, Ordering::Relaxed);
        let word = |rank: usize, index: usize| {
            told.slice(rank).get(8 * index..).and_then(read_u64).unwrap_or_default()
        };
        let fingerprint = |rank: usize, index: usize| word(rank, 1 + WORDS * index);
        let num_ready = (0..size).map(|rank| word(rank, 0)).min().unwrap_or_default();
        let num_ready = usize::try_from(num_ready).unwrap_or_default();
        // Behind the first one that differs ranks would look at other lists.
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
            // Every rank hears of a call that is another one elsewhere.
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

    /// Rejects a call that differs between ranks, before anything is done.
    ///
    /// # Errors
    /// Errors of exchanging the descriptions.
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

    /// Ends calls, and no others.
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
            tracing::error!(call, error, "what was queued is lost at the end of the process");
        }
        let mut result = Some(result);
        for call in calls {
            let again =
                result.as_ref().map(|result| result.as_ref().copied().map_err(Error::duplicate));
            // The first has the error itself, with its sources.
            call.ticket.end(std::mem::replace(&mut result, again).unwrap_or(Ok(())));
        }
    }

    /// Ends all calls that are queued, and refuses later ones.
    fn fail(&self, error: Error) {
        let mut queue = self.queue();
        for item in queue.items.drain(..) {
            item.ticket().end(Err(error.duplicate()));
        }
        queue.fault.get_or_insert(error);
        self.changed.notify_all();
    }
}

/// Returns the calls that are ready: those before what this rank does alone.
fn ready(items: &VecDeque<Item>) -> impl Iterator<Item = &Call> {
    items.iter().map_while(|item| match item {
        Item::Collective(call) => Some(call),
        Item::Local(..) => None,
    })
}

/// Takes calls out of a queue, in this order.
fn take(items: &mut VecDeque<Item>, indices: &[usize]) -> Vec<Call> {
    let mut calls = Vec::new();
    for (place, index) in indices.iter().enumerate() {
        let gone = indices[..place].iter().filter(|gone| *gone < index).count();
        if let Some(Item::Collective(call)) = items.remove(index - gone) {
            calls.push(call);
        }
    }
    calls
}

/// Lets nobody wait for something that has panicked.
struct TicketGuard<'a>(&'a Ticket);

impl Drop for TicketGuard<'_> {
    fn drop(&mut self) {
        self.0.end(Err(Error::Internal("a call of one rank has panicked".to_owned())));
    }
}

/// Lets nobody wait for a thread that is gone.
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
