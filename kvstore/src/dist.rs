//! Stores that span processes: the one group of them that this process is in.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use kvstore_core::process::{Origin, PerProcess};
use kvstore_core::{Error, Result};
use kvstore_dist::{DEFAULT_TIMEOUT, DistStore, Group, MpiCollective, MpiOptions, Wait};

use crate::runtime::backends;
use crate::store::Store;

/// Says in the environment for how many seconds a call waits for other processes.
const TIMEOUT: &str = "KVSTORE_DIST_TIMEOUT";

/// The names of these stores.
pub(crate) const NAMES: [&str; 4] = DistStore::NAMES;

/// Returns a store of this name; none for names of others.
pub(crate) fn create(name: &str) -> Option<Result<Store>> {
    let is_known = NAMES.contains(&name);
    is_known.then(|| {
        let store = DistStore::new(name, backends(), &group()?);
        let store = store.ok_or_else(|| Error::Internal(format!("no store `{name}`")))?;
        Ok(Store::new(Arc::new(store)))
    })
}

/// The group of one process.
struct Opening {
    group: Mutex<Option<Arc<Group>>>,
    process: Origin,
    /// Whether MPI has started or may be starting in this process.
    has_begun: AtomicBool,
    /// The process in which it had before this one was forked.
    ancestor: Option<Origin>,
}

impl Opening {
    fn new(parent: Option<&Self>) -> Self {
        Self {
            group: Mutex::default(),
            process: Origin::current(),
            has_begun: AtomicBool::new(false),
            ancestor: parent.and_then(Self::opened_by),
        }
    }

    /// Returns the process that has started MPI, if any. Takes no lock.
    fn opened_by(&self) -> Option<Origin> {
        let has_begun = self.has_begun.load(Ordering::Relaxed);
        if has_begun { Some(self.process) } else { self.ancestor }
    }

    /// Opens MPI.
    fn open(&self, wait: &Wait<'_>) -> Result<MpiCollective> {
        // Set before the library starts: a child forked meanwhile would wait for it for ever.
        self.has_begun.store(true, Ordering::Relaxed);
        MpiCollective::open(&MpiOptions::default(), wait).inspect_err(|error| {
            // No library is usable. A child fails with the same error or finds a library.
            if matches!(error, Error::Unsupported(_)) {
                self.has_begun.store(false, Ordering::Relaxed);
            }
        })
    }
}

/// Returns the group of this process. Nothing of MPI is loaded before.
fn group() -> Result<Arc<Group>> {
    static OPENING: PerProcess<Opening> = PerProcess::new();
    let opening = OPENING.get_or_init(Opening::new);
    if let Some(origin) = opening.opened_by() {
        let to_do = "create stores that span processes in one process only";
        origin.check("the group of processes", to_do)?;
    }
    let mut group = opening.group.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(group) = &*group {
        return Ok(Arc::clone(group));
    }
    let timeout = timeout()?;
    let wait = Wait::new(&"the first store that spans processes", timeout);
    let new = Group::new(Arc::new(opening.open(&wait)?))?;
    new.set_timeout(timeout);
    *group = Some(Arc::clone(&new));
    Ok(new)
}

fn timeout() -> Result<Duration> {
    let Some(text) = std::env::var(TIMEOUT).ok().filter(|text| !text.is_empty()) else {
        return Ok(DEFAULT_TIMEOUT);
    };
    let seconds = text.parse::<f64>().ok().and_then(|it| Duration::try_from_secs_f64(it).ok());
    let strange = || Error::InvalidArgument(format!("{TIMEOUT} is `{text}`, expected seconds"));
    seconds.filter(|timeout| !timeout.is_zero()).ok_or_else(strange)
}
