//! Servers and their workers in processes of their own, which are killed again and again. The
//! servers continue from their recovery points.
//!
//! `KVSTORE_KILLS=50 cargo test -p kvstore-cli --test recovery` kills more of them.

#![allow(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    reason = "a test may abort without memory"
)]
#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a check fails by panicking")]

mod process;

use std::env;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use kvstore::{DType, Device, NDArray, NetStoreOptions, Optimizer, Store, array, connect, full};
use tempfile::TempDir;

use self::process::{KVSTORE, LONG, Process};

/// The number of processes that are killed.
const NUM_KILLS: usize = 8;

/// Each push changes an element of its own.
const NUM_ELEMENTS: usize = 1 << 16;

/// The most pushes of a process.
const NUM_PUSHES: usize = 1 << 11;

const NAMES: [&str; 3] = ["a", "b", "c"];

const SERVERS: &str = "KVSTORE_TEST_SERVERS";
const NAME: &str = "KVSTORE_TEST_NAME";
const FIRST: &str = "KVSTORE_TEST_FIRST";
const STOP: &str = "KVSTORE_TEST_STOP";

fn zeros() -> NDArray {
    full([NUM_ELEMENTS], 0.0, DType::F32, Device::cpu(0)).unwrap()
}

/// Returns how often each push has taken effect. Each subtracts 1.
fn counts(store: &Store) -> Vec<f32> {
    let pulled = zeros();
    store.pull("w", &pulled).unwrap();
    let counts: Vec<f32> = pulled.to_vec::<f32>().unwrap().iter().map(|value| -value).collect();
    let wrong = counts.iter().position(|count| *count != 0.0 && *count != 1.0);
    assert_eq!(wrong, None, "a push took effect twice");
    counts
}

/// Returns the options of a member of the group of these servers, which all have rows.
fn member(addresses: &str, name: &str) -> NetStoreOptions {
    let servers = NetStoreOptions::of_servers(addresses.split(','));
    servers.divide_above(1024).timeout(LONG).name(name)
}

/// The program of a worker, which pushes to rounds until there is a file or it is killed. Outside
/// of the test below, it does nothing.
#[test]
fn worker() {
    let Ok(addresses) = env::var(SERVERS) else { return };
    let variable = |name| env::var(name).unwrap();
    let first: usize = variable(FIRST).parse().unwrap();
    let options = member(&addresses, &variable(NAME)).quorum(1).grace(Duration::from_millis(100));
    // The server remembers a killed process until its lease ends.
    let start = Instant::now();
    let store = loop {
        match connect(&options) {
            Ok(store) => break store,
            Err(error) => assert!(start.elapsed() < LONG, "{error}"),
        }
        thread::sleep(Duration::from_millis(50));
    };
    println!();
    for element in first..first + NUM_PUSHES {
        let mut pushed = vec![0.0_f32; NUM_ELEMENTS];
        pushed[element] = 1.0;
        let pushed = array(&pushed, [NUM_ELEMENTS], Device::cpu(0)).unwrap();
        // The order of the pushes is in the bits of the sum.
        let number = 0.1 * f64::from(u32::try_from(element).unwrap());
        let ordered = full([1], number, DType::F32, Device::cpu(0)).unwrap();
        match store.push(["w", "ordered"], [&pushed, &ordered]) {
            Ok(()) => println!("pushed {element}"),
            Err(kvstore::Error::LatePush { .. }) => {}
            Err(error) => panic!("{error}"),
        }
        counts(&store);
        // A push is late if a round of one of its keys was committed since the pull of the key.
        store.pull("ordered", &ordered).unwrap();
        if Path::new(&variable(STOP)).exists() {
            return;
        }
    }
}

struct Group {
    folder: TempDir,
    addresses: Vec<String>,
    servers: Vec<Process>,
    workers: Vec<Process>,
    num_started: usize,
}

impl Group {
    fn start(num_servers: usize) -> Self {
        let mut this = Self {
            folder: tempfile::tempdir().unwrap(),
            addresses: vec!["127.0.0.1:0".to_owned(); num_servers],
            servers: Vec::new(),
            workers: Vec::new(),
            num_started: 0,
        };
        // The first one needs the addresses of the others.
        for server in (0..num_servers).rev() {
            let (process, address) = this.serve(server);
            this.servers.insert(0, process);
            this.addresses[server] = address;
        }
        let store = connect(&member(&this.addresses(), "first")).unwrap();
        store.set_optimizer(Optimizer::sgd().with("learning_rate", 1.0).unwrap()).unwrap();
        store.init("w", &zeros()).unwrap();
        store.init("ordered", &full([1], 0.0, DType::F32, Device::cpu(0)).unwrap()).unwrap();
        // Later, all keys are in a recovery point.
        thread::sleep(Duration::from_millis(500));
        for name in NAMES {
            let worker = this.start_worker(name);
            this.workers.push(worker);
        }
        this
    }

