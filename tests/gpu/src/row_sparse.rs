//! Row-sparse values: calls touch some rows of an embedding.

use std::io;

use kvstore::{DType, Optimizer, Pairs, Result, RowSparse, Store, create};

use crate::bench::Bench;
use crate::data::{Random, Sequence, Sizes};
use crate::report::{Bar, Case};

/// The number of floats in a row.
const WIDTH: usize = 128;
/// A value has one of this many rows.
const ONE_OF: usize = 8;
const NUM_VALUES: usize = 4;
const BAR: Bar = Bar::Share(0.75);

pub(crate) fn run(bench: &mut Bench) -> io::Result<()> {
    let sizes = bench.sizes;
    let row = 4 * WIDTH;
    let touched = sizes.rows / ONE_OF;
    let batches: Vec<Vec<i64>> = (0..NUM_VALUES).map(|seed| ids(&sizes, seed)).collect();
    let mut union: Vec<i64> = batches.concat();
    union.sort_unstable();
    union.dedup();
    let read = NUM_VALUES * touched;

    let case = Case::new("rows_sum_4", row * (read + union.len()), BAR).of(touched, NUM_VALUES);
    bench.case(&case.noted("push of rows"), |random, sizes| {
        let (store, pushed) = (store(random, sizes, None)?, pushed(random, sizes)?);
        Ok(Box::new(move |turn| store.push_pairs(&pushed[turn % pushed.len()], 0)))
    })?;
    let case = Case::new("rows_sgd_4", row * (read + 2 * union.len()), BAR).of(touched, NUM_VALUES);
    bench.case(&case.noted("the same, and a lazy step"), |random, sizes| {
        let store = store(random, sizes, Some(Optimizer::sgd()))?;
        let pushed = pushed(random, sizes)?;
        Ok(Box::new(move |turn| store.push_pairs(&pushed[turn % pushed.len()], 0)))
    })?;
    let case = Case::new("rows_gather", (2 * row + 8) * touched, BAR).of(touched, 1);
    bench.case(&case.noted("pull of rows"), |random, sizes| {
        let store = store(random, sizes, None)?;
        Ok(Box::new(move |turn| {
            store.pull_rows("w", &batches[turn % NUM_VALUES..=turn % NUM_VALUES]).map(|_| ())
        }))
    })?;
    let case = Case::new("rows_scatter", row * (touched + sizes.rows), BAR).of(touched, 1);
    bench.case(&case.noted("rows to a whole value, the others 0"), |random, sizes| {
        let values: Vec<RowSparse> =
            (0..NUM_VALUES).map(|n| value(random, sizes, n)).collect::<Result<_>>()?;
        Ok(Box::new(move |turn| values[turn % NUM_VALUES].to_dense().map(|_| ())))
    })
}

/// Returns pseudo-random ascending row indices, one of each `ONE_OF` rows.
fn ids(sizes: &Sizes, seed: usize) -> Vec<i64> {
    let mut sequence = Sequence::new(seed as u64);
    let first = (0..sizes.rows).step_by(ONE_OF);
    let id = |first: usize| i64::try_from(first + sequence.below(ONE_OF)).unwrap_or_default();
    first.map(id).collect()
}

fn value(random: &Random, sizes: &Sizes, seed: usize) -> Result<RowSparse> {
    let ids = ids(sizes, seed);
    let rows = random.shaped(&[ids.len(), WIDTH], DType::F32)?.tensor();
    RowSparse::new([sizes.rows, WIDTH], ids, rows)
}

/// Returns the values of a push for each set.
fn pushed(random: &Random, sizes: &Sizes) -> Result<Vec<Pairs<RowSparse>>> {
    let of_set = |set: usize| {
        let values = (0..NUM_VALUES).map(|n| value(random, sizes, n + 7 * set));
        Pairs::new("w", values.collect::<Result<Vec<_>>>()?)
    };
    (0..sizes.sets).map(of_set).collect()
}

fn store(random: &Random, sizes: &Sizes, optimizer: Option<Optimizer>) -> Result<Store> {
    let store = create("device")?;
    store.init("w", &random.shaped(&[sizes.rows, WIDTH], DType::F32)?)?;
    if let Some(optimizer) = optimizer {
        store.set_optimizer(optimizer)?;
    }
    Ok(store)
}
