//! The verbs of a store that several processes share.

use kvstore_core::{GroupMember, Result, Rewound};

use crate::store::Store;

impl Store {
    /// Returns the rank of this process among the workers, counted from 0.
    ///
    /// # Errors
    /// - The errors of [`Store::check_process`].
    /// - The errors of [`WorkerGroup::rank`](crate::WorkerGroup::rank).
    pub fn rank(&self) -> Result<usize> {
        self.inner()?.rank()
    }

    /// Returns the number of workers.
    ///
    /// # Errors
    /// - The errors of [`Store::check_process`].
    /// - The errors of [`WorkerGroup::num_workers`](crate::WorkerGroup::num_workers).
    pub fn num_workers(&self) -> Result<usize> {
        self.inner()?.num_workers()
    }

    /// Waits until every worker has called `barrier`.
    ///
    /// # Errors
    /// - The errors of [`Store::check_process`].
    /// - The errors of [`WorkerGroup::barrier`](crate::WorkerGroup::barrier).
    pub fn barrier(&self) -> Result<()> {
        self.inner()?.barrier()
    }

    /// Sets whether closing the store waits for the other workers.
    ///
    /// # Errors
    /// - The errors of [`Store::check_process`].
    /// - The errors of
    ///   [`WorkerGroup::set_barrier_before_exit`](crate::WorkerGroup::set_barrier_before_exit).
    pub fn set_barrier_before_exit(&self, wait: bool) -> Result<()> {
        self.inner()?.set_barrier_before_exit(wait)
    }

    /// Returns the number of dead processes in the groups that `node_id` selects. See
    /// [`WorkerGroup::num_dead_node`](crate::WorkerGroup::num_dead_node).
    ///
    /// # Errors
    /// - The errors of [`Store::check_process`].
    /// - [`Unsupported`](crate::Error::Unsupported) if the transport cannot detect dead processes.
    pub fn num_dead_node(&self, node_id: i32) -> Result<usize> {
        self.inner()?.num_dead_node(node_id)
    }

    /// Sends a command to the servers. Does nothing if the job has no server processes.
    ///
    /// # Errors
    /// - The errors of [`Store::check_process`].
    /// - The errors of
    ///   [`WorkerGroup::send_command_to_servers`](crate::WorkerGroup::send_command_to_servers).
    pub fn send_command_to_servers(&self, head: i32, body: &str) -> Result<()> {
        self.inner()?.send_command_to_servers(head, body)
    }

    /// Returns the live members of a group that processes join and leave. See
    /// [`WorkerGroup::members`](crate::WorkerGroup::members).
    ///
    /// # Errors
    /// - The errors of [`Store::check_process`].
    /// - [`Unsupported`](crate::Error::Unsupported) if the processes of the store are fixed.
    pub fn members(&self) -> Result<Vec<GroupMember>> {
        self.inner()?.members()
    }

    /// Calls a function with the live members each time they change. See
    /// [`WorkerGroup::on_member`](crate::WorkerGroup::on_member).
    ///
    /// ```
    /// use kvstore::{NetStoreOptions, Server, ServerOptions, backends, connect};
    ///
    /// let server = Server::start(backends(), &ServerOptions::new("127.0.0.1:0"))?;
    /// let options = NetStoreOptions::new(server.address().to_string());
    /// let (sender, changes) = std::sync::mpsc::channel();
    /// let store = connect(&options)?;
    /// store.on_member(move |members| drop(sender.send(members.len())))?;
    /// let other = connect(&options)?;
    /// assert!(changes.iter().any(|num_members| num_members == 2));
    /// other.leave()?;
    /// assert!(changes.iter().any(|num_members| num_members == 1));
    /// # Ok::<(), kvstore::Error>(())
    /// ```
    ///
    /// # Errors
    /// - The errors of [`Store::check_process`].
    /// - [`Unsupported`](crate::Error::Unsupported) if the processes of the store are fixed.
    pub fn on_member(&self, on_change: impl Fn(&[GroupMember]) + Send + 'static) -> Result<()> {
        self.inner()?.on_member(Box::new(on_change))
    }

