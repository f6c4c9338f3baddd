//! The threads that run kernels, and how they share the work of a call.
//!
//! - The calling thread works, too, so the pool has one thread less than the backend. A caller that
//!   only waits would need one more pool thread, which the system may start on a busy core.
//! - A free thread takes the next piece, so a late thread does less.
//! - The pool helps one call at a time. Calls of other threads meanwhile work alone. No call waits for
//!   the work of another.
//!
//! `workers.rs` splits work into pieces, `pool.rs` has the threads, and `shared_task.rs` shares a task
//! with them.

mod pool;
mod shared_task;
mod workers;

pub(super) use workers::{Job, Split, Workers};
