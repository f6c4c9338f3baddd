//! The generated code belongs to the protocol.

#![allow(clippy::unwrap_used, reason = "a check fails by panicking")]

/// The part of etcd's protocol that servers and members use, and the code for it.
const ETCD: [(&str, &str); 2] = [
    (include_str!("../src/etcd/proto/kv.proto"), include_str!("../src/etcd/proto/mvccpb.rs")),
    (
        include_str!("../src/etcd/proto/rpc.proto"),
        include_str!("../src/etcd/proto/etcdserverpb.rs"),
    ),
];

const PROTOCOL: &str = concat!(
    include_str!("../proto/kvstore/v1/store.proto"),
    include_str!("../proto/kvstore/v1/peers.proto")
);

fn checksum(protocol: &str) -> String {
    format!("// CRC-32 of the source: {:08x}", crc32fast::hash(protocol.as_bytes()))
}

#[test]
fn the_code_was_generated_from_the_protocol() {
    for (protocol, code) in ETCD {
        let found = code.lines().nth(1).unwrap_or_default();
        assert_eq!(found, checksum(protocol), "etcd: run `make protocol`");
    }
    let expected = checksum(PROTOCOL);
    for (name, code) in [
        ("messages.rs", include_str!("../src/proto/messages.rs")),
        ("replies.rs", include_str!("../src/proto/replies.rs")),
        ("client.rs", include_str!("../src/proto/client.rs")),
        ("server.rs", include_str!("../src/proto/server.rs")),
        ("peers.rs", include_str!("../src/proto/peers.rs")),
    ] {
        let found = code.lines().nth(1).unwrap_or_default();
        assert_eq!(found, expected, "{name}: run `make protocol`");
    }
}

/// The description of the protocol, which servers return to tools such as `grpcurl`, is not text,
/// so it has no checksum.
#[test]
fn the_description_has_all_names_of_the_protocol() {
    let description = include_bytes!("../src/proto/descriptor.bin");
    let code = PROTOCOL.lines().map(|line| line.split("//").next().unwrap_or_default());
    let mut names: Vec<&str> = code
        .filter_map(|line| {
            let mut words = line.split([' ', '(', '{', ';']).filter(|word| !word.is_empty());
            match words.next()? {
                "message" | "enum" | "oneof" | "rpc" | "service" => words.next(),
                first => {
                    // A field or a constant: the name is before `=`.
                    let words: Vec<&str> = std::iter::once(first).chain(words).collect();
                    let equals = words.iter().position(|word| *word == "=")?;
                    (first != "syntax").then(|| words[equals - 1])
                }
            }
        })
        .collect();
    names.sort_unstable();
    names.dedup();
    assert!(names.contains(&"keep_snapshots") && names.contains(&"ON_EXISTING_KEEP"));
    let is_missing = |name: &&str| {
        // In the encoding, the length of a name is before it.
        let encoded: Vec<u8> =
            std::iter::once(u8::try_from(name.len()).unwrap()).chain(name.bytes()).collect();
        !description.windows(encoded.len()).any(|bytes| bytes == encoded)
    };
    names.retain(is_missing);
    assert!(names.is_empty(), "run `make protocol`: {names:?}");
}
