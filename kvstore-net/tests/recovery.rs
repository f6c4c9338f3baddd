//! Servers that continue from recovery points. A killed server is one whose newest points are
//! missing: `kvstore-cli` has tests with processes that are killed.

#![allow(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    reason = "a test may abort without memory"
)]
#![allow(clippy::unwrap_used, reason = "a check fails by panicking")]

mod network;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use kvstore::backends;
use kvstore_core::{
    BinaryOp, Compression, Device, ErrorCode, Key, KvStore, OnExisting, Optimizer, Rewound, Tensor,
    WorkerGroup,
};
use kvstore_net::{
    JournalMode, NetStore, NetStoreOptions, ReplayOptions, Server, ServerOptions, replay,
};
use tempfile::TempDir;

use self::network::{LONG, connect, eventually, key, value};

/// How often the servers make a point, if something has changed.
const OFTEN: Duration = Duration::from_millis(5);

/// A server with a folder for its points.
struct Recovering {
    folder: TempDir,
    server: Option<Server>,
    address: String,
}

impl Recovering {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut this = Self { folder, server: None, address: "127.0.0.1:0".to_owned() };
        this.resume();
        this
    }

    fn points(&self) -> PathBuf {
        self.folder.path().join("points")
    }

    fn journal(&self) -> PathBuf {
        self.folder.path().join("journal")
    }

    fn options(&self) -> ServerOptions {
        ServerOptions::new(&self.address)
            .recovery(self.points())
            .save_every(OFTEN)
            .journal(self.journal(), JournalMode::Full)
    }

    fn resume(&mut self) {
        let server = Server::start(backends(), &self.options()).unwrap();
        self.address = server.address().to_string();
        self.server = Some(server);
    }

    /// Returns the numbers of the points.
    fn numbers(&self) -> Vec<u64> {
        let files = fs::read_dir(self.points()).unwrap();
        let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
        let number = |name: String| name.strip_suffix(".state")?.parse().ok();
        let mut numbers: Vec<u64> = names.filter_map(number).collect();
        numbers.sort_unstable();
        numbers
    }

    /// Waits until there is a point with everything that has happened, and keeps a copy.
    fn keep(&self) {
        let newest = || self.numbers().last().copied().unwrap_or_default();
        let further = |before| eventually("no further point", || newest() > before);
        // The first further point may have begun before, the second one has not.
        let before = newest();
        let reader = connect(&self.member("keeper").reader());
        further(before);
        let before = newest();
        drop(reader);
        further(before);
        copy(&self.points(), &self.kept());
    }

    fn kept(&self) -> PathBuf {
        self.folder.path().join("kept")
    }

    /// Ends the server, and starts it from the point that was kept, as if it had been killed then.
    fn rewind(&mut self) {
        self.server = None;
        fs::remove_dir_all(self.points()).unwrap();
        fs::rename(self.kept(), self.points()).unwrap();
        self.resume();
    }

    fn member(&self, name: &str) -> NetStoreOptions {
        NetStoreOptions::new(&self.address).name(name).timeout(LONG)
    }

    fn join(&self, name: &str) -> NetStore {
        connect(&self.member(name))
    }
}

/// Copies the files of a folder. The server may replace a point meanwhile.
fn copy(from: &Path, to: &Path) {
    loop {
        let _ = fs::remove_dir_all(to);
        fs::create_dir(to).unwrap();
        let files = fs::read_dir(from).unwrap().map(|file| file.unwrap().file_name());
        let mut files: Vec<_> = files.collect();
        // The state first: its contents are complete.
        files.sort_by_key(|name| name.to_str().unwrap().ends_with(".safetensors"));
        if files.iter().all(|name| fs::copy(from.join(name), to.join(name)).is_ok()) {
            return;
        }
    }
}

fn number(store: &NetStore, name: &str) -> f32 {
    store.pull(&[key(name)], 0).unwrap()[0].to_vec::<f32>().unwrap()[0]
}

fn version(store: &NetStore) -> u64 {
    store.versions(&[key("x")]).unwrap()[0]
}

fn push(store: &NetStore, name: &str, number: f32) {
    store.push(&[key(name)], &[value(number)], 0).unwrap();
}

