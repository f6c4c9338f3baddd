//! Files of arrays: files written by MXNet, damaged and malicious files, and our own.

use std::fs;
use std::path::Path;

use kvstore::{ArrayList, DType, Error, ErrorCode, NDArray, Result, backends};
use kvstore_tests::arrays::{from_array, to_array};
use kvstore_tests::compare::assert_same_bits;
use kvstore_tests::fuzz::{self, recorded_files};
use kvstore_tests::json::{list, text, value_of};
use kvstore_tests::value::{Number, Spec, Value};
use proptest::prelude::*;
use serde_json::{Value as Json, json};

/// Returns the value of `[dtype, shape, context, nested lists of numbers]`.
fn value_of_file(expected: &Json) -> Value {
    assert_eq!(text(&expected[2]), "cpu(0)");
    let mut numbers = vec![expected[3].clone()];
    while numbers.iter().any(Json::is_array) {
        numbers = numbers.iter().flat_map(|level| list(level).to_vec()).collect();
    }
    value_of(&json!({ "dtype": expected[0], "shape": expected[1], "data": numbers }))
}

fn read(bytes: &[u8]) -> Result<ArrayList> {
    ArrayList::from_bytes(backends(), bytes)
}

/// Returns the bytes of a file of these arrays.
fn written(list: &ArrayList) -> Vec<u8> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("arrays");
    list.write(&path).expect("a file can be written");
    fs::read(path).expect("it is there")
}

#[test]
fn files_of_mxnet_have_their_arrays() {
    let files = recorded_files();
    for (name, bytes, expected) in &files {
        println!("{name}");
        let list = read(bytes).expect("a file of MXNet");
        let arrays = list.arrays().iter().map(from_array);
        match expected {
            Json::Object(named) => {
                assert_eq!(list.names().len(), named.len());
                for (name, expected) in named {
                    let found = from_array(list.get(name).expect("a name"));
                    assert_same_bits(&value_of_file(expected), &found, name);
                }
            }
            unnamed => {
                assert!(list.names().is_empty());
                let expected = unnamed.as_array().expect("a list");
                assert_eq!(list.arrays().len(), expected.len());
                for (expected, found) in expected.iter().zip(arrays) {
                    assert_same_bits(&value_of_file(expected), &found, name);
                }
            }
        }
    }
    assert!(files.len() >= 8, "files are missing");
}

/// Files that MXNet wrote are written again byte for byte, except files of old versions, of other
/// devices and of sparse arrays.
#[test]
fn dense_files_are_written_as_mxnet_writes_them() {
    for name in ["named_all_dtypes", "unnamed_all_dtypes", "empty"] {
        let files = recorded_files();
        let (_, bytes, _) = files.iter().find(|(known, ..)| known == name).expect("a file");
        assert_eq!(&written(&read(bytes).expect("a file of MXNet")), bytes, "{name}");
    }
}

#[test]
fn an_array_without_axes_is_written_with_one_axis() {
    let scalar = to_array(&Value::new(Spec::new(&[], DType::F64), &[Number::Float(2.5)]));
    let list = read(&written(&ArrayList::unnamed([scalar]).expect("memory"))).expect("a file");
    assert_eq!(list.arrays()[0].shape().dims(), [1]);
    assert_eq!(list.arrays()[0].to_vec::<f64>().expect("numbers"), [2.5]);
}

#[test]
fn a_view_is_written_as_its_elements() {
    let numbers = [1, 2, 3, 4, 5, 6].map(Number::Int);
    let matrix = to_array(&Value::new(Spec::new(&[3, 2], DType::I32), &numbers));
    let rows = matrix.slice(1, 3).expect("rows");
    let copy = NDArray::deserialize(backends(), &rows.serialize().expect("bytes")).expect("a copy");
    assert_same_bits(&from_array(&rows), &from_array(&copy), &"rows");
}

