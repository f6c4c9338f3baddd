//! Calls of one program in Rust, which `languages.py` compares with those of other languages.

use std::io::{BufRead, Write, stdin, stdout};
use std::time::Instant;

use kvstore::{DType, Device, OnExisting, Result, TraceContext, create_with, ones, zeros};

/// The elements of the value: 4 KiB.
const NUM_ELEMENTS: usize = 1 << 10;

/// A context with the flag `sampled`, the example of the standard.
const TRACE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

/// Reads numbers from standard input. For each, makes as many calls of push and of pull, and prints
/// how many seconds they took. One push and pull of `every` ones are in a trace.
pub(crate) fn answer(
    server: &str,
    every: u32,
) -> std::result::Result<(), Box<dyn std::error::Error>> {
    let trace: TraceContext = TRACE.parse()?;
    let store = create_with("dist_async", &[("servers", server)])?;
    let gradient = ones([NUM_ELEMENTS], DType::F32, Device::cpu(0))?;
    let pulled = zeros([NUM_ELEMENTS], DType::F32, Device::cpu(0))?;
    store.init_with("w", &gradient, OnExisting::Keep)?;
    for line in stdin().lock().lines() {
        let count: u32 = line?.trim().parse()?;
        let start = Instant::now();
        let both = || -> Result<()> {
            store.push("w", &gradient)?;
            store.pull("w", &pulled)
        };
        for number in 0..count {
            if every > 0 && number % every == 0 {
                trace.scope(both)?;
            } else {
                both()?;
            }
        }
        println!("{}", start.elapsed().as_secs_f64());
        stdout().flush()?;
    }
    Ok(())
}