fn rewinds(store: &NetStore) -> Receiver<Rewound> {
    let (sender, receiver) = channel();
    store.on_rewind(Box::new(move |rewound| sender.send(rewound.clone()).unwrap())).unwrap();
    receiver
}

#[test]
fn a_server_continues_with_everything_in_the_point() {
    let mut server = Recovering::start();
    let [a, b] = ["a", "b"].map(|name| server.join(name));
    let events = [rewinds(&a), rewinds(&b)];
    a.init(&[key("x"), key("y")], &[value(1.0), value(2.0)]).unwrap();
    let sgd = Optimizer::new("sgd").unwrap().with("momentum", 0.5).unwrap();
    a.set_optimizer(sgd).unwrap();
    for _ in 0..3 {
        push(&a, "x", 0.5);
    }
    b.set_hyper_parameters(&[("lr", 0.25)]).unwrap();
    b.set_compression(Some(Compression::new("2bit", 0.5).unwrap())).unwrap();
    server.keep();
    let ranks = [a.rank().unwrap(), b.rank().unwrap()];
    let before = a.snapshot().unwrap().load().unwrap();
    let stats = a.stats().unwrap();
    push(&b, "x", 0.5);
    assert_eq!(version(&a), 4);
    server.rewind();
    for events in &events {
        let rewound = events.recv_timeout(LONG).unwrap();
        assert_eq!(rewound, Rewound { server: server.address.clone(), version: 3 });
    }
    assert_eq!(version(&a), 3);
    assert_eq!([a.rank().unwrap(), b.rank().unwrap()], ranks);
    assert_eq!(a.stats().unwrap(), stats);
    let after = a.snapshot().unwrap().load().unwrap();
    assert!(after.changed_keys(&before).unwrap().is_empty());
    assert_eq!(after.optimizer(), before.optimizer());
    assert_eq!(after.compression(), Some(Compression::new("2bit", 0.5).unwrap()));
    // Updaters see how stale a push is from here on.
    push(&a, "x", 0.5);
    assert_eq!(version(&a), 4);
    drop(server.server.take());
    let report = replay(backends(), server.journal(), &ReplayOptions::default()).unwrap();
    assert_eq!((report.difference, report.is_ended), (None, true));
}

#[test]
fn a_server_that_ends_in_order_loses_nothing() {
    let mut server = Recovering::start();
    let store = server.join("a");
    let events = rewinds(&store);
    store.init(&[key("x")], &[value(0.0)]).unwrap();
    for _ in 0..2 {
        push(&store, "x", 1.0);
        server.server = None;
        server.resume();
    }
    assert_eq!(number(&store, "x"), 1.0);
    assert_eq!(version(&store), 2);
    assert_eq!([1, 2].map(|_| events.recv_timeout(LONG).unwrap().version), [1, 2]);
}