    /// Calls a function each time a server that was killed continues from a recovery point. See
    /// [`WorkerGroup::on_rewind`](crate::WorkerGroup::on_rewind).
    ///
    /// ```
    /// use std::sync::mpsc::channel;
    /// use std::time::Duration;
    ///
    /// use kvstore::{NetStoreOptions, Rewound, Server, ServerOptions, backends, connect};
    ///
    /// let folder = tempfile::tempdir()?;
    /// let options = ServerOptions::new("127.0.0.1:0").recovery(folder.path());
    /// let server = Server::start(backends(), &options)?;
    /// let address = server.address().to_string();
    /// let store = connect(&NetStoreOptions::new(&address))?;
    /// let (sender, rewinds) = channel();
    /// store.on_rewind(move |rewound: &Rewound| drop(sender.send(rewound.version)))?;
    /// drop(server);
    /// let options = ServerOptions::new(address).recovery(folder.path());
    /// let server = Server::start(backends(), &options)?;
    /// assert_eq!(rewinds.recv_timeout(Duration::from_secs(60))?, 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// - The errors of [`Store::check_process`].
    /// - [`Unsupported`](crate::Error::Unsupported) if the store has no servers.
    pub fn on_rewind(&self, on_rewind: impl Fn(&Rewound) + Send + Sync + 'static) -> Result<()> {
        self.inner()?.on_rewind(Box::new(on_rewind))
    }

    /// Sets the weight of this worker in the weighted means of the next rounds. See
    /// [`NetStoreOptions::weight`](crate::NetStoreOptions::weight).
    ///
    /// ```
    /// use kvstore::{DType, Device, NetStoreOptions, Server, ServerOptions};
    /// use kvstore::{backends, connect, full};
    ///
    /// let server = Server::start(backends(), &ServerOptions::new("127.0.0.1:0"))?;
    /// let options = NetStoreOptions::new(server.address().to_string()).quorum(2).weight(1.0);
    /// let [a, b] = [connect(&options)?, connect(&options)?];
    /// a.init("w", &full([2], 0.0, DType::F32, Device::cpu(0))?)?;
    /// b.set_weight(3.0)?;
    /// std::thread::scope(|scope| {
    ///     let pushing = scope.spawn(|| a.push("w", &full([2], 1.0, DType::F32, Device::cpu(0))?));
    ///     b.push("w", &full([2], 5.0, DType::F32, Device::cpu(0))?)?;
    ///     pushing.join().unwrap()
    /// })?;
    /// assert_eq!(a.pull_new("w")?[0].to_vec::<f32>()?, [4.0, 4.0]);
    /// # Ok::<(), kvstore::Error>(())
    /// ```
    ///
    /// # Errors
    /// - The errors of [`Store::check_process`].
    /// - The errors of [`WorkerGroup::set_weight`](crate::WorkerGroup::set_weight).
    pub fn set_weight(&self, weight: f64) -> Result<()> {
        self.inner()?.set_weight(weight)
    }

    /// Leaves the group. Later calls of this store fail.
    ///
    /// # Errors
    /// - The errors of [`Store::check_process`].
    /// - [`Unsupported`](crate::Error::Unsupported) if the processes of the store are fixed.
    pub fn leave(&self) -> Result<()> {
        self.inner()?.leave()
    }

    /// Writes a checkpoint on the servers of the store. See
    /// [`WorkerGroup::checkpoint_on_servers`](crate::WorkerGroup::checkpoint_on_servers).
    ///
    /// # Errors
    /// - The errors of [`Store::check_process`].
    /// - [`Unsupported`](crate::Error::Unsupported) if the store has no servers.
    /// - [`Transport`](crate::Error::Transport) if a server cannot write its part.
    pub fn checkpoint_on_servers(&self, name: &str) -> Result<()> {
        self.inner()?.checkpoint_on_servers(name)
    }
}
