//! The threads under every kernel, and how work is cut for them.
//!
//! The calling thread works too, and the pool has one thread less than the backend: a caller that
//! only waited would have to be replaced by a second thread, which the system may well start on a core
//! that is taken. Whoever is free takes the next piece, so a thread that is late does less. The pool helps
//! one call at a time; calls of other threads meanwhile work alone, and none waits for another one's work.

mod invitation;
mod pool;
mod workers;

pub(super) use workers::{Job, Split, Workers};
