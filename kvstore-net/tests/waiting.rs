//! How long calls wait: timeouts, and stores that are closed and servers that end meanwhile.

#![allow(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    reason = "a test may abort without memory"
)]
#![allow(clippy::unwrap_used, reason = "a check fails by panicking")]

mod network;

use std::process::Command;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use kvstore::{ErrorCode, Store};
use kvstore_core::{Key, KvStore, Result, Tensor, WorkerGroup};
use kvstore_net::{NetStore, Server};

use self::network::{connect, eventually, key, options, server, value};

/// The environment variable with the address of the server, in the process of a child.
const SERVER: &str = "KVSTORE_TEST_SERVER";

/// Returns the error of a barrier for which another member is missing.
fn missing_member(store: &Store) -> String {
    let error = store.barrier().unwrap_err();
    assert_eq!(error.code(), ErrorCode::Timeout, "{error}");
    error.to_string()
}

/// Creates stores as programs do, in a process with `KVSTORE_DIST_TIMEOUT`.
#[test]
fn a_call_waits_as_long_as_the_environment_or_the_option_says() {
    if let Ok(address) = std::env::var(SERVER) {
        return child(&address);
    }
    let server = server();
    let other = connect(&options(&server).name("other"));
    let run = |timeout: &str| {
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", "a_call_waits_as_long_as_the_environment_or_the_option_says"]);
        child.env(SERVER, server.address().to_string()).env("KVSTORE_DIST_TIMEOUT", timeout);
        let output = child.output().unwrap();
        (output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let (has_passed, text) = run("0.5");
    assert!(has_passed, "{text}");
    for wrong in ["0", "soon", "-1"] {
        let (has_passed, text) = run(wrong);
        let expected =
            format!("KVSTORE_DIST_TIMEOUT: expected a number of seconds, found `{wrong}`");
        assert!(!has_passed && text.contains(&expected), "{text}");
    }
    drop(other);
}

/// Without the timeout, each of these calls would wait for 300 seconds.
fn child(address: &str) {
    let of_environment = kvstore::create_with("dist_async", &[("servers", address)]);
    let of_environment = of_environment.unwrap_or_else(|error| panic!("{error}"));
    let text = missing_member(&of_environment);
    assert!(text.contains("barrier: waiting for `other`"), "{text}");
    let options = [("servers", address), ("timeout", "0.25")];
    let of_options = kvstore::create_with("dist_async", &options).unwrap();
    missing_member(&of_options);
    // No server answers there.
    let options = [("servers", "127.0.0.1:9"), ("timeout", "0.25")];
    let error = kvstore::create_with("dist_async", &options).unwrap_err();
    let text = error.to_string();
    assert_eq!(error.code(), ErrorCode::Timeout, "{error}");
    assert!(text.contains("server `127.0.0.1:9`: no answer in 0.25 s"), "{text}");
}

/// Two workers. The first waits for a push of the second.
struct Waiting {
    fast: Arc<NetStore>,
    _slow: NetStore,
    pulled: Receiver<Result<Vec<Tensor>>>,
}

impl Waiting {
    fn start(server: &Server) -> Self {
        let fast = Arc::new(connect(&options(server).name("fast").staleness(0)));
        let slow = connect(&options(server).name("slow"));
        fast.init(&[key("w")], &[value(0.0)]).unwrap();
        fast.push(&[key("w")], &[value(1.0)], 0).unwrap();
        let (sender, pulled) = channel();
        let pulling = Arc::clone(&fast);
        thread::spawn(move || sender.send(pulling.pull(&[key("w")], 0)));
        assert!(pulled.recv_timeout(Duration::from_millis(100)).is_err(), "the pull waits");
        Self { fast, _slow: slow, pulled }
    }

    /// Checks that the pull ends soon, with the error that something is closed.
    #[track_caller]
    fn check(&self) {
        let error = self.pulled.recv_timeout(SOON).unwrap().unwrap_err();
        assert_eq!(error.code(), ErrorCode::Closed, "{}", error.chain());
    }
}

/// Less than the timeout of the calls.
const SOON: Duration = Duration::from_secs(30);

#[test]
fn a_bounded_pull_ends_when_its_store_is_closed() {
    let server = server();
    let waiting = Waiting::start(&server);
    waiting.fast.leave().unwrap();
    waiting.check();
}

#[test]
fn a_bounded_pull_ends_when_its_server_ends() {
    let server = server();
    let waiting = Waiting::start(&server);
    let (release, released) = channel();
    let released = Mutex::new(released);
    let slow = move |_: &Key, _: &Tensor, _: &mut Tensor| Ok(released.lock().unwrap().recv()?);
    server.store().set_updater(Some(Arc::new(slow))).unwrap();
    let pushing = connect(&options(&server));
    thread::scope(|scope| {
        // This call keeps the server from ending, so that the pull gets the server's own answer.
        scope.spawn(|| pushing.push(&[key("w")], &[value(1.0)], 0).unwrap());
        eventually("the updater runs", || server.num_running_calls() == 1);
        let ending = scope.spawn(|| server.shut_down());
        waiting.check();
        release.send(()).unwrap();
        ending.join().unwrap();
    });
}
