//! Damaged and malicious files: an error names the file and the cause, and nothing changes.

#![allow(clippy::unwrap_used, reason = "a check fails by panicking")]

use kvstore::{Device, ErrorCode, Key, Result, RowSparse, Snapshot, Tensor, backends, create};
use kvstore_tests::fuzz::{self, changed, with_checksum};
use kvstore_tests::suite::array;
use safetensors::SafeTensors;
use serde_json::{Value as Json, json};

/// Returns a small checkpoint with every kind of content.
fn good() -> Vec<u8> {
    fuzz::checkpoints().swap_remove(0)
}

/// Reads the bytes, and checks that the library of the format can read them, too.
fn read(bytes: &[u8]) -> Result<Snapshot> {
    let read = Snapshot::from_bytes(backends(), bytes)?;
    SafeTensors::deserialize(bytes).unwrap();
    Ok(read)
}

/// Returns the reason why these bytes are rejected.
fn rejection(bytes: &[u8]) -> String {
    let error = read(bytes).map(drop).unwrap_err();
    assert_eq!(error.code(), ErrorCode::Corrupt, "{}", error.chain());
    error.chain()
}

#[test]
fn every_flipped_bit_and_every_truncation_is_detected() {
    let good = good();
    read(&good).unwrap();
    for at in 0..good.len() {
        for bit in 0..8 {
            let mut bytes = good.clone();
            bytes[at] ^= 1 << bit;
            rejection(&bytes);
        }
        rejection(&good[..at]);
    }
    rejection(&[&good[..], &[0]].concat());
    println!("{} bits, {} lengths", 8 * good.len(), good.len() + 1);
}

/// Returns a file with a changed header and a valid checksum.
fn with_header(change: impl FnOnce(&mut Json, &mut Json)) -> Vec<u8> {
    let good = good();
    let (length, rest) = good.split_first_chunk().unwrap();
    let (header, data) = rest.split_at(usize::try_from(u64::from_le_bytes(*length)).unwrap());
    let mut header: Json = serde_json::from_slice(header).unwrap();
    let text = header["__metadata__"]["kvstore"].as_str().unwrap();
    let mut manifest: Json = serde_json::from_str(text).unwrap();
    change(&mut header, &mut manifest);
    if header["__metadata__"]["kvstore"].is_string() {
        header["__metadata__"]["kvstore"] = manifest.to_string().into();
    }
    file(header.to_string().as_bytes(), data)
}

fn file(header: &[u8], data: &[u8]) -> Vec<u8> {
    let bytes = [&(header.len() as u64).to_le_bytes(), header, data].concat();
    with_checksum(bytes)
}

