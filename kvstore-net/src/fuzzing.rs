//! The checks of the fuzz targets `journal` and `protocol`, and the bytes with which they start.
//! The latter feeds arbitrary bytes to the methods `Join` and `Call` of a server.

#![allow(missing_docs, reason = "only for the fuzz target")]
#![allow(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    clippy::expect_used,
    reason = "a check fails by panicking"
)]

mod journals;

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt, Full};
use kvstore_core::{
    Backends, Compression, CpuBackend, Device, Key, KvStore, LocalStore, Optimizer, Tensor,
};
use prost::Message as _;
use tokio::runtime::Runtime;
use tokio::time::Instant;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::http::header::CONTENT_TYPE;
use tonic::codegen::{Service as _, http};
use tonic::metadata::GRPC_CONTENT_TYPE;

use crate::accounts::{Accounts, Limits};
use crate::proto::request::Verb;
use crate::proto::{self, change_settings, member_message};
use crate::rules::Role;
use crate::server::VERSION;
use crate::server::access::Access;
use crate::server::contents::Contents;
use crate::server::group::{Earlier, Group};
use crate::server::methods::Methods;
use crate::server::runs::{Parts, Runs};
use crate::server::service::Service;
use crate::wire::{CALL, Incoming, Outgoing, compression_of, spec_of};

pub use self::journals::{journal, journals};

/// The member that makes the calls, its incarnation and the number of its process.
const NAME: &str = "a";
const INCARNATION: u64 = 1;
const PROCESS: u64 = 7;

/// The first byte of a request for `Join`. Requests for `Call` begin with another one.
const JOINS: u8 = 1;

/// The place of a server in a list of one.
const ALONE: (u32, u32) = (0, 1);

const JOIN: &str = "/kvstore.v1.Store/Join";

/// What the calls may hold, and the memory of the server.
const MOST_BYTES: usize = 1 << 20;
const MEMORY: usize = 8 << 20;

const LEASE: Duration = Duration::from_secs(10);

/// A server without a network.
struct TestServer {
    runtime: Runtime,
    methods: Methods,
    accounts: Arc<Accounts>,
    backends: Backends,
}

impl TestServer {
    fn start() -> Self {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        // Calls that wait for other members end at once.
        let runtime = builder.enable_time().start_paused(true).build().expect("a runtime");
        let host = CpuBackend::with_threads(1);
        host.set_memory_limit(Some(MEMORY));
        let backends = Backends::new(vec![host]);
        let store = LocalStore::new("local", backends.clone()).expect("a known name");
        let ones = Tensor::from_slice(&backends, Device::cpu(0), [4, 2], &[1f32; 8]);
        let ones = ones.expect("memory for a small array");
        let keys = [Key::new("w").expect("a key")];
        store.init(&keys, &[ones.into()]).expect("an empty store");
        store.set_optimizer(Optimizer::new("adam").expect("a known name")).expect("no updater");
        let entered = runtime.enter();
        let contents = Contents::new(Arc::new(store), backends.clone(), 100);
        let limits = Limits { bytes: Some(MOST_BYTES), ..Limits::default() };
        let accounts = Accounts::new(&limits, &backends);
        let access = Access::unknown(false);
        let process = (PROCESS, &access.identity);
        let parts = Parts {
            contents: Arc::new(contents),
            checkpoints: None,
            lease: LEASE,
            points: None,
            end: tokio_util::sync::CancellationToken::new(),
            followers: std::sync::Mutex::default(),
            next_run: |run| run + 1,
            on_begin: Box::new(|_| {}),
        };
        let runs = Runs::new(parts, (Group::new(LEASE, 0), 0), |group, holder, ending| {
            Service::new(group, holder, (1, LEASE), ending, access.clone())
        });
        let runs = runs.expect("nothing is restored");
        let group = runs.service().group;
        let joined =
            group.join(NAME, process, (Role::Worker, Earlier::default()), Instant::now() + LEASE);
        let joined = runtime.block_on(joined);
        let methods = Methods::new(runs).expect("a valid description of the protocol");
        assert_eq!(joined.expect("the first member").0.incarnation, INCARNATION);
        drop(entered);
        Self { runtime, methods, accounts, backends }
    }

    /// Sends the bytes as the calls of a stream. Returns the replies until the first error.
    fn send(&mut self, bytes: &[u8]) -> Vec<proto::Reply> {
        self.request(CALL, bytes, |body| async {
            let mut incoming = Incoming::<proto::ReplyFrame>::replies(body);
            let mut replies = Vec::new();
            while let Ok(Some(frame)) = incoming.message().await {
                replies.extend(frame.reply);
            }
            replies
        })
    }

