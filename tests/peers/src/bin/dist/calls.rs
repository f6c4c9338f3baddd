//! Calls of one program in Rust, which `languages.py` compares with those of other languages.

use std::io::{BufRead, Write, stdin, stdout};
use std::time::Instant;

use kvstore::{DType, Device, OnExisting, create_with, ones, zeros};

/// The elements of the value: 4 KiB.
const NUM_ELEMENTS: usize = 1 << 10;

/// Reads numbers from standard input. For each, makes as many calls of push and of pull, and prints
/// how many seconds they took.
pub(crate) fn answer(server: &str) -> Result<(), Box<dyn std::error::Error>> {
    let store = create_with("dist_async", &[("servers", server)])?;
    let gradient = ones([NUM_ELEMENTS], DType::F32, Device::cpu(0))?;
    let pulled = zeros([NUM_ELEMENTS], DType::F32, Device::cpu(0))?;
    store.init_with("w", &gradient, OnExisting::Keep)?;
    for line in stdin().lock().lines() {
        let count: u32 = line?.trim().parse()?;
        let start = Instant::now();
        for _ in 0..count {
            store.push("w", &gradient)?;
            store.pull("w", &pulled)?;
        }
        println!("{}", start.elapsed().as_secs_f64());
        stdout().flush()?;
    }
    Ok(())
}
