//! Pushes to rounds over several servers.
//!
//! Each server gets its part of a push, and the first one also gets the complete list of keys. It
//! decides what becomes of the push at all servers.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use kvstore_core::key::describe_call;
use kvstore_core::{Error, Key, Result, Value, fallible};

use super::Sharded;
use super::values::calls_of;
use crate::client::connection::{Answer, Call};
use crate::client::residuals::Encoder;
use crate::client::servers::missing;
use crate::proto;
use crate::proto::request::Verb;
use crate::wire::{compression_of, keys_of};

/// The position of the server that decides what becomes of a push.
const LEADER: usize = 0;

impl Sharded {
    /// Takes part in a round, and waits until it is committed. The keys are ascending.
    pub(in crate::client) fn push_to_round(
        &self,
        (keys, values): (&[Key], &[Value]),
        priority: i32,
        round: proto::RoundPush,
    ) -> Result<()> {
        self.check_followers()?;
        let (mut is_repeated, mut since) = (false, None);
        self.servers.push((keys, values), |keys, values, encoder| {
            if std::mem::replace(&mut is_repeated, true) {
                self.placements.forget(keys);
                self.wait_again(&mut since, &describe_call("push", keys))?;
            }
            let is_pushed = self.push_to_round_with((keys, values), priority, round, encoder)?;
            fallible::filled(is_pushed, keys.len())
        })
    }

    /// # Errors
    /// - [`Error::Unsupported`] if the first server does not lead the others.
    fn check_followers(&self) -> Result<()> {
        let num_servers = self.servers.len();
        let joined = self.servers.first().membership();
        let Some(found) = joined.map(|joined| joined.num_followers) else { return Ok(()) };
        if usize::try_from(found).is_ok_and(|found| found + 1 == num_servers) {
            return Ok(());
        }
        Err(Error::Unsupported(format!(
            "quorum with {num_servers} servers: expected the addresses of the other {} servers in \
             the option `followers` (KVSTORE_FOLLOWERS) of the first server, found {found}",
            num_servers - 1
        )))
    }

    /// Pushes values, or their codes. Returns whether they have been pushed. Otherwise, a placement
    /// or the compression is out of date.
    fn push_to_round_with(
        &self,
        (keys, values): (&[Key], &[Value]),
        priority: i32,
        round: proto::RoundPush,
        mut encoder: Option<&mut Encoder>,
    ) -> Result<bool> {
        let placed = self.placed(keys)?;
        if !self.check(keys, values, &placed)? {
            return Ok(false);
        }
        let compression = encoder.as_ref().map(|encoder| encoder.compression());
        let parts = self.parts(keys, values, &placed, encoder.as_deref_mut())?;
        let servers: BTreeSet<usize> = parts.iter().map(|part| part.server).collect();
        let number = self.num_pushes.fetch_add(1, Ordering::Relaxed) + 1;
        let what = describe_call("push", keys);
        let call = |values, part| {
            let compression = compression.map(|found| compression_of(Some(found)));
            let (round, part) = (Some(round), Some(part));
            let push = proto::Push { values, priority, compression, round, part };
            Call::write(Verb::Push(push), what.clone())
        };
        let part = proto::RoundPart { number, ..proto::RoundPart::default() };
        let mut calls = calls_of(keys, &placed, &parts, |values| call(values, part.clone()))?;
        if !servers.contains(&LEADER) {
            calls.insert(LEADER, (LEADER, call(Vec::new(), part)));
        }
        if let Some((_, Call { verb: Verb::Push(push), .. })) = calls.first_mut()
            && let Some(part) = &mut push.part
        {
            part.keys = keys_of(keys);
            let others = servers.iter().filter(|server| **server != LEADER);
            part.servers =
                others.map(|server| u32::try_from(*server).unwrap_or(u32::MAX)).collect();
        }
        let mut answers = self.call_each(calls)?;
        let is_committed =
            |answer: &Result<Answer>| answer.as_ref().is_ok_and(|made| !made.is_out_of_date());
        if answers.values().any(is_committed) {
            // All servers have committed the round if one of them says so.
            for part in &parts {
                if let (Some(encoder), Some(key)) = (&mut encoder, keys.get(part.value)) {
                    encoder.accept(key, part.server);
                }
            }
            return Ok(true);
        }
        if let Some(encoder) = encoder {
            // An updater may have failed after earlier keys.
            self.accept(encoder, keys, &parts, &answers);
        }
        let decided = answers.remove(&LEADER).ok_or_else(|| missing("answer"))?;
        decided.map(|_| false)
    }
}
