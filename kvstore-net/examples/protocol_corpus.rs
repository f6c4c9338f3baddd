//! Writes the initial corpus of the fuzz target `protocol`:
//! `cargo run -p kvstore-net --features fuzzing --example protocol_corpus`.

use std::fs;
use std::path::Path;

fn main() -> std::io::Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let folder = root.join("fuzz/corpus/protocol");
    fs::create_dir_all(&folder)?;
    for (number, bytes) in kvstore_net::fuzzing::seeds().into_iter().enumerate() {
        fs::write(folder.join(number.to_string()), bytes)?;
    }
    Ok(())
}