#[test]
fn headers_are_checked() {
    type Change = fn(&mut Json, &mut Json);
    let cases: [(&str, Change); 30] = [
        ("version 2", |_, manifest| manifest["version"] = json!(2)),
        ("not a checkpoint", |header, _| header["__metadata__"] = json!({"format": "pt"})),
        ("unknown field `extra`", |_, manifest| manifest["extra"] = json!(1)),
        ("missing field `keys`", |_, manifest| {
            drop(manifest.as_object_mut().unwrap().remove("keys"));
        }),
        ("key `w` appears twice", |_, manifest| manifest["keys"][0]["key"] = json!("w")),
        ("NUL", |_, manifest| manifest["keys"][0]["key"] = json!("\0")),
        ("`value/v` is missing", |_, manifest| manifest["keys"][1]["key"] = json!("v")),
        ("belongs to no key", |_, manifest| {
            drop(manifest["keys"].as_array_mut().unwrap().remove(0));
        }),
        ("`residual/1/w` is missing", |_, manifest| {
            manifest["keys"][1]["num_residuals"] = json!(u64::MAX);
        }),
        ("belongs to no key", |_, manifest| manifest["keys"][1]["num_residuals"] = json!(0)),
        ("belongs to no key", |_, manifest| manifest["keys"][1]["state"] = json!(null)),
        ("`state/2/w` is missing", |_, manifest| {
            manifest["keys"][1]["state"]["parked"] = json!(["zero"]);
        }),
        ("a state cannot have 9007199254740993 updates", |_, manifest| {
            manifest["keys"][1]["state"]["num_updates"] = json!((1_u64 << 53) + 1);
        }),
        ("unknown formula `Magic`", |_, manifest| {
            manifest["keys"][1]["state"]["formula"] = json!("Magic");
        }),
        ("no elements", |_, manifest| manifest["keys"][1]["shape"] = json!([2, 0])),
        ("expected [3] f32", |_, manifest| manifest["keys"][1]["shape"] = json!([3])),
        ("`value/rows` is missing", |_, manifest| manifest["keys"][2]["num_rows"] = json!(null)),
        ("`row_indices/rows`: expected [3] i64", |_, manifest| {
            manifest["keys"][2]["num_rows"] = json!(3);
        }),
        ("row index 3 is out of range for shape [3, 3]", |_, manifest| {
            manifest["keys"][2]["shape"] = json!([3, 3]);
        }),
        ("unknown dtype `float8`", |_, manifest| manifest["keys"][1]["dtype"] = json!("float8")),
        ("expected [2] i64", |_, manifest| manifest["keys"][1]["dtype"] = json!("int64")),
        ("unknown optimizer `sdg`", |_, manifest| {
            manifest["rule"]["optimizer"]["name"] = json!("sdg");
        }),
        ("cannot be -1", |_, manifest| {
            manifest["rule"]["optimizer"]["hyper_parameters"]["learning_rate"] = json!(-1);
        }),
        ("optimizer states but no optimizer", |_, manifest| manifest["rule"] = json!("assign")),
        ("step: expected at least 1, found 0", |_, manifest| {
            let decay = json!({"factor": {"step": 0, "factor": 1.0, "stop": 0.0}});
            manifest["rule"]["optimizer"]["scheduler"] = json!({"decay": decay, "warmup": null});
        }),
        ("a number above 0", |_, manifest| manifest["compression"]["threshold"] = json!(0)),
        ("not a safetensors file", |header, _| {
            header["value/w"]["shape"] = json!([u64::MAX, u64::MAX]);
        }),
        ("not a safetensors file", |header, _| {
            header["value/w"]["data_offsets"] = json!([0, u64::MAX]);
        }),
        ("not a safetensors file", |header, _| header["value/w"]["data_offsets"] = json!([0, 8])),
        ("the element type BOOL", |header, _| {
            for name in ["checksum", "value/half"] {
                header[name]["dtype"] = json!("BOOL");
            }
            header["value/half"]["shape"] = json!([6]);
        }),
    ];
    for (cause, change) in cases {
        let found = rejection(&with_header(change));
        assert!(found.contains(cause), "expected {cause:?}, found {found:?}");
    }
    // Wide elements come first: this is the index of the first of two rows, 1 and 3.
    let mut bytes = good();
    let header = usize::try_from(u64::from_le_bytes(*bytes.first_chunk().unwrap())).unwrap();
    assert_eq!(bytes[8 + header], 1);
    bytes[8 + header] = 4;
    let found = rejection(&with_checksum(bytes));
    assert!(found.contains("must be strictly ascending"), "{found}");
    // Two overlapping ranges, with as many bytes as the file has.
    let overlapping = with_header(|header, _| {
        header["state/1/w"]["data_offsets"] = header["state/0/w"]["data_offsets"].clone();
    });
    assert!(rejection(&overlapping).contains("not a safetensors file"));
}

#[test]
fn other_files_are_rejected() {
    let deep = "[".repeat(100_000);
    let deep_metadata = json!({"__metadata__": {"kvstore": deep}}).to_string();
    let twice = concat!(
        r#"{"x":{"dtype":"U8","shape":[],"data_offsets":[0,1]},"#,
        r#""x":{"dtype":"U8","shape":[3],"data_offsets":[1,4]}}"#
    );
    let cases: [(&str, Vec<u8>); 10] = [
        ("`x` appears twice", file(twice.as_bytes(), &[0; 4])),
        ("length of the header", Vec::new()),
        ("length of the header", vec![1; 7]),
        ("a header cannot have", vec![0xff; 64]),
        ("expected 99000000 bytes", [99_000_000_u64.to_le_bytes(); 8].concat()),
        ("its header: it is nested", file(deep.as_bytes(), &[0; 4])),
        ("not a safetensors file", file(&[0xff; 16], &[0; 4])),
        (
            "its metadata: it is nested",
            file(with_checksum_tensor(&deep_metadata).as_bytes(), &[0; 4]),
        ),
        ("not a checkpoint", file(with_checksum_tensor("{}").as_bytes(), &[0; 4])),
        ("0 bytes of tensors, the file has 4", file(b"{}", &[0; 4])),
    ];
    for (cause, bytes) in cases {
        let found = rejection(&bytes);
        assert!(found.contains(cause), "expected {cause:?}, found {found:?}");
    }
}

