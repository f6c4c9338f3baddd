//! Events of the group: functions of the user that threads of their own call.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, PoisonError};
use std::thread;

use kvstore_core::{Error, OnRewind, Result, Rewound};

use super::connection::Connection;
use crate::proto;

/// A function that is called with the members when they change.
pub(super) type OnChange = dyn Fn(&[proto::Member]) + Send;

impl Connection {
    /// Calls `on_change` with the members when they change, in a thread of its own, because the
    /// function may call the store.
    pub(super) fn on_members(&self, on_change: Box<OnChange>) -> Result<()> {
        let call = move |members: Vec<proto::Member>| on_change(&members);
        let sender = call_in_thread("kvstore-members", call)?;
        self.members.lock().unwrap_or_else(PoisonError::into_inner).on_change = Some(sender);
        Ok(())
    }

    /// Calls `on_rewind` when the server continues from a recovery point, in a thread of its own,
    /// because the function may call the store.
    pub(super) fn on_rewind(&self, on_rewind: Arc<OnRewind>) -> Result<()> {
        let sender =
            call_in_thread("kvstore-rewinds", move |rewound: Rewound| on_rewind(&rewound))?;
        self.members.lock().unwrap_or_else(PoisonError::into_inner).on_rewind = Some(sender);
        Ok(())
    }
}

/// Starts a thread that calls a function of the user with what is sent to it.
fn call_in_thread<T: Send + 'static>(
    name: &str,
    function: impl Fn(T) + Send + 'static,
) -> Result<Sender<T>> {
    let (sender, receiver) = channel::<T>();
    let calling = thread::Builder::new().name(name.to_owned()).spawn(move || {
        for event in receiver {
            if catch_unwind(AssertUnwindSafe(|| function(event))).is_err() {
                tracing::error!("a function for events of the group has panicked");
            }
        }
    });
    calling.map_err(|source| Error::Transport {
        operation: "cannot start a thread for events of the group".to_owned(),
        source: source.into(),
    })?;
    Ok(sender)
}
