//! Whether this thread runs an updater of a server. Then calls of the updater that change the same
//! store would wait for the updater itself.

use std::cell::RefCell;
use std::sync::Arc;

use kvstore_core::{BoxError, Key, Tensor, Updater};

thread_local! {
    /// The runs of the servers whose updaters run in this thread, innermost last.
    static INSIDE: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

/// Returns whether this thread runs an updater of the server with this run.
pub(crate) fn is_inside(run: u64) -> bool {
    INSIDE.with_borrow(|inside| inside.contains(&run))
}

/// An updater that records that it runs.
pub(super) struct Marked {
    pub(super) run: u64,
    pub(super) updater: Arc<dyn Updater>,
}

impl Updater for Marked {
    fn update(&self, key: &Key, pushed: &Tensor, stored: &mut Tensor) -> Result<(), BoxError> {
        struct LeaveOnDrop;
        impl Drop for LeaveOnDrop {
            fn drop(&mut self) {
                INSIDE.with_borrow_mut(Vec::pop);
            }
        }
        INSIDE.with_borrow_mut(|inside| inside.push(self.run));
        let _leave = LeaveOnDrop;
        self.updater.update(key, pushed, stored)
    }
}
