//! [`Registration`]: the place of a server in a group, which it owns as long as its lease.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kvstore_core::{Error, Result};
use tokio::sync::{Mutex as AsyncMutex, watch};
use tokio::time::{Instant, sleep};
use tonic::{Code, Status};

use super::names::{Config, Names, Registered, parse, parse_number, to_json};
use crate::etcd::{Etcd, EtcdOptions, KeyValue, Transaction};
use crate::rules::{Ownership, Standing};

/// How long a call of etcd may take while a server starts or ends.
const CALL: Duration = Duration::from_secs(5);

/// How long a server that starts waits for etcd.
const START: Duration = Duration::from_secs(60);

/// How long a server that starts waits for its place, beyond two leases.
const LEEWAY: Duration = Duration::from_secs(5);

/// The interval between attempts to take a place, and to reach etcd.
const PAUSE: Duration = Duration::from_millis(300);

/// The place of a server in a group.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    /// From 0. The server with index 0 is the leader.
    pub(crate) index: u32,
    pub(crate) num_servers: u32,
    /// Where members connect.
    pub(crate) address: String,
    pub(crate) lease: Duration,
}

/// A place that this server has taken.
#[derive(Debug)]
pub(crate) struct Registration {
    pub(super) etcd: Etcd,
    pub(super) names: Names,
    place: Place,
    run: u64,
    /// The last run at this place. Locked while etcd changes it.
    last_run: AsyncMutex<u64>,
    /// The value of the key of this server.
    value: String,
    /// The revision at which the group was created, which identifies it.
    group: u64,
    lease: AtomicI64,
    start: Instant,
    state: Mutex<State>,
    /// Why this server has lost its place for good: an empty text if it has given it up.
    ended: watch::Sender<Option<String>>,
}

#[derive(Debug)]
struct State {
    ownership: Ownership,
    /// How long etcd gives.
    lease: Duration,
    /// Why the last attempt to renew the lease failed.
    failure: String,
}

/// The outcome of an attempt to take a place.
enum Attempt {
    Taken(Box<Registration>),
    /// This server has the place.
    Used(Registered),
    /// The group has another number of servers.
    OtherGroup(u32),
}

impl Registration {
    /// Takes a place. Waits for etcd, and until the lease of the last server at this place ends.
    /// The number of the run is at least `least_run`, and above those of all earlier runs here.
    ///
    /// # Errors
    /// - [`Error::InvalidArgument`] if the group has another number of servers.
    /// - [`Error::Timeout`] if another server at this place stays alive, or etcd does not answer.
    pub(crate) async fn take(
        options: &EtcdOptions,
        place: &Place,
        least_run: u64,
    ) -> Result<Arc<Self>> {
        let patience = 2 * place.lease + LEEWAY;
        let (mut heard, mut used_since) = (Instant::now(), None);
        loop {
            let status = match Self::attempt(options, place, least_run).await? {
                Ok(Attempt::Taken(registration)) => return Ok(Arc::from(registration)),
                Ok(Attempt::OtherGroup(expected)) => {
                    return Err(Error::invalid(format!(
                        "num_servers: the group `{}` has {expected}, found {}",
                        options.address.group, place.num_servers
                    )));
                }
                Ok(Attempt::Used(other)) => {
                    heard = Instant::now();
                    let since = *used_since.get_or_insert(heard);
                    if since.elapsed() > patience {
                        return Err(Error::Timeout(format!(
                            "server_index: server {} of the group `{}` is still alive at `{}` \
                             after {} s: stop it, or choose another index",
                            place.index,
                            options.address.group,
                            other.address,
                            patience.as_secs()
                        )));
                    }
                    if since == heard {
                        let (index, address) = (place.index, other.address);
                        tracing::warn!(index, address, "waiting until the lease of a server ends");
                    }
                    sleep(PAUSE).await;
                    continue;
                }
                Err(status) => status,
            };
            let etcd = options.address.endpoints.join(",");
            if status.code() == Code::DataLoss {
                let (subject, reason) = (format!("etcd `{etcd}`"), status.message().to_owned());
                return Err(Error::Corrupt { subject, reason });
            }
            if heard.elapsed() > START {
                let (waited, reason) = (START.as_secs(), status.message());
                let text = format!("coordinator: etcd `{etcd}`: no answer in {waited} s: {reason}");
                return Err(Error::Timeout(text));
            }
            tracing::warn!(etcd, reason = status.message(), "waiting for etcd");
            sleep(PAUSE).await;
        }
    }

    /// Makes an attempt. The inner error is one of etcd.
    async fn attempt(
        options: &EtcdOptions,
        place: &Place,
        least_run: u64,
    ) -> Result<Result<Attempt, Status>> {
        let etcd = Etcd::new(options)?;
        let config = to_json(&Config { num_servers: place.num_servers })?;
        Ok(Self::attempt_at(etcd, Names::new(&options.address.group), place, (config, least_run))
            .await)
    }

