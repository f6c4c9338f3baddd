//! The command in processes of its own: signals, addresses, killed members.

#![allow(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    reason = "a test may abort without memory"
)]
#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a check fails by panicking")]

mod process;

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use kvstore::{Certificates, NetStore, NetStoreOptions, TraceContext, backends};
use kvstore_core::{Device, ErrorCode, Key, KvStore, Optimizer, Tensor, WorkerGroup};
use kvstore_tests::signal::signal;

use tempfile::TempDir;

use self::process::{KVSTORE, LONG, Process, for_each_address};

/// A server in another process.
struct Served {
    process: Process,
    address: String,
}

impl Served {
    fn start(arguments: &[&str]) -> Self {
        let (process, address) = Process::serve(arguments);
        Self { process, address }
    }

    fn options(&self) -> NetStoreOptions {
        NetStoreOptions::new(&self.address).timeout(LONG)
    }
}

fn run(arguments: &[&str]) -> Output {
    Command::new(KVSTORE).args(arguments).output().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn status_shows_members_and_size() {
    let served = Served::start(&["--address", "127.0.0.1:0"]);
    let store = NetStore::connect(backends(), &served.options().name("trainer")).unwrap();
    let ones = Tensor::from_slice(backends(), Device::cpu(0), [4], &[1f32; 4]).unwrap();
    store.init(&[Key::new("w").unwrap()], &[ones.into()]).unwrap();
    let output = run(&["status", "--server", &served.address]);
    assert!(output.status.success(), "{}", stderr(&output));
    let text = stdout(&output);
    for line in ["store     local", "keys      1", "bytes     16", "     0  worker  trainer"] {
        assert!(text.lines().any(|found| found == line), "no `{line}` in\n{text}");
    }
}

#[test]
fn sigterm_ends_the_server_with_code_0() {
    let mut served = Served::start(&["--address", "127.0.0.1:0"]);
    let store = NetStore::connect(backends(), &served.options()).unwrap();
    assert!(store.keys().unwrap().is_empty());
    served.process.signal("TERM");
    assert_eq!(served.process.child.wait().unwrap().code(), Some(0));
    assert_eq!(served.process.rest_of_line("ending: "), "completing the calls that run");
}

/// The server waits for a member that is stopped, so it does not end between the signals.
#[test]
fn a_second_signal_ends_the_server_with_code_1() {
    let (mut served, mut victim) = serve_a_stopped_member();
    served.process.signal("INT");
    assert_eq!(served.process.rest_of_line("ending: "), "completing the calls that run");
    served.process.signal("TERM");
    assert_eq!(served.process.child.wait().unwrap().code(), Some(1));
    victim.kill().unwrap();
    victim.wait().unwrap();
}

#[test]
fn a_server_ends_in_order_although_its_output_is_closed() {
    let mut served = Served::start(&["--address", "127.0.0.1:0"]);
    served.process.stop_reading();
    served.process.signal("TERM");
    assert_eq!(served.process.child.wait().unwrap().code(), Some(0));
}

#[test]
fn addresses_that_other_machines_reach_need_a_flag() {
    let output = run(&["serve", "--address", "0.0.0.0:0"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("`0.0.0.0:0`"), "{}", stderr(&output));
    Served::start(&["--address", "0.0.0.0:0", "--insecure"]);
}

/// Returns the answer of the HTTP endpoint of a server that listens on all addresses.
fn health(served: &mut Process) -> String {
    let metrics = served.rest_of_line("metrics on 0.0.0.0:");
    let mut stream = TcpStream::connect(("127.0.0.1", metrics.parse().unwrap())).unwrap();
    stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn metrics_that_other_machines_reach_need_a_flag_or_a_setting() {
    let folder = tempfile::tempdir().unwrap();
    let config = text_of(&folder, "server.toml");
    fs::write(&config, "address = '127.0.0.1:0'\nmetrics = '0.0.0.0:0'\n").unwrap();
    let output = run(&["serve", "--config", &config]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("metrics: `0.0.0.0:0`"), "{}", stderr(&output));
    let mut with_flag = Served::start(&["--config", &config, "--insecure"]);
    assert!(health(&mut with_flag.process).starts_with("HTTP/1.1 200 OK"));
    let text = "address = '127.0.0.1:0'\nmetrics = '0.0.0.0:0'\ninsecure = true\n";
    fs::write(&config, text).unwrap();
    let mut with_setting = Served::start(&["--config", &config]);
    assert!(health(&mut with_setting.process).starts_with("HTTP/1.1 200 OK"));
}

#[test]
fn a_configuration_that_cannot_be_read_is_named() {
    let folder = tempfile::tempdir().unwrap();
    for config in [text_of(&folder, "missing.toml"), text_of(&folder, "")] {
        let output = run(&["serve", "--config", &config]);
        assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
        assert!(stderr(&output).contains(&config), "{}", stderr(&output));
    }
}

#[test]
fn a_worker_may_start_before_its_server() {
    for_each_address(|address| {
        // It sees that the worker tries to connect, but never answers.
        let listener = TcpListener::bind(address).unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let mut worker = start_member(&address);
        let (connection, _) = listener.accept().unwrap();
        drop((connection, listener));
        let served = Served::start(&["--address", &address]);
        let watcher = NetStore::connect(backends(), &served.options().name("watcher")).unwrap();
        eventually("the worker joins", || watcher.members().unwrap().len() == 2);
        worker.kill().unwrap();
        worker.wait().unwrap();
    });
}

/// The tests for both addresses compare two ways to connect.
#[cfg(target_os = "linux")]
#[test]
fn a_server_has_a_unix_socket_for_the_first_address_only() {
    let has_unix = process::ADDRESSES.iter().map(|address| {
        let served = Served::start(&["--address", address]);
        let sockets = fs::read_to_string("/proc/net/unix").unwrap();
        sockets.lines().any(|line| line.ends_with(&format!("@kvstore/{}", served.address)))
    });
    assert_eq!(has_unix.collect::<Vec<_>>(), [true, false]);
}

/// Runs `kvstore certs`, and returns its folder.
fn certificates(arguments: &[&str]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    make_certificates(folder.path(), arguments);
    folder
}

fn make_certificates(folder: &Path, arguments: &[&str]) {
    let folder = folder.to_str().unwrap();
    let output = run(&[&["certs", "--folder", folder], arguments].concat());
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
}

fn text_of(folder: &TempDir, path: &str) -> String {
    folder.path().join(path).to_str().unwrap().to_owned()
}

#[test]
fn made_certificates_protect_servers_and_members() {
    let folder = certificates(&["--hosts", "127.0.0.1"]);
    let of = |role: &str| text_of(&folder, role);
    let served = Served::start(&["--address", "0.0.0.0:0", "--certificates", &of("server")]);
    let port = served.address.rsplit(':').next().unwrap();
    let address = format!("127.0.0.1:{port}");
    let options = |role: &str| {
        let certificates = Certificates::read(of(role)).unwrap();
        NetStoreOptions::new(&address).timeout(LONG).certificates(certificates)
    };
    let store = NetStore::connect(backends(), &options("worker")).unwrap();
    assert!(store.keys().unwrap().is_empty());
    NetStore::connect(backends(), &options("admin")).unwrap();
    NetStore::connect(backends(), &options("reader").reader()).unwrap();
    NetStore::connect(backends(), &options("reader")).unwrap_err();
    let status = |more: &[&str]| run(&[&["status", "--server", &address], more].concat());
    let output = status(&["--certificates", &of("reader")]);
    assert!(stdout(&output).contains("members   1"), "{}{}", stdout(&output), stderr(&output));
    assert_eq!(status(&[]).status.code(), Some(1));
    // A second run keeps the authority, so that members need not change.
    let authority = fs::read(folder.path().join("ca.pem")).unwrap();
    let before = fs::read(folder.path().join("worker/cert.pem")).unwrap();
    make_certificates(folder.path(), &["--hosts", "127.0.0.1", "--days", "1"]);
    assert_eq!(fs::read(folder.path().join("ca.pem")).unwrap(), authority);
    assert_ne!(fs::read(folder.path().join("worker/cert.pem")).unwrap(), before);
    NetStore::connect(backends(), &options("worker")).unwrap();
}

#[test]
fn an_authority_without_its_key_is_not_replaced() {
    let folder = certificates(&[]);
    fs::remove_file(folder.path().join("ca-key.pem")).unwrap();
    let authority = fs::read(folder.path().join("ca.pem")).unwrap();
    let output = run(&["certs", "--folder", &text_of(&folder, "")]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("without its key (ca-key.pem)"), "{}", stderr(&output));
    assert_eq!(fs::read(folder.path().join("ca.pem")).unwrap(), authority);
}

#[cfg(unix)]
#[test]
fn only_their_owner_reads_private_keys() {
    use std::os::unix::fs::PermissionsExt;
    let folder = certificates(&[]);
    for file in ["ca-key.pem", "server/key.pem", "worker/key.pem", "admin/key.pem"] {
        let mode = fs::metadata(folder.path().join(file)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{file}");
    }
}

#[test]
fn calls_are_logged_with_their_trace() {
    let mut command = Command::new(KVSTORE);
    command.args(["serve", "--address", "127.0.0.1:0", "--log", "debug", "--log-format", "json"]);
    let mut served = Process::start(command.stderr(Stdio::piped()));
    let address = served.rest_of_line("listening on ");
    let options = NetStoreOptions::new(&address).timeout(LONG);
    let store = NetStore::connect(backends(), &options).unwrap();
    let trace = "0af7651916cd43dd8448eb211c80319c";
    let context = format!("00-{trace}-b7ad6b7169203331-01").parse::<TraceContext>().unwrap();
    context.scope(|| store.keys().unwrap());
    drop(store);
    served.signal("TERM");
    let mut log = String::new();
    served.child.stderr.take().unwrap().read_to_string(&mut log).unwrap();
    let line = log.lines().find(|line| line.contains("list_keys")).expect("a line for the call");
    for part in [trace, "b7ad6b7169203331", "\"time.busy\"", "\"message\":\"close\""] {
        assert!(line.contains(part), "no {part} in {line}");
    }
}

#[test]
fn settings_have_three_sources() {
    let folder = tempfile::tempdir().unwrap();
    let config = text_of(&folder, "server.toml");
    fs::write(&config, "address = '127.0.0.1:0'\nstore = 'device'\nlease = 0\n").unwrap();
    let start = |variables: &[(&str, &str)], arguments: &[&str]| {
        let mut command = Command::new(KVSTORE);
        command.arg("serve").args(["--config", &config]).args(arguments);
        command.envs(variables.iter().copied()).stderr(Stdio::piped());
        Process::start(&mut command)
    };
    // The file alone is wrong, and a variable corrects it.
    let mut wrong = start(&[], &[]);
    assert_eq!(wrong.child.wait().unwrap().code(), Some(2));
    let mut served =
        start(&[("KVSTORE_LEASE", "5"), ("KVSTORE_STORE", "none")], &["--store=local"]);
    let address = served.rest_of_line("listening on ");
    let output = run(&["status", "--server", &address]);
    assert!(stdout(&output).contains("store     local"), "{}", stdout(&output));
    // A flag on the command line replaces the other half of the pair.
    let variables = [("KVSTORE_LEASE", "5"), ("KVSTORE_CERTIFICATES", "nowhere")];
    assert_eq!(start(&variables, &[]).child.wait().unwrap().code(), Some(2));
    start(&variables, &["--insecure"]).rest_of_line("listening on ");
}

#[test]
fn a_port_in_use_is_an_error() {
    let served = Served::start(&["--address", "127.0.0.1:0"]);
    let output = run(&["serve", "--address", &served.address]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains(&served.address), "{}", stderr(&output));
    assert!(stderr(&output).contains("in use"), "{}", stderr(&output));
}

#[test]
fn calls_on_a_stopped_server_wait_until_it_continues() {
    for_each_address(|address| {
        let served = Served::start(&["--address", address]);
        let store = NetStore::connect(backends(), &served.options()).unwrap();
        let hurried = served.options().timeout(Duration::from_millis(300));
        let hurried = NetStore::connect(backends(), &hurried).unwrap();
        let (key, ones) = (Key::new("w").unwrap(), [1f32; 4]);
        let ones = Tensor::from_slice(backends(), Device::cpu(0), [4], &ones).unwrap();
        store.init(std::slice::from_ref(&key), &[ones.clone().into()]).unwrap();
        store.set_optimizer(Optimizer::sgd().with("learning_rate", 1.0).unwrap()).unwrap();
        served.process.signal("STOP");
        let error = hurried.pull(std::slice::from_ref(&key), 0).unwrap_err();
        assert_eq!(error.code(), ErrorCode::Timeout, "{error}");
        thread::scope(|scope| {
            let push = || store.push(std::slice::from_ref(&key), &[ones.into()], 0).unwrap();
            let pushing = scope.spawn(push);
            thread::sleep(Duration::from_millis(500));
            assert!(!pushing.is_finished());
            served.process.signal("CONT");
        });
        // The push counts once.
        assert_eq!(store.pull(&[key], 0).unwrap()[0].to_vec::<f32>().unwrap(), [0.0; 4]);
    });
}

#[test]
fn wrong_arguments_are_rejected() {
    for (code, arguments, text) in [
        (2, &["serve", "--address", "nowhere"][..], "address: expected HOST:PORT, found `nowhere`"),
        (
            2,
            &["serve", "--store", "dist_sync"],
            "store type `dist_sync` on a server: expected one of",
        ),
        (
            2,
            &["serve", "--lease", "0"],
            "option `lease`: expected a number of seconds above 0, found `0`",
        ),
        (
            2,
            &["serve", "--log", "loud"],
            "option `log`: expected error, warn, info, debug or trace",
        ),
        (2, &["serve", "--log-format", "xml"], "option `log_format`: expected text or json"),
        (2, &["serve", "--nothing"], "unexpected argument '--nothing'"),
        (2, &["serve", "--insecure", "--certificates", "a"], "cannot be used with"),
        (2, &["certs", "--days", "0"], "--days: expected a number from 1 to 3649, found `0`"),
        (2, &["certs", "--hosts", " , "], "--hosts: expected names and addresses, found none"),
        (1, &["status", "--server", "127.0.0.1:1"], "server `127.0.0.1:1`"),
    ] {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}");
        assert!(stderr(&output).contains(text), "{arguments:?}: {}", stderr(&output));
    }
    let output = run(&["srve"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("serve"), "{}", stderr(&output));
}

/// The program of a member that waits to be killed. Outside of the tests below, it does nothing.
#[test]
fn member() {
    let Ok(server) = std::env::var("KVSTORE_TEST_SERVER") else { return };
    let options = NetStoreOptions::new(server).timeout(LONG).name("victim");
    let _store = NetStore::connect(backends(), &options).unwrap();
    thread::sleep(LONG);
}

/// Starts a member in another process.
fn start_member(address: &str) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "member"]).env("KVSTORE_TEST_SERVER", address);
    command.stdout(Stdio::null()).spawn().unwrap()
}

/// Returns a server and its member, which is a stopped process.
fn serve_a_stopped_member() -> (Served, Child) {
    let served = Served::start(&["--address", "127.0.0.1:0"]);
    let watcher = NetStore::connect(backends(), &served.options().name("watcher")).unwrap();
    let victim = start_member(&served.address);
    eventually("the victim joins", || watcher.members().unwrap().len() == 2);
    signal(&victim, "STOP");
    (served, victim)
}

/// Waits until a condition holds, and returns how long that took.
#[track_caller]
fn eventually(what: &str, holds: impl Fn() -> bool) -> Duration {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < LONG, "{what}");
        thread::sleep(Duration::from_millis(1));
    }
    start.elapsed()
}

