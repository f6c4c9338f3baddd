//! Tests that reading a checkpoint allocates no block longer than the file, even if the file is
//! malicious.
//!
//! The file has one test, because the test watches every allocation of the process.

#![allow(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    reason = "a test may abort without memory"
)]
#![allow(unsafe_code, reason = "implements `GlobalAlloc`")]
#![allow(clippy::unwrap_used, reason = "a check fails by panicking")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::fmt::Write;
use std::sync::atomic::{AtomicUsize, Ordering};

use kvstore_core::{
    Backends, CpuBackend, Device, Key, KvStore, LocalStore, Optimizer, OptimizerStates, Snapshot,
    Tensor,
};

/// The system allocator. It records the length of the longest requested block.
struct Longest;

static LONGEST: AtomicUsize = AtomicUsize::new(0);

// SAFETY: Every method forwards to the system allocator, which satisfies the contract.
unsafe impl GlobalAlloc for Longest {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LONGEST.fetch_max(layout.size(), Ordering::Relaxed);
        // SAFETY: The caller satisfies the contract of `GlobalAlloc::alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        LONGEST.fetch_max(layout.size(), Ordering::Relaxed);
        // SAFETY: The caller satisfies the contract of `GlobalAlloc::alloc_zeroed`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        LONGEST.fetch_max(size, Ordering::Relaxed);
        // SAFETY: The caller satisfies the contract of `GlobalAlloc::realloc`.
        unsafe { System.realloc(block, layout, size) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: The caller satisfies the contract of `GlobalAlloc::dealloc`.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Longest = Longest;

/// The length that a block may have for a file of any length. It covers read buffers, lists of at
/// most 4096 numbers, and messages of errors. A message may quote a string of 64 KiB with six
/// characters per byte, and its buffer doubles.
const FIXED: usize = 1 << 20;

/// Returns a file with a header, `num_bytes` zeros and the checksum.
fn file(header: &str, num_bytes: usize) -> Vec<u8> {
    let length = (header.len() as u64).to_le_bytes();
    let mut bytes = [&length, header.as_bytes(), &vec![0; num_bytes]].concat();
    let checksum = crc32fast::hash(&bytes).to_le_bytes();
    bytes.extend(checksum);
    bytes
}

/// Returns the header of a checkpoint with the given tensors, keys and rule. `num_bytes` is the
/// size of the tensors.
fn header(tensors: &str, num_bytes: usize, keys: &str, rule: &str) -> String {
    let store = r#""content":"store","store":"local","compression":null"#;
    let manifest = format!(r#"{{"version":1,{store},"keys":[{keys}],"rule":{rule}}}"#);
    let manifest = manifest.replace('"', "\\\"");
    let end = num_bytes + 4;
    let metadata = format!(r#""__metadata__":{{"kvstore":"{manifest}"}}"#);
    let checksum = format!(r#""dtype":"U8","shape":[4],"data_offsets":[{num_bytes},{end}]"#);
    format!(r#"{{{metadata},{tensors}"checksum":{{{checksum}}}}}"#)
}

/// Returns the items of the numbers below `count`, separated by commas.
fn list(count: usize, item: impl Fn(usize) -> String) -> String {
    let mut text = String::new();
    for number in 0..count {
        let _ = write!(text, "{}{}", if number == 0 { "" } else { "," }, item(number));
    }
    text
}

const MANY: usize = 30_000;
/// The length of a long string. It is just above a power of two, so a buffer that doubles becomes
/// almost twice as long.
const LONG: usize = (4 << 20) + 100;

/// Returns files that describe much data in few bytes: a name, the bytes, and a part of the
/// expected result.
fn files() -> Vec<(&'static str, Vec<u8>, &'static str)> {
    // Closures for valid records come first. Each file repeats one of them or breaks one.
    let assign = r#""assign""#;
    let key = |number| {
        let spec = r#""dtype":"uint8","shape":[1],"num_rows":null"#;
        format!(r#"{{"key":"{number:x}",{spec},"num_pushes":0,"state":null,"num_residuals":0}}"#)
    };
    let value = |number: usize| {
        let end = number + 1;
        format!(
            r#""value/{number:x}":{{"dtype":"U8","shape":[1],"data_offsets":[{number},{end}]}}"#
        )
    };
    let empty =
        |number| format!(r#""{number:x}":{{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}"#);
    let sgd = |factors: String| {
        let multipliers = format!(r#""lr_multipliers":{{{factors}}},"wd_multipliers":{{}}"#);
        let settings = r#""hyper_parameters":{},"scheduler":null"#;
        format!(r#"{{"optimizer":{{"name":"sgd",{settings},{multipliers}}}}}"#)
    };
    let tensor = |spec: &str| file(&format!(r#"{{"x":{spec}}}"#), 64);
    let text = |texts: String| file(&format!(r#"{{"__metadata__":{{{texts}}}}}"#), 0);
    let keys = list(MANY, key);
    let axes = "1,".repeat(1 << 18);
    let over = concat!(
        r#""a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]},"#,
        r#""b":{"dtype":"U8","shape":[8],"data_offsets":[4,12]},"#
    );
    vec![
        (
            "keys with one byte each",
            file(&header(&(list(MANY, value) + ","), MANY, &keys, assign), MANY),
            "30000 keys",
        ),
        ("records of keys", file(&header("", 0, &keys, assign), 0), "tensor `value/0` is missing"),
        (
            "multipliers",
            file(&header("", 0, "", &sgd(list(MANY, |n| format!(r#""{n:x}":1"#)))), 0),
            "0 keys",
        ),
        (
            "empty tensors",
            file(&header(&(list(MANY, empty) + ","), 0, "", assign), 0),
            "tensor `0` belongs to no key",
        ),
        (
            "strings",
            text(list(MANY, |n| format!(r#""{n:x}":"""#))),
            "0 bytes of tensors, the file has 4",
        ),
        (
            "one string",
            text(format!(r#""kvstore":"{}""#, r#"\""#.repeat(1 << 20))),
            "0 bytes of tensors, the file has 4",
        ),
        (
            "axes",
            tensor(&format!(r#"{{"dtype":"U8","shape":[{axes}1],"data_offsets":[0,1]}}"#)),
            "at most 4096 items",
        ),
        (
            "nested lists in the manifest",
            text(format!(r#""kvstore":"{{\"version\":1,\"keys\":{}""#, "[".repeat(1 << 20))),
            "0 bytes of tensors, the file has 4",
        ),
        (
            "nested lists in the header",
            file(&format!(r#"{{"__metadata__":{{"kvstore":{}"#, "[".repeat(1 << 20)), 0),
            "nested deeper than",
        ),
        (
            "a huge tensor",
            tensor(r#"{"dtype":"F64","shape":[1000000000000],"data_offsets":[0,8000000000000]}"#),
            "8000000000000 bytes of tensors, the file has 68",
        ),
        (
            "more elements than a number can count",
            tensor(r#"{"dtype":"F64","shape":[4294967296,4294967296],"data_offsets":[0,0]}"#),
            "bytes 0 to 0 do not have the size",
        ),
        (
            "overlapping tensors",
            file(&header(over, 12, "", assign), 12),
            "`b` does not begin where the previous tensor ends",
        ),
        (
            "a missing header",
            [&99_000_000_u64.to_le_bytes()[..], b"{}"].concat(),
            "expected 99000000 bytes, found 2",
        ),
        (
            "an impossible header",
            [&u64::MAX.to_le_bytes()[..], b"{}"].concat(),
            "a header cannot have",
        ),
    ]
}

/// Returns files with one long string, number or nesting, which a parser would copy into a buffer
/// that doubles.
fn long_files() -> Vec<(&'static str, Vec<u8>, &'static str)> {
    let one = |header: &str| file(header, 0);
    let ours = |keys: &str, rule: &str| file(&header("", 0, keys, rule), 0);
    // A parser copies a string if it contains an escape. The manifest is a string in the header, so
    // its escapes are escaped twice.
    let text = "a".repeat(LONG) + "\\n";
    let escaped = "a".repeat(LONG) + "\\\\n";
    let digits = "0".repeat(LONG + (1 << 20));
    let lists = "[".repeat(LONG);
    let sgd = |number| format!(r#"{{"optimizer":{{"hyper_parameters":{{"x":{number}}}}}}}"#);
    let halves = "\\ud83d".repeat(LONG / 6);
    let spec = r#"{"dtype":"U8","shape":[4],"data_offsets":[0,4]}"#;
    // A string of nearly the maximum length, which is six times as long in an error.
    let quoted = "\x7f".repeat((64 << 10) - 8);
    vec![
        ("a name", one(&format!(r#"{{"{text}":{spec}}}"#)), "of 4194406 bytes"),
        ("an open name", one(&format!(r#"{{"{text}"#)), "of 4194406 bytes"),
        ("no tensor", one(&format!(r#"{{"x":"{text}"}}"#)), "of 4194406 bytes"),
        (
            "`kvstore` outside of the metadata",
            one(&format!(r#"{{"kvstore":"{text}","__metadata__":{{}}}}"#)),
            "of 4194406 bytes",
        ),
        (
            "a dtype",
            one(&format!(r#"{{"x":{{"dtype":"{text}","shape":[4],"data_offsets":[0,4]}}}}"#)),
            "of 4194406 bytes",
        ),
        ("a field", one(&format!(r#"{{"x":{{"{text}":1}}}}"#)), "of 4194406 bytes"),
        ("a field's string", one(&format!(r#"{{"x":{{"more":"{text}"}}}}"#)), "of 4194406 bytes"),
        (
            "a name of metadata",
            one(&format!(r#"{{"__metadata__":{{"{text}":""}}}}"#)),
            "of 4194406 bytes",
        ),
        (
            "metadata",
            one(&format!(r#"{{"__metadata__":{{"format":"{text}"}}}}"#)),
            "of 4194406 bytes",
        ),
        (
            "metadata in an object",
            one(&format!(r#"{{"__metadata__":{{"x":{{"kvstore":"{text}"}}}}}}"#)),
            "of 4194406 bytes",
        ),
        (
            "metadata that is a list",
            one(&format!(r#"{{"__metadata__":{{"kvstore":{lists}"#)),
            "nested deeper than",
        ),
        ("lists in a header", one(&format!(r#"{{"x":{{"more":{lists}"#)), "nested deeper than"),
        (
            "a number in a header",
            one(&format!(r#"{{"x":{{"dtype":"U8","shape":[1{digits}]}}}}"#)),
            "of 5242981 bytes",
        ),
        (
            "high surrogates",
            one(&format!(r#"{{"__metadata__":{{"kvstore":"{halves}"}},"checksum":{spec}}}"#)),
            "surrogate",
        ),
        ("a key", ours(&format!(r#"{{"key":"{escaped}"}}"#), "0"), "of 4194406 bytes"),
        ("a rule", ours("", &format!(r#""{escaped}""#)), "of 4194406 bytes"),
        ("an unknown field", ours("", &format!(r#""assign","{escaped}":1"#)), "of 4194406 bytes"),
        (
            "`kvstore` in the manifest",
            ours("", &format!(r#""assign","x":{{"kvstore":"{escaped}"}}"#)),
            "of 4194406 bytes",
        ),
        ("lists in the manifest", ours("", &lists), "nested deeper than"),
        ("a number in the manifest", ours("", &sgd(format!("1{digits}"))), "of 5242981 bytes"),
        ("a fraction in the manifest", ours("", &sgd(format!("0.{digits}1"))), "of 5242983 bytes"),
        ("an error", one(&format!(r#"{{"{quoted}":"{quoted}"}}"#)), "invalid type: string"),
        (
            "an error in the manifest",
            ours("", &format!(r#"{{"optimizer":"{quoted}"}}"#)),
            "invalid type",
        ),
    ]
}

/// Runs `call`. Returns its result, and whether every block had at most `num_bytes` and [`FIXED`]
/// bytes.
fn watch<R>(name: &str, num_bytes: usize, call: impl FnOnce() -> R) -> (R, bool) {
    LONGEST.store(0, Ordering::Relaxed);
    let result = call();
    let longest = LONGEST.load(Ordering::Relaxed);
    println!("{name}: {num_bytes} bytes, longest block {longest} bytes");
    (result, longest <= num_bytes + FIXED)
}

#[test]
fn no_block_is_longer_than_the_file() {
    let backends = Backends::new(vec![CpuBackend::with_threads(1)]);
    let mut faults = Vec::new();
    for (name, bytes, expected) in [files(), long_files()].concat() {
        let (read, is_short) = watch(name, bytes.len(), || Snapshot::from_bytes(&backends, &bytes));
        let said = read.map_or_else(|error| error.to_string(), |it| format!("{} keys", it.len()));
        if !is_short || !said.contains(expected) {
            let said: String = said.chars().take(200).collect();
            faults.push(format!("{name}: {is_short}, {said}"));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));

    // This optimizer has no state tensors, so the file of its states consists of records only.
    let store = LocalStore::new("local", backends.clone()).unwrap();
    store.set_optimizer(Optimizer::sgd()).unwrap();
    let keys: Vec<Key> = (0..MANY).map(|it| Key::new(&format!("{it:x}")).unwrap()).collect();
    let value = Tensor::from_slice(&backends, Device::cpu(0), [1], &[1.0_f32]).unwrap();
    let values = vec![value.into(); MANY];
    store.init(&keys, &values).unwrap();
    store.push(&keys, &values, 0).unwrap();
    let bytes = store.snapshot().unwrap().optimizer_states_to_bytes(false).unwrap();
    let read = || OptimizerStates::from_bytes(&backends, &bytes).unwrap();
    let (read, is_short) = watch("states", bytes.len(), read);
    assert!(is_short && read.states.len() == MANY);
}
