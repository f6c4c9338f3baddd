//! Journals of servers and their replays.

#![allow(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    reason = "a test may abort without memory"
)]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a check fails by panicking")]

mod calls;
mod checkpoints;
mod damage;
mod disk;
#[path = "../network/mod.rs"]
mod network;
mod programs;
mod rounds;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use kvstore::backends;
use kvstore_core::{Device, KvStore, Snapshot, Tensor, Value};
use kvstore_net::{
    JournalMode, NetStore, NetStoreOptions, ReplayOptions, ReplayReport, ReplayedStep, Server,
    ServerOptions, replay, replay_steps,
};
use network::{LONG, key};
use tempfile::TempDir;

/// Returns two members that push in rounds.
fn pair(server: &Server) -> [NetStore; 2] {
    ["a", "b"].map(|name| {
        let options = network::options(server).name(name);
        network::connect(&options.quorum(2).grace(Duration::ZERO))
    })
}

/// A server with a journal in a temporary folder.
struct Recorded {
    server: Arc<Server>,
    folder: Arc<TempDir>,
}

impl Recorded {
    fn start(mode: JournalMode) -> Self {
        Self::start_in(Arc::new(tempfile::tempdir().unwrap()), mode)
    }

    fn start_in(folder: Arc<TempDir>, mode: JournalMode) -> Self {
        let options = ServerOptions::new("127.0.0.1:0")
            .journal(folder.path().join("journal"), mode)
            .checkpoints(folder.path());
        Self { server: Arc::new(Server::start(backends(), &options).unwrap()), folder }
    }

    fn journal(&self) -> PathBuf {
        self.path("journal")
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn connect(&self, name: &str) -> NetStore {
        let address = self.server.address().to_string();
        let options = NetStoreOptions::new(address).name(name).timeout(LONG);
        NetStore::connect(backends(), &options).unwrap()
    }

    /// Ends the server and replays its journal. The results must have the bits of the server.
    fn end_and_replay(&self) -> ReplayReport {
        self.server.shut_down();
        let written = self.path("written");
        let options = ReplayOptions { write: Some(written.clone()), ..ReplayOptions::default() };
        let report = replay(backends(), self.journal(), &options).unwrap();
        assert_eq!(report.difference, None);
        assert!(report.is_ended && report.incomplete.is_none(), "{report:?}");
        assert!(report.num_compared_marks >= 1, "{report:?}");
        self.has_contents_of(&written);
        report
    }

    /// Checks that a checkpoint has the values, states and versions of the server.
    fn has_contents_of(&self, checkpoint: &Path) {
        let found = Snapshot::read(backends(), checkpoint).unwrap();
        let expected = self.server.store().snapshot().unwrap();
        assert_eq!(expected.changed_keys(&found).unwrap(), []);
        assert_eq!(found.optimizer(), expected.optimizer());
        assert_eq!(found.clip_global_norm(), expected.clip_global_norm());
        let versions = |snapshot: &Snapshot| -> Vec<_> {
            snapshot.stats().map(|stats| (stats.key, stats.num_pushes)).collect()
        };
        assert_eq!(versions(&found), versions(&expected));
    }
}

fn tensor(numbers: &[f32]) -> Tensor {
    Tensor::from_slice(backends(), Device::cpu(0), [numbers.len()], numbers).unwrap()
}

fn value(numbers: &[f32]) -> Value {
    tensor(numbers).into()
}

/// Replays a complete journal.
fn replay_all(journal: &Path) -> kvstore_core::Result<ReplayReport> {
    replay(backends(), journal, &ReplayOptions::default())
}
