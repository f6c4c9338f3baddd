//! [`Recovery`]: makes recovery points, from which a server continues after a crash.
//!
//! A point has the contents of the store, the placements of its keys, the members, and the calls
//! that have taken effect. It is made between two calls, so each call has either taken effect and
//! is known, or neither. After a crash, the members repeat the calls without a reply, and the
//! server recognises those of the point. So pushes after the point may be lost, but none takes
//! effect twice.
//!
//! The points of several servers with the same number are one consistent cut: see `cuts.rs`. After
//! a crash of one of them, all go back to the newest point that all have: see `rewinds.rs`.
//!
//! - `store.rs` keeps points, `folder.rs` in files.
//! - `group/saved.rs` and `records.rs` have the state besides the contents.

mod cuts;
mod folder;
mod rewinds;
mod store;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use kvstore_core::{Error, Result, Snapshot, Updater, fallible};
use prost::Message;
use tokio::sync::{Notify, RwLock};

pub(crate) use self::folder::PointFolder;
#[cfg(test)]
pub(crate) use self::store::Disk;
pub(crate) use self::store::PointStore;
use super::group::{Group, SavedGroup};
use super::holder::Holder;
use super::records::SavedRecords;
#[cfg(test)]
use crate::faults::Fault;
use crate::files::crc;
use crate::proto;
use crate::runtime::{in_place, without_panic};

/// How long a server that ends waits for a last point of all servers.
const LAST: Duration = Duration::from_secs(1);

/// How long the first server, when it ends, waits until the others have written a point.
const LAST_OF_ALL: Duration = Duration::from_secs(30);

/// How soon a point is tried again after a call that is not finished.
const UNFINISHED: Duration = Duration::from_millis(100);

/// What a server knows besides the contents of its store.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct SavedState {
    /// The number of the point. A later one has a larger number.
    #[prost(uint64, tag = "1")]
    pub(crate) number: u64,
    /// The CRC-32 of the file with the contents.
    #[prost(fixed32, tag = "2")]
    pub(crate) checksum: u32,
    /// The run of the server that has made the point.
    #[prost(uint64, tag = "3")]
    pub(crate) server_run: u64,
    #[prost(message, optional, tag = "4")]
    pub(crate) group: Option<SavedGroup>,
    #[prost(message, optional, tag = "5")]
    pub(crate) records: Option<SavedRecords>,
    /// Whether the points of other servers with this number are of the same moment.
    #[prost(bool, tag = "6")]
    pub(crate) is_cut: bool,
    /// The number of the point in the journal, or 0.
    #[prost(fixed64, tag = "7")]
    pub(crate) in_journal: u64,
}

/// Returns the bytes of a message.
fn encoded(state: &SavedState) -> Result<Vec<u8>> {
    let mut bytes = fallible::with_capacity(state.encoded_len())?;
    // The buffer is large enough.
    state.encode_raw(&mut bytes);
    Ok(bytes)
}

/// A recovery point.
#[derive(Clone, Debug)]
pub(crate) struct Point {
    pub(crate) state: SavedState,
    pub(crate) contents: Snapshot,
}

/// The points of a run of a server, for operators.
#[derive(Clone, Debug, Default)]
pub(crate) struct RecoveryState {
    pub(crate) num_points: u64,
    /// The bytes of the last point.
    pub(crate) num_bytes: u64,
    /// When the last point was made.
    pub(crate) made: Option<SystemTime>,
    /// Why the last attempt has failed, if it has.
    pub(crate) error: Option<String>,
    /// Whether the server waits until all servers go back to the same point.
    pub(crate) awaits_others: bool,
}

impl RecoveryState {
    /// Returns the time since the last point.
    pub(crate) fn age(&self) -> Option<Duration> {
        self.made.map(|made| made.elapsed().unwrap_or_default())
    }
}

