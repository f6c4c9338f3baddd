//! Reading a checkpoint asks the allocator for no block that is longer than the file, whatever the file says.
//!
//! One test in a file of its own: it looks at every allocation of the process.

#![allow(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    reason = "a test may abort without memory"
)]
#![allow(unsafe_code, reason = "an allocator is one")]
#![allow(clippy::unwrap_used, reason = "a check fails by panicking")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::fmt::Write;
use std::sync::atomic::{AtomicUsize, Ordering};

use kvstore_core::{
    Backends, CpuBackend, Device, Key, KvStore, LocalStore, Optimizer, OptimizerStates, Snapshot,
    Tensor,
};

/// The system's allocator, which notes the longest block that it was asked for.
struct Longest;

static LONGEST: AtomicUsize = AtomicUsize::new(0);

// SAFETY: all of it is the system's allocator.
unsafe impl GlobalAlloc for Longest {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LONGEST.fetch_max(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        LONGEST.fetch_max(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        LONGEST.fetch_max(size, Ordering::Relaxed);
        // SAFETY: the caller's.
        unsafe { System.realloc(block, layout, size) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller's.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Longest = Longest;

/// What is needed for a file of any length: buffers for reading, lists of at most 4096 numbers, and the text of an
/// error, which may quote a text of 64 KiB with six letters for a byte, in a string that doubles while it is written.
const FIXED: usize = 1 << 20;

/// Returns a file of a header and some zeros behind it, which end with their checksum.
fn file(header: &str, num_bytes: usize) -> Vec<u8> {
    let length = (header.len() as u64).to_le_bytes();
    let mut bytes = [&length, header.as_bytes(), &vec![0; num_bytes]].concat();
    let checksum = crc32fast::hash(&bytes).to_le_bytes();
    bytes.extend(checksum);
    bytes
}

/// Returns the header of a checkpoint with these keys and this rule, given the end of the tensors.
fn header(tensors: &str, num_bytes: usize, keys: &str, rule: &str) -> String {
    let manifest = format!(
        r#"{{"version":1,"content":"store","store":"local","compression":null,"keys":[{keys}],"rule":{rule}}}"#
    );
    let manifest = manifest.replace('"', "\\\"");
    let end = num_bytes + 4;
    format!(
        r#"{{"__metadata__":{{"kvstore":"{manifest}"}},{tensors}"checksum":{{"dtype":"U8","shape":[4],"data_offsets":[{num_bytes},{end}]}}}}"#
    )
}

/// Returns the text of each number, with commas between them.
fn list(count: usize, item: impl Fn(usize) -> String) -> String {
    let mut text = String::new();
    for number in 0..count {
        let _ = write!(text, "{}{}", if number == 0 { "" } else { "," }, item(number));
    }
    text
}

const MANY: usize = 30_000;
/// A length that a buffer gets beyond twice over, be it filled at once or byte by byte.
const LONG: usize = (4 << 20) + 100;

/// Files that say as much as they can in few bytes, with what is to be said of them.
fn files() -> Vec<(&'static str, Vec<u8>, &'static str)> {
    let assign = r#""assign""#;
    let key = |number| {
        format!(
            r#"{{"key":"{number:x}","dtype":"uint8","shape":[1],"num_rows":null,"num_pushes":0,"state":null,"num_residuals":0}}"#
        )
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
        format!(
            r#"{{"optimizer":{{"name":"sgd","hyper_parameters":{{}},"scheduler":null,"lr_multipliers":{{{factors}}},"wd_multipliers":{{}}}}}}"#
        )
    };
    let tensor = |spec: &str| file(&format!(r#"{{"x":{spec}}}"#), 64);
    let text = |texts: String| file(&format!(r#"{{"__metadata__":{{{texts}}}}}"#), 0);
    let keys = list(MANY, key);
    let axes = "1,".repeat(1 << 18);
    let over = r#""a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]},"b":{"dtype":"U8","shape":[8],"data_offsets":[4,12]},"#;
    vec![
        (
            "keys of a byte",
            file(&header(&(list(MANY, value) + ","), MANY, &keys, assign), MANY),
            "30000 keys",
        ),
        ("records of keys", file(&header("", 0, &keys, assign), 0), "tensor `value/0` is missing"),
        (
            "factors",
            file(&header("", 0, "", &sgd(list(MANY, |n| format!(r#""{n:x}":1"#)))), 0),
            "0 keys",
        ),
        (
            "tensors without bytes",
            file(&header(&(list(MANY, empty) + ","), 0, "", assign), 0),
            "tensor `0` is nobody's",
        ),
        ("texts", text(list(MANY, |n| format!(r#""{n:x}":"""#))), "have 0 bytes, 4 are there"),
        (
            "one text",
            text(format!(r#""kvstore":"{}""#, r#"\""#.repeat(1 << 20))),
            "have 0 bytes, 4 are there",
        ),
        (
            "axes",
            tensor(&format!(r#"{{"dtype":"U8","shape":[{axes}1],"data_offsets":[0,1]}}"#)),
            "at most 4096 items",
        ),
        (
            "lists in lists of ours",
            text(format!(r#""kvstore":"{{\"version\":1,\"keys\":{}""#, "[".repeat(1 << 20))),
            "have 0 bytes, 4 are there",
        ),
        (
            "lists in lists",
            file(&format!(r#"{{"__metadata__":{{"kvstore":{}"#, "[".repeat(1 << 20)), 0),
            "nested deeper than",
        ),
        (
            "a huge tensor",
            tensor(r#"{"dtype":"F64","shape":[1000000000000],"data_offsets":[0,8000000000000]}"#),
            "have 8000000000000 bytes, 68 are there",
        ),
        (
            "more elements than there are numbers",
            tensor(r#"{"dtype":"F64","shape":[4294967296,4294967296],"data_offsets":[0,0]}"#),
            "from byte 0 to 0",
        ),
        (
            "tensors over one another",
            file(&header(over, 12, "", assign), 12),
            "`b` does not begin where the one before it ends",
        ),
        (
            "a header that is not there",
            [&99_000_000_u64.to_le_bytes()[..], b"{}"].concat(),
            "99000000 bytes expected, 2 left",
        ),
        ("a header that cannot be", [&u64::MAX.to_le_bytes()[..], b"{}"].concat(), "is no header"),
    ]
}

/// Files in which one thing is long: what a parser copies, in a buffer of its own that it doubles.
fn long_files() -> Vec<(&'static str, Vec<u8>, &'static str)> {
    let one = |header: &str| file(header, 0);
    let ours = |keys: &str, rule: &str| file(&header("", 0, keys, rule), 0);
    // From the first escape on a text is copied, and escapes of ours are escaped once more.
    let text = "a".repeat(LONG) + "\\n";
    let escaped = "a".repeat(LONG) + "\\\\n";
    let digits = "0".repeat(LONG + (1 << 20));
    let lists = "[".repeat(LONG);
    let sgd = |number| format!(r#"{{"optimizer":{{"hyper_parameters":{{"x":{number}}}}}}}"#);
    let halves = "\\ud83d".repeat(LONG / 6);
    let spec = r#"{"dtype":"U8","shape":[4],"data_offsets":[0,4]}"#;
    // As long as a text may be, and six times as long in an error.
    let quoted = "\x7f".repeat((64 << 10) - 8);
    vec![
        ("a name", one(&format!(r#"{{"{text}":{spec}}}"#)), "of 4194406 bytes"),
        ("an open name", one(&format!(r#"{{"{text}"#)), "of 4194406 bytes"),
        ("no tensor", one(&format!(r#"{{"x":"{text}"}}"#)), "of 4194406 bytes"),
        (
            "our name beside metadata",
            one(&format!(r#"{{"kvstore":"{text}","__metadata__":{{}}}}"#)),
            "of 4194406 bytes",
        ),
        (
            "a dtype",
            one(&format!(r#"{{"x":{{"dtype":"{text}","shape":[4],"data_offsets":[0,4]}}}}"#)),
            "of 4194406 bytes",
        ),
        ("a field", one(&format!(r#"{{"x":{{"{text}":1}}}}"#)), "of 4194406 bytes"),
        ("a field's text", one(&format!(r#"{{"x":{{"more":"{text}"}}}}"#)), "of 4194406 bytes"),
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
        ("lists of a header", one(&format!(r#"{{"x":{{"more":{lists}"#)), "nested deeper than"),
        (
            "a number of a header",
            one(&format!(r#"{{"x":{{"dtype":"U8","shape":[1{digits}]}}}}"#)),
            "of 5242981 bytes",
        ),
        (
            "halves of characters",
            one(&format!(r#"{{"__metadata__":{{"kvstore":"{halves}"}},"checksum":{spec}}}"#)),
            "surrogate",
        ),
        ("a key", ours(&format!(r#"{{"key":"{escaped}"}}"#), "0"), "of 4194406 bytes"),
        ("a rule", ours("", &format!(r#""{escaped}""#)), "of 4194406 bytes"),
        ("an unknown field", ours("", &format!(r#""assign","{escaped}":1"#)), "of 4194406 bytes"),
        (
            "our name in our metadata",
            ours("", &format!(r#""assign","x":{{"kvstore":"{escaped}"}}"#)),
            "of 4194406 bytes",
        ),
        ("lists of ours", ours("", &lists), "nested deeper than"),
        ("a number of ours", ours("", &sgd(format!("1{digits}"))), "of 5242981 bytes"),
        ("a fraction of ours", ours("", &sgd(format!("0.{digits}1"))), "of 5242983 bytes"),
        ("an error", one(&format!(r#"{{"{quoted}":"{quoted}"}}"#)), "invalid type: string"),
        ("an error of ours", ours("", &format!(r#"{{"optimizer":"{quoted}"}}"#)), "invalid type"),
    ]
}

/// Calls, and returns whether no block was longer than so many bytes.
fn watch<R>(name: &str, num_bytes: usize, call: impl FnOnce() -> R) -> (R, bool) {
    LONGEST.store(0, Ordering::Relaxed);
    let result = call();
    let longest = LONGEST.load(Ordering::Relaxed);
    println!("{name}: {num_bytes} bytes, {longest} in a block");
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

    // The states of an optimizer that has no tensors are nothing but records.
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
