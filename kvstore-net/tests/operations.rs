//! What operators see of a server: metrics, health, the status page, reflection and traces.

#![allow(clippy::unwrap_used, reason = "a check fails by panicking")]
#![allow(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    reason = "a test may abort without memory"
)]

mod network;

use std::collections::HashSet;
use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kvstore::backends;
use kvstore_core::{Device, Key, KvStore, Tensor, WorkerGroup};
use kvstore_net::{NetStore, NetStoreOptions, Server, ServerOptions, ServerStatus, TraceContext};
use serde_json::Value;
use tokio::runtime::Runtime;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Code;
use tonic::transport::Channel;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_reflection::pb::v1::ServerReflectionRequest;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;
use tracing::field::{Field, Visit};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};

use network::authority::Authority;
use network::{LONG, connect, eventually, key, options, value};

fn observed() -> ServerOptions {
    ServerOptions::new("127.0.0.1:0").metrics("127.0.0.1:0")
}

fn start(options: &ServerOptions) -> Server {
    Server::start(backends(), options).unwrap()
}

/// Returns the status line and the body of the answer to a request.
fn exchange(mut stream: impl Read + Write, method: &str, path: &str) -> (String, String) {
    let request = format!("{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.lines().next().unwrap().to_owned(), body.to_owned())
}

fn get(server: &Server, path: &str) -> (String, String) {
    exchange(TcpStream::connect(server.metrics_address().unwrap()).unwrap(), "GET", path)
}

/// Returns the value of a metric.
#[track_caller]
fn metric(text: &str, name: &str) -> f64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {name} in\n{text}")).parse().unwrap()
}

#[test]
fn metrics_show_calls_members_and_memory() {
    let server = start(&observed());
    let store = connect(&options(&server).name("a"));
    let reader = connect(&options(&server).name("b").reader());
    store.init(&[key("w")], &[value(1.0)]).unwrap();
    for _ in 0..3 {
        store.push(&[key("w")], &[value(1.0)], 0).unwrap();
    }
    reader.pull(&[key("w")], 0).unwrap();
    store.pull(&[key("no such key")], 0).unwrap_err();
    store.barrier().unwrap();
    let (status, text) = get(&server, "/metrics");
    assert_eq!(status, "HTTP/1.1 200 OK");
    for (name, expected) in [
        ("kvstore_calls_total{verb=\"push\",outcome=\"ok\"}", 3.0),
        ("kvstore_calls_total{verb=\"pull\",outcome=\"failed\"}", 1.0),
        ("kvstore_call_duration_seconds_count{verb=\"push\"}", 3.0),
        ("kvstore_members{role=\"worker\"}", 1.0),
        ("kvstore_members{role=\"reader\"}", 1.0),
        ("kvstore_dead_workers", 0.0),
        ("kvstore_barriers", 1.0),
        ("kvstore_keys", 1.0),
        ("kvstore_contents_bytes{kind=\"values\"}", 8.0),
        ("kvstore_pushes", 3.0),
        ("kvstore_received_bytes_total", 32.0),
        ("kvstore_sent_bytes_total", 8.0),
        ("kvstore_peers", 1.0),
        ("kvstore_calls_running", 0.0),
        ("kvstore_calls_waiting", 0.0),
    ] {
        assert_eq!(metric(&text, name), expected, "{name}");
    }
    assert!(metric(&text, "kvstore_memory_bytes{kind=\"live\"}") >= 8.0);
    assert!(metric(&text, "kvstore_connections") >= 2.0);
    assert!(text.ends_with("# EOF\n"));
}

