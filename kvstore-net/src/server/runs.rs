//! [`Runs`]: the runs of a server in this process. A server that goes back to a recovery point
//! begins another run, as if it had been restarted.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use kvstore_core::{Error, Result};
use tokio::sync::RwLock;
use tokio_util::sync::CancellationToken;

use super::checkpoints::Checkpoints;
use super::contents::Contents;
use super::group::Group;
use super::holder::Holder;
use super::peers::lead::{Led, lead};
use super::recovery::{PointStore, Recovery};
use super::service::Service;
use super::serving::end_leases;
use crate::proto;
use crate::runtime::in_place;

/// How soon a server tries again to begin another run.
const AGAIN: Duration = Duration::from_secs(1);

/// How long the end of a server waits for a run that begins.
const BEGINS: Duration = Duration::from_secs(5);

/// What all runs of a server share.
pub(crate) struct Parts {
    pub(crate) contents: Arc<Contents>,
    /// The folder for checkpoints.
    pub(crate) checkpoints: Option<PathBuf>,
    pub(crate) lease: Duration,
    /// Where recovery points are kept, and how often they are made.
    pub(crate) points: Option<(PointStore, Duration)>,
    /// Ends all runs.
    pub(crate) end: CancellationToken,
    /// The other servers that this one leads.
    pub(crate) followers: Mutex<Vec<Led>>,
    /// Returns the number of the run after this one.
    pub(crate) next_run: fn(u64) -> u64,
    /// Called for each run before members join.
    pub(crate) on_begin: Box<dyn Fn(&Service) + Send + Sync>,
}

/// The runs of a server.
pub(crate) struct Runs {
    parts: Parts,
    present: Mutex<Service>,
    /// Locked while another run begins.
    beginning: tokio::sync::Mutex<()>,
}

impl Drop for Runs {
    fn drop(&mut self) {
        self.parts.end.cancel();
    }
}

impl std::fmt::Debug for Runs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Runs").finish_non_exhaustive()
    }
}

impl Parts {
    fn followers(&self) -> MutexGuard<'_, Vec<Led>> {
        self.followers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a run. `begin` returns its service, without recovery.
    fn run(
        &self,
        (group, run): (Arc<Group>, u64),
        rewind: Option<proto::Rewind>,
        begin: impl FnOnce(&Arc<Group>, &Arc<Holder>, &CancellationToken) -> Service,
    ) -> Result<Service> {
        group.lead(self.followers().iter().map(|led| led.name.clone()));
        let checkpoints = Checkpoints::new(self.checkpoints.clone());
        let contents = Arc::clone(&self.contents);
        let holder = Arc::new(Holder::new(contents, checkpoints, Arc::clone(&group), run));
        let service = begin(&group, &holder, &self.end.child_token());
        let recovery = self.points.as_ref().map(|(points, every)| {
            let state = (&group, &holder, &service.effects);
            Recovery::open(points.clone(), (*every, run), state, rewind).map(Arc::new)
        });
        let service = service.with_recovery(recovery.transpose()?);
        (self.on_begin)(&service);
        Ok(service)
    }
}

impl Runs {
    /// Begins the first run of a server. `begin` returns its service, without recovery.
    ///
    /// # Errors
    /// - The errors of [`Recovery::open`].
    pub(crate) fn new(
        parts: Parts,
        (group, run): (Group, u64),
        begin: impl FnOnce(&Arc<Group>, &Arc<Holder>, &CancellationToken) -> Service,
    ) -> Result<Arc<Self>> {
        let service = parts.run((Arc::new(group), run), None, begin)?;
        let (present, beginning) = (Mutex::new(service), tokio::sync::Mutex::new(()));
        Ok(Arc::new(Self { parts, present, beginning }))
    }

    fn present(&self) -> MutexGuard<'_, Service> {
        self.present.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the methods of the present run.
    pub(crate) fn service(&self) -> Service {
        self.present().clone()
    }

    /// Starts the tasks of the present run, which end with it.
    pub(crate) fn start_tasks(self: &Arc<Self>) {
        let service = self.service();
        let holder = Arc::downgrade(&service.holder);
        // The members of a server that waits for the others have not joined again yet.
        if service.check_together().is_ok() {
            spawn(&service, end_leases(Arc::clone(&service.group), holder));
        }
        if service.group.leader().is_some() {
            let group = Arc::clone(&service.group);
            spawn(&service, async move { group.keep_barriers().await });
        }
        if let Some(recovery) = &service.recovery {
            spawn(&service, Arc::clone(recovery).run());
            tokio::spawn(follow_back(Arc::downgrade(self), service.clone(), recovery.rewound_by()));
        }
        self.start_leading(&service);
    }

