//! [`LeaderState`]: what the first server of a group keeps for its successor.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Mutex as AsyncMutex;
use tonic::Status;

use super::names::{MemberRecord, parse, parse_number};
use super::registration::Registration;
use crate::etcd::Transaction;

/// The layouts that are reserved in etcd together, so that most calls need no change there.
const BLOCK: u64 = 1 << 20;

/// The most members that are removed in a transaction, whose operations etcd limits to 128.
const MOST_REMOVED: usize = 100;

/// What the leader keeps in etcd. Each method returns after etcd has it.
#[derive(Debug)]
pub(crate) struct LeaderState {
    registration: Arc<Registration>,
    /// The layouts that are reserved in etcd and not handed out.
    layouts: AsyncMutex<Range<u64>>,
    /// Locked while members are written, so that the last record of a name is written last.
    writing: AsyncMutex<()>,
    members: Mutex<Members>,
}

#[derive(Debug, Default)]
struct Members {
    /// What etcd has.
    saved: BTreeMap<String, MemberRecord>,
    /// The names that have left since, whose ranks others may have got.
    left: BTreeSet<String>,
}

/// What an earlier leader has kept.
#[derive(Debug, Default)]
pub(crate) struct KeptGroup {
    pub(crate) num_barriers: u64,
    pub(crate) members: BTreeMap<String, MemberRecord>,
}

impl LeaderState {
    /// Returns the state of a new leader, with what earlier ones have kept.
    pub(crate) async fn load(
        registration: &Arc<Registration>,
    ) -> Result<(Self, KeptGroup), Status> {
        let Registration { etcd, names, .. } = &**registration;
        let limit = registration.limit();
        let barriers = etcd.get(&names.barriers(), limit).await?;
        let num_barriers = barriers.as_ref().map_or(Ok(0), parse_number)?;
        let (prefix, mut members) = (names.members(), BTreeMap::new());
        for found in etcd.range(&prefix, limit).await?.0 {
            let name = String::from_utf8_lossy(&found.key);
            let name = name.strip_prefix(&prefix).unwrap_or_default().to_owned();
            members.insert(name, parse(&found)?);
        }
        let state = Self {
            registration: Arc::clone(registration),
            layouts: AsyncMutex::default(),
            writing: AsyncMutex::default(),
            members: Mutex::new(Members { saved: members.clone(), left: BTreeSet::new() }),
        };
        Ok((state, KeptGroup { num_barriers, members }))
    }

    /// Begins a transaction that only the leader can make.
    fn guarded(&self) -> Transaction {
        let Registration { names, .. } = &*self.registration;
        Transaction::default().if_leased(&names.leader(), self.registration.lease())
    }

    /// Makes a transaction.
    ///
    /// # Errors
    /// - [`Code::Aborted`](tonic::Code::Aborted) if it is not made. A member repeats its call.
    async fn write(&self, transaction: Transaction) -> Result<(), Status> {
        let etcd = &self.registration.etcd;
        let made = etcd.transact(transaction, self.registration.limit()).await;
        match made {
            Ok(outcome) if outcome.is_made => Ok(()),
            Ok(_) => {
                let text = "this server is not the leader of its group at the moment";
                Err(Status::aborted(format!("etcd `{}`: {text}", etcd.name())))
            }
            Err(status) => Err(Status::aborted(etcd.failure(&status).chain())),
        }
    }

    /// Reserves this many layouts. Returns the first one.
    pub(crate) async fn reserve(&self, count: u64) -> Result<u64, Status> {
        let Registration { etcd, names, .. } = &*self.registration;
        let mut layouts = self.layouts.lock().await;
        if layouts.end - layouts.start < count {
            let (key, limit) = (names.layouts(), self.registration.limit());
            let found = etcd.get(&key, limit).await;
            let found = found.map_err(|status| Status::aborted(etcd.failure(&status).chain()))?;
            let revision = found.as_ref().map_or(0, |found| found.mod_revision);
            let next = found.as_ref().map_or(Ok(0), parse_number)?;
            // A group that had no etcd before has used layouts below the number of this run.
            let first = next.max(self.registration.run() + 1);
            let end = first + count.max(BLOCK);
            let reserving = self.guarded().if_unchanged(&key, revision);
            self.write(reserving.put(&key, &end.to_string(), 0)).await?;
            *layouts = first..end;
        }
        let first = layouts.start;
        layouts.start += count;
        Ok(first)
    }

    /// Keeps the number of barriers that the group has passed.
    pub(crate) async fn save_barriers(&self, count: u64) -> Result<(), Status> {
        let key = self.registration.names.barriers();
        self.write(self.guarded().put(&key, &count.to_string(), 0)).await
    }

    fn members(&self) -> MutexGuard<'_, Members> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the members that are kept.
    pub(crate) fn kept_members(&self) -> BTreeMap<String, MemberRecord> {
        let members = self.members();
        let has_left = |name: &String| members.left.contains(name);
        let kept = members.saved.iter().filter(|(name, _)| !has_left(name));
        kept.map(|(name, record)| (name.clone(), record.clone())).collect()
    }

    /// Keeps a member, and removes those that have left.
    pub(crate) async fn save_member(
        &self,
        name: &str,
        record: &MemberRecord,
    ) -> Result<(), Status> {
        let is_saved = || {
            let members = self.members();
            members.saved.get(name) == Some(record) && !members.left.contains(name)
        };
        if is_saved() {
            return Ok(());
        }
        let _one_at_a_time = self.writing.lock().await;
        let names = &self.registration.names;
        let json = super::names::to_json(record);
        let json = json.map_err(|error| Status::internal(error.chain()))?;
        let left: Vec<String> = {
            let mut members = self.members();
            members.left.remove(name);
            members.left.iter().cloned().collect()
        };
        // First, because this member may have got the rank of one of them.
        for left in left.chunks(MOST_REMOVED) {
            let remove =
                |removing: Transaction, name: &String| removing.delete(&names.member(name));
            self.write(left.iter().fold(self.guarded(), remove)).await?;
            let mut members = self.members();
            for name in left {
                members.left.remove(name);
                members.saved.remove(name);
            }
        }
        self.write(self.guarded().put(&names.member(name), &json, 0)).await?;
        self.members().saved.insert(name.to_owned(), record.clone());
        Ok(())
    }

    /// Forgets a member before the next one is kept, because that one may get its rank.
    pub(crate) fn forget_member(&self, name: &str) {
        let mut members = self.members();
        if members.saved.contains_key(name) {
            members.left.insert(name.to_owned());
        }
    }
}
