//! The group of a [`NetStore`]: members, ranks and barriers, which the first server keeps.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use kvstore_core::{GroupMember, OnMembers, OnRewind, PartList, Result, WorkerGroup};

use super::connection::Call;
use super::round_options::without_weight;
use super::servers::missing;
use super::store::NetStore;
use crate::proto;
use crate::proto::request::Verb;
use crate::server::file_name;
use crate::wire::{Elements, members_of, parse_keys};

impl NetStore {
    /// Returns the number of the message after which all servers went back to a recovery point
    /// before they answered the last call, or 0.
    #[cfg(test)]
    pub(crate) fn history(&self) -> u64 {
        self.servers.history()
    }

    /// Returns the membership at the first server, and waits for it if the connection is lost.
    fn joined(&self) -> Result<proto::JoinReply> {
        let first = Arc::clone(self.servers.first());
        self.servers.wait(async move { first.joined(first.deadline()).await })?
    }
}

impl WorkerGroup for NetStore {
    fn rank(&self) -> Result<usize> {
        Ok(usize::try_from(self.joined()?.rank).unwrap_or(usize::MAX))
    }

    fn num_workers(&self) -> Result<usize> {
        Ok(self.members()?.iter().filter(|member| !member.is_reader).count())
    }

    fn barrier(&self) -> Result<()> {
        self.servers.reject_inside_updater("barrier")?;
        // The connection sets the round when it sends the call.
        let verb = Verb::Barrier(proto::Barrier { round: 0 });
        self.servers.call(Call::write(verb, "barrier".to_owned()))?;
        Ok(())
    }

    fn set_barrier_before_exit(&self, wait: bool) -> Result<()> {
        self.waits_at_exit.store(wait, Ordering::Relaxed);
        Ok(())
    }

    fn set_weight(&self, weight: f64) -> Result<()> {
        self.rounds.as_ref().ok_or_else(without_weight)?.set_weight(weight)
    }

    fn num_dead_node(&self, node_id: i32) -> Result<usize> {
        const SERVERS: i32 = 2;
        const WORKERS: i32 = 4;
        let mut num_dead = 0;
        if node_id & SERVERS != 0 {
            num_dead += self.servers.num_lost();
        }
        // The first server knows the workers.
        if node_id & WORKERS != 0 && (num_dead == 0 || !self.servers.first().is_lost()) {
            let answer = self.read(Verb::Status(proto::Empty {}), "status")?;
            let status = answer.reply.status.ok_or_else(|| missing("status"))?;
            num_dead += usize::try_from(status.num_dead).unwrap_or(usize::MAX);
        }
        Ok(num_dead)
    }

    fn send_command_to_servers(&self, head: i32, body: &str) -> Result<()> {
        let command = proto::Command { head, body: body.to_owned() };
        self.write(Verb::Command(command), Elements::default(), "command".to_owned())
    }

    fn members(&self) -> Result<Vec<GroupMember>> {
        Ok(members_of(&self.servers.first().members()))
    }

    fn on_member(&self, on_change: Box<OnMembers>) -> Result<()> {
        let call = move |members: &[proto::Member]| on_change(&members_of(members));
        self.servers.first().on_members(Box::new(call))
    }

    fn on_rewind(&self, on_rewind: Box<OnRewind>) -> Result<()> {
        let on_rewind = Arc::<OnRewind>::from(on_rewind);
        self.servers.on_rewind(&on_rewind)
    }

    fn leave(&self) -> Result<()> {
        self.servers.leave();
        Ok(())
    }

    fn checkpoint_on_servers(&self, name: &str) -> Result<()> {
        self.servers.reject_inside_updater("checkpoint_on_servers")?;
        let _one_at_a_time = self.checkpoint.lock().unwrap_or_else(PoisonError::into_inner);
        let reserved = Verb::Reserve(proto::Reserve { count: 1 });
        let number = self.read(reserved, "checkpoint")?.reply.first_layout;
        let call_with = |server: usize, parts: String, snapshot: u64| {
            let (name, server) = (name.to_owned(), u32::try_from(server).unwrap_or(u32::MAX));
            let what = format!("checkpoint `{name}`");
            let checkpoint = proto::Checkpoint { name, number, server, parts, snapshot };
            Call::read(Verb::Checkpoint(checkpoint), what)
        };
        let call = |server, parts| call_with(server, parts, 0);
        let keys = if let Some(sharded) = &self.sharded {
            sharded.checkpoint(name, |server, taken| call_with(server, String::new(), taken))?
        } else {
            let answer = self.servers.call(call(0, String::new()))?;
            let keys = parse_keys(&answer.reply.keys)?;
            keys.into_iter().map(|key| (key, Vec::from([0]))).collect()
        };
        let files = (0..self.servers.len()).zip(0..).map(|(_, server)| file_name(number, server));
        let parts = PartList::new(files.collect(), &keys).to_json()?;
        // The first server keeps the list before any server removes the parts of the earlier one.
        self.servers.call(call(0, parts.clone()))?;
        let others = (1..self.servers.len()).map(|server| (server, call(server, parts.clone())));
        self.servers.call_each(others)?.into_iter().try_for_each(|answer| answer.map(drop))
    }
}

impl Drop for NetStore {
    fn drop(&mut self) {
        if self.servers.is_inherited() {
            return;
        }
        if self.waits_at_exit.load(Ordering::Relaxed)
            && let Err(error) = self.barrier()
        {
            tracing::warn!(error = error.chain(), "the barrier before the exit failed");
        }
        if self.servers.left().is_err() {
            self.servers.leave();
        }
    }
}
