//! Writes checkpoints until it is killed: `checkpoint_writer FILE`. In each checkpoint, all
//! elements of all keys have the next number. The program prints the number when the checkpoint is
//! complete.
//!
//! If `FILE` is a folder, each checkpoint is a file there, named after its number. Most of them are
//! deltas of the file before.

use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use kvstore::{
    Checkpoint, DType, Device, NDArray, Result, Snapshot, Store, backends, create, full,
};

/// The keys and their lengths. The large one is written in many pieces, the others in one.
const KEYS: [(&str, usize); 3] = [("large", 1 << 18), ("small", 1000), ("one", 1)];

/// The number of files from one complete checkpoint to the next.
const CHAIN: u32 = 7;

/// Returns the values of all keys.
fn values(number: f64) -> Result<Vec<NDArray>> {
    let value = |(_, len): (&str, usize)| full([len], number, DType::F32, Device::cpu(0));
    KEYS.into_iter().map(value).collect()
}

fn keys() -> [&'static str; KEYS.len()] {
    KEYS.map(|(key, _)| key)
}

fn write_forever(path: &str) -> Result<()> {
    let (store, keys) = (create("local")?, keys());
    if Path::new(path).is_dir() {
        return write_deltas(&store, Path::new(path));
    }
    if Path::new(path).exists() {
        store.restore(path)?;
    } else {
        store.init(keys, values(0.0)?)?;
    }
    let mut number = store.pull_new("one")?[0].to_scalar()?;
    loop {
        number += 1.0;
        store.push(keys, values(number)?)?;
        store.checkpoint(path)?.wait()?;
        println!("{number}");
        io::stdout().flush().expect("a reader of the output");
    }
}

fn write_deltas(store: &Store, folder: &Path) -> Result<()> {
    let numbers = std::fs::read_dir(folder)
        .expect("a folder")
        .filter_map(|entry| entry.expect("an entry").file_name().to_str()?.parse::<u32>().ok());
    let newest = numbers.max();
    let mut base = match newest {
        Some(newest) => Some(Snapshot::read(backends(), folder.join(newest.to_string()))?),
        None => None,
    };
    match &base {
        Some(base) => store.rollback(base)?,
        None => store.init(keys(), values(0.0)?)?,
    }
    for number in newest.unwrap_or_default() + 1.. {
        store.push(keys(), values(number.into())?)?;
        let (path, now) = (folder.join(number.to_string()), store.snapshot()?);
        let writing = match &base {
            Some(base) if !number.is_multiple_of(CHAIN) => {
                Checkpoint::begin_since(&now, path, base)
            }
            _ => Checkpoint::begin(&now, path),
        };
        writing?.wait()?;
        base = Some(now);
        println!("{number}");
        io::stdout().flush().expect("a reader of the output");
    }
    Ok(())
}

fn main() -> ExitCode {
    let path = std::env::args().nth(1).expect("the path of a file");
    let error = write_forever(&path).expect_err("it ends with an error only");
    println!("{}: {}", error.code(), error.chain());
    ExitCode::FAILURE
}
