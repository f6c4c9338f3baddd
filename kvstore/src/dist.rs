//! Stores that span processes, and the group of this process.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use kvstore_core::process::{Origin, PerProcess};
use kvstore_core::{Error, Result};
use kvstore_dist::transport::{Collective, DEFAULT_TIMEOUT, Wait};
use kvstore_dist::{DistStore, Group, open_collective};

use crate::environment::timeout;
use crate::runtime::backends;
use crate::store::Store;

/// The names of these stores.
pub(crate) const NAMES: [&str; 4] = DistStore::NAMES;

/// Returns a store over the transport of this job, or `None` for other names.
pub(crate) fn create(name: &str) -> Option<Result<Store>> {
    let is_known = NAMES.contains(&name);
    is_known.then(|| {
        let store = create_on(name, &group()?)?;
        #[cfg(feature = "net")]
        if let Some(job) = crate::net::LaunchedJob::of_environment()? {
            job.check_processes(name, store.num_workers()?)?;
        }
        Ok(store)
    })
}

/// Returns an empty store that the processes of `group` share, over a transport of the caller's
/// choice. `name` is one of the `dist_*` names of [`create`](crate::create), in any case.
///
/// ```
/// use kvstore::{DType, Device, Group, LocalCollective, create_on, ones};
/// use std::sync::Arc;
/// // A group of one. Any transport works: see `kvstore::transport`.
/// let member = LocalCollective::group(1).remove(0);
/// let store = create_on("dist_sync", &Group::new(Arc::new(member))?)?;
/// store.init("3", &ones([2], DType::F32, Device::cpu(0))?)?;
/// assert_eq!(store.num_workers()?, 1);
/// # Ok::<(), kvstore::Error>(())
/// ```
///
/// # Errors
/// - [`Error::InvalidArgument`] if `name` is not one of these names.
pub fn create_on(name: &str, group: &Arc<Group>) -> Result<Store> {
    let lower = name.to_lowercase();
    let store = DistStore::new(&lower, backends(), group).ok_or_else(|| {
        let known = NAMES.join(", ");
        Error::invalid(format!("store type `{name}` on a group: expected one of {known}"))
    })?;
    Ok(Store::new(Arc::new(store)))
}

/// The group of one process, created at the first store that spans processes.
struct Opening {
    group: Mutex<Option<Arc<Group>>>,
    process: Origin,
    /// Whether the transport has started or may be starting in this process.
    has_begun: AtomicBool,
    /// The ancestor of this forked process that had started the transport before the fork.
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

    /// Returns the process that has started the transport, or `None`. Takes no lock.
    fn opened_by(&self) -> Option<Origin> {
        let has_begun = self.has_begun.load(Ordering::Relaxed);
        if has_begun { Some(self.process) } else { self.ancestor }
    }

    /// Opens the transport.
    fn open(&self, wait: &Wait<'_>) -> Result<Arc<dyn Collective>> {
        // Set before the library starts, because a child forked meanwhile would wait for it
        // forever.
        self.has_begun.store(true, Ordering::Relaxed);
        open_collective(wait).inspect_err(|error| {
            // No library is usable. A child fails with the same error or finds a library.
            if matches!(error, Error::Unsupported(_)) {
                self.has_begun.store(false, Ordering::Relaxed);
            }
        })
    }
}

/// Returns the group of this process. The first call loads the library of the transport.
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
    let timeout = timeout()?.unwrap_or(DEFAULT_TIMEOUT);
    let wait = Wait::new(&"the first store that spans processes", timeout);
    let new = Group::new(opening.open(&wait)?)?;
    new.set_timeout(timeout);
    *group = Some(Arc::clone(&new));
    Ok(new)
}
