//! [`Coordinated`]: a server whose group has a coordinator.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use kvstore_core::{Error, Result};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tonic::Status;

use super::options::ServerOptions;
use super::peers::lead::Led;
use super::runs::Runs;
use super::service::Service;
use super::verbs::{Answer, check_layouts};
use crate::coordinator::{
    Coordinator, KeptGroup, LeaderState, Place, Registration, follow_servers,
};
use crate::proto;
use crate::runtime;

/// The place of a server in a group with a coordinator.
#[derive(Clone, Debug)]
pub(super) struct Membership {
    pub(super) coordinator: Coordinator,
    pub(super) index: u32,
    pub(super) num_servers: u32,
}

/// The place of a server, whose lease is renewed until this is dropped.
#[derive(Debug)]
pub(super) struct KeptPlace {
    pub(super) registration: Arc<Registration>,
    runtime: Handle,
}

impl Drop for KeptPlace {
    fn drop(&mut self) {
        let registration = Arc::clone(&self.registration);
        if registration.is_kept() {
            // The server did not start.
            self.runtime.spawn(async move { registration.release().await });
        }
    }
}

/// A server that has taken its place, and what earlier leaders have kept if it is the leader.
pub(super) struct Coordinated {
    pub(super) place: KeptPlace,
    pub(super) leader: Option<(Arc<LeaderState>, KeptGroup)>,
    /// The other servers, if it is the leader.
    pub(super) followers: Vec<Led>,
}

impl Coordinated {
    /// Takes the place of a server that listens on `address`.
    ///
    /// # Errors
    /// - [`Error::InvalidArgument`] if members cannot connect to the address, or the group has
    ///   another number of servers.
    /// - [`Error::Timeout`] if another server keeps the place, or etcd does not answer.
    pub(super) fn take(
        runtime: &Handle,
        options: &ServerOptions,
        address: SocketAddr,
        least_run: u64,
    ) -> Result<Option<Self>> {
        let Some(membership) = options.membership.clone() else { return Ok(None) };
        let advertised = match &options.advertise {
            Some(advertised) => advertised.clone(),
            None if address.ip().is_unspecified() => {
                return Err(Error::invalid(format!(
                    "advertise: expected HOST:PORT, where members connect, because the server \
                     listens on {address}"
                )));
            }
            None => address.to_string(),
        };
        let Membership { coordinator, index, num_servers } = membership;
        let place = Place { index, num_servers, address: advertised, lease: options.lease };
        let security = options.security.clone();
        let etcd = coordinator.options(security.is_insecure);
        let handle = runtime.clone();
        let taken = runtime::wait(runtime, async move {
            let registration = Registration::take(&etcd, &place, least_run).await?;
            // From now on, because it may take long until the server has its values.
            let keeping = Arc::clone(&registration);
            handle.spawn(async move { keeping.keep().await });
            let place = KeptPlace { registration, runtime: handle };
            if index > 0 {
                return Ok(Self { place, leader: None, followers: Vec::new() });
            }
            let state = LeaderState::load(&place.registration).await;
            let failed = |status: Status| Error::Transport {
                operation: "coordinator: the state of the group".to_owned(),
                source: status.message().to_owned().into(),
            };
            let (state, kept) = state.map_err(failed)?;
            let leader = Some((Arc::new(state), kept));
            let group = &etcd.address.group;
            let routes = follow_servers(&etcd, num_servers)?.into_iter().enumerate().skip(1);
            let led = |(index, route)| Led::at(format!("{group}/{index}"), route, security.clone());
            let followers = routes.map(led).collect();
            Ok(Self { place, leader, followers })
        });
        taken?.map(Some)
    }
}

/// Ends a server if it has lost its place.
pub(super) async fn end_at_loss(
    registration: Arc<Registration>,
    runs: Arc<Runs>,
    end: watch::Sender<bool>,
) {
    registration.ended().await;
    let Service { health, .. } = runs.service();
    if let Some(reason) = registration.loss() {
        tracing::error!(reason, "the server ends");
        health.end().await;
        let _ = end.send(true);
    }
}

impl Service {
    /// Checks that this server owns its place.
    ///
    /// # Errors
    /// - [`Code::Aborted`](tonic::Code::Aborted) if it does not. A member repeats its call.
    pub(super) fn check_owner(&self) -> Result<(), Status> {
        self.registration.as_ref().map_or(Ok(()), |registration| registration.check())
    }

    /// Registers a later run of this process.
    ///
    /// # Errors
    /// - [`Error::Transport`] if etcd does not know it.
    pub(super) async fn register_run(&self, run: u64) -> Result<()> {
        let Some(registration) = &self.registration else { return Ok(()) };
        registration.raise_run(run).await.map_err(|status| Error::Transport {
            operation: "coordinator: the number of a run".to_owned(),
            source: status.message().to_owned().into(),
        })
    }

    /// Checks that this server still owned its place when a call was done. Otherwise a successor
    /// may have begun without the call, so the member must not count on it.
    pub(super) fn check_still_owner(&self) -> Result<(), Status> {
        self.check_owner().map_err(|status| Status::unavailable(status.message()))
    }
}

/// Reserves layouts that no later leader hands out.
pub(super) async fn reserve(leader: &LeaderState, count: u64) -> Result<Result<Answer>, Status> {
    if let Err(error) = check_layouts(count) {
        return Ok(Err(error));
    }
    let first_layout = leader.reserve(count).await?;
    Ok(Ok(Answer::of(proto::Reply { first_layout, ..Default::default() })))
}

/// How long after a failure barriers are kept again.
pub(super) const PAUSE: Duration = Duration::from_millis(200);
