//! The verbs of a store that several processes share.

use kvstore_core::Result;

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
}
