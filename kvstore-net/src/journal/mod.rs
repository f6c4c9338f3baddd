//! [`Journal`]: a file with the calls that have changed the store of a server, in the order in
//! which they took effect.
//!
//! - `format.rs` defines the bytes of a record, `heads.rs` its fields.
//! - `writer.rs` appends records, `reader.rs` reads and checks them.
//! - `recording.rs` records a call: first its data, then, with the locks of its keys, that it takes
//!   effect.
//! - `attempts.rs` records the pushes of a round, while a server adds them up.
//!
//! Locks, in this order: that of the order of calls, those of the store, and that of the file. A
//! push shares the first one until its record is written, so a later record is that of a later
//! call. Every other change of the store holds it alone, because it may affect all keys.

mod attempts;
pub(crate) mod caller;
mod digests;
pub(crate) mod format;
pub(crate) mod heads;
mod reader;
mod recording;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod samples;
mod writer;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock};
use std::{io, mem};

use kvstore_core::{Error, Result, Snapshot};
use prost::Message as _;

use self::digests::digest_records;
use self::heads::{Failed, Head, Mark, Participant, Reason, Start};
use self::writer::Writer;
use crate::files::crc;
use crate::random::random_number;

pub(crate) use self::attempts::AttemptRecord;
pub(crate) use self::caller::{Callers, with_caller, with_callers};
pub(crate) use self::digests::{ContentDigests, value_digest};
pub use self::reader::IncompleteRecord;
pub(crate) use self::reader::{Position, RawRecord, Reader};
pub(crate) use self::recording::{ChangeRecord, PushRecord};

/// What a journal keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum JournalMode {
    /// Who took part in which step, and the keys.
    Order,
    /// Also the values of the calls, so that the journal can be replayed.
    #[default]
    Full,
}

impl JournalMode {
    /// Returns `order` or `full`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Order => "order",
            Self::Full => "full",
        }
    }

    /// Returns the mode with this name.
    ///
    /// # Errors
    /// - [`Error::InvalidArgument`] if there is none.
    pub fn from_name(name: &str) -> Result<Self> {
        let known = [Self::Order, Self::Full].into_iter().find(|mode| mode.name() == name);
        known.ok_or_else(|| {
            Error::invalid(format!("journal_mode: expected order or full, found `{name}`"))
        })
    }
}

/// The settings of a journal.
#[derive(Clone, Debug)]
pub(crate) struct JournalOptions {
    pub(crate) path: PathBuf,
    pub(crate) mode: JournalMode,
    pub(crate) is_required: bool,
}

/// The state of a journal for operators.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct JournalState {
    pub(crate) mode: &'static str,
    pub(crate) num_records: u64,
    pub(crate) num_bytes: u64,
    /// Why the last record could not be written, if the journal has stopped or calls fail.
    pub(crate) error: Option<String>,
}

/// The journal of a server.
#[derive(Debug)]
pub(crate) struct Journal {
    options: JournalOptions,
    order: RwLock<()>,
    writer: Mutex<Writer>,
    /// Whether nothing is recorded any more: after an error, or at the end of the server.
    has_stopped: AtomicBool,
    next_call: AtomicU64,
    num_records: AtomicU64,
    num_bytes: AtomicU64,
    error: Mutex<Option<String>>,
    /// The bytes that were pushed since a record had the checksum of a value.
    pushed_since_digest: AtomicU64,
}

impl Journal {
    /// Opens or creates the journal of a server, and records its start.
    ///
    /// # Errors
    /// - [`Error::Io`] if the file cannot be written, or another server writes it.
    /// - [`Error::Corrupt`] if the file is not a journal, or is damaged.
    pub(crate) fn open(options: &JournalOptions, run: u64, store: &str) -> Result<Self> {
        let (writer, cut_bytes) = Writer::open(&options.path, !options.is_required)?;
        if cut_bytes > 0 {
            let path = options.path.display();
            tracing::warn!(cut_bytes, %path, "the journal ended with an incomplete record");
        }
        let journal = Self {
            options: options.clone(),
            order: RwLock::default(),
            num_bytes: AtomicU64::new(writer.num_bytes()),
            writer: Mutex::new(writer),
            has_stopped: AtomicBool::new(false),
            next_call: AtomicU64::new(1),
            num_records: AtomicU64::new(0),
            error: Mutex::default(),
            pushed_since_digest: AtomicU64::new(0),
        };
        let start = Start {
            server_run: run,
            store: store.to_owned(),
            has_values: options.mode == JournalMode::Full,
            software: env!("CARGO_PKG_VERSION").to_owned(),
            cut_bytes,
        };
        let started = journal.write::<Start>(&start.encode_to_vec());
        started.map_err(|error| journal.failed("the start of a server", error))?;
        Ok(journal)
    }

    pub(crate) fn state(&self) -> JournalState {
        JournalState {
            mode: self.options.mode.name(),
            num_records: self.num_records.load(Ordering::Relaxed),
            num_bytes: self.num_bytes.load(Ordering::Relaxed),
            error: self.error().clone(),
        }
    }

    /// Returns whether calls are recorded.
    fn is_recording(&self) -> bool {
        !self.has_stopped.load(Ordering::Relaxed)
    }

    fn has_values(&self) -> bool {
        self.options.mode == JournalMode::Full
    }

