//! [`Turn`]: a queue per file for the writers of this process that replace the file.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf, absolute};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use crate::process::PerProcess;

/// The tickets of a file. The holder of the lowest ticket writes, the others wait.
type Queue = BTreeMap<u64, Arc<Condvar>>;
type Queues = BTreeMap<PathBuf, Queue>;

static QUEUES: PerProcess<Mutex<Queues>> = PerProcess::new();
static NEXT_TICKET: AtomicU64 = AtomicU64::new(0);

/// A place in the queue of a file. Dropping it leaves the queue.
#[derive(Debug)]
pub(super) struct Turn {
    file: PathBuf,
    ticket: u64,
    /// Notified when this ticket becomes the lowest of the queue.
    is_first: Arc<Condvar>,
}

impl Turn {
    /// Takes the last place in the queue.
    pub(super) fn take(path: &Path) -> Self {
        let (file, is_first) = (canonical_path(path), Arc::default());
        let mut queues = queues();
        let ticket = NEXT_TICKET.fetch_add(1, Ordering::Relaxed);
        queues.entry(file.clone()).or_default().insert(ticket, Arc::clone(&is_first));
        Self { file, ticket, is_first }
    }

    /// Waits until all earlier places have left the queue.
    pub(super) fn wait(&self) {
        let is_waiting = |queues: &mut Queues| {
            let first = queues.get(&self.file).and_then(BTreeMap::first_key_value);
            first.is_none_or(|(ticket, _)| *ticket != self.ticket)
        };
        let waited = self.is_first.wait_while(queues(), is_waiting);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut queues = queues();
        let Some(queue) = queues.get_mut(&self.file) else { return };
        queue.remove(&self.ticket);
        // Wakes only the next ticket.
        match queue.first_key_value() {
            Some((_, is_first)) => is_first.notify_all(),
            None => drop(queues.remove(&self.file)),
        }
    }
}

fn queues() -> MutexGuard<'static, Queues> {
    QUEUES.get_or_init(|_| Mutex::default()).lock().unwrap_or_else(PoisonError::into_inner)
}

/// The maximum number of links to follow, more than systems allow. It ends loops of links.
const MOST_LINKS: usize = 64;

/// Returns the final target of symbolic links, which may not exist.
pub(super) fn end_of_links(path: &Path) -> PathBuf {
    let mut place = path.to_owned();
    for _ in 0..MOST_LINKS {
        let Ok(target) = fs::read_link(&place) else { break };
        place.pop();
        place.push(target);
    }
    place
}

/// Returns the canonical path of a file, which may not exist yet.
pub(crate) fn canonical_path(path: &Path) -> PathBuf {
    if let Ok(name) = fs::canonicalize(path) {
        return name;
    }
    let path = end_of_links(&absolute(path).unwrap_or_else(|_| path.to_owned()));
    match (path.parent().map(fs::canonicalize), path.file_name()) {
        (Some(Ok(folder)), Some(name)) => folder.join(name),
        _ => path,
    }
}

#[cfg(all(test, unix, not(miri)))]
#[allow(clippy::unwrap_used, reason = "a check fails by panicking")]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// Otherwise writers of a new file under both names would not wait for each other.
    #[test]
    fn a_link_and_its_missing_target_have_the_same_canonical_path() {
        let folder = tempfile::tempdir().unwrap();
        let [file, link, second] = ["model", "link", "second"].map(|name| folder.path().join(name));
        symlink("model", &link).unwrap();
        symlink(&link, &second).unwrap();
        assert_eq!(canonical_path(&link), canonical_path(&file));
        assert_eq!(canonical_path(&second), canonical_path(&file));
        let before = canonical_path(&link);
        fs::write(&file, "").unwrap();
        assert_eq!(canonical_path(&second), before);
        // A loop of links also has a path.
        let circle = folder.path().join("circle");
        symlink(&circle, &circle).unwrap();
        assert_eq!(canonical_path(&circle).file_name(), circle.file_name());
    }
}
