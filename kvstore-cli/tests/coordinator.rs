//! Groups whose state is in a real etcd: any server may die, the first one included.

#![allow(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    reason = "a test may abort without memory"
)]
#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a check fails by panicking")]

mod process;

use std::io::Read;
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use kvstore::{DType, Device, ErrorCode, NDArray, Optimizer, Rewound, Store, create_with, full};
use kvstore_tests::etcd::Etcd;

use self::process::{KVSTORE, LONG, Process};

/// The lease of servers in seconds. etcd gives twice as much, because it has no shorter ones.
const LEASE: &str = "1";

fn coordinator(etcd: &Etcd) -> String {
    format!("etcd://{}/digits", etcd.address())
}

fn arguments(etcd: &Etcd, index: usize, num_servers: usize) -> Vec<String> {
    let arguments = [
        "serve",
        "--address",
        "127.0.0.1:0",
        "--lease",
        LEASE,
        "--coordinator",
        &coordinator(etcd),
        "--server-index",
        &index.to_string(),
        "--num-servers",
        &num_servers.to_string(),
    ];
    arguments.map(str::to_owned).into()
}

fn serve(etcd: &Etcd, index: usize, num_servers: usize) -> (Process, String) {
    serve_with(etcd, (index, num_servers), &[])
}

fn serve_with(
    etcd: &Etcd,
    (index, num_servers): (usize, usize),
    more: &[&str],
) -> (Process, String) {
    let arguments = arguments(etcd, index, num_servers);
    let mut server = Process::start(Command::new(KVSTORE).args(arguments).args(more));
    let address = server.rest_of_line("listening on ");
    (server, address)
}

/// Joins the group as a worker whose calls wait this many seconds.
fn join(etcd: &Etcd, name: &str, timeout: u64) -> kvstore::Result<Store> {
    join_with(etcd, (name, timeout), &[])
}

fn join_with(
    etcd: &Etcd,
    (name, timeout): (&str, u64),
    more: &[(&str, &str)],
) -> kvstore::Result<Store> {
    let (coordinator, timeout) = (coordinator(etcd), timeout.to_string());
    let options = [("coordinator", coordinator.as_str()), ("name", name), ("timeout", &timeout)];
    create_with("dist_async", &[&options[..], &[("divide_above", "1024")], more].concat())
}

fn filled(number: f64) -> NDArray {
    full([1 << 12], number, DType::F32, Device::cpu(0)).unwrap()
}

/// Initialises the value with 0. Each push of 1 subtracts 1.
fn init(store: &Store) {
    store.set_optimizer(Optimizer::sgd().with("learning_rate", 1.0).unwrap()).unwrap();
    store.init("w", &filled(0.0)).unwrap();
}

fn push(store: &Store) -> kvstore::Result<()> {
    store.push("w", &filled(1.0))
}

fn number(store: &Store) -> f32 {
    let pulled = filled(7.0);
    store.pull("w", &pulled).unwrap();
    let elements = pulled.to_vec::<f32>().unwrap();
    assert!(elements.iter().all(|element| *element == elements[0]), "a part of a push is missing");
    elements[0]
}

/// Calls a function with all stores at the same time.
fn in_parallel(stores: &[Store], call: impl Fn(&Store) + Sync) {
    thread::scope(|scope| {
        for store in stores {
            scope.spawn(|| call(store));
        }
    });
}