/// Each push adds 1 to an element of its own.
#[test]
fn pushes_while_servers_rewind_take_effect_at_most_once() {
    const PUSHES: usize = 400;
    let mut server = Recovering::start();
    let first = server.join("first");
    let vector = |element: Option<usize>| {
        let mut elements = [0.0_f32; PUSHES];
        if let Some(element) = element {
            elements[element] = -1.0;
        }
        let cpu = Device::cpu(0);
        Tensor::from_slice(backends(), cpu, [PUSHES], &elements).unwrap()
    };
    let workers = ["a", "b", "c"];
    let names = workers.map(key);
    first.init(&names, &[0; 3].map(|_| vector(None).into())).unwrap();
    let sgd = Optimizer::new("sgd").unwrap().with("learning_rate", 1.0).unwrap();
    first.set_optimizer(sgd).unwrap();
    server.keep();
    let done = AtomicUsize::new(0);
    thread::scope(|scope| {
        for name in workers {
            let (options, done) = (server.member(name), &done);
            scope.spawn(move || {
                let store = connect(&options);
                for element in 0..PUSHES {
                    store.push(&[key(name)], &[vector(Some(element)).into()], 0).unwrap();
                    let found = store.pull(&[key(name)], 0).unwrap()[0].to_vec::<f32>().unwrap();
                    assert!(found.iter().all(|count| *count <= 1.0), "{name}: {found:?}");
                    done.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let mut updated = 0;
        while done.load(Ordering::Relaxed) < 3 * PUSHES - 100 {
            thread::sleep(Duration::from_millis(20));
            copy(&server.points(), &server.kept());
            server.rewind();
            updated += 1;
        }
        assert!(updated > 3, "{updated}");
    });
}

#[test]
fn pushes_wait_until_the_program_has_set_its_updater_again() {
    let add = |_: &Key, pushed: &Tensor, stored: &mut Tensor| {
        *stored = stored.binary(BinaryOp::Add, pushed)?;
        Ok(())
    };
    let set_updater = |server: &Recovering| {
        let store = server.server.as_ref().unwrap().store();
        store.set_updater(Some(Arc::new(add))).unwrap();
    };
    let mut server = Recovering::start();
    let store = server.join("a");
    set_updater(&server);
    store.init(&[key("x")], &[value(1.0)]).unwrap();
    push(&store, "x", 2.0);
    server.keep();
    server.rewind();
    thread::scope(|scope| {
        let pushing = scope.spawn(|| push(&store, "x", 4.0));
        assert_eq!(number(&server.join("b"), "x"), 3.0);
        thread::sleep(Duration::from_millis(200));
        assert!(!pushing.is_finished());
        set_updater(&server);
        pushing.join().unwrap();
    });
    assert_eq!(number(&store, "x"), 7.0);
}

#[test]
fn a_damaged_point_is_reported() {
    let mut server = Recovering::start();
    server.join("a").init(&[key("x")], &[value(0.0)]).unwrap();
    server.keep();
    server.server = None;
    let newest = *server.numbers().last().unwrap();
    let state = server.points().join(format!("{newest}.state"));
    let bytes = fs::read(&state).unwrap();
    for position in 0..bytes.len() {
        let mut changed = bytes.clone();
        changed[position] ^= 1 << (position % 8);
        fs::write(&state, changed).unwrap();
        let error = Server::start(backends(), &server.options()).unwrap_err();
        assert_eq!(error.code(), ErrorCode::Corrupt, "byte {position}: {error}");
    }
    for len in 0..bytes.len() {
        fs::write(&state, &bytes[..len]).unwrap();
        let error = Server::start(backends(), &server.options()).unwrap_err();
        assert_eq!(error.code(), ErrorCode::Corrupt, "{len} bytes: {error}");
    }
    // The state belongs to another checkpoint.
    fs::write(&state, &bytes).unwrap();
    let contents = server.points().join(format!("{newest}.safetensors"));
    let other = Recovering::start();
    other.join("a").init(&[key("y")], &[value(0.0)]).unwrap();
    other.keep();
    let newest = *other.numbers().last().unwrap();
    fs::copy(other.points().join(format!("{newest}.safetensors")), contents).unwrap();
    let error = Server::start(backends(), &server.options()).unwrap_err();
    assert_eq!(error.code(), ErrorCode::Corrupt, "{error}");
}

#[test]
fn two_servers_cannot_use_one_folder() {
    let server = Recovering::start();
    let options = ServerOptions::new("127.0.0.1:0").recovery(server.points());
    let error = Server::start(backends(), &options).unwrap_err();
    assert!(error.chain().contains("another server uses this folder"), "{error}");
}

#[test]
fn a_later_process_keeps_the_name_that_it_took_after_the_point() {
    let mut server = Recovering::start();
    let earlier = server.join("a");
    earlier.init_with(&[key("x")], &[value(0.0)], OnExisting::Reject).unwrap();
    server.keep();
    drop(earlier);
    let later = server.join("a");
    push(&later, "x", 1.0);
    server.rewind();
    push(&later, "x", 1.0);
    assert_eq!(number(&later, "x"), 1.0);
    assert_eq!(later.rank().unwrap(), 0);
}

#[test]
fn barriers_that_a_member_has_passed_stay_passed() {
    let mut server = Recovering::start();
    let [a, b] = ["a", "b"].map(|name| server.join(name));
    a.init(&[key("x")], &[value(0.0)]).unwrap();
    server.keep();
    let both = |a: &NetStore, b: &NetStore| {
        thread::scope(|scope| {
            let one = scope.spawn(|| a.barrier().unwrap());
            b.barrier().unwrap();
            one.join().unwrap();
        });
    };
    both(&a, &b);
    both(&a, &b);
    server.rewind();
    both(&a, &b);
    assert_eq!(number(&a, "x"), 0.0);
}
