//! Writes the initial corpus of `cargo fuzz`, files of arrays and checkpoints:
//! `cargo run --example fuzz_corpus`.

use std::fs;

use kvstore_tests::fuzz::{LIST_HEADER, checkpoints, deltas, recorded_files};
use kvstore_tests::sources::root;

fn main() -> std::io::Result<()> {
    let corpus = root().join("fuzz/corpus");
    let (files, records) = (corpus.join("load"), corpus.join("deserialize"));
    fs::create_dir_all(&files)?;
    fs::create_dir_all(&records)?;
    for (name, bytes, _) in recorded_files() {
        fs::write(files.join(&name), &bytes)?;
        // The first array, followed by the others.
        fs::write(records.join(&name), &bytes[LIST_HEADER..])?;
    }
    let folder = corpus.join("checkpoint");
    fs::create_dir_all(&folder)?;
    for (number, bytes) in checkpoints().into_iter().chain(deltas()).enumerate() {
        fs::write(folder.join(number.to_string()), bytes)?;
    }
    Ok(())
}