    async fn attempt_at(
        etcd: Etcd,
        names: Names,
        place: &Place,
        (config, least_run): (String, u64),
    ) -> Result<Attempt, Status> {
        let key = names.config();
        let create = Transaction::default().if_absent(&key).put(&key, &config, 0).or_get(&key);
        let created = etcd.transact(create, CALL).await?;
        let group = match created.find(&key) {
            None => created.revision,
            Some(found) => {
                let Config { num_servers } = parse(found)?;
                if num_servers != place.num_servers {
                    return Ok(Attempt::OtherGroup(num_servers));
                }
                found.create_revision
            }
        };
        let (key, run_key) = (names.server(place.index), names.run(place.index));
        if let Some(found) = etcd.get(&key, CALL).await? {
            return parse(&found).map(Attempt::Used);
        }
        let last = etcd.get(&run_key, CALL).await?;
        let revision = last.as_ref().map_or(0, |last| last.mod_revision);
        let last = last.as_ref().map_or(Ok(0), parse_number)?;
        let run = least_run.max(last + 1);
        let start = Instant::now();
        let (lease, duration) = etcd.grant(place.lease, CALL).await?;
        let registered = Registered { address: place.address.clone(), run };
        let value = to_json(&registered).map_err(|error| Status::internal(error.chain()))?;
        let taking = Transaction::default().if_absent(&key).if_unchanged(&run_key, revision);
        let taking = taking.put(&key, &value, lease).put(&run_key, &run.to_string(), 0);
        let taking = if place.index == 0 {
            taking.put(&names.leader(), &run.to_string(), lease)
        } else {
            taking
        };
        let taken = etcd.transact(taking.or_get(&key), CALL).await?;
        let found = taken.find(&key);
        // If the first reply was lost, the transaction was repeated.
        if !taken.is_made && found.is_none_or(|found| found.lease != lease) {
            let _ = etcd.revoke(lease, CALL).await;
            let gone = || Status::aborted("another server has taken the place and left it");
            return parse(found.ok_or_else(gone)?).map(Attempt::Used);
        }
        let ownership = Ownership::new(Duration::ZERO, duration);
        let state = State { ownership, lease: duration, failure: "no answer yet".to_owned() };
        Ok(Attempt::Taken(Box::new(Self {
            etcd,
            names,
            place: place.clone(),
            run,
            last_run: AsyncMutex::new(run),
            value,
            group: group.unsigned_abs(),
            lease: AtomicI64::new(lease),
            start,
            state: Mutex::new(state),
            ended: watch::Sender::new(None),
        })))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of this run, which identifies it and is above those of earlier runs.
    pub(crate) fn run(&self) -> u64 {
        self.run
    }

    /// Returns a number that identifies the group, above 0.
    pub(crate) fn group(&self) -> u64 {
        self.group
    }

    /// Returns the index of this server and the number of servers.
    pub(crate) fn place(&self) -> (u32, u32) {
        (self.place.index, self.place.num_servers)
    }

    /// Returns the number of the lease at the moment.
    pub(super) fn lease(&self) -> i64 {
        self.lease.load(Ordering::Relaxed)
    }

    /// Returns how long a call of etcd may take, so that several fit into a lease.
    pub(super) fn limit(&self) -> Duration {
        self.state().lease / 3
    }

    /// Checks that this server owns its place, so that its store may change.
    ///
    /// # Errors
    /// - [`Code::Aborted`](tonic::Code::Aborted) if it does not. A member repeats its call.
    pub(crate) fn check(&self) -> Result<(), Status> {
        let state = self.state();
        let now = self.start.elapsed();
        match state.ownership.standing(now) {
            Standing::Owner => Ok(()),
            Standing::Lapsed(end) => Err(Status::aborted(format!(
                "etcd `{}` has not renewed the lease of server {} for {:.1} s longer than its {} \
                 s, so the server accepts no changes until etcd answers: {}",
                self.etcd.name(),
                self.place.index,
                now.saturating_sub(end).as_secs_f64(),
                state.lease.as_secs(),
                state.failure
            ))),
            Standing::Replaced => {
                drop(state);
                let reason = self.loss().unwrap_or_else(|| "the server is ending".to_owned());
                Err(Status::aborted(reason))
            }
        }
    }

    /// Returns why this server has lost its place for good, if it has.
    pub(crate) fn loss(&self) -> Option<String> {
        self.ended.borrow().clone().filter(|reason| !reason.is_empty())
    }

    /// Returns whether this server has neither lost its place nor given it up.
    pub(crate) fn is_kept(&self) -> bool {
        self.ended.borrow().is_none()
    }

    /// Waits until this server has ended, or has lost its place for good.
    pub(crate) async fn ended(&self) {
        let mut ended = self.ended.subscribe();
        let _ = ended.wait_for(Option::is_some).await;
    }

    /// Renews the lease until this server has lost its place for good.
    pub(crate) async fn keep(&self) {
        let mut is_late = false;
        while self.is_kept() {
            let wait = if is_late { PAUSE } else { self.limit() };
            tokio::select! {
                () = sleep(wait) => {}
                () = self.ended() => return,
            }
            let renewed = self.renew().await;
            if let Err(status) = &renewed {
                let reason = self.etcd.failure(status).chain();
                if is_late {
                    tracing::debug!(reason, "the lease of this server is not renewed");
                } else {
                    tracing::warn!(reason, "the lease of this server is not renewed");
                }
                self.state().failure = reason;
            }
            is_late = renewed.is_err();
        }
    }

    /// Renews the lease once, and checks that the place belongs to this server.
    async fn renew(&self) -> Result<(), Status> {
        let (key, limit) = (self.names.server(self.place.index), self.limit());
        match self.etcd.get(&key, limit).await? {
            Some(found) if self.is_own(&found) => {
                // If a reply of etcd was lost, it is a later lease than this server knows.
                self.lease.store(found.lease, Ordering::Relaxed);
                let sent = self.start.elapsed();
                if let Some(duration) = self.etcd.keep_alive(found.lease, limit).await? {
                    // The lease has not ended since the key was read, so etcd still has the key.
                    self.renewed(sent, duration);
                    return Ok(());
                }
            }
            Some(other) => {
                self.replaced(&parse::<Registered>(&other)?.address);
                return Ok(());
            }
            None => {}
        }
        self.state().ownership.lapse(self.start.elapsed());
        self.take_again(limit).await
    }

    /// Returns whether the key of a place belongs to this run of this server.
    fn is_own(&self, found: &KeyValue) -> bool {
        found.value == self.value.as_bytes()
    }

    fn renewed(&self, sent: Duration, lease: Duration) {
        let mut state = self.state();
        if state.ownership.standing(self.start.elapsed()) != Standing::Owner {
            tracing::warn!(index = self.place.index, "the server accepts changes again");
        }
        state.ownership.renew(sent, lease);
        state.lease = lease;
    }

    /// Takes the place again after the lease has ended, unless another server has had it since:
    /// then that one may have accepted pushes that this one does not have.
    async fn take_again(&self, limit: Duration) -> Result<(), Status> {
        let last_run = self.last_run.lock().await;
        let (index, run) = (self.place.index, last_run.to_string());
        let (key, run_key) = (self.names.server(index), self.names.run(index));
        let sent = self.start.elapsed();
        let (lease, duration) = self.etcd.grant(self.place.lease, limit).await?;
        let taking = Transaction::default().if_absent(&key).if_value(&run_key, &run);
        let taking = taking.put(&key, &self.value, lease);
        let taking =
            if index == 0 { taking.put(&self.names.leader(), &run, lease) } else { taking };
        let taken = self.etcd.transact(taking.or_get(&key).or_get(&run_key), limit).await?;
        if taken.is_made || taken.find(&key).is_some_and(|found| found.lease == lease) {
            self.lease.store(lease, Ordering::Relaxed);
            self.renewed(sent, duration);
            return Ok(());
        }
        let _ = self.etcd.revoke(lease, limit).await;
        match (taken.find(&key), taken.find(&run_key)) {
            // An earlier attempt was made, but its reply was lost. The lease is renewed next.
            (Some(own), _) if self.is_own(own) => {}
            (Some(other), _) => self.replaced(&parse::<Registered>(other)?.address),
            (None, Some(_)) => self.replaced("an address that etcd does not know any more"),
            (None, None) => self.end(format!(
                "etcd `{}` does not know this run of server {index} any more, so its data were \
                 removed: start the server again",
                self.etcd.name()
            )),
        }
        Ok(())
    }

    /// Raises the number of the last run at this place, for a later run of this process. So that of
    /// a successor is larger.
    ///
    /// # Errors
    /// - [`Code::Aborted`](tonic::Code::Aborted) if another server has had the place since.
    pub(crate) async fn raise_run(&self, run: u64) -> Result<(), Status> {
        let mut last_run = self.last_run.lock().await;
        let (key, next) = (self.names.run(self.place.index), run.to_string());
        let raising = Transaction::default().if_value(&key, &last_run.to_string());
        let raising = raising.put(&key, &next, 0).or_get(&key);
        let raised = self.etcd.transact(raising, self.limit()).await?;
        // If the first reply was lost, the transaction was repeated.
        let is_raised = |found: &KeyValue| found.value == next.as_bytes();
        if !raised.is_made && !raised.find(&key).is_some_and(is_raised) {
            return Err(Status::aborted("another server has had the place of this one"));
        }
        *last_run = run;
        Ok(())
    }

    fn replaced(&self, address: &str) {
        let index = self.place.index;
        self.end(format!("another server has replaced server {index}, at {address}"));
    }

    fn end(&self, reason: String) {
        self.state().ownership.replace();
        self.ended.send_if_modified(|ended| {
            let is_first = ended.is_none();
            ended.get_or_insert(reason);
            is_first
        });
    }

    /// Gives the place to the next server, which then need not wait until the lease ends.
    pub(crate) async fn release(&self) {
        self.end(String::new());
        if let Err(status) = self.etcd.revoke(self.lease(), CALL).await {
            tracing::warn!(etcd = self.etcd.name(), %status, "a lease is not ended");
        }
    }
}
