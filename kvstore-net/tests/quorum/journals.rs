//! Journals of rounds: they have the push of each member, and replays have the bits of the servers.

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;

use kvstore::backends;
use kvstore_core::{
    BinaryOp, Compression, Key, KvStore, LocalStore, Scalar, Snapshot, Value, WorkerGroup,
};
use kvstore_net::{
    JournalMode, LatePush, NetStore, ReplayOptions, ReplayReport, Server, ServerOptions, replay,
};
use proptest::prelude::*;
use tempfile::TempDir;

use super::failures::Worker;
use super::network::journals::{MemberPush, Rounds, push_to_model, rounds};
use super::network::pushes::{initial, pushed};
use super::network::{connect, eventually};
use super::{HOUR, in_rounds, initialise, member, start_with};

/// Servers with journals and checkpoints.
pub(super) struct Recorded {
    pub(super) servers: Vec<Arc<Server>>,
    /// The contents before the first round.
    initial: Vec<Snapshot>,
    folder: TempDir,
}

impl Recorded {
    pub(super) fn start(num_servers: usize) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("checkpoints")).unwrap();
        let count = Cell::new(0);
        let options = || {
            count.set(count.get() + 1);
            ServerOptions::new("127.0.0.1:0")
                .journal(folder.path().join(format!("journal-{}", count.get())), JournalMode::Full)
                .checkpoints(folder.path().join("checkpoints"))
        };
        let servers = start_with(num_servers, options, Server::address);
        let init = member(&servers, "init", 1);
        initialise(&init);
        init.leave().unwrap();
        let contents = |server: &Arc<Server>| server.store().snapshot().unwrap();
        let initial = servers.iter().map(contents).collect();
        Self { servers, initial, folder }
    }

    fn journal(&self, server: usize) -> PathBuf {
        // The first server is the last one that is started.
        let number = if server == 0 { self.servers.len() } else { server };
        self.folder.path().join(format!("journal-{number}"))
    }

    fn checkpoint(&self, name: &str) -> PathBuf {
        self.folder.path().join("checkpoints").join(name)
    }

    /// Replays a journal. The result must have the bits of the server.
    fn replay(&self, server: usize, from: Option<&Path>) -> ReplayReport {
        let written = self.folder.path().join("written");
        let options = ReplayOptions {
            from: from.map(Path::to_owned),
            write: Some(written.clone()),
            ..ReplayOptions::default()
        };
        let report = replay(backends(), self.journal(server), &options).unwrap();
        assert_eq!(report.difference, None);
        assert!(report.is_ended && report.num_compared_marks > 0, "{report:?}");
        self.check(server, &Snapshot::read(backends(), written).unwrap());
        report
    }

    fn check(&self, server: usize, found: &Snapshot) {
        let expected = self.servers[server].store().snapshot().unwrap();
        assert_eq!(expected.changed_keys(found).unwrap(), []);
        let versions = |snapshot: &Snapshot| -> Vec<_> {
            snapshot.stats().map(|stats| (stats.key, stats.num_pushes)).collect()
        };
        assert_eq!(versions(found), versions(&expected));
    }

    /// Ends the servers. Their journals must give their bits, and so must one local store with the
    /// recorded pushes. Returns the rounds in the journal of each server.
    pub(super) fn end(&self) -> Vec<Rounds> {
        for server in &self.servers {
            server.shut_down();
        }
        let check = |server: usize| {
            let report = self.replay(server, None);
            let rounds = rounds(&self.journal(server));
            assert_eq!(report.num_steps, rounds.applied.len() as u64);
            let model = LocalStore::new("local", backends().clone()).unwrap();
            model.rollback(&self.initial[server]).unwrap();
            for round in &rounds.applied {
                push_to_model(&model, round);
            }
            self.check(server, &model.snapshot().unwrap());
            rounds
        };
        (0..self.servers.len()).map(check).collect()
    }
}

const NAMES: [&str; 4] = ["c", "a", "d", "b"];

/// A round of the members whose index is in a set of bits.
#[derive(Clone, Copy, Debug)]
struct Round {
    members: usize,
    /// Codes have no rows.
    is_compressed: bool,
    /// Whether the first member pushes dense values only.
    has_dense: bool,
}

impl Round {
    fn has(self, member: usize) -> bool {
        self.members & 1 << member != 0
    }

    /// Returns the push of a member in the round with this number, with ascending keys.
    fn push_of(self, number: usize, member: usize) -> (Vec<Key>, Vec<Value>) {
        let (keys, mut values) = pushed(u32::try_from(10 * number + member).unwrap());
        let is_first = (0..member).all(|earlier| !self.has(earlier));
        if self.is_compressed || (self.has_dense && is_first) {
            for value in &mut values {
                *value = value.to_dense().unwrap().into();
            }
        }
        let mut pairs: Vec<_> = keys.into_iter().zip(values).collect();
        pairs.sort_by(|left, right| left.0.cmp(&right.0));
        pairs.into_iter().unzip()
    }
}

fn round() -> impl Strategy<Value = Round> {
    (1_usize..16, any::<bool>(), any::<bool>())
        .prop_map(|(members, is_compressed, has_dense)| Round { members, is_compressed, has_dense })
}

fn weight(member: usize) -> f64 {
    [0.1, 0.7, 0.35, 3.0][member]
}

fn is_equal(left: &Value, right: &Value) -> bool {
    let bytes = |value: &Value| match value {
        Value::Dense(tensor) => (None, tensor.to_bytes().unwrap()),
        Value::Rows(rows) => (Some(rows.indices().to_vec()), rows.rows().to_bytes().unwrap()),
    };
    left.spec() == right.spec() && bytes(left) == bytes(right)
}

