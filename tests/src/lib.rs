//! Tests of the store: a naive model, random programs for it, and checks for every implementation.
//!
//! - [`model`] is the simplest possible store. [`value`] has its values, [`mod@format`] the binary
//!   formats of dtypes, and [`arithmetic`] the arithmetic.
//! - [`compression`] and [`clip`] are the model's compression and clipping.
//! - [`mod@etcd`] runs a real etcd.
//! - [`optimizer`] and [`schedule`] compute optimizers one element and one update at a time, with
//!   numbers that track their error: [`approximate`].
//! - [`naive_rows`] has the model's row-sparse values.
//! - [`operations`] generates random programs; [`replay`] runs them on a store and on the model.
//! - [`suite`] has the checks that every implementation of an interface must pass.
//! - [`fuzz`] has the checks and the initial files of the fuzzer.
//! - [`hosts`] simulates two hosts with a cable between them.
//! - [`place`] selects the devices of the checks.
//! - [`recorded`] replays programs with recorded results, which [`json`] reads.
//! - [`reduced`] reduces the checks for Miri.
//! - [`spread`] makes many workers look like one store.
//! - [`mod@signal`] sends signals to other processes.
//! - [`skip`] ends a test for which the machine lacks something.
//! - [`sources`] reads the files of the project itself.

pub mod approximate;
pub mod arithmetic;
pub mod arrays;
pub mod clip;
pub mod compare;
pub mod compression;
pub mod etcd;
pub mod format;
pub mod fuzz;
pub mod hosts;
pub mod json;
mod layerwise;
pub mod model;
pub mod naive_rows;
pub mod operations;
pub mod optimizer;
pub mod optimizer_run;
pub mod place;
pub mod policy;
pub mod recorded;
pub mod reduced;
pub mod replay;
pub mod samples;
pub mod schedule;
pub mod signal;
pub mod skip;
pub mod sources;
pub mod spread;
pub mod suite;
pub mod value;

/// Every name of a store on one machine.
pub const STORE_NAMES: [&str; 5] =
    ["local", "local_update_cpu", "local_allreduce_cpu", "device", "local_allreduce_device"];
