//! [`Commands`]: what the program of a server does for commands of members.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use kvstore_core::Result;

/// A function for the commands of `send_command_to_servers`.
pub type CommandHandler = dyn Fn(i32, &str) -> Result<()> + Send + Sync;

/// The handler of commands, which the program may set at any time.
#[derive(Clone, Default)]
pub(crate) struct Commands(Arc<Mutex<Option<Arc<CommandHandler>>>>);

impl Commands {
    pub(super) fn set(&self, handler: Arc<CommandHandler>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(handler);
    }

    /// Runs the handler. Without one, a command has no effect, as in MXNet.
    pub(crate) fn run(&self, head: i32, body: &str) -> Result<()> {
        let handler = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        handler.map_or(Ok(()), |handler| handler(head, body))
    }
}

impl fmt::Debug for Commands {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Commands")
    }
}