/// In files of MXNet's NumPy mode, rank 0 is a number, and rank -1 means no array.
#[test]
fn the_numpy_format_has_other_ranks() {
    let record = |rank: i32, rest: &[i32]| {
        let words =
            [0xF993_FACA_u32.cast_signed(), 0, rank].into_iter().chain(rest.iter().copied());
        let bytes: Vec<u8> = words.flat_map(i32::to_le_bytes).collect();
        NDArray::deserialize(backends(), &bytes)
    };
    let number = record(0, &[1, 0, 4, 7]).expect("a device, int32, its value");
    assert_eq!((number.shape().rank(), number.to_vec::<i32>().expect("int32")), (0, vec![7]));
    let vector = record(1, &[2, 0, 1, 0, 4, 7, 8]).expect("a length before them");
    assert_eq!(vector.to_vec::<i32>().expect("int32"), [7, 8]);
    assert_eq!(record(-1, &[]).expect("nothing follows").shape().num_elements(), 0);
    assert_eq!(record(-2, &[]).expect_err("no such rank").code(), ErrorCode::Corrupt);
}

/// In old files, four zero bytes are an array without a shape. Alone they are ambiguous.
#[test]
fn trailing_bytes_and_zeros_are_rejected() {
    let spec = Spec::new(&[2], DType::F32);
    let array = to_array(&Value::new(spec, &[Number::Float(1.0), Number::Float(2.0)]));
    let bytes = array.serialize().expect("bytes");
    for more in [&[0][..], b"more", &bytes] {
        let error = NDArray::deserialize(backends(), &[&bytes[..], more].concat());
        let error = error.expect_err("trailing bytes");
        let text = format!(
            "a serialized array is damaged: {} bytes after the end of the array",
            more.len()
        );
        assert_eq!((error.code(), error.to_string()), (ErrorCode::Corrupt, text));
    }
    for len in 0..=40 {
        let error = NDArray::deserialize(backends(), &vec![0; len]).expect_err("zeros");
        assert_eq!(error.code(), ErrorCode::Corrupt, "{len} bytes: {error}");
    }
    let number = |count: u64| count.to_le_bytes();
    let file = [&number(0x112)[..], &number(0), &number(1), &[0; 4], &number(0)].concat();
    let list = read(&file).expect("an old file with an array that never got a shape");
    assert_eq!(list.arrays()[0].shape().dims(), [0]);
}

#[test]
fn the_last_of_several_arrays_with_one_name_is_found() {
    let array = |x: f64| to_array(&Value::new(Spec::new(&[1], DType::F32), &[Number::Float(x)]));
    let list = ArrayList::named([("w", array(1.0)), ("v", array(2.0)), ("w", array(3.0))])
        .expect("memory");
    let list = read(&written(&list)).expect("a file");
    assert_eq!(list.names(), ["w", "v", "w"]);
    assert_eq!(list.get("w").expect("a name").to_vec::<f32>().expect("numbers"), [3.0]);
}

/// A truncated file is damaged at every length. Bytes after the last part are ignored.
#[test]
fn a_file_that_ends_early_is_damaged() {
    for (name, bytes, _) in recorded_files() {
        for len in 0..bytes.len() {
            let error = read(&bytes[..len]).expect_err(&name);
            assert_eq!(error.code(), ErrorCode::Corrupt, "{name}, {len} bytes: {error}");
        }
        let longer = [&bytes[..], b"more"].concat();
        assert!(read(&longer).is_ok(), "{name}");
    }
}

/// Prints the case if it panics. Printing all cases would dominate the output of all tests.
struct PrintsOnPanic<F: Fn() -> String>(F);

impl<F: Fn() -> String> Drop for PrintsOnPanic<F> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("{}", self.0());
        }
    }
}

