//! Allocators for tests: one fails on request, one counts.
//!
//! A test declares one of them as its global allocator. It must be the only test of its file,
//! because an allocator and its state are global: they affect all threads.

#![allow(unsafe_code, reason = "an allocator is one")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a check fails by panicking")]

mod counting;
mod failing;

pub use counting::{CountingAllocator, Counts, counts, peak};
pub use failing::{
    Call, Case, FailingAllocator, LONG, case, fail_from, run_cases, run_cases_by, without_failures,
    without_memory,
};
