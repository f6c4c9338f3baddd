//! [`replay`]: makes the calls of a journal again, and compares the results.
//!
//! A replay reads the journal twice. First it finds the calls that have failed and the marks of
//! checkpoints (`index.rs`), without the data of calls. Then it makes the calls (`player.rs`), and
//! adds up the pushes of rounds again (`attempt.rs`).

mod attempt;
mod index;
mod player;
mod report;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::time::Instant;

use kvstore_core::{Backends, Error, PartList, Result, Snapshot, fallible};

use self::index::{FoundMark, Index};
use self::player::Player;
use crate::journal::{ContentDigests, Reader};

pub use self::report::{Difference, ReplayReport, ReplayedKey, ReplayedStep, StepMember};

/// The part of a journal that is replayed, and the files for it.
#[derive(Clone, Debug, Default)]
pub struct ReplayOptions {
    /// The checkpoint from which to begin: a file, or the folder of a checkpoint on servers.
    /// Without one, the replay begins with the first record, and the empty store.
    pub from: Option<PathBuf>,
    /// The checkpoint at which to end, which is then compared bit by bit. Without one, the replay
    /// ends with the last record.
    pub to: Option<PathBuf>,
    /// Where to write the contents at the end, as a checkpoint.
    pub write: Option<PathBuf>,
}

/// A checkpoint, or the parts of one, with its checksums.
struct Candidates(Vec<(Snapshot, ContentDigests)>);

impl Candidates {
    fn read(backends: &Backends, path: Option<&PathBuf>) -> Result<Self> {
        let Some(path) = path else { return Ok(Self(Vec::new())) };
        let mut files = Vec::new();
        if path.is_dir() {
            for file in PartList::read(path)?.files() {
                fallible::push(&mut files, path.join(file))?;
            }
        } else {
            files.push(path.clone());
        }
        let mut candidates = fallible::with_capacity(files.len())?;
        for file in files {
            let snapshot = Snapshot::read(backends, file)?;
            let digests = ContentDigests::of(&snapshot)?;
            candidates.push((snapshot, digests));
        }
        Ok(Self(candidates))
    }

    fn digests(&self) -> impl Iterator<Item = &ContentDigests> {
        self.0.iter().map(|(_, digests)| digests)
    }
}

/// Makes the calls of a journal again, in a store of this process, and compares the results with
/// the checksums of the journal.
///
/// A journal without values ([`JournalMode::Order`](crate::JournalMode::Order)) cannot be
/// replayed: the report then has the members and keys of its steps.
///
/// # Errors
/// - [`Error::Io`] if a file cannot be read or written.
/// - [`Error::Corrupt`] if the journal is damaged. The message has the position.
/// - [`Error::InvalidArgument`] if a checkpoint is not one of this journal.
/// - [`Error::Unsupported`] if an updater has changed a value, because a journal has no code, or if
///   a later version of the library has written the journal.
pub fn replay(
    backends: &Backends,
    journal: impl AsRef<Path>,
    options: &ReplayOptions,
) -> Result<ReplayReport> {
    replay_steps(backends, journal, options, &mut |_| {})
}

/// Makes the calls of a journal again as [`replay`] does, and calls a function after each push and
/// each round.
///
/// # Errors
/// - The errors of [`replay`].
pub fn replay_steps(
    backends: &Backends,
    journal: impl AsRef<Path>,
    options: &ReplayOptions,
    on_step: &mut dyn FnMut(&ReplayedStep),
) -> Result<ReplayReport> {
    let journal = journal.as_ref();
    let from = Candidates::read(backends, options.from.as_ref())?;
    let to = Candidates::read(backends, options.to.as_ref())?;
    let num_from = from.0.len();
    let wanted = fallible::gather(from.digests().chain(to.digests()))?;
    let index = Index::read(&mut Reader::open(journal)?.skipping_data(), &wanted)?;
    drop(wanted);
    let begin = find(&index, (journal, options.from.as_deref()), |mark| mark.wanted < num_from)?;
    let least = begin.map_or(0, |mark| mark.number);
    let end = find(&index, (journal, options.to.as_deref()), |mark| {
        mark.wanted >= num_from && mark.number >= least
    })?;
    let mut reader = Reader::open(journal)?;
    let mut player = Player::new(backends, &index, on_step);
    let start = Instant::now();
    if let Some(mark) = begin {
        reader.continue_at(mark.begin)?;
        if let Some((snapshot, _)) = from.0.get(mark.wanted) {
            player.begin_at(mark, snapshot)?;
        }
    }
    let first = reader.position().offset;
    player.play(&mut reader, end.map(|mark| mark.number))?;
    if let Some(mark) = end
        && let Some((snapshot, _)) = to.0.get(mark.wanted - num_from)
    {
        player.compare(mark, snapshot)?;
    }
    let contents = player.finish(options.write.is_some())?;
    let mut report = player.report;
    report.duration = start.elapsed();
    report.num_bytes = reader.position().offset - first;
    report.incomplete = index.incomplete.filter(|_| end.is_none());
    if let (Some(file), None, Some(contents)) = (&options.write, &report.difference, contents) {
        contents.write(file)?;
    }
    Ok(report)
}

/// Returns the mark of a checkpoint.
fn find<'a>(
    index: &'a Index,
    (journal, checkpoint): (&Path, Option<&Path>),
    is_wanted: impl Fn(&&FoundMark) -> bool,
) -> Result<Option<&'a FoundMark>> {
    let Some(checkpoint) = checkpoint else { return Ok(None) };
    let found = index.found.iter().find(is_wanted);
    let Some(found) = found else {
        return Err(Error::invalid(format!(
            "journal `{}`: at no record does the server have the contents of `{}`: expected a \
             checkpoint that was made while this journal was written, with journal_mode full",
            journal.display(),
            checkpoint.display()
        )));
    };
    Ok(Some(found))
}

/// Replays a journal in memory, for tests with any bytes.
///
/// # Errors
/// - The errors of [`replay`].
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn replay_bytes(backends: &Backends, bytes: &[u8]) -> Result<ReplayReport> {
    let reader =
        || Reader::new(std::io::Cursor::new(bytes), bytes.len() as u64, "journal".to_owned());
    let index = Index::read(&mut reader()?.skipping_data(), &[])?;
    let mut ignore = |_: &ReplayedStep| {};
    let mut player = Player::new(backends, &index, &mut ignore);
    player.play(&mut reader()?, None)?;
    player.finish(false)?;
    Ok(ReplayReport { incomplete: index.incomplete, ..player.report })
}