/// For every value of a byte, the file is read or rejected, and no array is larger than the file
/// permits.
#[test]
fn a_file_with_a_changed_byte_is_read_or_rejected() {
    for (name, bytes, _) in recorded_files() {
        for position in 0..bytes.len() {
            for byte in [0, 1, 2, 0x7f, 0x80, 0xff, bytes[position] ^ 1, bytes[position] ^ 0x40] {
                let _case = PrintsOnPanic(|| format!("{name}, byte {position} {byte:#x}"));
                let mut changed = bytes.clone();
                changed[position] = byte;
                fuzz::array_file(&changed);
            }
        }
    }
}

/// A short, deterministic version of `make fuzz`.
#[test]
fn files_with_many_changes_are_read_or_rejected() {
    let files: Vec<_> = recorded_files().into_iter().map(|(_, bytes, _)| bytes).collect();
    for seed in 0..100_000 {
        let _case = PrintsOnPanic(|| format!("seed {seed}"));
        let changed = fuzz::changed(&files, seed);
        fuzz::array_file(&changed);
        fuzz::record(&changed);
        fuzz::record(changed.get(fuzz::LIST_HEADER..).unwrap_or_default());
    }
}

/// Sizes without enough bytes in the file are rejected before any memory is allocated. These sizes
/// exceed the memory of the machine.
#[test]
fn sizes_beyond_the_file_are_rejected() {
    let record = |rank: i32, dims: &[i64]| {
        let mut bytes = 0xF993_FAC9u32.to_le_bytes().to_vec();
        for number in [0, rank] {
            bytes.extend(number.to_le_bytes());
        }
        bytes.extend(dims.iter().flat_map(|dim| dim.to_le_bytes()));
        for number in [1, 0, 0] {
            bytes.extend(i32::to_le_bytes(number));
        }
        // Elements, if the shape has any.
        bytes.extend(vec![0; if dims.contains(&0) { 0 } else { 16 }]);
        bytes
    };
    let largest = i64::MAX;
    for (rank, dims) in [
        (1, &[largest][..]),
        (1, &[1 << 40]),
        (2, &[largest, largest]),
        (2, &[largest, 4]),
        (1, &[-1]),
        (i32::MAX, &[1]),
        (-1, &[1]),
        (3, &[0, largest, largest]),
    ] {
        let error = NDArray::deserialize(backends(), &record(rank, dims));
        let is_empty = dims.contains(&0);
        assert_eq!(
            error.as_ref().map_err(Error::code).err(),
            (!is_empty).then_some(ErrorCode::Corrupt),
            "{rank} {dims:?}"
        );
    }
}

/// Many small records that request much memory are rejected like one that requests all of it. So
/// are many empty records.
#[test]
fn many_records_that_request_much_memory_are_rejected() {
    let sparse = {
        let mut bytes = 0xF993_FAC9u32.to_le_bytes().to_vec();
        // Row-sparse without stored rows, of 100 000 rows of one f32; no indices.
        for number in [1i32, 1] {
            bytes.extend(number.to_le_bytes());
        }
        bytes.extend(0i64.to_le_bytes());
        bytes.extend(1i32.to_le_bytes());
        bytes.extend(100_000i64.to_le_bytes());
        for number in [1i32, 0, 0, 6, 1] {
            bytes.extend(number.to_le_bytes());
        }
        bytes.extend(0i64.to_le_bytes());
        bytes
    };
    let list = |record: &[u8], count: u64| {
        let head = [0x112u64, 0, count].map(u64::to_le_bytes).concat();
        let records = record.repeat(usize::try_from(count).expect("a small number"));
        [head, records, 0u64.to_le_bytes().to_vec()].concat()
    };
    let error = |bytes: &[u8]| read(bytes).map(drop).map_err(|error| error.code());
    assert_eq!(error(&list(&[0; 4], 3)), Ok(()), "arrays that never got a shape");
    assert_eq!(error(&list(&[0; 4], 10_000)), Err(ErrorCode::Unsupported));
    assert_eq!(error(&list(&sparse, 10)), Err(ErrorCode::Unsupported));
}