    fn start_leading(self: &Arc<Self>, service: &Service) {
        let followers = self.parts.followers();
        let num_servers = u32::try_from(followers.len() + 1).unwrap_or(u32::MAX);
        for (number, led) in (1..).zip(&*followers) {
            tokio::spawn(lead(service.clone(), (number, num_servers), led.clone()));
        }
        if num_servers == 1 {
            return;
        }
        if let Some(recovery) = service.recovery.clone() {
            tokio::spawn(recovery.lead_back(Arc::clone(self), service.end.clone()));
        } else {
            let group = Arc::clone(&service.group);
            spawn(service, async move {
                group.point_requested().await;
                tracing::error!("no recovery points are made: the first server has no folder");
            });
        }
    }

    /// Makes this server lead others from now on. Does nothing if it leads them already.
    ///
    /// # Errors
    /// - [`Error::InvalidArgument`] if it leads others than these.
    pub(crate) fn lead(self: &Arc<Self>, followers: Vec<Led>) -> Result<()> {
        let service = self.service();
        let known = self.parts.followers().iter().map(|led| led.name.clone()).collect::<Vec<_>>();
        if !known.is_empty() {
            let are_these = known.iter().eq(followers.iter().map(|led| &led.name));
            let text = || format!("followers: the server already leads {}", known.join(", "));
            return if are_these { Ok(()) } else { Err(Error::invalid(text())) };
        }
        service.group.lead(followers.iter().map(|led| led.name.clone()));
        *self.parts.followers() = followers;
        self.start_leading(&service);
        Ok(())
    }

    /// Begins another run, which continues from a recovery point. The calls of the present run have
    /// no effect from now on.
    pub(crate) async fn begin_again(self: Arc<Self>, rewind: proto::Rewind) {
        let _one = self.beginning.lock().await;
        let earlier = self.service();
        let Some(recovery) = &earlier.recovery else { return };
        if recovery.rewound_by() == rewind.by && !recovery.awaits_others() {
            // The message has come again.
            return;
        }
        earlier.group.end_run();
        earlier.end.cancel();
        earlier.health.start(false).await;
        recovery.stop().await;
        // The calls that take effect have done so.
        let between_calls = earlier.effects.write().await;
        let run = (self.parts.next_run)(earlier.run);
        let service = loop {
            let begun = match earlier.register_run(run).await {
                Ok(()) => in_place(|| self.another(&earlier, run, rewind)),
                Err(error) => Err(error),
            };
            match begun {
                Ok(service) => break service,
                Err(error) => {
                    let error = error.chain();
                    tracing::error!(error, "the server cannot go back to a recovery point");
                }
            }
            tokio::select! {
                biased;
                () = self.parts.end.cancelled() => return,
                () = tokio::time::sleep(AGAIN) => {}
            }
        };
        earlier.health.start(true).await;
        *self.present() = service;
        drop(between_calls);
        self.start_tasks();
        drop(earlier.holder.forget_all_snapshots());
    }

    fn another(&self, earlier: &Service, run: u64, rewind: proto::Rewind) -> Result<Service> {
        let group = Group::new(self.parts.lease, run);
        let group = Arc::new(match earlier.group.kept() {
            Some((leader, kept)) => group.with_leader(leader, kept),
            None => group,
        });
        self.parts.run((group, run), Some(rewind), |group, holder, end| Service {
            group: Arc::clone(group),
            holder: Arc::clone(holder),
            sources: Arc::default(),
            effects: Arc::new(RwLock::new(())),
            run,
            end: end.clone(),
            recovery: None,
            ..earlier.clone()
        })
    }

    /// Ends the present run, with the server. Then another server may use the recovery points.
    pub(crate) async fn end(&self) {
        self.parts.end.cancel();
        // A run that begins is the last one. It may wait for a call that does not end.
        let none_begins = tokio::time::timeout(BEGINS, self.beginning.lock()).await;
        if let (Some((points, _)), Ok(_)) = (&self.parts.points, none_begins) {
            points.release();
        }
    }
}

/// Begins another run when the leader says that all servers go back. `by` is the message that this
/// run has followed.
async fn follow_back(runs: Weak<Runs>, service: Service, by: u64) {
    let mut rewinds = service.rewinds.subscribe();
    let awaits_others = service.recovery.as_ref().is_some_and(|recovery| recovery.awaits_others());
    let is_later = |rewind: &Option<proto::Rewind>| {
        rewind.is_some_and(|rewind| rewind.by != by || awaits_others)
    };
    let rewind = tokio::select! {
        biased;
        () = service.end.cancelled() => return,
        rewind = rewinds.wait_for(is_later) => rewind.ok().and_then(|rewind| *rewind),
    };
    drop(service);
    if let Some((runs, rewind)) = runs.upgrade().zip(rewind) {
        runs.begin_again(rewind).await;
    }
}

/// Starts a task that ends with a run.
fn spawn(service: &Service, task: impl Future<Output = ()> + Send + 'static) {
    let end = service.end.clone();
    tokio::spawn(async move {
        tokio::select! {
            biased;
            () = task => {}
            () = end.cancelled() => {}
        }
    });
}