/// Two servers are stopped, and only the second one is started again.
#[test]
fn a_server_that_waits_for_the_others_says_so() {
    let runtime = Runtime::new().unwrap();
    let folders = [(), ()].map(|()| tempfile::tempdir().unwrap());
    let options = |address: &str, server: usize| {
        let options = ServerOptions::new(address).metrics("127.0.0.1:0").status_page();
        options.recovery(folders[server].path()).save_every(Duration::from_millis(20))
    };
    let second = start(&options("127.0.0.1:0", 1));
    let address = second.address().to_string();
    let start_first = || start(&options("127.0.0.1:0", 0).followers([&address]));
    let first = start_first();
    let connect_to = |first: &Server| {
        let servers = [first.address().to_string(), address.clone()];
        connect(&NetStoreOptions::of_servers(servers).timeout(LONG))
    };
    let store = connect_to(&first);
    store.init(&[key("w")], &[value(1.0)]).unwrap();
    let num_points = || {
        let status = ServerStatus::of(&NetStoreOptions::new(&address)).unwrap();
        status.recovery.unwrap().num_points
    };
    // Without changes, there are no further points.
    eventually("there are points", || {
        store.push(&[key("w")], &[value(1.0)], 0).unwrap();
        num_points() > 1
    });
    drop(store);
    drop(first);
    drop(second);

    let second = start(&options(&address, 1));
    let mut health = HealthClient::new(channel(&runtime, &second));
    let mut check = |status: &str, serving: ServingStatus, waits: bool| {
        let (found, _) = get(&second, "/healthz");
        assert_eq!(found, format!("HTTP/1.1 {status}"));
        let reply = runtime.block_on(health.check(HealthCheckRequest::default())).unwrap();
        assert_eq!(reply.into_inner().status(), serving);
        let found = metric(&get(&second, "/metrics").1, "kvstore_recovery_waits");
        assert_eq!(found, f64::from(u8::from(waits)));
        let found: Value = serde_json::from_str(&get(&second, "/status.json").1).unwrap();
        assert_eq!(found["recovery"]["awaits_others"], waits);
        let found = ServerStatus::of(&NetStoreOptions::new(&address)).unwrap();
        assert_eq!(found.recovery.unwrap().awaits_others, waits);
    };
    check("503 Service Unavailable", ServingStatus::NotServing, true);
    let first = start_first();
    eventually("the server serves", || get(&second, "/healthz").0 == "HTTP/1.1 200 OK");
    check("200 OK", ServingStatus::Serving, false);
    assert_eq!(connect_to(&first).keys().unwrap(), [key("w")]);
}

/// More calls run an updater than the server makes at once, and then the server ends during one.
#[test]
fn waiting_calls_and_the_end_of_a_server_are_visible() {
    let server = start(&observed());
    let store = connect(&options(&server));
    store.init(&[key("w")], &[value(1.0)]).unwrap();
    let gate = Arc::new(Mutex::new(()));
    let closed = Arc::clone(&gate);
    let updater = move |_: &Key, pushed: &Tensor, stored: &mut Tensor| {
        drop(closed.lock().unwrap());
        *stored = pushed.clone();
        Ok(())
    };
    server.store().set_updater(Some(Arc::new(updater))).unwrap();
    let push = || store.push(&[key("w")], &[value(2.0)], 0).unwrap();
    let calls = |state: &str| metric(&get(&server, "/metrics").1, state);
    std::thread::scope(|scope| {
        let closed = gate.lock().unwrap();
        let pushing: Vec<_> = (0..140).map(|_| scope.spawn(push)).collect();
        eventually("calls wait", || calls("kvstore_calls_waiting") > 0.0);
        drop(closed);
        for push in pushing {
            push.join().unwrap();
        }
        assert_eq!(calls("kvstore_calls_waiting"), 0.0);
        let closed = gate.lock().unwrap();
        scope.spawn(push);
        eventually("a call runs", || calls("kvstore_calls_running") == 1.0);
        let ending = scope.spawn(|| server.shut_down());
        let status = || get(&server, "/healthz");
        let expected = ("HTTP/1.1 503 Service Unavailable".to_owned(), "not serving\n".to_owned());
        eventually("the server ends", || status() == expected);
        drop(closed);
        ending.join().unwrap();
    });
}