#[test]
fn a_killed_member_is_noticed_without_its_lease() {
    for_each_address(|address| {
        // The lease would last an hour.
        let served = Served::start(&["--address", address, "--lease", "3600"]);
        let watcher = NetStore::connect(backends(), &served.options().name("watcher")).unwrap();
        let mut times = [1, 2, 3, 4, 5].map(|_| {
            let mut victim = start_member(&served.address);
            eventually("the victim joins", || watcher.members().unwrap().len() == 2);
            victim.kill().unwrap();
            let time = eventually("the death is noticed", || watcher.members().unwrap().len() == 1);
            assert_eq!(watcher.num_dead_node(4).unwrap(), 1);
            victim.wait().unwrap();
            time
        });
        times.sort_unstable();
        println!("noticed after {times:?}");
        // The median, because a busy machine may delay some of them.
        assert!(times[2] <= Duration::from_millis(200), "{times:?}");
        // A new process takes the name and the rank.
        let successor = NetStore::connect(backends(), &served.options().name("victim")).unwrap();
        assert_eq!((successor.rank().unwrap(), watcher.num_dead_node(4).unwrap()), (1, 0));
    });
}

#[test]
fn a_stopped_member_is_noticed_when_its_lease_ends() {
    for_each_address(|address| {
        let served = Served::start(&["--address", address, "--lease", "2"]);
        let watcher = NetStore::connect(backends(), &served.options().name("watcher")).unwrap();
        let mut victim = start_member(&served.address);
        eventually("the victim joins", || watcher.members().unwrap().len() == 2);
        signal(&victim, "STOP");
        let time = eventually("the lease ends", || watcher.members().unwrap().len() == 1);
        println!("noticed after {time:?}");
        // The last renewal may be a third of the lease old.
        assert!(time > Duration::from_secs(1), "{time:?}");
        assert!(time < Duration::from_secs(5), "{time:?}");
        assert_eq!(watcher.num_dead_node(4).unwrap(), 1);
        // The same process continues.
        signal(&victim, "CONT");
        eventually("it is back", || watcher.members().unwrap().len() == 2);
        assert_eq!(watcher.num_dead_node(4).unwrap(), 0);
        victim.kill().unwrap();
        victim.wait().unwrap();
    });
}

#[test]
fn a_stopped_member_does_not_hold_up_the_end_of_the_server() {
    let (mut served, mut victim) = serve_a_stopped_member();
    served.process.signal("TERM");
    assert_eq!(served.process.child.wait().unwrap().code(), Some(0));
    victim.kill().unwrap();
    victim.wait().unwrap();
}
