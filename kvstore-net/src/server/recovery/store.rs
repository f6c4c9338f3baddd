//! [`PointStore`]: where the recovery points of a server are.

#[cfg(test)]
use std::collections::BTreeMap;
use std::sync::Arc;
#[cfg(test)]
use std::sync::atomic::{AtomicU64, Ordering};
#[cfg(test)]
use std::sync::{Mutex, PoisonError};
#[cfg(test)]
use std::time::Duration;

#[cfg(test)]
use kvstore_core::Error;
use kvstore_core::Result;

use super::{Point, PointFolder};
use crate::server::holder::Holder;

/// Where the points of a server are kept.
#[derive(Clone, Debug)]
pub(crate) enum PointStore {
    Folder(Arc<PointFolder>),
    /// For a simulated server, whose host loses everything else.
    #[cfg(test)]
    Memory(Arc<Mutex<BTreeMap<u64, Point>>>, Disk),
}

impl PointStore {
    /// Keeps a point. Returns the number of bytes.
    pub(super) fn write(&self, point: Point) -> Result<u64> {
        match self {
            Self::Folder(folder) => folder.write(point),
            #[cfg(test)]
            Self::Memory(kept, disk) => {
                let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
                if disk.fails() {
                    return Err(Error::Internal("the disk is full".to_owned()));
                }
                kept.insert(point.state.number, point);
                Ok(0)
            }
        }
    }

    /// Lets another server use the points.
    pub(in crate::server) fn release(&self) {
        match self {
            Self::Folder(folder) => folder.release(),
            #[cfg(test)]
            Self::Memory(..) => {}
        }
    }

    /// Returns the numbers of the points, ascending.
    pub(super) fn numbers(&self) -> Result<Vec<u64>> {
        match self {
            Self::Folder(folder) => folder.numbers(),
            #[cfg(test)]
            Self::Memory(kept, _) => {
                let kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
                Ok(kept.keys().copied().collect())
            }
        }
    }

    /// Returns whether the points of other servers with this number are of the same moment.
    pub(super) fn is_cut(&self, number: u64) -> Result<bool> {
        match self {
            Self::Folder(folder) => Ok(folder.read_state(number)?.is_cut),
            #[cfg(test)]
            Self::Memory(kept, _) => {
                let kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
                Ok(kept.get(&number).is_some_and(|point| point.state.is_cut))
            }
        }
    }

    pub(super) fn read(&self, holder: &Holder, number: u64) -> Result<Point> {
        match self {
            Self::Folder(folder) => folder.read(holder.contents().backends(), number),
            #[cfg(test)]
            Self::Memory(kept, _) => {
                let kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
                let missing = || Error::Internal(format!("there is no point {number}"));
                kept.get(&number).cloned().ok_or_else(missing)
            }
        }
    }

    /// Forgets points.
    pub(super) fn remove(&self, is_removed: impl Fn(u64) -> bool) {
        match self {
            Self::Folder(folder) => folder.remove(is_removed),
            #[cfg(test)]
            Self::Memory(kept, _) => {
                let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
                kept.retain(|number, _| !is_removed(*number));
            }
        }
    }

    /// Returns the run of a server that has made the newest point, or 0 without points.
    ///
    /// # Errors
    /// - [`Error::Corrupt`](kvstore_core::Error::Corrupt) if the point is damaged.
    /// - [`Error::Io`](kvstore_core::Error::Io) if it cannot be read.
    pub(in crate::server) fn newest_run(&self) -> Result<u64> {
        match self {
            Self::Folder(folder) => {
                let newest = folder.numbers()?.last().copied();
                newest.map_or(Ok(0), |number| Ok(folder.read_state(number)?.server_run))
            }
            #[cfg(test)]
            Self::Memory(..) => Ok(0),
        }
    }
}

/// The disk of a simulated server.
#[cfg(test)]
#[derive(Clone, Debug, Default)]
pub(crate) struct Disk {
    /// How long writing a point takes.
    pub(crate) writing: Duration,
    /// The writes that fail, a bit for each. After 64 writes, they repeat.
    pub(crate) failing: u64,
    pub(crate) num_writes: Arc<AtomicU64>,
}

#[cfg(test)]
impl Disk {
    fn fails(&self) -> bool {
        self.failing >> (self.num_writes.fetch_add(1, Ordering::Relaxed) % 64) & 1 == 1
    }
}
