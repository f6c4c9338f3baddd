//! The threads that run kernels. They share the work of a call.
//!
//! - The calling thread also works, so the pool has one thread less than the backend. If the caller
//!   only waited, one more pool thread would have to wake up, perhaps on a busy core.
//! - Each idle thread takes the next piece, so a thread that starts late does less.
//! - The pool helps one call at a time. Meanwhile, calls from other threads work alone. No call
//!   waits for the work of another.
//!
//! `workers.rs` splits work into pieces, `pool.rs` has the threads, and `shared_task.rs` shares a
//! task with them.

mod pool;
mod shared_task;
mod workers;

pub(super) use workers::{Job, Split, Workers};
