//! Any bytes as a checkpoint of a store.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| kvstore_tests::fuzz::checkpoint(bytes));
