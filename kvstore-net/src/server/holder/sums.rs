//! Pushes of the sums of rounds.

use std::sync::atomic::Ordering;

use kvstore_core::{Error, Result, Value};

use super::Holder;
use crate::journal::AttemptRecord;
use crate::proto;

impl Holder {
    /// Pushes the sums of a round. `heads` have the layouts for which they were made.
    ///
    /// # Errors
    /// - [`Error::Transport`] if a key has been removed or replaced since.
    pub(crate) fn push_sums(
        &self,
        (push, heads): (proto::Push, &[proto::Value]),
        sums: Vec<Value>,
        attempt: Option<AttemptRecord<'_>>,
    ) -> Result<()> {
        let _kept = self.keep_keys();
        if !self.has_layouts_of(heads) {
            return Err(Error::Transport {
                operation: "push to a round".to_owned(),
                source: "another worker has removed or replaced a key meanwhile".into(),
            });
        }
        self.contents.push_sums(push, sums, attempt)
    }

    /// Returns whether all keys have the layouts of these values, if the group has several servers.
    pub(crate) fn has_layouts_of(&self, values: &[proto::Value]) -> bool {
        let pairs = values.iter().map(|value| {
            let placement = value.placement.as_ref()?;
            Some((value.key.as_str(), placement.layout))
        });
        !self.has_layouts.load(Ordering::Relaxed) || self.records().has_all(pairs)
    }
}
