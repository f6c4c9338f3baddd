//! The generated code belongs to the protocol.

#![allow(clippy::unwrap_used, reason = "a check fails by panicking")]

#[test]
fn the_code_was_generated_from_the_protocol() {
    let checksum = crc32fast::hash(include_bytes!("../proto/kvstore/v1/store.proto"));
    let line = include_str!("../src/proto/messages.rs").lines().nth(1).unwrap();
    assert_eq!(line, format!("// CRC-32 of the source: {checksum:08x}"), "run `make protocol`");
}