/// Makes recovery points.
#[derive(Debug)]
pub(crate) struct Recovery {
    store: PointStore,
    every: Duration,
    run: u64,
    group: Arc<Group>,
    holder: Arc<Holder>,
    /// As in [`Service`](super::service::Service).
    effects: Arc<RwLock<()>>,
    /// The state from which this run of the server continues.
    rewound: Option<proto::Rewound>,
    /// The message after which this run has begun, or 0.
    rewound_by: u64,
    /// Whether this run waits until all servers of its group go back to the same point.
    awaits_others: bool,
    /// Takes the place of the updater of the earlier run, which is code, until the program of the
    /// server sets it again.
    missing_updater: Option<Arc<dyn Updater>>,
    requested: Notify,
    /// Wakes those that wait for a point.
    written: Notify,
    last: Mutex<Last>,
    /// Whether the server has ended. Locked while a point is made, so that there is one at a time.
    has_ended: tokio::sync::Mutex<bool>,
}

/// The last point.
#[derive(Debug, Default)]
struct Last {
    /// The largest number of a point so far, also of one that is not there any more or not yet.
    number: u64,
    /// The point of a cut that is being written, or 0.
    writes: u64,
    /// The last point that this server has made alone, or 0.
    alone: u64,
    /// The checksum of what the server knew besides the contents.
    known: Option<u64>,
    /// The points that are one cut with those of other servers, ascending. Not all servers may have
    /// the newest one.
    cuts: Vec<u64>,
    state: RecoveryState,
}

impl Recovery {
    /// Continues from a point: from the one of `rewind`, which may be 0 for no values, or else from
    /// the newest one. If that is one of several servers, waits until all of them go back to the
    /// same one.
    ///
    /// # Errors
    /// - [`Error::Corrupt`] if the point is damaged.
    /// - [`Error::Internal`] if there is no such point.
    /// - [`Error::Io`] if it cannot be read.
    pub(crate) fn open(
        store: PointStore,
        (every, run): (Duration, u64),
        (group, holder, effects): (&Arc<Group>, &Arc<Holder>, &Arc<RwLock<()>>),
        rewind: Option<proto::Rewind>,
    ) -> Result<Self> {
        let (mut rewound, mut missing_updater) = (None, None);
        let mut numbers = store.numbers()?;
        // Numbers are not used again: after a loss of power, an old file could appear again.
        let mut last = Last { number: numbers.last().copied().unwrap_or(0), ..Last::default() };
        if let Some(rewind) = rewind {
            if rewind.point > 0 && !numbers.contains(&rewind.point) {
                let text = "there is no recovery point";
                return Err(Error::Internal(format!(
                    "{text} {}: restart the server",
                    rewind.point
                )));
            }
            group.set_goes_back(true);
            // These are of a state that does not exist any more.
            store.remove(|number| number > rewind.point);
            numbers.retain(|number| *number <= rewind.point);
        }
        for number in numbers {
            if store.is_cut(number)? {
                last.cuts.push(number);
            }
        }
        let awaits_others = rewind.is_none() && last.cuts.last() == Some(&last.number);
        if awaits_others {
            tracing::warn!(
                point = last.number,
                "waiting until all servers of the group go back to the same recovery point; \
                 without the folder of points, the server begins without values"
            );
        }
        let point = rewind.map_or(last.number, |rewind| rewind.point);
        if point > 0 && !awaits_others {
            let Point { state, contents } = store.read(holder, point)?;
            let saved = state.group.unwrap_or_default();
            let version = saved.keys.iter().map(|key| key.now).max().unwrap_or_default();
            tracing::warn!(point = state.number, version, "continuing from a recovery point");
            missing_updater = holder.replace_updater(&contents)?;
            holder.restore_point(&contents, state.records.unwrap_or_default())?;
            holder.contents().mark_recovered(state.in_journal);
            group.restore(saved)?;
            let by = rewind.map_or(0, |rewind| rewind.by);
            rewound = Some(proto::Rewound { version, by });
        } else if let Some(proto::Rewind { by, .. }) = rewind {
            tracing::warn!("continuing without values, because other servers have no such point");
            holder.restore_point(&holder.nothing()?, SavedRecords::default())?;
            rewound = Some(proto::Rewound { version: 0, by });
        }
        Ok(Self {
            store,
            every,
            run,
            group: Arc::clone(group),
            holder: Arc::clone(holder),
            effects: Arc::clone(effects),
            rewound,
            rewound_by: rewind.map_or(0, |rewind| rewind.by),
            awaits_others,
            missing_updater,
            requested: Notify::new(),
            written: Notify::new(),
            last: Mutex::new(last),
            has_ended: tokio::sync::Mutex::new(false),
        })
    }

