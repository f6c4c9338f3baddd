//! Any bytes as the messages and calls of a member of a server.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| kvstore_net::fuzzing::requests(bytes));