#[test]
fn errors_name_the_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let missing = folder.path().join("missing");
    let error = ArrayList::read(backends(), &missing).expect_err("no file");
    assert_eq!(error.code(), ErrorCode::Io);
    assert!(error.to_string().contains("missing"), "{error}");

    let damaged = folder.path().join("damaged");
    fs::write(&damaged, [7; 40]).expect("a file");
    let error = ArrayList::read(backends(), &damaged).expect_err("damaged");
    assert_eq!(error.code(), ErrorCode::Corrupt);
    assert!(error.to_string().contains("damaged"), "{error}");

    let nowhere = folder.path().join("no folder").join("arrays");
    let error = ArrayList::default().write(&nowhere).expect_err("no folder");
    assert_eq!(error.code(), ErrorCode::Io);
    assert!(error.to_string().contains("no folder"), "{error}");
}

#[test]
fn a_file_is_replaced_and_nothing_is_left_beside_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("arrays");
    fs::write(&path, "old").expect("a file");
    ArrayList::default().write(&path).expect("a new one");
    assert_eq!(fs::read(&path).expect("it is there").len(), 32);
    assert_eq!(names_in(folder.path()), ["arrays"]);
}

#[cfg(unix)]
#[test]
fn writing_through_a_link_keeps_the_link() {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, link) = (folder.path().join("arrays"), folder.path().join("link"));
    fs::write(&path, "old").expect("a file");
    std::os::unix::fs::symlink(&path, &link).expect("a link");
    ArrayList::default().write(&link).expect("a new one");
    assert!(fs::symlink_metadata(&link).expect("it is there").is_symlink());
    assert_eq!(fs::read(&path).expect("it is there").len(), 32);

    let (later, link) = (folder.path().join("later"), folder.path().join("link to later"));
    std::os::unix::fs::symlink(&later, &link).expect("a link to nothing yet");
    ArrayList::default().write(&link).expect("a file");
    assert!(fs::symlink_metadata(&link).expect("it is there").is_symlink());
    assert_eq!(fs::read(&later).expect("it is there").len(), 32);
}

fn names_in(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("a folder");
    let name = |entry: std::io::Result<fs::DirEntry>| {
        entry.expect("an entry").file_name().to_string_lossy().into_owned()
    };
    entries.map(name).collect()
}

fn values() -> impl Strategy<Value = Value> {
    let shape = prop::collection::vec(0usize..4, 0..6);
    (shape, prop::sample::select(DType::ALL.to_vec()), any::<u64>()).prop_map(
        |(shape, dtype, seed)| {
            let spec = Spec::new(&shape, dtype);
            let bits = |n: u64| seed.wrapping_mul(2 * n + 1).wrapping_add(n << 32).cast_signed();
            let numbers =
                (0..spec.num_elements() as u64).map(|n| Number::from_bits(dtype, bits(n)));
            Value { numbers: numbers.collect(), spec }
        },
    )
}

proptest! {
    #[test]
    fn arrays_survive_a_round_trip(named in prop::collection::vec(("\\PC{0,5}", values()), 0..5)) {
        let arrays = named.iter().map(|(name, value)| (name.clone(), to_array(value)));
        let list = ArrayList::named(arrays).expect("memory");
        let list = read(&written(&list)).expect("a file of ours");
        prop_assert_eq!(list.arrays().len(), named.len());
        for ((name, value), (found_name, found)) in
            named.iter().zip(list.names().iter().zip(list.arrays()))
        {
            prop_assert_eq!(name, found_name);
            let mut expected = value.clone();
            if expected.spec.shape.is_empty() {
                expected.spec.shape.push(1);
            }
            assert_same_bits(&expected, &from_array(found), name);
        }
    }

    #[test]
    fn random_bytes_are_read_or_rejected(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        fuzz::array_file(&bytes);
        fuzz::record(&bytes);
        fuzz::array_file(&[&0x112u64.to_le_bytes()[..], &[0; 8], &bytes].concat());
        fuzz::record(&[&0xF993_FAC9u32.to_le_bytes()[..], &bytes].concat());
    }
}
