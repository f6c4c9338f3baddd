//! [`Index`]: what a replay must know about later records of a journal.

use std::collections::{HashMap, HashSet};
use std::io::{Read, Seek};

use kvstore_core::Result;

use crate::journal::format::Kind;
use crate::journal::heads::{Digests, Failed, Start};
use crate::journal::{ContentDigests, IncompleteRecord, Position, Reader};

/// The place of a mark, and the run of the server to which it belongs.
#[derive(Clone, Debug)]
pub(super) struct FoundMark {
    pub(super) number: u64,
    /// The place after the record.
    pub(super) position: Position,
    pub(super) start: Start,
    /// The index of the wanted contents that are equal.
    pub(super) wanted: usize,
}

/// What a replay must know about later records.
#[derive(Debug, Default)]
pub(super) struct Index {
    /// The records of calls that have failed.
    pub(super) failed: HashSet<u64>,
    /// The marks whose checksums are complete.
    pub(super) digested: HashSet<u64>,
    pub(super) incomplete: Option<IncompleteRecord>,
    /// Marks whose contents are wanted.
    pub(super) found: Vec<FoundMark>,
}

impl Index {
    /// Reads a journal without its long data. Finds the marks with these contents.
    ///
    /// # Errors
    /// - The errors of the [`Reader`].
    pub(super) fn read<R: Read + Seek>(
        reader: &mut Reader<R>,
        wanted: &[&ContentDigests],
    ) -> Result<Self> {
        let mut index = Self::default();
        let mut start = Start::default();
        let mut marks: HashMap<u64, (Position, Start, ContentDigests)> = HashMap::new();
        while let Some(record) = reader.next()? {
            match reader.kind(&record)? {
                Kind::Data | Kind::Call => {}
                Kind::Start => start = reader.head(&record)?,
                Kind::Failed => {
                    let Failed { record, .. } = reader.head(&record)?;
                    index.failed.insert(record);
                }
                Kind::Mark => {
                    let mark = (reader.position(), start.clone(), ContentDigests::default());
                    marks.insert(record.number, mark);
                }
                Kind::Digests => {
                    let digests: Digests = reader.head(&record)?;
                    let number = digests.mark;
                    let Some((_, _, contents)) = marks.get_mut(&number) else { continue };
                    if !contents.add(digests) {
                        continue;
                    }
                    let Some((position, start, contents)) = marks.remove(&number) else { continue };
                    index.digested.insert(number);
                    for (wanted, _) in
                        wanted.iter().enumerate().filter(|(_, wanted)| ***wanted == contents)
                    {
                        let start = start.clone();
                        index.found.push(FoundMark { number, position, start, wanted });
                    }
                }
            }
        }
        index.incomplete = reader.incomplete();
        index.found.sort_unstable_by_key(|mark| (mark.number, mark.wanted));
        Ok(index)
    }
}