/// Repeats a call until it succeeds.
fn eventually<T>(what: &str, mut call: impl FnMut() -> kvstore::Result<T>) -> T {
    let start = Instant::now();
    loop {
        match call() {
            Ok(result) => return result,
            Err(error) => assert!(start.elapsed() < LONG, "{what}: {}", error.chain()),
        }
        thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn workers_find_all_servers() {
    let etcd = Etcd::start();
    let error = join(&etcd, "early", 3).unwrap_err();
    assert_eq!(error.code(), ErrorCode::Timeout);
    assert!(error.chain().contains("group `digits`: no server has started"), "{}", error.chain());
    let (_second, _) = serve(&etcd, 1, 3);
    let error = join(&etcd, "early", 3).unwrap_err().chain();
    assert!(error.contains("no live server 0, 2 of 3"), "{error}");
    thread::scope(|scope| {
        let joining = scope.spawn(|| join(&etcd, "worker", LONG.as_secs()).unwrap());
        let (_first, _) = serve(&etcd, 0, 3);
        let (_third, _) = serve(&etcd, 2, 3);
        let store = joining.join().unwrap();
        init(&store);
        push(&store).unwrap();
        assert_eq!(number(&store), -1.0);
        store.barrier().unwrap();
    });
}

#[test]
fn all_servers_have_the_same_number_of_servers() {
    let etcd = Etcd::start();
    let (_first, _) = serve(&etcd, 0, 2);
    let other = Command::new(KVSTORE).args(arguments(&etcd, 1, 3)).output().unwrap();
    let error = String::from_utf8_lossy(&other.stderr);
    assert!(error.contains("num_servers: the group `digits` has 2, found 3"), "{error}");
    assert_eq!(other.status.code(), Some(2));
    let other = Command::new(KVSTORE).args(arguments(&etcd, 2, 2)).output().unwrap();
    let error = String::from_utf8_lossy(&other.stderr);
    assert!(error.contains("server_index: expected less than num_servers"), "{error}");
}

#[test]
fn members_need_an_address_that_they_can_reach() {
    let etcd = Etcd::start();
    let coordinator = coordinator(&etcd);
    let open = ["serve", "--address", "0.0.0.0:0", "--insecure", "--coordinator", &coordinator];
    let output = Command::new(KVSTORE).args(open).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.contains("advertise: expected HOST:PORT"), "{error}");
    assert_eq!(output.status.code(), Some(2));
    for (wrong, expected) in [
        (&["--advertise", "nowhere"][..], "advertise: expected HOST:PORT, found `nowhere`"),
        (&["--coordinator", "127.0.0.1:2379"], "coordinator: expected etcd://HOST:PORT"),
    ] {
        let rest = ["--coordinator", &coordinator];
        let rest = if wrong[0] == rest[0] { &[][..] } else { &rest };
        let output = Command::new(KVSTORE).arg("serve").args(wrong).args(rest).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(error.contains(expected), "{error}");
    }
    // Members get what the server advertises, and not where it listens.
    let advertised = ["serve", "--advertise", "127.0.0.1:1", "--address", "127.0.0.1:0"];
    let mut command = Command::new(KVSTORE);
    let command = command.args(advertised).args(["--coordinator", &coordinator]);
    let mut server = Process::start(command);
    server.rest_of_line("listening on ");
    let error = join(&etcd, "worker", 3).unwrap_err().chain();
    assert!(error.contains("server `127.0.0.1:1`: no answer"), "{error}");
}

#[test]
fn a_second_server_with_an_index_waits_for_the_end_of_the_lease_of_the_first() {
    let etcd = Etcd::start();
    let (first, address) = serve(&etcd, 0, 1);
    let second = Command::new(KVSTORE).args(arguments(&etcd, 0, 1)).output().unwrap();
    let error = String::from_utf8_lossy(&second.stderr);
    let expected = format!("server 0 of the group `digits` is still alive at `{address}`");
    assert!(error.contains(&expected), "{error}");
    assert_eq!(second.status.code(), Some(1));
    // It waits for the lease of a killed one.
    first.signal("KILL");
    let (second, address) = serve(&etcd, 0, 1);
    let store = join(&etcd, "worker", LONG.as_secs()).unwrap();
    init(&store);
    // One that ends in order gives up its lease at once.
    second.signal("TERM");
    let start = Instant::now();
    let (_third, other) = serve(&etcd, 0, 1);
    assert_ne!(address, other);
    println!("the third server took the index after {:?}", start.elapsed());
}

#[test]
fn workers_follow_a_server_that_is_started_elsewhere() {
    let etcd = Etcd::start();
    let (_first, _) = serve(&etcd, 0, 2);
    let (second, before) = serve(&etcd, 1, 2);
    let store = join(&etcd, "worker", 20).unwrap();
    init(&store);
    push(&store).unwrap();
    let saved = store.snapshot().unwrap().load().unwrap();
    second.signal("KILL");
    drop(second);
    let (_second, after) = serve(&etcd, 1, 2);
    assert_ne!(before, after);
    eventually("the other address is used", || store.rollback(&saved));
    push(&store).unwrap();
    assert_eq!(number(&store), -2.0);
}

#[test]
fn a_killed_leader_continues_elsewhere_from_its_recovery_point() {
    let etcd = Etcd::start();
    let folder = tempfile::tempdir().unwrap();
    let recovery = ["--recovery", folder.path().to_str().unwrap(), "--save-every", "0.05"];
    let (leader, before) = serve_with(&etcd, (0, 1), &recovery);
    let a = join(&etcd, "a", LONG.as_secs()).unwrap();
    let (sender, rewinds) = channel();
    a.on_rewind(move |rewound: &Rewound| drop(sender.send(rewound.clone()))).unwrap();
    init(&a);
    push(&a).unwrap();
    thread::sleep(Duration::from_millis(500));
    // It may have joined after the last point.
    let b = join(&etcd, "b", LONG.as_secs()).unwrap();
    leader.signal("KILL");
    drop(leader);
    let (_leader, after) = serve_with(&etcd, (0, 1), &recovery);
    assert_ne!(before, after);
    assert_eq!(rewinds.recv_timeout(LONG).unwrap(), Rewound { server: after, version: 1 });
    for store in [&a, &b] {
        push(store).unwrap();
    }
    assert_eq!(number(&a), -3.0);
    assert_eq!([&a, &b].map(|store| store.rank().unwrap()), [0, 1]);
    thread::scope(|scope| {
        let one = scope.spawn(|| a.barrier().unwrap());
        b.barrier().unwrap();
        one.join().unwrap();
    });
}

#[test]
fn a_killed_leader_hands_ranks_and_barriers_to_its_successor() {
    let etcd = Etcd::start();
    let (leader, _) = serve(&etcd, 0, 2);
    let (_second, _) = serve(&etcd, 1, 2);
    let stores = ["a", "b", "c"].map(|name| join(&etcd, name, 30).unwrap());
    let ranks = || stores.each_ref().map(|store| store.rank().unwrap());
    assert_eq!(ranks(), [0, 1, 2]);
    for _ in 0..3 {
        in_parallel(&stores, |store| store.barrier().unwrap());
    }
    let [a, b, c] = &stores;
    thread::scope(|scope| {
        let waiting = scope.spawn(|| a.barrier());
        thread::sleep(Duration::from_millis(300));
        leader.signal("KILL");
        let (_leader, _) = serve(&etcd, 0, 2);
        // All keep their ranks, in whatever order they come back.
        let d = join(&etcd, "d", 30).unwrap();
        assert_eq!(d.rank().unwrap(), 3);
        d.leave().unwrap();
        assert_eq!(eventually("the ranks", || c.rank()), 2);
        let also = scope.spawn(|| b.barrier());
        thread::sleep(Duration::from_millis(300));
        assert!(!waiting.is_finished() && !also.is_finished(), "`c` has not arrived");
        c.barrier().unwrap();
        waiting.join().unwrap().unwrap();
        also.join().unwrap().unwrap();
        assert_eq!(ranks(), [0, 1, 2]);
        // The same barrier for all of them.
        in_parallel(&stores, |store| store.barrier().unwrap());
        // The layouts of keys are above those that the first leader reserved.
        init(a);
        push(b).unwrap();
        assert_eq!(number(c), -1.0);
    });
}

/// The first server finds the others in etcd, also after one was started elsewhere.
#[test]
fn killed_servers_go_back_with_the_others_and_rounds_continue() {
    let etcd = Etcd::start();
    let folders = [(), ()].map(|()| tempfile::tempdir().unwrap());
    let serve = |index: usize| {
        let folder = folders[index].path().to_str().unwrap();
        serve_with(&etcd, (index, 2), &["--recovery", folder, "--save-every", "0.05"]).0
    };
    let mut servers = [serve(0), serve(1)];
    let rounds = [("quorum", "2"), ("grace", "0.1")];
    let stores = ["a", "b"].map(|name| join_with(&etcd, (name, 60), &rounds).unwrap());
    let (sender, rewinds) = channel();
    stores[0].on_rewind(move |rewound: &Rewound| drop(sender.send(rewound.clone()))).unwrap();
    init(&stores[0]);
    for (killed, version) in [(1, 1), (0, 2), (1, 3)] {
        in_parallel(&stores, |store| push(store).unwrap());
        thread::sleep(Duration::from_millis(500));
        servers[killed].signal("KILL");
        servers[killed] = serve(killed);
        // Both servers have gone back.
        for _ in 0..2 {
            assert_eq!(rewinds.recv_timeout(LONG).unwrap().version, version);
        }
        // Both workers have taken part in each round.
        let expected = -2.0 * f32::from(u8::try_from(version).unwrap());
        assert_eq!(stores.each_ref().map(number), [expected; 2]);
        assert_eq!(stores.each_ref().map(|store| store.rank().unwrap()), [0, 1]);
        in_parallel(&stores, |store| store.barrier().unwrap());
    }
}

#[test]
fn servers_and_workers_have_certificates_for_etcd_and_each_other() {
    let folder =
        |role: &str| format!("{}/../tests/certificates/{role}", env!("CARGO_MANIFEST_DIR"));
    let (server, worker) = (folder("server"), folder("worker"));
    let etcd = Etcd::start_with_certificates(server.as_ref());
    let options = ["--certificates", &server, "--coordinator-certificates", &server];
    let (_first, _) = serve_with(&etcd, (0, 2), &options);
    let (_second, _) = serve_with(&etcd, (1, 2), &options);
    let certified = [("certificates", &*worker), ("coordinator_certificates", &*worker)];
    let rounds = [("quorum", "1"), ("grace", "0")];
    let store = join_with(&etcd, ("worker", 30), &[certified, rounds].concat()).unwrap();
    init(&store);
    push(&store).unwrap();
    assert_eq!(number(&store), -1.0);
    let error = join_with(&etcd, ("plain", 3), &certified[..1]).unwrap_err().chain();
    assert!(error.contains(&etcd.address()), "{error}");
}

#[test]
fn servers_stop_pushes_while_etcd_is_away_for_longer_than_a_lease() {
    let mut etcd = Etcd::start();
    let (mut server, _) = serve(&etcd, 0, 1);
    let store = join(&etcd, "worker", 2).unwrap();
    init(&store);
    push(&store).unwrap();
    let mut expected = -1.0;
    for is_killed in [false, true] {
        if is_killed {
            etcd.kill();
        } else {
            etcd.signal("STOP");
        }
        let start = Instant::now();
        let error = loop {
            match push(&store) {
                Ok(()) => expected -= 1.0,
                Err(error) => break error,
            }
            assert!(start.elapsed() < LONG, "pushes are still accepted");
            thread::sleep(Duration::from_millis(20));
        };
        println!("pushes failed after {:?}: {}", start.elapsed(), error.chain());
        let text = error.chain();
        // A push takes effect without an answer if the lease ends meanwhile.
        let is_unknown = text.contains("it is not known whether the call took effect");
        assert!(is_unknown || error.code() == ErrorCode::Timeout, "{text}");
        let says_so = format!("etcd `{}` has not renewed the lease of server 0", etcd.address());
        assert!(text.contains(&says_so) && text.contains("longer than its 2 s"), "{text}");
        // Values can be read.
        let found = number(&store);
        assert!(found == expected || (is_unknown && found == expected - 1.0), "{found}, {text}");
        expected = found;
        if is_killed {
            etcd.restart();
        } else {
            etcd.signal("CONT");
        }
        eventually("pushes are accepted again", || push(&store));
        expected -= 1.0;
        assert_eq!(number(&store), expected);
    }
    server.signal("TERM");
    assert_eq!(server.child.wait().unwrap().code(), Some(0));
}

/// A server is stopped for longer than its lease, and another one takes its index. When the first
/// one continues, it accepts no push and ends.
#[test]
fn a_server_whose_index_was_taken_ends() {
    let etcd = Etcd::start();
    let mut command = Command::new(KVSTORE);
    let command = command.args(arguments(&etcd, 0, 1)).stderr(Stdio::piped());
    let mut first = Process::start(command);
    first.rest_of_line("listening on ");
    let store = join(&etcd, "worker", 30).unwrap();
    init(&store);
    push(&store).unwrap();
    first.signal("STOP");
    thread::scope(|scope| {
        // Sent to the stopped server. If that one refuses it before it ends, the successor does,
        // too. Otherwise it is not known whether the push took effect.
        let waiting = scope.spawn(|| push(&store));
        let (_second, _) = serve(&etcd, 0, 1);
        first.signal("CONT");
        let error = waiting.join().unwrap().unwrap_err().chain();
        let is_unknown = error.contains("it is not known whether the call took effect");
        assert!(is_unknown || error.contains("key `w` has not been initialised"), "{error}");
        assert_eq!(first.child.wait().unwrap().code(), Some(1));
        let mut error = String::new();
        first.child.stderr.take().unwrap().read_to_string(&mut error).unwrap();
        assert!(error.contains("another server has replaced server 0"), "{error}");
        // The successor has no values yet.
        assert!(store.keys().unwrap().is_empty());
        init(&store);
        push(&store).unwrap();
        assert_eq!(number(&store), -1.0);
    });
}
