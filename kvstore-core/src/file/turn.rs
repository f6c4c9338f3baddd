//! [`Turn`]: who replaces a file next, of all in this process that are to.

use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::path::{Path, PathBuf, absolute};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

type Queues = BTreeMap<PathBuf, VecDeque<u64>>;

/// Who waits for each file, in the order in which they came; the first one writes.
static QUEUES: Mutex<Queues> = Mutex::new(BTreeMap::new());
static MOVED_ON: Condvar = Condvar::new();
static NEXT_TICKET: AtomicU64 = AtomicU64::new(0);

/// A place in the queue for a file, until it is dropped.
#[derive(Debug)]
pub(super) struct Turn {
    file: PathBuf,
    ticket: u64,
}

impl Turn {
    /// Takes the last place in the queue.
    pub(super) fn take(path: &Path) -> Self {
        let file = one_name(path);
        let mut queues = queues();
        let ticket = NEXT_TICKET.fetch_add(1, Ordering::Relaxed);
        queues.entry(file.clone()).or_default().push_back(ticket);
        Self { file, ticket }
    }

    /// Waits until everybody is gone who was there before.
    pub(super) fn wait(&self) {
        let is_waiting = |queues: &mut Queues| {
            self.queue(queues).and_then(|it| it.front()) != Some(&self.ticket)
        };
        drop(MOVED_ON.wait_while(queues(), is_waiting).unwrap_or_else(PoisonError::into_inner));
    }

    fn queue<'a>(&self, queues: &'a mut Queues) -> Option<&'a mut VecDeque<u64>> {
        queues.get_mut(&self.file)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut queues = queues();
        if let Some(queue) = self.queue(&mut queues) {
            queue.retain(|ticket| *ticket != self.ticket);
            if queue.is_empty() {
                queues.remove(&self.file);
            }
        }
        MOVED_ON.notify_all();
    }
}

fn queues() -> MutexGuard<'static, Queues> {
    QUEUES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns one name for all names of a file, whether it is there already or not.
fn one_name(path: &Path) -> PathBuf {
    if let Ok(name) = fs::canonicalize(path) {
        return name;
    }
    let path = absolute(path).unwrap_or_else(|_| path.to_owned());
    match (path.parent().map(fs::canonicalize), path.file_name()) {
        (Some(Ok(folder)), Some(name)) => folder.join(name),
        _ => path,
    }
}
