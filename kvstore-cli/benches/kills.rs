//! Rounds per minute of eight workers on one server, undisturbed and while processes are killed.
//!
//! ```text
//! cargo bench -p kvstore-cli --bench kills                    # 2 x 10 minutes, a kill every 30 s
//! cargo bench -p kvstore-cli --bench kills -- --minutes 2 --every 10
//! ```
//!
//! The server makes a recovery point every second. Every second kill is one of the server, and each
//! killed process is started again at once. Rounds that the server has lost do not count.

#![allow(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    reason = "a benchmark may abort without memory"
)]
#![allow(clippy::expect_used, reason = "a benchmark that cannot run says why")]

use std::env;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use kvstore::{DType, Device, Key, NetStoreOptions, Optimizer, connect, full};

const NUM_WORKERS: usize = 8;

/// The elements of the value: 1 MiB.
const NUM_ELEMENTS: usize = 1 << 18;

/// How long a worker computes for a round.
const COMPUTES: Duration = Duration::from_millis(50);

const GRACE: Duration = Duration::from_secs(1);
const LEASE: &str = "3";
const SAVE_EVERY: &str = "1";

/// Longer than a server needs to start again.
const TIMEOUT: Duration = Duration::from_secs(60);

const SERVER: &str = "KVSTORE_BENCH_SERVER";
const NAME: &str = "KVSTORE_BENCH_NAME";

/// A process that ends with this one.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The program of a worker: takes part in rounds until it is killed.
fn work(address: &str, name: &str) {
    let options = NetStoreOptions::new(address).timeout(TIMEOUT).name(name);
    let options = options.quorum(1).grace(GRACE);
    // The server remembers a killed process until its lease ends.
    let store = loop {
        match connect(&options) {
            Ok(store) => break store,
            Err(_) => thread::sleep(Duration::from_millis(20)),
        }
    };
    let value = full([NUM_ELEMENTS], 1e-3, DType::F32, Device::cpu(0)).expect("memory");
    loop {
        store.pull("w", &value).expect("a pull");
        thread::sleep(COMPUTES);
        match store.push("w", &value) {
            // After a late push, the worker computes again.
            Ok(()) | Err(kvstore::Error::LatePush { .. }) => {}
            Err(error) => panic!("`{name}`: {error}"),
        }
    }
}

fn start_worker(address: &str, worker: usize) -> Process {
    let mut command = Command::new(env::current_exe().expect("a program"));
    let name = format!("worker-{worker}");
    Process(command.env(SERVER, address).env(NAME, name).spawn().expect("a process"))
}

/// Starts a server and returns it with its address.
fn serve(folder: &Path, address: &str) -> (Process, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kvstore"));
    command.args(["serve", "--address", address, "--lease", LEASE, "--log", "error"]);
    command.arg("--recovery").arg(folder).args(["--save-every", SAVE_EVERY]);
    let mut child = command.stdout(Stdio::piped()).spawn().expect("a process");
    let lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    let mut lines = lines.map_while(Result::ok);
    let address = lines.find_map(|line| line.strip_prefix("listening on ").map(str::to_owned));
    (Process(child), address.expect("a server"))
}

/// Returns the rounds per minute. Kills a process each time `every` is over.
fn measure(minutes: f64, every: Option<Duration>) -> f64 {
    let folder = tempfile::tempdir().expect("a folder");
    let (mut server, address) = serve(folder.path(), "127.0.0.1:0");
    let reader = NetStoreOptions::new(&address).timeout(TIMEOUT).name("first");
    let store = connect(&reader).expect("a server");
    store.set_optimizer(Optimizer::sgd()).expect("an optimizer");
    let value = full([NUM_ELEMENTS], 0.0, DType::F32, Device::cpu(0)).expect("memory");
    store.init("w", &value).expect("a new key");
    store.leave().expect("a member");
    let store = connect(&reader.name("reader").reader()).expect("a server");
    let key = Key::new("w").expect("a key");
    let mut workers: Vec<Process> =
        (0..NUM_WORKERS).map(|worker| start_worker(&address, worker)).collect();
    // Until all take part.
    thread::sleep(Duration::from_secs(3));
    let first = store.version(&key).expect("a version");
    let (start, duration) = (Instant::now(), Duration::from_secs_f64(minutes * 60.0));
    let mut num_kills = 0;
    while start.elapsed() < duration {
        let left = duration.saturating_sub(start.elapsed());
        thread::sleep(every.map_or(left, |every| every.min(left)));
        if every.is_none() || start.elapsed() >= duration {
            continue;
        }
        if num_kills % 2 == 0 {
            let _ = server.0.kill();
            let _ = server.0.wait();
            server = serve(folder.path(), &address).0;
        } else {
            let worker = num_kills / 2 % NUM_WORKERS;
            let _ = workers[worker].0.kill();
            let _ = workers[worker].0.wait();
            workers[worker] = start_worker(&address, worker);
        }
        num_kills += 1;
    }
    let rounds = store.version(&key).expect("a version") - first;
    #[expect(clippy::cast_precision_loss, reason = "few rounds")]
    let rate = rounds as f64 / start.elapsed().as_secs_f64() * 60.0;
    println!("{num_kills:3} kills: {rounds} rounds, {rate:.0} per minute");
    drop(workers);
    rate
}

fn main() {
    if let (Ok(address), Ok(name)) = (env::var(SERVER), env::var(NAME)) {
        work(&address, &name);
        return;
    }
    let arguments: Vec<String> = env::args().collect();
    let number = |name: &str, default: f64| {
        let place = arguments.iter().position(|argument| argument == name);
        let value = place.and_then(|place| arguments.get(place + 1));
        value.map_or(default, |text| text.parse().expect(name))
    };
    let (minutes, every) = (number("--minutes", 10.0), number("--every", 30.0));
    let undisturbed = measure(minutes, None);
    let disturbed = measure(minutes, Some(Duration::from_secs_f64(every)));
    println!("{:.1} % of the undisturbed rate", 100.0 * disturbed / undisturbed);
}
