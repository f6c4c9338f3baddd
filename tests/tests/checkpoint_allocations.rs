//! Writing a checkpoint does not copy the store. Reading one allocates memory for the contents of
//! the file only, whatever its header claims.
//!
//! This file has one test, because it counts the allocations of the process.

#![allow(clippy::unwrap_used, reason = "a check fails by panicking")]

use std::fmt::Write;

use kvstore::{Snapshot, backends, create, trim};
use kvstore_allocators::CountingAllocator;
use kvstore_tests::fuzz::with_checksum;
use kvstore_tests::suite::array;

#[global_allocator]
static COUNTER: CountingAllocator = CountingAllocator;

/// The bytes that any file needs, for buffers and for the backend.
const FIXED: usize = 3 << 20;

/// Returns the largest number of bytes that a call holds at one time.
fn peak<R>(call: impl FnOnce() -> R) -> usize {
    // Otherwise the call would reuse pooled memory.
    trim();
    kvstore_allocators::peak(call)
}

#[test]
fn a_checkpoint_allocates_no_more_than_its_contents() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model");
    let store = create("local").unwrap();
    for number in 0..8 {
        store.init(number.to_string().as_str(), &array(&vec![1.0; 1 << 20])).unwrap();
    }
    let written = peak(|| store.checkpoint(&path).unwrap().wait().unwrap());
    let length = usize::try_from(std::fs::metadata(&path).unwrap().len()).unwrap();
    let read = peak(|| Snapshot::read(backends(), &path).unwrap());
    println!("{length} bytes: {written} allocated for writing, {read} for reading");
    assert!(length > 32 << 20 && written < 1 << 20);
    // The backend allocates blocks of reusable sizes, up to an eighth longer.
    assert!((length..length * 9 / 8 + FIXED).contains(&read));

    // The largest possible headers: many tensors with far more bytes than the file has; many axes;
    // factors of keys, as short as possible.
    let mut many_tensors = String::from("{");
    for number in 0..20_000 {
        let _ = write!(
            many_tensors,
            r#""{number}":{{"dtype":"U8","shape":[0],"data_offsets":[0,0]}},"#
        );
    }
    many_tensors +=
        r#""x":{"dtype":"F64","shape":[1000000000000],"data_offsets":[0,8000000000000]}}"#;
    let axes = "1,".repeat((1 << 18) + 1);
    let many_axes = format!(r#"{{"x":{{"dtype":"U8","shape":[{axes}0],"data_offsets":[0,0]}}}}"#);
    let axes = "1,".repeat((1 << 11) + 1);
    let mut many_shapes = String::from("{");
    for number in 0..100 {
        let _ = write!(
            many_shapes,
            r#""{number}":{{"dtype":"U8","shape":[{axes}0],"data_offsets":[0,0]}},"#
        );
    }
    many_shapes += r#""x":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}}"#;
    let checksum = r#"{"checksum":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"#;
    let mut many_factors = checksum.to_owned();
    many_factors += r#""__metadata__":{"kvstore":"{\"version\":1,\"content\":\"store\","#;
    many_factors += r#"\"store\":\"x\",\"compression\":null,\"keys\":[],"#;
    many_factors += r#"\"rule\":{\"optimizer\":{\"name\":\"sgd\",\"hyper_parameters\":{},"#;
    many_factors += r#"\"scheduler\":null,\"wd_multipliers\":{},\"lr_multipliers\":{"#;
    for number in 0..=1 << 16 {
        let _ = write!(many_factors, r#"\"{number:x}\":1,"#);
    }
    many_factors += r#"\"x\":1}}}}"}}"#;
    for (name, header) in [
        ("tensors", many_tensors),
        ("axes", many_axes),
        ("shapes", many_shapes),
        ("factors", many_factors),
    ] {
        let bytes = [&(header.len() as u64).to_le_bytes(), header.as_bytes(), &[0; 4]].concat();
        std::fs::write(&path, with_checksum(bytes)).unwrap();
        let mut said = String::new();
        let found = peak(|| {
            let read = Snapshot::read(backends(), &path);
            said = read.map_or_else(|error| error.to_string(), |_| "it is one".to_owned());
        });
        let times = found / header.len();
        println!(
            "{} bytes of {name}: {found} allocated, {times} times as many: {said}",
            header.len()
        );
        assert!(found < 12 * header.len() + FIXED, "{found} for {}", header.len());
    }
}
