//! [`Index`]: what a replay must know about later records of a journal.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::{Read, Seek};

use kvstore_core::Result;

use crate::journal::format::Kind;
use crate::journal::heads::{Call, Digests, Failed, Mark, Reason, Start};
use crate::journal::{ContentDigests, IncompleteRecord, Position, Reader};

/// The place of a mark, and the run of the server to which it belongs.
#[derive(Clone, Debug)]
pub(super) struct FoundMark {
    pub(super) number: u64,
    /// The place after the record.
    pub(super) position: Position,
    /// The place before the first attempt that may take effect after the mark, or after the record.
    pub(super) begin: Position,
    pub(super) start: Start,
    /// The index of the wanted contents that are equal.
    pub(super) wanted: usize,
}

/// What a replay must know about later records.
#[derive(Debug, Default)]
pub(super) struct Index {
    /// The records of calls that have failed, and of attempts that were given up.
    pub(super) failed: HashSet<u64>,
    /// The recovery points from which the server has continued.
    pub(super) recovered: HashSet<u64>,
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
        let mut marks: HashMap<u64, (FoundMark, ContentDigests)> = HashMap::new();
        // The attempts that may still take effect, with the places before them.
        let mut attempts = BTreeMap::new();
        loop {
            let before = reader.position();
            let Some(record) = reader.next()? else { break };
            let number = record.number;
            match reader.kind(&record)? {
                Kind::Data | Kind::Part => {}
                Kind::Start => {
                    start = reader.head(&record)?;
                    attempts.clear();
                }
                Kind::Attempt => drop(attempts.insert(number, before)),
                Kind::Call => {
                    let Call { attempt, .. } = reader.head(&record)?;
                    attempts.remove(&attempt);
                }
                Kind::Failed => {
                    let Failed { record, .. } = reader.head(&record)?;
                    index.failed.insert(record);
                    attempts.remove(&record);
                }
                Kind::Mark => {
                    let mark: Mark = reader.head(&record)?;
                    match mark.reason() {
                        Reason::Point => continue,
                        Reason::Recovered => {
                            index.recovered.insert(mark.point);
                            continue;
                        }
                        _ => {}
                    }
                    let (position, start) = (reader.position(), start.clone());
                    let begin = attempts.first_key_value().map_or(position, |(_, begin)| *begin);
                    let mark = FoundMark { number, position, begin, start, wanted: 0 };
                    marks.insert(number, (mark, ContentDigests::default()));
                }
                Kind::Digests => {
                    let digests: Digests = reader.head(&record)?;
                    let number = digests.mark;
                    let Some((_, contents)) = marks.get_mut(&number) else { continue };
                    if !contents.add(digests) {
                        continue;
                    }
                    let Some((mark, contents)) = marks.remove(&number) else { continue };
                    index.digested.insert(number);
                    for (wanted, _) in
                        wanted.iter().enumerate().filter(|(_, wanted)| ***wanted == contents)
                    {
                        index.found.push(FoundMark { wanted, ..mark.clone() });
                    }
                }
            }
        }
        index.incomplete = reader.incomplete();
        index.found.sort_unstable_by_key(|mark| (mark.number, mark.wanted));
        Ok(index)
    }
}
