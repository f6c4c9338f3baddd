//! The driver: detection, devices, memory and streams.

pub(crate) mod call;
pub(crate) mod card;
mod context;
pub(crate) mod devices;
pub(crate) mod handles;
pub(crate) mod memory;
pub(crate) mod probe;
pub(crate) mod staging;