fn run(num_servers: usize, is_weighted: bool, program: &[Round]) {
    let recorded = Recorded::start(num_servers);
    let mut stores: [Option<NetStore>; 4] = Default::default();
    for (number, round) in program.iter().enumerate() {
        for (member, store) in stores.iter_mut().enumerate() {
            if round.has(member) && store.is_none() {
                let options = in_rounds(&recorded.servers, NAMES[member], 1).late(LatePush::Next);
                let options = if is_weighted { options.weight(weight(member)) } else { options };
                *store = Some(connect(&options));
            }
            if let Some(store) = store.take_if(|_| !round.has(member)) {
                store.leave().unwrap();
            }
        }
        let first = stores.iter().flatten().next().unwrap();
        let compression = round.is_compressed.then(|| Compression::new("2bit", 0.5).unwrap());
        first.set_compression(compression).unwrap();
        // A member that does not know the change would reject rows.
        for store in stores.iter().flatten() {
            assert_eq!(store.compression().unwrap(), compression);
        }
        thread::scope(|scope| {
            for (member, store) in stores.iter().enumerate() {
                let Some(store) = store else { continue };
                scope.spawn(move || {
                    let (keys, values) = round.push_of(number, member);
                    store.push(&keys, &values, 0).unwrap();
                });
            }
        });
    }
    drop(stores);
    for rounds in recorded.end() {
        assert!(rounds.applied.len() == program.len() && rounds.given_up.is_empty());
        for (number, (found, round)) in rounds.applied.iter().zip(program).enumerate() {
            let mut members: Vec<_> = (0..4).filter(|member| round.has(*member)).collect();
            members.sort_by_key(|member| NAMES[*member]);
            let names = found.iter().map(|push| &*push.name);
            assert!(names.eq(members.iter().map(|member| NAMES[*member])));
            for (push, member) in found.iter().zip(members) {
                assert_eq!(push.weight, is_weighted.then(|| weight(member)));
                // Codes depend on earlier pushes, and each of several servers has a part.
                if !round.is_compressed && num_servers == 1 {
                    check_push(push, round.push_of(number, member), push.weight);
                }
            }
        }
    }
}

/// Checks that a journal has the push of a member.
fn check_push(found: &MemberPush, (keys, values): (Vec<Key>, Vec<Value>), weight: Option<f64>) {
    assert_eq!(found.keys, keys);
    for ((key, found), value) in keys.iter().zip(&found.values).zip(values) {
        let pushed = match weight.map(Scalar::from) {
            Some(weight) => value.binary_scalar(BinaryOp::Mul, weight, false).unwrap(),
            None => value,
        };
        assert!(is_equal(found, &pushed), "key `{key}` of {}", found.spec());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]

    #[test]
    fn replays_of_rounds_have_the_bits_of_their_members(
        num_servers in 1_usize..4,
        is_weighted: bool,
        program in prop::collection::vec(round(), 1..6),
    ) {
        run(num_servers, is_weighted, &program);
    }
}

/// A checkpoint has the rounds of all servers.
#[test]
fn checkpoints_have_the_rounds_of_all_servers() {
    let recorded = Recorded::start(3);
    let store = member(&recorded.servers, "a", 1);
    for seed in 0..3 {
        let (keys, values) = pushed(seed);
        store.push(&keys, &values, 0).unwrap();
    }
    let keys = initial().0;
    let found = store.pull(&keys, 0).unwrap();
    store.checkpoint_on_servers("after").unwrap();
    let restored = LocalStore::new("local", backends().clone()).unwrap();
    let snapshot = Snapshot::read(backends(), recorded.checkpoint("after")).unwrap();
    restored.rollback(&snapshot).unwrap();
    for (found, expected) in found.iter().zip(restored.pull(&keys, 0).unwrap()) {
        assert!(found.to_bytes().unwrap() == expected.to_bytes().unwrap());
    }
    drop(store);
    recorded.end();
}

/// A checkpoint is made while the servers receive the values of a round.
#[test]
fn replays_may_begin_within_a_round() {
    for num_servers in [1, 2] {
        let recorded = Recorded::start(num_servers);
        let first = member(&recorded.servers, "a", 2);
        let slow =
            Worker::connect(&recorded.servers, |options| options.name("b").quorum(2).grace(HOUR));
        let (keys, values) = pushed(1);
        // The last server waits for the values.
        let proxy = &slow.proxies[num_servers - 1];
        let len = || std::fs::metadata(recorded.journal(num_servers - 1)).unwrap().len();
        let before = len();
        proxy.delay.store(1000, Ordering::SeqCst);
        thread::scope(|scope| {
            for store in [&first, &slow.store] {
                let (keys, values) = (&keys, &values);
                scope.spawn(move || store.push(keys, values, 0).unwrap());
            }
            eventually("the round has begun", || len() > before);
            first.checkpoint_on_servers("within").unwrap();
            proxy.delay.store(0, Ordering::SeqCst);
        });
        drop((first, slow));
        let rounds = recorded.end();
        let is_within = |server: &usize| {
            let report = recorded.replay(*server, Some(&recorded.checkpoint("within")));
            assert_eq!(report.num_steps, 1);
            report.num_compared_marks > 0
        };
        assert!((0..num_servers).all(|server| is_within(&server)));
        assert!(rounds.iter().all(|rounds| rounds.given_up.is_empty()));
    }
}
