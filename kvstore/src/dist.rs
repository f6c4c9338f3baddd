//! Stores that span processes: the one group of them that this process is in.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
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

/// Returns the group of this process. Nothing of MPI is loaded before.
fn group() -> Result<Arc<Group>> {
    static GROUP: PerProcess<Mutex<Option<Arc<Group>>>> = PerProcess::new();
    static OPENED_BY: OnceLock<Origin> = OnceLock::new();
    if let Some(origin) = OPENED_BY.get() {
        let to_do = "create stores that span processes in one process only";
        origin.check("the group of processes", to_do)?;
    }
    let group = GROUP.get_or_init(|_| Mutex::default());
    let mut group = group.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(group) = &*group {
        return Ok(Arc::clone(group));
    }
    let timeout = timeout()?;
    let wait = Wait::new(&"the first store that spans processes", timeout);
    // Set before the library starts: a child forked meanwhile cannot use it, and would wait for ever.
    let _ = OPENED_BY.set(Origin::current());
    let collective = MpiCollective::open(&MpiOptions::default(), &wait)?;
    let new = Group::new(Arc::new(collective))?;
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