    /// Sends the bytes as the messages of a member. Returns the bytes of the answers.
    fn join(&mut self, bytes: &[u8]) -> Bytes {
        self.request(JOIN, bytes, |body| async {
            body.collect().await.map_or_else(|_| Bytes::new(), http_body_util::Collected::to_bytes)
        })
    }

    /// Sends a request, and returns what `read` returns for the body of the reply.
    fn request<R, F: Future<Output = R>>(
        &mut self,
        path: &'static str,
        bytes: &[u8],
        read: impl FnOnce(Body) -> F,
    ) -> R {
        let connection = self.accounts.connect(IpAddr::V4(Ipv4Addr::LOCALHOST));
        let connection = connection.expect("the first connection");
        let body = Full::new(Bytes::copy_from_slice(bytes)).map_err(|_| Status::internal(""));
        let mut request = http::Request::new(Body::new(body));
        *request.method_mut() = http::Method::POST;
        *request.uri_mut() = http::Uri::from_static(path);
        request.headers_mut().insert(CONTENT_TYPE, GRPC_CONTENT_TYPE);
        let account = Some(Arc::clone(connection.account()));
        request.extensions_mut().insert(Access { account, ..Access::unknown(false) });
        let methods = &mut self.methods;
        let result = self.runtime.block_on(async {
            let response = methods.call(request).await.expect("it never fails");
            read(response.into_body()).await
        });
        assert_eq!(connection.account().num_bytes(), 0, "what calls hold is counted after them");
        assert_eq!(connection.account().num_members(), 0, "a member counts after its stream");
        result
    }
}

/// Checks the bytes of a request: the first one selects the method, the others are its messages.
///
/// # Panics
/// - If a check fails.
pub fn requests(bytes: &[u8]) {
    match bytes.split_first() {
        Some((&JOINS, messages)) => joins(messages),
        Some((_, messages)) => calls(messages),
        None => {}
    }
}

/// Checks these bytes as the messages of a member. Whatever they are, nothing panics, the server
/// keeps at most one more member, and a later member can join and make a call.
fn joins(bytes: &[u8]) {
    let mut server = TestServer::start();
    let group = Arc::clone(&server.methods.runs().service().group);
    server.join(bytes);
    // Its stream has ended, so it is not live. The first member is, unless it has left.
    let live = group.members().0.members;
    assert!(live.iter().all(|member| member.name == NAME) && live.len() <= 1, "{live:?}");
    assert!(group.remembered().len() <= 2, "{:?}", group.remembered());
    // The member may have decided the place of the server.
    let place = *server.methods.runs().service().place.lock().expect("no panic");
    let place = place.unwrap_or(ALONE);
    let answer = server.join(&joining(&[join("later", 1, place)]));
    assert!(!answer.is_empty(), "a later member cannot join");
}

/// Checks these bytes as the calls of a member. Whatever they are, no call panics, memory stays
/// within its limit, and a later call has a reply.
fn calls(bytes: &[u8]) {
    let mut server = TestServer::start();
    for reply in server.send(bytes) {
        if let Some(failure) = reply.failure {
            assert!(!failure.message.contains("a panic: "), "{failure:?}");
        }
    }
    for backend in server.backends.initialised() {
        assert!(backend.live_bytes() + backend.pooled_bytes() <= MEMORY);
    }
    let replies = server.send(&encoded(&[frame(0, Verb::ListKeys(proto::Empty {}), &[])]));
    assert!(replies.len() == 1 && replies[0].failure.is_none(), "{replies:?}");
}

fn frame(sequence: u64, verb: Verb, data: &[f32]) -> proto::RequestFrame {
    frame_of_rows(sequence, verb, &[], data)
}

/// Returns a frame whose data begin with row indices.
fn frame_of_rows(sequence: u64, verb: Verb, indices: &[i64], data: &[f32]) -> proto::RequestFrame {
    let request = proto::Request {
        member: NAME.to_owned(),
        incarnation: INCARNATION,
        sequence,
        answered_below: 1,
        timeout_ms: 1000,
        verb: Some(verb),
        ..Default::default()
    };
    let indices = indices.iter().flat_map(|index| index.to_le_bytes());
    let data = data.iter().flat_map(|number| number.to_le_bytes());
    let data = indices.chain(data).collect::<Vec<_>>();
    proto::RequestFrame { request: Some(request), data: data.into() }
}

