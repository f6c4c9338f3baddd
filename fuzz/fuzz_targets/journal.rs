//! Any bytes as the journal of a server.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| kvstore_net::fuzzing::journal(bytes));
