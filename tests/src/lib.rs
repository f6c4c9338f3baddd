//! Tests of the store: a naive model, random programs for it, and checks for every implementation.
//!
//! - [`model`] is the store written as simply as it can be; [`value`], [`mod@format`] and [`arithmetic`]
//!   are the values it holds, how dtypes keep their numbers, and the rules of these.
//! - [`compression`] is what arrives of compressed values, [`clip`] what of a norm is left.
//! - [`optimizer`] and [`schedule`] are the optimizers, one element and one update at a time, in
//!   numbers that know their error: [`approximate`].
//! - [`naive_rows`] are values of rows.
//! - [`operations`] makes random programs, [`replay`] runs them on a store and on the model.
//! - [`suite`] holds the checks that every implementation of a seam passes.
//! - [`fuzz`] is what a fuzzer runs on any bytes, and what it begins with.
//! - [`place`] says where checks are run.
//! - [`recorded`] replays programs with recorded results, which [`json`] reads.
//! - [`reduced`] makes the checks small enough for Miri.
//! - [`spread`] makes many workers look like one store.
//! - [`sources`] reads the files of the project itself.

pub mod approximate;
pub mod arithmetic;
pub mod arrays;
pub mod clip;
pub mod compare;
pub mod compression;
pub mod format;
pub mod fuzz;
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
pub mod sources;
pub mod spread;
pub mod suite;
pub mod value;

/// Every name under which a store of one machine can be created.
pub const STORE_NAMES: [&str; 5] =
    ["local", "local_update_cpu", "local_allreduce_cpu", "device", "local_allreduce_device"];