/// Returns the bytes of a stream of calls.
fn encoded(frames: &[proto::RequestFrame]) -> Vec<u8> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let frames: Vec<_> = frames.iter().cloned().map(Ok).collect();
    let body = Outgoing::request(tokio_stream::iter(frames));
    let body = runtime.block_on(body.collect()).expect("messages").to_bytes();
    BytesMut::from(body).to_vec()
}

fn join(name: &str, process: u64, (server, num_servers): (u32, u32)) -> member_message::Content {
    member_message::Content::Join(proto::JoinRequest {
        version: VERSION,
        name: name.to_owned(),
        process,
        server,
        num_servers,
        ..Default::default()
    })
}

/// Returns the bytes of the messages of a member.
fn joining(contents: &[member_message::Content]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for content in contents {
        let message = proto::MemberMessage { content: Some(content.clone()) }.encode_to_vec();
        bytes.push(0);
        bytes.extend(u32::try_from(message.len()).expect("a short message").to_be_bytes());
        bytes.extend(message);
    }
    bytes
}

/// Returns valid streams of members: new ones, the process of [`NAME`] and another one, a reader,
/// another place of the server, and another version.
fn streams_of_members() -> Vec<Vec<u8>> {
    use member_message::Content::{Join, Leave, Renewal};
    let changed = |change: fn(&mut proto::JoinRequest)| {
        let Join(mut request) = join("b", 2, ALONE) else { unreachable!("`join` returns this") };
        change(&mut request);
        Join(request)
    };
    let (renewal, leave) = (Renewal(proto::Renewal::default()), Leave(proto::Leave {}));
    let all = [
        vec![join("b", 2, ALONE), renewal.clone(), renewal.clone(), leave.clone()],
        vec![join(NAME, PROCESS, ALONE), renewal.clone()],
        vec![join(NAME, PROCESS, ALONE), leave.clone()],
        vec![join(NAME, 9, ALONE), renewal.clone()],
        vec![changed(|request| request.is_reader = true), renewal.clone(), leave.clone()],
        vec![changed(|request| (request.server, request.num_servers) = (1, 2))],
        vec![changed(|request| (request.server, request.num_servers) = (3, 2))],
        vec![changed(|request| request.version = 2)],
        vec![changed(|request| request.name = "n".repeat(300))],
        vec![renewal, leave],
    ];
    all.iter().map(|contents| joining(contents)).collect()
}

/// Returns valid requests, as [`requests`] checks them.
pub fn seeds() -> Vec<Vec<u8>> {
    let marked = |first: u8, bytes: Vec<u8>| [&[first], &*bytes].concat();
    let calls = streams().into_iter().map(|bytes| marked(0, bytes));
    calls.chain(streams_of_members().into_iter().map(|bytes| marked(JOINS, bytes))).collect()
}