    fn last(&self) -> MutexGuard<'_, Last> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the state from which this run of the server continues, if it does.
    pub(super) fn rewound(&self) -> Option<proto::Rewound> {
        self.rewound
    }

    /// Returns whether pushes must wait until the program of the server has set its updater.
    pub(super) fn awaits_updater(&self) -> bool {
        self.missing_updater.as_ref().is_some_and(|missing| {
            let updater = self.holder.contents().store().updater();
            updater.is_some_and(|updater| Arc::ptr_eq(&updater, missing))
        })
    }

    pub(super) fn state(&self) -> RecoveryState {
        RecoveryState { awaits_others: self.awaits_others, ..self.last().state.clone() }
    }

    /// Makes the next point soon, because more than values has changed.
    pub(super) fn request(&self) {
        self.requested.notify_one();
    }

    /// Makes points until it is dropped.
    pub(super) async fn run(self: Arc<Self>) {
        let mut wait = self.every;
        loop {
            let is_requested = tokio::select! {
                biased;
                () = self.requested.notified() => true,
                () = self.group.point_requested() => true,
                () = tokio::time::sleep(wait) => false,
            };
            if self.awaits_others || !is_requested && self.group.is_led() {
                continue;
            }
            let has_ended = self.has_ended.lock().await;
            if *has_ended {
                return;
            }
            wait = if self.save().await { self.every } else { UNFINISHED };
        }
    }

    /// Makes no more points, because another run of the server begins.
    pub(super) async fn stop(&self) {
        *self.has_ended.lock().await = true;
    }

    /// Makes the last point of this run. Then another server may use the folder.
    pub(super) async fn end(&self) {
        let written = self.written.notified();
        if !self.awaits_others && self.group.request_point() {
            // The leader may have ended, or nothing may have changed.
            let _ = tokio::time::timeout(LAST, written).await;
        }
        let Ok(mut has_ended) = tokio::time::timeout(LAST_OF_ALL, self.has_ended.lock()).await
        else {
            return;
        };
        if !std::mem::replace(&mut *has_ended, true) {
            if !self.awaits_others && !self.group.is_led() {
                // Its own point is written when it waits for the others.
                let _ = tokio::time::timeout(LAST_OF_ALL, self.save()).await;
            }
            self.store.release();
        }
    }

    /// Makes a point, unless nothing has changed. Returns false while keys are being added. Reports
    /// an error, and the server continues with its earlier point.
    pub(crate) async fn save(&self) -> bool {
        let is_led = self.group.request_point();
        // The points of a group are made together. The leader may not be connected yet.
        if is_led || self.group.num_followers() == 0 && !self.last().cuts.is_empty() {
            return true;
        }
        let saved = if self.group.num_followers() > 0 {
            self.save_together().await
        } else {
            match self.make().await {
                Ok(Some((point, known))) => self.write_alone(point, known).map(|()| true),
                Ok(None) => Ok(false),
                Err(error) => Err(error),
            }
        };
        if let Ok(false) = saved {
            return false;
        }
        if let Err(error) = saved {
            let text = error.chain();
            let is_new = self.last().state.error.replace(text.clone()).as_ref() != Some(&text);
            if is_new {
                tracing::error!(error = text, "a recovery point cannot be made");
            }
        }
        true
    }

    /// Returns a point between two calls, and the checksum of what the server knows. Returns `None`
    /// while keys are being added.
    async fn make(&self) -> Result<Option<(Point, u64)>> {
        #[cfg(test)]
        if Fault::PointInCall.is_planted() {
            return self.make_in_call().await;
        }
        let _between_calls = self.effects.write().await;
        let mut made = self.now()?;
        if let Some((point, known)) = &mut made
            && self.last().known != Some(*known)
        {
            point.state.in_journal = in_place(|| self.holder.contents().mark_point());
        }
        Ok(made)
    }