#[test]
fn a_call_that_waits_is_running() {
    let server = start(&observed());
    let stores = ["a", "b"].map(|name| connect(&options(&server).name(name)));
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| stores[0].barrier().unwrap());
        eventually("the call is running", || {
            metric(&get(&server, "/metrics").1, "kvstore_calls_running") == 1.0
        });
        stores[1].barrier().unwrap();
        waiting.join().unwrap();
    });
    let text = get(&server, "/metrics").1;
    assert_eq!(metric(&text, "kvstore_calls_total{verb=\"barrier\",outcome=\"ok\"}"), 2.0);
    let slowest = metric(&text, "kvstore_call_duration_seconds_sum{verb=\"barrier\"}");
    assert!(slowest > 0.0);
}

#[test]
fn the_dashboard_uses_metrics_that_exist() {
    let server = start(&observed());
    let store = connect(&options(&server));
    store.init(&[key("w")], &[value(1.0)]).unwrap();
    let text = get(&server, "/metrics").1;
    let names: HashSet<&str> =
        text.lines().filter_map(|line| line.split([' ', '{']).next()).collect();
    let dashboard = include_str!("../../examples/monitoring/grafana.json");
    let dashboard: Value = serde_json::from_str(dashboard).unwrap();
    let mut num_found = 0;
    for panel in dashboard["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().unwrap() {
            let is_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
            let words = target["expr"].as_str().unwrap().split(|letter| !is_name(letter));
            for name in words.filter(|word| word.starts_with("kvstore_")) {
                assert!(names.contains(name), "{}: no {name} in\n{text}", panel["title"]);
                num_found += 1;
            }
        }
    }
    assert!(num_found >= 18, "{num_found} metrics");
}

#[test]
fn other_requests_have_answers() {
    let server = start(&observed());
    assert_eq!(get(&server, "/healthz"), ("HTTP/1.1 200 OK".into(), "serving\n".into()));
    for path in ["/", "/status.json", "/nothing", "/metrics/", "//"] {
        assert_eq!(get(&server, path).0, "HTTP/1.1 404 Not Found", "{path}");
    }
    let stream = || TcpStream::connect(server.metrics_address().unwrap()).unwrap();
    assert_eq!(exchange(stream(), "POST", "/metrics").0, "HTTP/1.1 405 Method Not Allowed");
    let address = server.metrics_address().unwrap();
    drop(server);
    assert!(TcpStream::connect(address).is_err());
    let page_alone = ServerOptions::new("127.0.0.1:0").status_page();
    let error = Server::start(backends(), &page_alone).unwrap_err().to_string();
    assert!(error.contains("expected also `metrics`"), "{error}");
    let open = ServerOptions::new("127.0.0.1:0").metrics("0.0.0.0:0");
    let error = Server::start(backends(), &open).unwrap_err().to_string();
    assert!(error.contains("metrics: `0.0.0.0:0`"), "{error}");
}

fn large() -> kvstore_core::Value {
    let numbers = [1.0; 6];
    Tensor::from_slice(backends(), Device::cpu(0), [3, 2], &numbers).unwrap().into()
}

#[test]
fn the_status_lists_members_and_the_largest_keys() {
    let server = start(&observed().status_page());
    let store = connect(&options(&server).name("<b>a</b>"));
    store.init(&[key("large")], &[large()]).unwrap();
    let keys: Vec<_> = (0..300).map(|number| key(&number.to_string())).collect();
    store.init(&keys, &vec![value(1.0); 300]).unwrap();
    store.push(&[key("17")], &[value(1.0)], 0).unwrap();
    assert!(get(&server, "/").1.starts_with("<!DOCTYPE html>"));
    let status: Value = serde_json::from_str(&get(&server, "/status.json").1).unwrap();
    assert_eq!(status["members"][0]["name"], "<b>a</b>");
    assert_eq!(status["num_keys"], 301);
    let keys = status["keys"].as_array().unwrap();
    assert_eq!(keys.len(), 200);
    let pushed = keys.iter().find(|found| found["key"] == "17").unwrap();
    assert_eq!(pushed["pushes"], 1);
    assert_eq!(keys[0]["shape"], serde_json::json!([3, 2]));
    assert_eq!(status["is_serving"], true);
}

