//! The contents of recovery points.

use std::sync::Arc;

use kvstore_core::{Error, Key, KvStore, LocalStore, Result, Snapshot, Tensor, Updater};

use super::Holder;
use crate::server::records::{Records, SavedRecords};

impl Holder {
    /// Returns the contents and the placements for a recovery point, or `None` while keys are being
    /// added or replaced.
    pub(in crate::server) fn saved(&self) -> Result<Option<(Snapshot, SavedRecords)>> {
        let _changed = self.change_keys();
        self.remove_unfinished(|_, _| false)?;
        if !self.records().is_settled() {
            return Ok(None);
        }
        let contents = self.contents.unmarked_snapshot()?;
        Ok(Some((contents, self.records().saved()?)))
    }

    /// Sets an updater that fails if the contents need an updater. Returns it.
    pub(in crate::server) fn replace_updater(
        &self,
        contents: &Snapshot,
    ) -> Result<Option<Arc<dyn Updater>>> {
        let store = self.contents.store();
        if !contents.has_updater() || store.has_updater() {
            return Ok(None);
        }
        let fail = |_: &Key, _: &Tensor, _: &mut Tensor| {
            Err("the program of the server has not set its updater yet".into())
        };
        let missing: Arc<dyn Updater> = Arc::new(fail);
        store.set_updater(Some(Arc::clone(&missing)))?;
        Ok(Some(missing))
    }

    /// Returns the contents of an empty store.
    pub(in crate::server) fn nothing(&self) -> Result<Snapshot> {
        let backends = self.contents.backends().clone();
        let unknown = || Error::Internal("a store without a name".to_owned());
        let name = self.contents.store().name();
        LocalStore::new(name, backends).ok_or_else(unknown)?.snapshot()
    }

    /// Continues with the contents and the placements of a recovery point.
    pub(in crate::server) fn restore_point(
        &self,
        contents: &Snapshot,
        records: SavedRecords,
    ) -> Result<()> {
        self.contents.rollback(contents)?;
        *self.records() = Records::restored(records)?;
        Ok(())
    }
}
