//! [`Link`]: messages between two processes over connections that may be lost.

use std::collections::VecDeque;

/// One end of a sequence of connections between two processes. Each message arrives once, in the
/// order in which the messages were sent, as long as both processes run.
///
/// Each end numbers its messages from 1, and keeps them until the other end has received them. A
/// new connection begins with the number of the last message that each end has received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link<T> {
    /// The number of the last message that was sent.
    last: u64,
    /// The messages that the other end may not have received: those with the last numbers.
    kept: VecDeque<T>,
    /// The number of the last message that was received.
    received: u64,
}

impl<T> Default for Link<T> {
    fn default() -> Self {
        Self { last: 0, kept: VecDeque::new(), received: 0 }
    }
}

impl<T> Link<T> {
    /// Adds a message.
    pub fn send(&mut self, message: T) {
        self.last += 1;
        self.kept.push_back(message);
    }

    /// Returns the message with this number, if the other end may not have received it.
    pub fn message(&self, number: u64) -> Option<&T> {
        let before = self.last - self.kept.len() as u64;
        let index = number.checked_sub(before + 1)?;
        self.kept.get(usize::try_from(index).ok()?)
    }

    /// Forgets the messages up to this number, because the other end has received them.
    pub fn acknowledge(&mut self, number: u64) {
        while self.last - (self.kept.len() as u64) < number && self.kept.pop_front().is_some() {}
    }

    /// Records a message of the other end. Returns whether it is the next one. Another one has been
    /// received before, or follows on a lost one, whose connection is dead.
    pub fn receive(&mut self, number: u64) -> bool {
        let is_next = number == self.received + 1;
        if is_next {
            self.received = number;
        }
        is_next
    }

    /// Returns the number of the last message that was received.
    pub fn received(&self) -> u64 {
        self.received
    }

    /// Returns whether the other end has received all messages.
    pub fn is_idle(&self) -> bool {
        self.kept.is_empty()
    }
}
