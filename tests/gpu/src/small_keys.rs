//! Calls with many small keys, and with one.

use std::io;

use kvstore::{DType, Key, OnExisting, Optimizer, Pairs, Result, create};

use crate::bench::Bench;
use crate::data::small_lengths;
use crate::report::{Bar, Case, bytes};
use crate::timing::Clock;

/// The seconds that a call may take in addition to the time for its bytes.
const LAUNCH: f64 = 10e-6;
/// The seconds that the host may take for a push of one key of 4 KiB.
const HOST: f64 = 12e-6;

pub(crate) fn run(bench: &mut Bench) -> io::Result<()> {
    let lengths = small_lengths(bench.sizes.keys);
    let num_elements: usize = lengths.iter().sum();
    for (name, optimizer, per_element) in
        [("small_keys_adamw", Some("adamw"), 28), ("small_keys_sum_2", None, 12)]
    {
        let num_bytes = per_element * num_elements;
        let floor = bench.report.copy_rate.map(|rate| bytes(num_bytes) / rate);
        let bar = floor.map_or(Bar::None, |floor| Bar::Seconds(1.25 * floor + LAUNCH));
        let num_values = if optimizer.is_some() { 1 } else { 2 };
        let case = Case::new(name, num_bytes, bar).of(num_elements, num_values);
        bench.case(&case, |random, _| {
            let store = create("device")?;
            if let Some(name) = optimizer {
                store.set_optimizer(Optimizer::new(name)?)?;
            }
            let numbers = 0..lengths.len();
            let key = |number| Key::new(&format!("w{number}"));
            let keys = numbers.map(key).collect::<Result<Vec<_>>>()?;
            let list = |len: usize| -> Result<Vec<_>> {
                (0..num_values).map(|_| random.array(len, DType::F32)).collect()
            };
            let lists = || lengths.iter().map(|len| list(*len)).collect::<Result<Vec<_>>>();
            let first = lists()?.into_iter().map(|list| list.into_iter().take(1).collect());
            store.init_pairs(
                &Pairs::new(keys.clone(), first.collect::<Vec<Vec<_>>>())?,
                OnExisting::Reject,
            )?;
            let pushed = Pairs::new(keys, lists()?)?;
            Ok(Box::new(move |_| store.push_pairs(&pushed, 0)))
        })?;
    }
    for (name, optimizer) in [("one_key_sum_2", None), ("one_key_sgd", Some("sgd"))] {
        let case = Case::new(name, 0, Bar::Seconds(HOST)).of(1024, 2);
        let note = "4 KiB; the host's time, before the work is done";
        bench.timed(&case.noted(note), Clock::Queued, |random, _| {
            let store = create("device")?;
            if let Some(name) = optimizer {
                store.set_optimizer(Optimizer::new(name)?)?;
            }
            let value = || random.array(1024, DType::F32);
            store.init("w", &value()?)?;
            let pushed = Pairs::new("w", vec![value()?, value()?])?;
            Ok(Box::new(move |_| store.push_pairs(&pushed, 0)))
        })?;
    }
    Ok(())
}
