//! Snapshots and checkpoints of the contents of a server.

use std::collections::HashSet;

use kvstore_core::{PartList, Result, fallible};

use super::Holder;
#[cfg(test)]
use crate::faults::Fault;
use crate::journal::heads::Reason;
use crate::proto;
use crate::server::snapshots::{KeptSnapshot, Released};
use crate::server::verbs::Answer;

impl Holder {
    pub(super) fn take_snapshot(
        &self,
        incarnation: u64,
        taken: &proto::TakeSnapshot,
    ) -> Result<Answer> {
        if let Some(list) = &taken.needed {
            drop(self.snapshots.keep(incarnation, list)?);
        }
        let take = || self.taken(&taken.checkpoint);
        self.snapshots.take(incarnation, taken.snapshot, take)?.outline()
    }

    /// Takes a snapshot for a member. If an earlier attempt has taken it, takes it again.
    ///
    /// # Errors
    /// - [`Error::Transport`] if the member does not need it any more.
    pub(in crate::server) fn replace_snapshot(
        &self,
        incarnation: u64,
        taken: &proto::TakeSnapshot,
    ) -> Result<()> {
        if let Some(list) = &taken.needed {
            drop(self.snapshots.keep(incarnation, list)?);
        }
        drop(self.snapshots.remove(incarnation, taken.snapshot));
        self.snapshots.take(incarnation, taken.snapshot, || self.taken(&taken.checkpoint)).map(drop)
    }

    /// Returns the contents with the placements of the keys that exist for all members.
    pub(super) fn taken(&self, checkpoint: &str) -> Result<KeptSnapshot> {
        let _kept = self.keep_keys();
        let snapshot = if checkpoint.is_empty() {
            self.contents.snapshot()?
        } else {
            self.contents.marked(Reason::Checkpoint, checkpoint)?
        };
        let records = self.records();
        let visible = || records.by_key.iter().filter(|(_, record)| record.is_visible);
        let mut placements = fallible::hash_map(visible().count())?;
        placements.extend(visible().map(|(key, record)| (key.clone(), record.placement.clone())));
        Ok(KeptSnapshot { snapshot, placements })
    }

    /// Returns the number of snapshots that members hold.
    pub(in crate::server) fn num_snapshots(&self) -> usize {
        self.snapshots.len()
    }

    /// Forgets the snapshots of members that have left, or have been dead as long as a lease.
    pub(in crate::server) fn forget_snapshots(&self) -> Released {
        #[cfg(test)]
        if Fault::ForgetSnapshots.is_planted() {
            return self.forget_all_snapshots();
        }
        self.snapshots.forget(|| self.group.remembered())
    }

    /// Forgets the snapshots of all members.
    pub(in crate::server) fn forget_all_snapshots(&self) -> Released {
        self.snapshots.forget(HashSet::new)
    }

    /// Writes a part of a checkpoint, or the list of the parts. The answer of the former has the
    /// keys of the part.
    pub(super) fn checkpoint(
        &self,
        incarnation: u64,
        checkpoint: &proto::Checkpoint,
    ) -> Result<Answer> {
        let folder = self.checkpoints.folder(&checkpoint.name)?;
        let part = (checkpoint.number, checkpoint.server);
        if !checkpoint.parts.is_empty() {
            self.checkpoints.publish(&folder, part, &PartList::from_json(&checkpoint.parts)?)?;
            return Ok(Answer::default());
        }
        let (snapshot, values) = if checkpoint.snapshot == 0 {
            let _kept = self.keep_keys();
            (
                self.contents.marked(Reason::Checkpoint, &checkpoint.name)?,
                self.records().messages()?,
            )
        } else {
            let kept = self.snapshots.get(incarnation, checkpoint.snapshot)?;
            (kept.snapshot.clone(), kept.messages()?)
        };
        let keys = snapshot.keys().map(|key| key.as_str().to_owned()).collect();
        // Pushes continue meanwhile.
        let member = (incarnation, |incarnation| self.group.is_live(incarnation));
        self.checkpoints.write(&folder, part, member, &snapshot)?;
        Ok(Answer::of(proto::Reply { keys, values, ..Default::default() }))
    }
}