    /// Returns a point of now, and the checksum of what the server knows. Returns `None` while keys
    /// are being added. The caller keeps calls from taking effect.
    fn now(&self) -> Result<Option<(Point, u64)>> {
        in_place(|| without_panic(|| self.copy()))
    }

    fn copy(&self) -> Result<Option<(Point, u64)>> {
        let Some((contents, records)) = self.holder.saved()? else { return Ok(None) };
        let state = SavedState {
            number: 0,
            checksum: 0,
            server_run: self.run,
            group: Some(self.group.saved()?),
            records: Some(records),
            is_cut: false,
            in_journal: 0,
        };
        let known = crc(&[&encoded(&state)?]);
        Ok(Some((Point { state, contents }, known)))
    }

    /// Makes a point whose parts are from different moments, for [`Fault::PointInCall`].
    #[cfg(test)]
    async fn make_in_call(&self) -> Result<Option<(Point, u64)>> {
        let group = Some(self.group.saved()?);
        tokio::time::sleep(Duration::from_millis(20)).await;
        let Some((contents, records)) = self.holder.saved()? else { return Ok(None) };
        let state = SavedState { group, records: Some(records), ..SavedState::default() };
        let known = crc(&[&encoded(&state)?]);
        Ok(Some((Point { state, contents }, known)))
    }

    /// Writes a point of this server, unless nothing has changed.
    fn write_alone(&self, mut point: Point, known: u64) -> Result<()> {
        let number = {
            let mut last = self.last();
            if last.known == Some(known) && last.state.error.is_none() {
                return Ok(());
            }
            // The server may follow another one meanwhile, which must not use the number.
            (last.number, last.alone) = (last.number + 1, last.number + 1);
            last.number
        };
        point.state.number = number;
        self.write(point, known)?;
        in_place(|| self.store.remove(|other| other != number));
        Ok(())
    }

    /// Writes a point of a cut. Before it, removes those that no server goes back to: others than
    /// `common`, which all servers have or which is 0, and than the newest one, which all may have.
    /// Without `common`, points that this server has made without the others stay. Returns false
    /// and does nothing if the cut is not the present one.
    #[cfg_attr(not(test), allow(clippy::unused_async, reason = "a simulated disk takes time"))]
    async fn write_in_cut(
        &self,
        (point, known): (Point, u64),
        common: u64,
        is_present: impl FnOnce() -> bool,
    ) -> Result<bool> {
        let number = point.state.number;
        let (old, needed) = {
            // A report of the points has either those before or those after.
            let mut last = self.last();
            // The first server may not have known of a point that this one has made alone.
            if !is_present() || number <= last.alone {
                return Ok(false);
            }
            (last.number, last.writes) = (last.number.max(number), number);
            let newest = last.cuts.last().copied();
            let is_needed = |cut: &mut u64| *cut == common || Some(*cut) == newest;
            let old: Vec<u64> = last.cuts.extract_if(.., |cut| !is_needed(cut)).collect();
            (old, last.cuts.clone())
        };
        in_place(|| {
            self.store.remove(|other| match common {
                0 => old.contains(&other),
                _ => other != number && !needed.contains(&other),
            });
        });
        #[cfg(test)]
        if let PointStore::Memory(_, disk) = &self.store {
            tokio::time::sleep(disk.writing).await;
        }
        let written = self.write(point, known);
        self.last().writes = 0;
        written.map(|()| true)
    }

    /// Writes a point.
    fn write(&self, point: Point, known: u64) -> Result<()> {
        let (number, is_cut) = (point.state.number, point.state.is_cut);
        let num_bytes = in_place(|| without_panic(|| self.store.write(point)))?;
        self.written.notify_waiters();
        let mut last = self.last();
        (last.number, last.known) = (last.number.max(number), Some(known));
        if is_cut {
            last.cuts.push(number);
            self.group.set_goes_back(true);
        }
        last.state = RecoveryState {
            num_points: last.state.num_points + 1,
            num_bytes,
            made: Some(SystemTime::now()),
            error: None,
            awaits_others: false,
        };
        Ok(())
    }
}
