//! Values, settings and errors as messages, and the messages of calls.

mod elements;
mod failures;
mod frames;
mod members;
mod settings;
mod sizes;
mod values;

pub(crate) use elements::{Elements, IncomingValues, Receiver};
pub(crate) use failures::{error_of, failure_of};
pub(crate) use frames::{CALL, Incoming, Outgoing};
pub(crate) use members::members_of;
pub(crate) use settings::{compression_of, hyper_parameters_of, settings_of, to_compression};
pub(crate) use values::{
    divide_indices, head_of, keys_of, parse_keys, parse_spec, spec_of, value_of,
};
