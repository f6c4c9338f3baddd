//! Any bytes as one array.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| kvstore_tests::fuzz::record(bytes));
