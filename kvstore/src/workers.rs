//! The verbs of a store that several processes share.

use kvstore_core::Result;

use crate::store::Store;

impl Store {
    /// Returns the number of this process among the workers, from 0.
    ///
    /// # Errors
    /// - Those of [`Store::check_process`].
    /// - Those of [`WorkerGroup::rank`](crate::WorkerGroup::rank).
    pub fn rank(&self) -> Result<usize> {
        self.inner()?.rank()
    }

    /// Returns how many processes share the store.
    ///
    /// # Errors
    /// - Those of [`Store::check_process`].
    /// - Those of [`WorkerGroup::num_workers`](crate::WorkerGroup::num_workers).
    pub fn num_workers(&self) -> Result<usize> {
        self.inner()?.num_workers()
    }

    /// Waits until every worker has called it.
    pub fn barrier(&self) -> Result<()> {
        self.inner()?.barrier()
    }

    /// Sets whether closing the store waits for the other workers.
    pub fn set_barrier_before_exit(&self, wait: bool) -> Result<()> {
        self.inner()?.set_barrier_before_exit(wait)
    }

    /// Returns how many processes of a group are known to be dead.
    pub fn num_dead_node(&self, node_id: i32) -> Result<usize> {
        self.inner()?.num_dead_node(node_id)
    }

    /// Sends a command to the processes that hold the values, if those are others.
    pub fn send_command_to_servers(&self, head: i32, body: &str) -> Result<()> {
        self.inner()?.send_command_to_servers(head, body)
    }
}
