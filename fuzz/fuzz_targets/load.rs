//! Any bytes as a file of arrays.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| kvstore_tests::fuzz::array_file(bytes));