#[test]
fn headers_that_the_format_forbids_are_rejected() {
    let good = good();
    let (length, rest) = good.split_first_chunk().unwrap();
    let (header, data) = rest.split_at(usize::try_from(u64::from_le_bytes(*length)).unwrap());
    let header = str::from_utf8(header).unwrap();
    let header_json: Json = serde_json::from_str(header).unwrap();
    let ours = header_json["__metadata__"]["kvstore"].to_string();
    let changed = |from: &str, to: &str| {
        assert!(header.contains(from), "{from}");
        file(header.replacen(from, to, 1).as_bytes(), data)
    };
    let start = r#"{"__metadata__":{"#;
    let again = format!(r#"{start}"kvstore":{ours}}},"__metadata__":{{"#);
    let twice = format!(r#"{start}"kvstore":{ours},"#);
    let cases = [
        ("invalid type: integer `1`, expected a text", start, r#"{"__metadata__":{"n":1,"#),
        ("invalid type: null", start, r#"{"__metadata__":{"n":null,"#),
        ("invalid type: map", start, r#"{"__metadata__":{"n":{},"#),
        ("invalid type: null", &*ours, "null"),
        ("invalid type: sequence", &*ours, "[]"),
        ("hex escape", start, r#"{"__metadata__":{"n":"\ud83d","#),
        ("`__metadata__` appears twice", start, &again),
        ("`__metadata__` appears twice", start, r#"{"__metadata__":{},"__metadata__":{"#),
        ("unknown field `more`", r#"{"dtype""#, r#"{"more":1e999,"dtype""#),
    ];
    for (cause, from, to) in cases {
        let bytes = changed(from, to);
        assert!(SafeTensors::deserialize(&bytes).is_err(), "{to}");
        let found = rejection(&bytes);
        assert!(found.contains(cause), "expected {cause:?}, found {found:?}");
    }
    let mut bytes = changed(r#"{"dtype""#, r#"{"more":"?","dtype""#);
    let at = bytes.iter().position(|byte| *byte == b'?').unwrap();
    bytes[at] = 0xff;
    assert!(SafeTensors::deserialize(&bytes).is_err());
    assert!(rejection(&with_checksum(bytes)).contains("unknown field `more`"));
    // The library takes the last of these two, but other readers may take the first.
    let found = rejection(&changed(start, &twice));
    assert!(found.contains("`kvstore` appears twice"), "{found}");
    // Strings of other programs are allowed.
    for more in [r#""format":"pt","#, r#""\u0000\ud83d\ude00":"\n","format":"1","format":"2","#] {
        read(&changed(start, &format!("{start}{more}"))).unwrap();
    }
}

fn with_checksum_tensor(header: &str) -> String {
    let mut header: Json = serde_json::from_str(header).unwrap();
    header["checksum"] = json!({"dtype": "U8", "shape": [4], "data_offsets": [0, 4]});
    header.to_string()
}

#[test]
fn a_damaged_file_changes_nothing_and_the_error_names_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model");
    let good = good();
    std::fs::write(&path, &good[..good.len() - 1]).unwrap();
    let store = create("local").unwrap();
    store.init("mine", &array(&[1.0])).unwrap();
    let before = store.snapshot().unwrap();
    let error = store.restore(&path).unwrap_err();
    assert_eq!(error.code(), ErrorCode::Corrupt);
    assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");
    assert!(store.snapshot().unwrap().is_identical(&before).unwrap());
    std::fs::write(&path, &good).unwrap();
    store.restore(&path).unwrap();
    assert!(store.keys().unwrap().iter().all(|key| key.as_str() != "mine"));
}

#[test]
fn changed_files_are_read_or_rejected() {
    let files = fuzz::checkpoints();
    for seed in 0..20_000 {
        fuzz::checkpoint(&changed(&files, seed));
    }
}

/// Returns the checkpoint with `from` replaced by `to` in its header.
fn with_text(bytes: &[u8], from: &str, to: &str) -> Vec<u8> {
    let (length, rest) = bytes.split_first_chunk::<8>().unwrap();
    let (header, rest) = rest.split_at(usize::try_from(u64::from_le_bytes(*length)).unwrap());
    let mut header = std::str::from_utf8(header).unwrap().replace(from, to).into_bytes();
    header.resize(header.len().next_multiple_of(8), b' ');
    with_checksum([&(header.len() as u64).to_le_bytes(), &*header, rest].concat())
}

#[test]
fn row_sparse_shapes_beyond_the_address_space_are_rejected() {
    let key = Key::new("table").unwrap();
    let row = || Tensor::from_slice(backends(), Device::cpu(0), [1, 3], &[1f32, 2.0, 3.0]).unwrap();
    let store = create("local").unwrap();
    store.init(&key, &RowSparse::new([1_000_000, 3], vec![7], row()).unwrap()).unwrap();
    let before = store.snapshot().unwrap();
    let bytes = before.to_bytes().unwrap();

    let large = with_text(&bytes, "[1000000,3]", "[1000000000000,3]");
    assert!(read(&large).is_ok(), "large, but addressable");
    let huge = with_text(&bytes, "[1000000,3]", "[1099511627776000,3]");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("checkpoint");
    std::fs::write(&path, huge).unwrap();
    let error = store.restore(&path).unwrap_err();
    assert_eq!(error.code(), ErrorCode::Corrupt);
    let text = error.to_string();
    assert!(text.contains("key `table`: [1099511627776000, 3] f32"), "{text}");
    assert!(store.snapshot().unwrap().is_identical(&before).unwrap(), "nothing has changed");
    // `RowSparse::new` rejects it, too.
    let error = RowSparse::new([1 << 60, 3], vec![7], row()).unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidArgument, "{error}");
}
