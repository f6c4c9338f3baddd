//! [`Service`]: the gRPC methods. `calls` makes the calls of members, `group` decides who is one.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use kvstore_core::KvStore;
use tokio::sync::{RwLock, Semaphore, mpsc, watch};
use tokio::time::{Instant, timeout_at};
use tokio_stream::Stream;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status, Streaming};

use super::access::Access;
use super::commands::Commands;
use super::group::{Earlier, Group};
use super::holder::Holder;
use super::member_stream::MemberStream;
use super::metrics::Metrics;
use super::recovery::Recovery;
use super::standard::Health;
use super::transfer::Sources;
use crate::coordinator::Registration;
use crate::proto::{self, member_message, server_message};
use crate::rules::{Joined, Role};
use crate::wire::compression_of;

/// The version of the protocol.
pub(crate) const VERSION: u32 = 1;

/// How long a call waits if it does not say how long.
pub(super) const WAIT: Duration = Duration::from_secs(3600);

/// The most bytes of a member's name.
pub(super) const MOST_NAME_BYTES: usize = 256;

/// The most live members. Each gets the names of all others.
const MOST_MEMBERS: usize = 4096;

/// The most bytes of a message of another server, which may have the names of all members.
pub(super) const MOST_PEER_MESSAGE: usize = 4 << 20;

/// How long a member may take to join after it has opened the stream.
const FIRST_MESSAGE: Duration = Duration::from_secs(30);

/// The most calls that change something and block threads at the same time, and the most that read.
/// The runtime has more threads than both together, so it always has some for its other tasks.
const MOST_BLOCKING: usize = 128;

/// The gRPC methods of a server.
#[derive(Clone, Debug)]
pub(crate) struct Service {
    pub(crate) group: Arc<Group>,
    pub(crate) holder: Arc<Holder>,
    /// The streams of the pushes to rounds.
    pub(super) sources: Arc<Sources>,
    pub(crate) commands: Commands,
    /// The place of this server in the members' lists of servers, and the lengths of the lists.
    pub(crate) place: Arc<Mutex<Option<(u32, u32)>>>,
    /// Identifies this run of the server.
    pub(crate) run: u64,
    pub(crate) lease: Duration,
    /// Is cancelled when this run of the server ends.
    pub(crate) end: CancellationToken,
    /// Limits the calls that block threads at the same time.
    pub(crate) permits: Arc<Semaphore>,
    /// The same for calls that only read.
    pub(crate) reads: Arc<Semaphore>,
    /// The permit of a status, which other calls must not hold up.
    pub(crate) statuses: Arc<Semaphore>,
    /// The permit of the short call.
    pub(crate) short: Arc<Semaphore>,
    /// Shared by each call that changes the store, from before its effect until its outcome is
    /// recorded. A recovery point is made while no call has it.
    pub(crate) effects: Arc<RwLock<()>>,
    /// Makes recovery points, if the server has a place for them.
    pub(crate) recovery: Option<Arc<Recovery>>,
    pub(crate) metrics: Metrics,
    pub(crate) health: Health,
    /// The place of this server, if its group has a coordinator.
    pub(super) registration: Option<Arc<Registration>>,
    /// The newest message of the leader that all servers go back to a recovery point.
    pub(super) rewinds: Arc<watch::Sender<Option<proto::Rewind>>>,
    /// What a caller may do: in a stream of calls, the caller of the stream.
    pub(crate) access: Access,
    /// When the caller of a stream gives up.
    pub(super) deadline: Option<Instant>,
}

impl Service {
    /// Returns the methods of a server whose run has this number, without a handler of commands.
    pub(crate) fn new(
        group: &Arc<Group>,
        holder: &Arc<Holder>,
        (run, lease): (u64, Duration),
        end: &CancellationToken,
        access: Access,
    ) -> Self {
        Self {
            group: Arc::clone(group),
            holder: Arc::clone(holder),
            sources: Arc::default(),
            place: Arc::default(),
            commands: Commands::default(),
            run,
            lease,
            end: end.clone(),
            permits: Arc::new(Semaphore::new(MOST_BLOCKING)),
            reads: Arc::new(Semaphore::new(MOST_BLOCKING)),
            statuses: Arc::new(Semaphore::new(1)),
            short: Arc::new(Semaphore::new(1)),
            effects: Arc::default(),
            recovery: None,
            metrics: Metrics::new(),
            health: Health::new(),
            registration: None,
            rewinds: Arc::new(watch::channel(None).0),
            access,
            deadline: None,
        }
    }