#[test]
fn metrics_for_other_machines_need_certificates() {
    let authority = Authority::new();
    let options = ServerOptions::new("127.0.0.1:0").metrics("0.0.0.0:0");
    let server = start(&options.certificates(authority.issue("server")));
    let port = server.metrics_address().unwrap().port();
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let stream = || TcpStream::connect(address).unwrap();
    let text = exchange(authority.encrypted(stream(), Some("reader")), "GET", "/metrics").1;
    assert_eq!(metric(&text, "kvstore_keys"), 0.0);
    let forbidden = exchange(authority.encrypted(stream(), Some("boss")), "GET", "/metrics").0;
    assert_eq!(forbidden, "HTTP/1.1 403 Forbidden");
    let mut without = authority.encrypted(stream(), None);
    let refused = without.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
    assert!(refused.is_err() || without.read(&mut [0; 16]).is_err());
    let mut plain = stream();
    let _ = plain.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
    let mut answer = Vec::new();
    let _ = plain.read_to_end(&mut answer);
    assert!(!answer.starts_with(b"HTTP"));
    // On this machine alone, a browser needs none.
    let local = start(&observed().certificates(authority.issue("server")));
    assert_eq!(get(&local, "/healthz").0, "HTTP/1.1 200 OK");
}

fn channel(runtime: &Runtime, server: &Server) -> Channel {
    let endpoint = Channel::from_shared(format!("http://{}", server.address())).unwrap();
    runtime.block_on(endpoint.connect()).unwrap()
}

#[test]
fn tools_of_grpc_find_health_and_the_protocol() {
    let runtime = Runtime::new().unwrap();
    let server = start(&observed());
    let mut health = HealthClient::new(channel(&runtime, &server));
    runtime.block_on(async {
        for service in ["", "kvstore.v1.Store"] {
            let request = HealthCheckRequest { service: service.to_owned() };
            let reply = health.check(request).await.unwrap().into_inner();
            assert_eq!(reply.status(), ServingStatus::Serving, "{service}");
        }
        let request = HealthCheckRequest { service: "kvstore.v1.Store".to_owned() };
        let mut watched = health.watch(request).await.unwrap().into_inner();
        let first = watched.message().await.unwrap().unwrap();
        assert_eq!(first.status(), ServingStatus::Serving);
    });
    let mut reflection = ServerReflectionClient::new(channel(&runtime, &server));
    let list = MessageRequest::ListServices(String::new());
    let symbol = MessageRequest::FileContainingSymbol("kvstore.v1.Store.Call".to_owned());
    let requests = [list, symbol].map(|message_request| ServerReflectionRequest {
        host: String::new(),
        message_request: Some(message_request),
    });
    runtime.block_on(async {
        let replies = reflection.server_reflection_info(tokio_stream::iter(requests)).await;
        let mut replies = replies.unwrap().into_inner();
        let mut next = async || replies.message().await.unwrap().unwrap().message_response.unwrap();
        let MessageResponse::ListServicesResponse(listed) = next().await else { panic!() };
        let names: Vec<_> = listed.service.into_iter().map(|service| service.name).collect();
        assert!(names.contains(&"kvstore.v1.Store".to_owned()), "{names:?}");
        assert!(names.contains(&"grpc.health.v1.Health".to_owned()), "{names:?}");
        let MessageResponse::FileDescriptorResponse(file) = next().await else { panic!() };
        assert!(file.file_descriptor_proto[0].windows(7).any(|bytes| bytes == b"Request"));
    });
}