    fn writer(&self) -> MutexGuard<'_, Writer> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn error(&self) -> MutexGuard<'_, Option<String>> {
        self.error.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write<H: Head>(&self, head: &[u8]) -> io::Result<u64> {
        self.write_with_data::<H>(head, &[], crc(&[head]))
    }

    fn write_with_data<H: Head>(
        &self,
        head: &[u8],
        data: &[&[u8]],
        contents: u64,
    ) -> io::Result<u64> {
        let mut writer = self.writer();
        let number = writer.append::<H>((head, data), contents)?;
        self.count(&writer);
        drop(writer);
        if self.options.is_required {
            self.succeeded();
        }
        Ok(number)
    }

    fn count(&self, writer: &Writer) {
        self.num_records.fetch_add(1, Ordering::Relaxed);
        self.num_bytes.store(writer.num_bytes(), Ordering::Relaxed);
    }

    /// Forgets an error after which calls have failed.
    fn succeeded(&self) {
        let mut error = self.error();
        if error.is_some() {
            *error = None;
            tracing::warn!(path = %self.options.path.display(), "the journal continues");
        }
    }

    fn failed(&self, what: &str, source: io::Error) -> Error {
        let (path, operation) = (self.options.path.clone(), format!("writing {what} to a journal"));
        Error::Io { path, operation, source }
    }

    /// Reports that a record cannot be written. Returns the error for the call if the journal is
    /// required. Otherwise, the journal stops and the call continues.
    fn report(&self, what: &str, source: io::Error) -> Result<()> {
        let failed = self.failed(what, source);
        let text = failed.chain();
        let is_new = {
            let mut error = self.error();
            let is_new = error.is_none();
            error.get_or_insert_with(|| text.clone());
            is_new
        };
        if self.options.is_required {
            if is_new {
                tracing::error!(error = text, "calls fail, because the journal is required");
            }
            return Err(failed);
        }
        if !self.has_stopped.swap(true, Ordering::Relaxed) {
            tracing::error!(error = text, "the journal stops, and the server continues");
        }
        Ok(())
    }

    /// Records that a call has failed after its record or its data were written.
    fn record_failed(&self, failed: Failed) {
        let mut writer = self.writer();
        match writer.append_failed(failed) {
            Ok(()) => self.count(&writer),
            Err(error) => {
                drop(writer);
                // The call fails with its own error.
                let _ = self.report("a failed call", error);
            }
        }
    }

    /// Begins to record a push.
    pub(crate) fn push(&self) -> Option<PushRecord<'_>> {
        let order = self.order.read().unwrap_or_else(PoisonError::into_inner);
        self.is_recording().then(|| PushRecord::new(self, order))
    }

    /// Begins to record a change that affects more than the keys of a push.
    pub(crate) fn change(&self) -> Option<ChangeRecord<'_>> {
        let order = self.order.write().unwrap_or_else(PoisonError::into_inner);
        self.is_recording().then(|| ChangeRecord::new(self, order))
    }

    /// Takes a snapshot, and records its place in the order of calls and its checksums.
    ///
    /// # Errors
    /// - The errors of `take`, and [`Error::Io`] if the journal is required and cannot be written.
    pub(crate) fn mark(
        &self,
        (reason, checkpoint): (Reason, &str),
        take: impl FnOnce() -> Result<Snapshot>,
    ) -> Result<Snapshot> {
        let order = self.order.write().unwrap_or_else(PoisonError::into_inner);
        let snapshot = take()?;
        if !self.is_recording() {
            return Ok(snapshot);
        }
        let (reason, checkpoint) = (reason as i32, checkpoint.to_owned());
        let caller: Option<Participant> = mem::take(&mut caller::callers().participants).pop();
        let mark = Mark { reason, checkpoint, caller, point: 0 };
        let marked = self.write::<Mark>(&mark.encode_to_vec());
        drop(order);
        let digested = marked.and_then(|mark| {
            if self.has_values() {
                for digests in digest_records(mark, &snapshot).map_err(io::Error::other)? {
                    self.write::<heads::Digests>(&digests.encode_to_vec())?;
                }
            }
            self.writer().sync()
        });
        match digested {
            Ok(()) => Ok(snapshot),
            Err(error) => self.report("the checksums of a snapshot", error).map(|()| snapshot),
        }
    }

    /// Records that the server makes a recovery point. The caller keeps calls from taking effect.
    /// Returns a number for [`Journal::recovered`], or 0 if the journal has no values.
    pub(crate) fn point(&self) -> u64 {
        let point = random_number();
        if self.mark_point(Reason::Point, point) { point } else { 0 }
    }

    /// Records that the server has continued from a recovery point, so that a replay compares the
    /// values.
    pub(crate) fn recovered(&self, point: u64) {
        self.mark_point(Reason::Recovered, point);
    }

    fn mark_point(&self, reason: Reason, point: u64) -> bool {
        if !self.is_recording() || !self.has_values() {
            return false;
        }
        let mark = Mark { reason: reason as i32, point, ..Mark::default() };
        match self.write::<Mark>(&mark.encode_to_vec()) {
            Ok(_) => true,
            Err(error) => {
                // The point does not fail, because it has all values.
                let _ = self.report("a recovery point", error);
                false
            }
        }
    }

    /// Records the end of the server with the checksums of its contents. Nothing is recorded
    /// afterwards.
    pub(crate) fn end(&self, take: impl FnOnce() -> Result<Snapshot>) {
        if let Err(error) = self.mark((Reason::End, ""), take) {
            tracing::error!(error = error.chain(), "the end of the server is not in the journal");
        }
        self.has_stopped.store(true, Ordering::Relaxed);
        self.writer().release();
    }
}
