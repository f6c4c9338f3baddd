//! Conversions between Java and Rust.

mod arguments;
mod descriptions;
mod elements;
mod handles;
mod java;

pub(crate) use arguments::{
    device, distribution, dtype, key, keys, named_strings, options, pairs, schedule, shape, values,
};
pub(crate) use descriptions::{
    adopt, adopt_all, adopt_rows, hyper_parameters_to_java, members_to_java, memory_to_java,
    register, stats_to_java,
};
pub(crate) use elements::{elements_to_java, fill, new_array};
pub(crate) use handles::{
    ARRAYS, CHECKPOINTS, OPTIMIZERS, PINS, ROWS, SERVERS, SNAPSHOTS, STATES, STORES, array, arrays,
    store,
};
pub(crate) use java::{
    bytes, bytes_to_java, check_java_length, count, numbers, pair_to_java, position, reject_null,
    size, string, strings, strings_to_java, to_java,
};
