//! Any bytes as the calls of a member of a server.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| kvstore_net::fuzzing::calls(bytes));