/// A running call delays the end of the server. Health and reflection do not wait for it.
#[test]
fn a_server_that_ends_closes_the_streams_of_tools_first() {
    let runtime = Runtime::new().unwrap();
    let server = start(&observed());
    let store = connect(&options(&server));
    store.init(&[key("w")], &[value(1.0)]).unwrap();
    let (release, released) = std::sync::mpsc::channel();
    let released = Mutex::new(released);
    let slow = move |_: &Key, _: &Tensor, _: &mut Tensor| Ok(released.lock().unwrap().recv()?);
    server.store().set_updater(Some(Arc::new(slow))).unwrap();
    let mut health = HealthClient::new(channel(&runtime, &server));
    let mut reflection = ServerReflectionClient::new(channel(&runtime, &server));
    let service = || HealthCheckRequest { service: "kvstore.v1.Store".to_owned() };
    let (requests, receiver) = mpsc::channel(1);
    let (mut watched, mut replies) = runtime.block_on(async {
        let mut watched = health.watch(service()).await.unwrap().into_inner();
        let first = watched.message().await.unwrap().unwrap();
        assert_eq!(first.status(), ServingStatus::Serving);
        let replies = reflection.server_reflection_info(ReceiverStream::new(receiver)).await;
        (watched, replies.unwrap().into_inner())
    });
    std::thread::scope(|scope| {
        let pushing = scope.spawn(|| store.push(&[key("w")], &[value(2.0)], 0).unwrap());
        eventually("the push runs", || server.num_running_calls() == 1);
        let ending = scope.spawn(|| server.shut_down());
        runtime.block_on(async {
            let second = watched.message().await.unwrap().unwrap();
            assert_eq!(second.status(), ServingStatus::NotServing);
            let status = watched.message().await.unwrap_err();
            assert_eq!(status.code(), Code::Unavailable, "{status}");
            assert_eq!(status.message(), "the server is ending");
            assert_eq!(replies.message().await.unwrap(), None);
            // The server has also ended the other direction.
            requests.closed().await;
            // Later requests get an answer, too.
            let reply = health.check(service()).await.unwrap().into_inner();
            assert_eq!(reply.status(), ServingStatus::NotServing);
            let mut watched = health.watch(service()).await.unwrap().into_inner();
            let first = watched.message().await.unwrap().unwrap();
            assert_eq!(first.status(), ServingStatus::NotServing);
            assert_eq!(watched.message().await.unwrap_err().code(), Code::Unavailable);
        });
        // Only the call has held up the server.
        assert!(!pushing.is_finished() && !ending.is_finished());
        release.send(()).unwrap();
        pushing.join().unwrap();
        ending.join().unwrap();
    });
}

/// Returns a connection with a certificate for the role, or without one.
async fn encrypted(
    authority: &Authority,
    server: &Server,
    role: Option<&str>,
) -> Result<Channel, tonic::transport::Error> {
    let endpoint = Channel::from_shared(format!("https://{}", server.address())).unwrap();
    endpoint.tls_config(authority.client(role)).unwrap().connect().await
}