/// Returns valid streams of calls.
fn streams() -> Vec<Vec<u8>> {
    let f32s = |shape: &[usize]| {
        Some(spec_of(&kvstore_core::TensorSpec::new(shape.to_vec(), kvstore_core::DType::F32)))
    };
    let value = |key: &str, shape: &[usize]| proto::Value {
        key: key.to_owned(),
        spec: f32s(shape),
        ..Default::default()
    };
    let keys = |names: &[&str]| proto::Keys {
        keys: names.iter().map(|name| (*name).to_owned()).collect(),
        ..Default::default()
    };
    let names = |names: &[&str]| keys(names).keys;
    let init = Verb::Init(proto::Init { values: vec![value("v", &[3])], ..Default::default() });
    let push = proto::Push { values: vec![value("w", &[4, 2])], ..Default::default() };
    let sparse = proto::Push {
        values: vec![proto::Value { num_rows: Some(2), ..value("w", &[4, 2]) }],
        ..Default::default()
    };
    let pull = proto::Pull { keys: names(&["w"]), staleness: Some(1), ..Default::default() };
    let both = proto::PushPull {
        push: Some(push.clone()),
        pull: Some(pull.clone()),
        expected: f32s(&[4, 2]).into_iter().collect(),
    };
    let pull_rows =
        proto::PullRows { keys: names(&["w"]), num_rows: vec![3], ..Default::default() };
    let settings = |change| Verb::ChangeSettings(proto::ChangeSettings { change: Some(change) });
    let parameter = proto::HyperParameter { name: "learning_rate".to_owned(), value: 0.5 };
    let two_bit = Compression::new("2bit", 0.5).expect("a threshold");
    let two_bit = compression_of(Some(two_bit));
    let compressed = proto::Push {
        values: vec![value("w", &[4, 2])],
        compression: Some(two_bit.clone()),
        ..Default::default()
    };
    let listed = Some(proto::SnapshotList { change: 1, snapshots: vec![3] });
    let snapshot = proto::TakeSnapshot { snapshot: 3, needed: listed, ..Default::default() };
    let read = proto::ReadSnapshot { snapshot: 3, keys: names(&["w"]) };
    let state = proto::KeyState { key: "w".to_owned(), num_bytes: 8, ..Default::default() };
    let optimizer = Optimizer::new("sgd").and_then(|sgd| sgd.to_json()).expect("a known name");
    let states = proto::SetStates { optimizer: optimizer.clone(), states: vec![state] };
    let command = proto::Command { head: 3, body: "stop".to_owned() };
    let all = vec![
        vec![frame(1, init.clone(), &[1.0; 3]), frame(0, Verb::Stats(proto::Empty {}), &[])],
        vec![frame(1, Verb::Push(push), &[2.0; 8]), frame(0, Verb::Pull(pull), &[])],
        vec![
            frame_of_rows(1, Verb::Push(sparse), &[0, 3], &[2.0; 4]),
            frame_of_rows(0, Verb::PullRows(pull_rows), &[1, 1, 2], &[]),
        ],
        vec![frame(1, Verb::PushPull(both), &[3.0; 8])],
        vec![
            frame(1, settings(change_settings::Change::Optimizer(optimizer)), &[]),
            frame(
                2,
                Verb::SetHyperParameters(proto::HyperParameters { parameters: vec![parameter] }),
                &[],
            ),
            frame(0, Verb::Settings(proto::Empty {}), &[]),
        ],
        vec![
            frame(1, settings(change_settings::Change::Compression(two_bit)), &[]),
            // Two bytes of codes, and two bytes too many.
            frame(2, Verb::Push(compressed), &[1.0]),
        ],
        vec![
            frame(0, Verb::TakeSnapshot(snapshot), &[]),
            frame(0, Verb::ReadSnapshot(read), &[]),
            frame(
                1,
                Verb::Rollback(proto::Rollback { snapshot: Some(3), ..Default::default() }),
                &[],
            ),
            frame(
                2,
                Verb::Rollback(proto::Rollback { num_bytes: 8, ..Default::default() }),
                &[0.0; 2],
            ),
        ],
        vec![frame(1, Verb::SetStates(states), &[0.0; 2])],
        vec![
            frame(0, Verb::Describe(keys(&["w"])), &[]),
            frame(0, Verb::Versions(keys(&["w"])), &[]),
            frame(1, Verb::Remove(keys(&["w"])), &[]),
            frame(2, Verb::FinishInit(keys(&["w"])), &[]),
            frame(0, Verb::Sweep(keys(&["w"])), &[]),
            frame(0, Verb::Reserve(proto::Reserve { count: 3 }), &[]),
        ],
        vec![
            frame(1, Verb::Command(command), &[]),
            frame(2, Verb::Barrier(proto::Barrier { round: 1 }), &[]),
            frame(0, Verb::Status(proto::Empty {}), &[]),
            frame(0, Verb::Checkpoint(proto::Checkpoint::default()), &[]),
        ],
    ];
    all.iter().map(|frames| encoded(frames)).collect()
}

#[cfg(test)]
mod tests {
    use kvstore_tests::fuzz::changed;

    use super::*;
    use crate::quiet::loads_the_machine;

    #[test]
    fn valid_streams_have_a_reply_for_each_call() {
        for (index, stream) in streams().iter().enumerate() {
            let mut server = TestServer::start();
            let replies = server.send(stream);
            assert!(!replies.is_empty(), "stream {index}");
            // The last stream of snapshots and those of damaged data contain a failure on purpose.
            if index < 5 {
                assert!(replies.iter().all(|reply| reply.failure.is_none()), "{replies:?}");
            }
        }
    }

    #[test]
    fn valid_members_join() {
        for (index, stream) in streams_of_members().iter().enumerate() {
            let answer = TestServer::start().join(stream);
            // The fourth one takes a live name, the last four are not valid.
            assert_eq!(answer.is_empty(), index == 3 || index >= 6, "stream {index}");
        }
    }

    #[test]
    fn mutated_streams_never_panic() {
        let _loading = loads_the_machine();
        let seeds = seeds();
        for seed in &seeds {
            requests(seed);
        }
        for seed in 0..3000 {
            requests(&changed(&seeds, seed));
        }
        // Again, because most others are streams of calls.
        let members = streams_of_members();
        for seed in 0..3000 {
            joins(&changed(&members, seed));
        }
    }
}
