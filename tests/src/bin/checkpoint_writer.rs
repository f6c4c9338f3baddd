//! Writes checkpoints until it is killed: `checkpoint_writer FILE`. In each checkpoint, all
//! elements of all keys have the next number. The program prints the number when the checkpoint is
//! complete.

use std::io::{self, Write};
use std::process::ExitCode;

use kvstore::{DType, Device, Result, create, full};

/// The keys and their lengths. The large one is written in many pieces, the others in one.
const KEYS: [(&str, usize); 3] = [("large", 1 << 18), ("small", 1000), ("one", 1)];

fn write_forever(path: &str) -> Result<()> {
    let store = create("local")?;
    let values = |number: f64| {
        let value = |(_, len): (&str, usize)| full([len], number, DType::F32, Device::cpu(0));
        KEYS.into_iter().map(value).collect::<Result<Vec<_>>>()
    };
    let keys = KEYS.map(|(key, _)| key);
    if std::path::Path::new(path).exists() {
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

fn main() -> ExitCode {
    let path = std::env::args().nth(1).expect("the path of a file");
    let error = write_forever(&path).expect_err("it ends with an error only");
    println!("{}: {}", error.code(), error.chain());
    ExitCode::FAILURE
}
