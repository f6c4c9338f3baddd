//! Writes the initial corpora of the fuzz targets `protocol` and `journal`:
//! `cargo run -p kvstore-net --features fuzzing --example protocol_corpus`.

use std::fs;
use std::path::Path;

fn main() -> std::io::Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let seeds = kvstore_net::fuzzing::seeds();
    for (target, seeds) in [("protocol", seeds), ("journal", kvstore_net::fuzzing::journals())] {
        let folder = root.join("fuzz/corpus").join(target);
        fs::create_dir_all(&folder)?;
        for (number, bytes) in seeds.into_iter().enumerate() {
            fs::write(folder.join(number.to_string()), bytes)?;
        }
    }
    Ok(())
}