#[test]
fn each_role_reads_health_and_the_protocol() {
    let (authority, runtime) = (Authority::new(), Runtime::new().unwrap());
    let options = ServerOptions::new("127.0.0.1:0").certificates(authority.issue("server"));
    let server = start(&options);
    let list = || {
        let message_request = Some(MessageRequest::ListServices(String::new()));
        tokio_stream::iter([ServerReflectionRequest { host: String::new(), message_request }])
    };
    let of_all = || HealthCheckRequest::default();
    runtime.block_on(async {
        for role in ["reader", "worker", "server", "admin"] {
            let channel = encrypted(&authority, &server, Some(role)).await.unwrap();
            let mut health = HealthClient::new(channel.clone());
            let reply = health.check(of_all()).await.unwrap().into_inner();
            assert_eq!(reply.status(), ServingStatus::Serving, "{role}");
            let mut watched = health.watch(of_all()).await.unwrap().into_inner();
            let first = watched.message().await.unwrap().unwrap();
            assert_eq!(first.status(), ServingStatus::Serving, "{role}");
            let mut reflection = ServerReflectionClient::new(channel);
            let mut replies = reflection.server_reflection_info(list()).await.unwrap().into_inner();
            let reply = replies.message().await.unwrap().unwrap().message_response.unwrap();
            assert!(matches!(reply, MessageResponse::ListServicesResponse(_)), "{role}");
        }
        for role in ["boss", ""] {
            let channel = encrypted(&authority, &server, Some(role)).await.unwrap();
            let mut health = HealthClient::new(channel.clone());
            let mut reflection = ServerReflectionClient::new(channel);
            for status in [
                health.check(of_all()).await.err(),
                health.watch(of_all()).await.err(),
                reflection.server_reflection_info(list()).await.err(),
            ] {
                let status = status.unwrap();
                assert_eq!(status.code(), Code::PermissionDenied, "{role}: {status}");
                assert!(status.message().contains("found `none`"), "{role}: {status}");
            }
        }
        // In TLS 1.3, the server rejects the client after the client has connected.
        if let Ok(channel) = encrypted(&authority, &server, None).await {
            let status = HealthClient::new(channel).check(of_all()).await.unwrap_err();
            // The connection may end before or after the request is sent.
            let codes = [Code::Unknown, Code::Cancelled, Code::Unavailable];
            assert!(codes.contains(&status.code()), "{status:?}");
        }
        let plain = Channel::from_shared(format!("http://{}", server.address())).unwrap();
        if let Ok(channel) = plain.connect().await {
            HealthClient::new(channel).check(of_all()).await.unwrap_err();
        }
    });
}

/// Keeps the fields of the spans of calls.
#[derive(Clone, Default)]
struct Spans(Arc<Mutex<Vec<String>>>);

struct Fields<'a>(&'a mut String);

impl Visit for Fields<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        write!(self.0, "{field}={value:?} ").unwrap();
    }
}

impl<S: tracing::Subscriber> Layer<S> for Spans {
    fn on_new_span(
        &self,
        attributes: &tracing::span::Attributes<'_>,
        _id: &tracing::span::Id,
        _context: Context<'_, S>,
    ) {
        let metadata = attributes.metadata();
        let mut text = format!("{} {} ", metadata.level(), metadata.name());
        attributes.record(&mut Fields(&mut text));
        self.0.lock().unwrap().push(text);
    }
}

#[test]
fn spans_of_calls_have_the_trace_of_the_caller() {
    let spans = Spans::default();
    let subscriber = tracing_subscriber::registry().with(spans.clone());
    tracing::subscriber::set_global_default(subscriber).unwrap();
    let server = start(&observed());
    let store: NetStore = connect(&options(&server).name("traced"));
    let in_trace = |flags: &str, call: &dyn Fn()| {
        let text = format!("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-{flags}");
        text.parse::<TraceContext>().unwrap().scope(call);
    };
    in_trace("01", &|| store.init(&[key("w")], &[value(1.0)]).unwrap());
    in_trace("00", &|| store.push(&[key("w")], &[value(1.0)], 0).unwrap());
    store.pull(&[key("w")], 0).unwrap();
    let found = |parts: &[&str]| {
        let spans = spans.0.lock().unwrap();
        spans.iter().any(|text| parts.iter().all(|part| text.contains(part)))
    };
    let trace = "trace_id=0af7651916cd43dd8448eb211c80319c parent_id=b7ad6b7169203331";
    assert!(found(&["INFO call ", "verb=\"init\"", "member=\"traced\"", "sequence=1", trace]));
    assert!(found(&["DEBUG call ", "verb=\"push\"", "sequence=2", trace]));
    assert!(found(&["DEBUG call ", "verb=\"pull\""]));
    assert!(!found(&["verb=\"pull\"", "trace_id"]));
}