    pub(crate) fn with_commands(self, commands: Commands) -> Self {
        Self { commands, ..self }
    }

    pub(crate) fn with_recovery(self, recovery: Option<Arc<Recovery>>) -> Self {
        Self { recovery, ..self }
    }

    pub(super) fn with_registration(self, registration: Option<Arc<Registration>>) -> Self {
        Self { registration, ..self }
    }
}

type ServerValues<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

#[tonic::async_trait]
impl proto::store_server::Store for Service {
    type JoinStream = ServerValues<proto::ServerMessage>;

    async fn join(
        &self,
        request: Request<Streaming<proto::MemberMessage>>,
    ) -> Result<Response<Self::JoinStream>, Status> {
        let access = self.access.of(request.extensions());
        // The memory of members is limited by their number, so that the calls of a process never
        // keep it from being a member.
        access.permission.check_read()?;
        let count = access.count_member()?;
        let mut messages = request.into_inner();
        let first = timeout_at(Instant::now() + FIRST_MESSAGE, messages.message()).await;
        let late = |_| Status::deadline_exceeded("the first message did not arrive in time");
        let first = first.map_err(late)??.and_then(|message| message.content);
        let Some(member_message::Content::Join(join)) = first else {
            return Err(Status::invalid_argument("the first message is not a JoinRequest"));
        };
        let (joined, barrier_round) = self.admit(&access, &join).await?;
        let (sender, receiver) = mpsc::channel(4);
        let reply = proto::JoinReply {
            server_run: self.run,
            incarnation: joined.incarnation,
            rank: joined.rank,
            lease_ms: u64::try_from(self.lease.as_millis()).unwrap_or(u64::MAX),
            store: self.holder.contents().store().name().to_owned(),
            barrier_round,
            group: self.coordinated_group(),
            compression: Some(compression_of(*self.holder.contents().compression())),
            rewound: self.recovery.as_ref().and_then(|recovery| recovery.rewound()),
            num_followers: u32::try_from(self.group.num_followers()).unwrap_or(u32::MAX),
        };
        let stream = MemberStream {
            service: self.clone(),
            name: join.name,
            joined,
            identity: access.identity,
            sender,
            _count: count,
        };
        // The channel is empty, so there is room.
        let _ = stream.send(server_message::Content::Joined(reply));
        tokio::spawn(stream.run(messages));
        Ok(Response::new(Box::pin(ReceiverStream::new(receiver))))
    }
}

impl Service {
    async fn admit(
        &self,
        access: &Access,
        join: &proto::JoinRequest,
    ) -> Result<(Joined, u64), Status> {
        if join.version != VERSION {
            return Err(Status::unimplemented(format!(
                "protocol version: expected {VERSION}, found {}",
                join.version
            )));
        }
        if join.name.is_empty() || join.process == 0 {
            return Err(Status::invalid_argument("name: expected at least one letter, found none"));
        }
        if join.name.len() > MOST_NAME_BYTES {
            return Err(Status::invalid_argument(format!(
                "name: expected at most {MOST_NAME_BYTES} bytes, found {}",
                join.name.len()
            )));
        }
        if self.end.is_cancelled() {
            return Err(Status::unavailable("the server is ending"));
        }
        self.check_owner()?;
        self.check_together()?;
        let role = if join.is_reader { Role::Reader } else { Role::Worker };
        access.permission.check_role(role)?;
        // Who may only read must not take over the name of a worker.
        if let Some(member) = self.group.role_of(&join.name) {
            access.permission.check_role(member)?;
        }
        let num_members = self.group.members().0.members.len();
        if num_members >= MOST_MEMBERS {
            let text = format!("the server has {num_members} members, and room for no more");
            return Err(Status::resource_exhausted(text));
        }
        let place = (join.server, join.num_servers);
        self.check_place(place, role)?;
        let deadline = Instant::now() + self.lease.min(WAIT);
        let process = (join.process, &access.identity);
        let earlier =
            Earlier { incarnation: join.earlier_incarnation, barriers: join.passed_barriers };
        let joined = self.group.join(&join.name, process, (role, earlier), deadline).await?;
        // Another first member with another list may have joined at the same moment.
        if let Err(status) = self.check_place(place, role) {
            self.group.leave(&join.name, joined.0.incarnation);
            return Err(status);
        }
        Ok(joined)
    }