    fn addresses(&self) -> String {
        self.addresses.join(",")
    }

    /// Returns the path of a file or folder of a server.
    fn path(&self, server: usize, name: &str) -> String {
        self.folder.path().join(format!("{name}-{server}")).to_str().unwrap().to_owned()
    }

    fn serve(&self, server: usize) -> (Process, String) {
        let (points, journal) = (self.path(server, "points"), self.path(server, "journal"));
        let followers = self.addresses[1..].join(",");
        let mut arguments = vec!["--address", &self.addresses[server], "--lease", "1"];
        arguments.extend(["--recovery", &points, "--save-every", "0.05", "--journal", &journal]);
        // As if all had the same settings.
        let index = server.to_string();
        if !followers.is_empty() {
            arguments.extend(["--followers", &followers, "--server-index", &index]);
        }
        Process::serve(&arguments)
    }

    fn stop_file(&self) -> std::path::PathBuf {
        self.folder.path().join("stop")
    }

    fn start_worker(&mut self, name: &str) -> Process {
        let mut command = Command::new(env::current_exe().unwrap());
        command.args(["--exact", "worker", "--nocapture"]);
        let first = (self.num_started * NUM_PUSHES).to_string();
        self.num_started += 1;
        command.env(SERVERS, self.addresses()).env(NAME, name).env(FIRST, first);
        Process::start(command.env(STOP, self.stop_file()))
    }

    fn kill_server(&mut self, server: usize) {
        self.servers[server].child.kill().unwrap();
        self.servers[server].child.wait().unwrap();
        self.servers[server] = self.serve(server).0;
    }

    fn kill_worker(&mut self, worker: usize) {
        let started = self.start_worker(NAMES[worker]);
        // Dropping a process kills it.
        self.workers[worker] = started;
    }
}

#[test]
fn no_kill_loses_more_than_the_pushes_after_a_point_or_counts_one_twice() {
    kill_often(1);
}

#[test]
fn servers_go_back_together_when_one_of_them_is_killed() {
    kill_often(2);
}

fn kill_often(num_servers: usize) {
    let num_kills = env::var("KVSTORE_KILLS").map_or(NUM_KILLS, |text| text.parse().unwrap());
    let num_workers = NAMES.len() + num_kills.div_ceil(3);
    assert!(num_workers * NUM_PUSHES <= NUM_ELEMENTS, "too many kills");
    let mut group = Group::start(num_servers);
    for kill in 0..num_kills {
        // Primes, so that the times differ from those of the points.
        thread::sleep(Duration::from_millis(300 + 37 * (kill as u64 % 11)));
        if kill % 3 == 2 {
            group.kill_worker(kill % NAMES.len());
        } else {
            group.kill_server(kill % num_servers);
        }
    }
    // What is pushed from now on is not lost.
    thread::sleep(Duration::from_millis(500));
    let last: Vec<usize> = group
        .workers
        .iter_mut()
        .map(|worker| {
            // The lines before may be of pushes that were lost.
            let mut last = 0;
            for _ in 0..3 {
                last = worker.rest_of_line("pushed ").parse().unwrap();
            }
            last
        })
        .collect();
    let store = connect(&member(&group.addresses(), "reader").reader()).unwrap();
    fs::write(group.stop_file(), "").unwrap();
    let mut pushed = Vec::new();
    for worker in &mut group.workers {
        let lines = worker.rest_of_lines("pushed ");
        pushed.extend(lines.last().map(|line| line.parse::<usize>().unwrap()));
        assert!(worker.child.wait().unwrap().success());
    }
    println!("the workers have pushed {last:?}, and then up to {pushed:?}");
    let counts = counts(&store);
    for element in pushed {
        assert_eq!(counts[element], 1.0, "push {element} is missing");
    }
    drop(store);
    for server in &mut group.servers {
        server.signal("TERM");
    }
    for (index, server) in group.servers.iter_mut().enumerate() {
        assert!(server.child.wait().unwrap().success(), "server {index}");
    }
    // The checksums of the last values are in the journals.
    for server in 0..num_servers {
        let journal = group.path(server, "journal");
        let replayed = Command::new(KVSTORE).arg("replay").arg(journal).output().unwrap();
        let text = String::from_utf8(replayed.stdout).unwrap();
        assert!(replayed.status.success(), "{text}");
        println!("{text}");
        // All servers go back after a kill: to values that the replay has computed, too.
        let (_, marks) = text.split_once(" values in steps, all keys ").unwrap();
        let num_marks: usize = marks.split_once(' ').unwrap().0.parse().unwrap();
        assert!(num_marks > 1, "no recovery was compared");
    }
}
