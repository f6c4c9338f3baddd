//! Writing a checkpoint takes no second copy of a store; reading one takes the memory of what is in the file,
//! whatever that says of itself.
//!
//! One test in a file of its own: it counts what the whole process allocates.

#![allow(clippy::unwrap_used, reason = "a check fails by panicking")]

use std::fmt::Write;

use kvstore::{Snapshot, backends, create, trim};
use kvstore_tests::fuzz::with_checksum;
use kvstore_tests::suite::array;

#[global_allocator]
static COUNTER: dhat::Alloc = dhat::Alloc;

/// What is needed for any file: buffers, and the backend's own.
const FIXED: usize = 3 << 20;

/// Returns what a call allocates at most at one time.
fn peak<R>(call: impl FnOnce() -> R) -> usize {
    // Otherwise memory would be taken that is there already.
    trim();
    let _profiler = dhat::Profiler::builder().testing().build();
    let _result = call();
    dhat::HeapStats::get().max_bytes
}

#[test]
fn a_checkpoint_takes_no_more_than_it_holds() {
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
    // The backend makes blocks of sizes that it can use again, up to an eighth longer.
    assert!((length..length * 9 / 8 + FIXED).contains(&read));

    // A header as long as it says, of as many tensors as it can name, and of far more bytes than there are.
    let mut header = String::from("{");
    for number in 0..20_000 {
        let _ = write!(header, r#""{number}":{{"dtype":"U8","shape":[],"data_offsets":[0,0]}},"#);
    }
    header += r#""x":{"dtype":"F64","shape":[1000000000000],"data_offsets":[0,8000000000000]}}"#;
    let many_dims = format!(
        r#"{{"x":{{"dtype":"U8","shape":[{}0],"data_offsets":[0,0]}}}}"#,
        "1,".repeat(500_000)
    );
    for header in [header, many_dims] {
        let bytes = [&(header.len() as u64).to_le_bytes(), header.as_bytes(), &[0; 4]].concat();
        std::fs::write(&path, with_checksum(bytes)).unwrap();
        let found = peak(|| Snapshot::read(backends(), &path).unwrap_err());
        println!("a header of {} bytes: {found} allocated", header.len());
        assert!(found < 8 * header.len() + FIXED, "{found} for {}", header.len());
    }
}