    /// Returns what identifies a group with a coordinator, or 0.
    pub(super) fn coordinated_group(&self) -> u64 {
        self.registration.as_ref().map_or(0, |registration| registration.group())
    }

    /// Checks that this server has a state, and does not wait until all servers of its group go
    /// back to the same recovery point.
    pub(super) fn check_together(&self) -> Result<(), Status> {
        if self.recovery.as_ref().is_some_and(|recovery| recovery.awaits_others()) {
            return Err(Status::unavailable(
                "the server waits until all servers go back to the same recovery point",
            ));
        }
        Ok(())
    }

    /// Checks that all members have this server at the same place of their lists of servers.
    fn check_place(&self, (server, num_servers): (u32, u32), role: Role) -> Result<(), Status> {
        if server >= num_servers {
            let text = format!("server {server} of {num_servers}: expected a smaller number");
            return Err(Status::invalid_argument(text));
        }
        if let Some(registration) = &self.registration {
            // Perhaps the member has an address that another server had before.
            if registration.place() != (server, num_servers) {
                let (index, count) = registration.place();
                return Err(Status::unavailable(format!(
                    "this server is number {} of {count}, not {} of {num_servers}",
                    index + 1,
                    server + 1
                )));
            }
            self.holder.use_layouts(num_servers > 1);
            return Ok(());
        }
        let mut known = self.place.lock().unwrap_or_else(PoisonError::into_inner);
        // Without members and keys, nothing depends on the place.
        if self.holder.contents().store().num_keys() == 0
            && self.group.members().0.members.is_empty()
        {
            *known = None;
        }
        // A reader adds no keys, so it does not decide for workers.
        if role == Role::Reader && known.is_none() {
            return Ok(());
        }
        let expected = known.get_or_insert((server, num_servers));
        if *expected != (server, num_servers) {
            return Err(Status::invalid_argument(format!(
                "servers: for other members, this server is number {} of {}, for this one it \
                 is number {} of {}: all members need the same list in the same order",
                expected.0 + 1,
                expected.1,
                server + 1,
                num_servers
            )));
        }
        self.holder.use_layouts(num_servers > 1);
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use kvstore_core::{Backends, LocalStore};
    use tonic::Code;

    use super::*;
    use crate::server::checkpoints::Checkpoints;
    use crate::server::contents::Contents;

    fn join(name: usize) -> proto::JoinRequest {
        proto::JoinRequest {
            version: VERSION,
            name: name.to_string(),
            process: 1 + name as u64,
            num_servers: 1,
            ..Default::default()
        }
    }

    /// Each machine may have 512 members, so several of them.
    #[tokio::test(start_paused = true)]
    async fn a_server_has_a_limited_number_of_members() {
        let backends = Backends::new(Vec::new());
        let store = Arc::new(LocalStore::new("local", backends.clone()).unwrap());
        let lease = Duration::from_secs(10);
        let group = Arc::new(Group::new(lease, 0));
        let contents = Contents::new(store, backends, 1);
        let holder = Holder::new(Arc::new(contents), Checkpoints::new(None), Arc::clone(&group), 0);
        let ending = CancellationToken::new();
        let access = Access::unknown(false);
        let service = Service::new(&group, &Arc::new(holder), (1, lease), &ending, access.clone());
        let mut last = None;
        for name in 0..4096 {
            last = Some(service.admit(&access, &join(name)).await.unwrap().0);
        }
        let status = service.admit(&access, &join(5000)).await.unwrap_err();
        assert_eq!(status.code(), Code::ResourceExhausted);
        assert_eq!(status.message(), "the server has 4096 members, and room for no more");
        // A dead member leaves room for another one.
        group.lose("4095", last.unwrap().connection);
        service.admit(&access, &join(5000)).await.unwrap();
        let status = service.admit(&access, &join(4095)).await.unwrap_err();
        assert_eq!(status.code(), Code::ResourceExhausted);
    }
}
