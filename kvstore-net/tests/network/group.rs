//! Servers that continue from their recovery points when they are started again.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use kvstore::backends;
use kvstore_core::{Rewound, WorkerGroup};
use kvstore_net::{NetStore, NetStoreOptions, Server, ServerOptions};
use tempfile::TempDir;

/// How often the servers make recovery points.
pub(crate) const EVERY: Duration = Duration::from_millis(20);

/// Servers. The first one leads the others.
pub(crate) struct Group {
    folders: Vec<TempDir>,
    checkpoints: TempDir,
    pub(crate) addresses: Vec<String>,
    servers: Vec<Option<Server>>,
}

impl Group {
    pub(crate) fn start(num_servers: usize) -> Self {
        let mut group = Self {
            folders: (0..num_servers).map(|_| tempfile::tempdir().unwrap()).collect(),
            checkpoints: tempfile::tempdir().unwrap(),
            addresses: vec!["127.0.0.1:0".to_owned(); num_servers],
            servers: (0..num_servers).map(|_| None).collect(),
        };
        for index in (0..num_servers).rev() {
            group.restart(index);
        }
        group
    }

    /// Returns the folder for the recovery points of a server.
    pub(crate) fn folder(&self, index: usize) -> &Path {
        self.folders[index].path()
    }

    /// Returns the path of a checkpoint.
    pub(crate) fn checkpoint(&self, name: &str) -> PathBuf {
        self.checkpoints.path().join(name)
    }

    /// Starts a server again, after a sudden end.
    pub(crate) fn restart(&mut self, index: usize) {
        self.servers[index] = None;
        let options = ServerOptions::new(&self.addresses[index]).recovery(self.folder(index));
        let options = options.save_every(EVERY).checkpoints(self.checkpoints.path());
        let options = if index == 0 { options.followers(&self.addresses[1..]) } else { options };
        let server = Server::start(backends(), &options).unwrap();
        self.addresses[index] = server.address().to_string();
        self.servers[index] = Some(server);
    }

    /// Starts a server again without its recovery points.
    pub(crate) fn restart_empty(&mut self, index: usize) {
        self.servers[index] = None;
        for entry in fs::read_dir(self.folder(index)).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) }.unwrap();
        }
        self.restart(index);
    }

    pub(crate) fn options(&self) -> NetStoreOptions {
        NetStoreOptions::of_servers(&self.addresses)
    }
}

/// Returns the events that tell a store that servers have gone back.
pub(crate) fn rewinds(store: &NetStore) -> Receiver<Rewound> {
    let (sender, receiver) = channel();
    store.on_rewind(Box::new(move |rewound: &Rewound| drop(sender.send(rewound.clone())))).unwrap();
    receiver
}
