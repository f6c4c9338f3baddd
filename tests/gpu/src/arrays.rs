//! Operations on arrays that give a new array: reductions, `argmax`, transposes, random numbers.
//! They have no goals yet, because no card has measured them.

use std::io;

use kvstore::{DType, NDArray, Reduction, Result, random};

use crate::bench::Bench;
use crate::data::{CARD, Random, Sizes};
use crate::report::{Bar, Case};
use crate::timing::Call;

/// An operation that gives a new array.
type Operation = fn(&NDArray) -> Result<NDArray>;
/// Returns this number of random numbers.
type Generate = fn(usize) -> Result<NDArray>;

/// The number of columns of a matrix.
const WIDTH: usize = 1024;

/// Measures operations on matrices and the random numbers.
pub(crate) fn run(bench: &mut Bench) -> io::Result<()> {
    let dtype = DType::F32;
    let len = bench.sizes.len(4);
    let reductions: [(&str, Operation); 3] = [
        ("array_sum_f32", |array| array.reduce(Reduction::Sum)),
        ("array_max_f32", |array| array.reduce(Reduction::Max)),
        ("array_argmax_f32", NDArray::argmax_channel),
    ];
    for (name, operation) in reductions {
        let case = Case::new(name, 4 * len, Bar::None).of(len, 1).noted("reads only");
        bench.case(&case, |random, sizes| of_matrices(random, sizes, (len, dtype), operation))?;
    }
    let short = 1 << 12;
    let case = Case::new("array_sum_f32_short", 4 * short, Bar::None).of(short, 1);
    bench.case(&case.noted("one block: as long as its additions"), |random, _| {
        let array = random.array(short, dtype)?;
        Ok(Box::new(move |_| array.reduce(Reduction::Sum).map(drop)))
    })?;
    for (name, dtype) in [("array_transpose_f32", DType::F32), ("array_transpose_f16", DType::F16)]
    {
        let len = bench.sizes.len(2 * dtype.size());
        let case = Case::new(name, 2 * dtype.size() * len, Bar::None).of(len, 1);
        bench.case(&case, |random, sizes| {
            of_matrices(random, sizes, (len, dtype), NDArray::transpose)
        })?;
    }
    let numbers: [(&str, Generate); 2] = [
        ("array_uniform_f32", |len| random::uniform(0.0, 1.0, [len], DType::F32, CARD)),
        ("array_normal_f32", |len| random::normal(0.0, 1.0, [len], DType::F32, CARD)),
    ];
    for (name, make) in numbers {
        let case = Case::new(name, 4 * len, Bar::None).of(len, 1).noted("writes only");
        bench.case(&case, |_, _| Ok(Box::new(move |_| make(len).map(drop))))?;
    }
    Ok(())
}

/// Returns a call that applies an operation to one matrix of each set in turn.
fn of_matrices(
    random: &Random,
    sizes: &Sizes,
    (len, dtype): (usize, DType),
    operation: Operation,
) -> Result<Call> {
    let matrix = |_| random.shaped(&[len / WIDTH, WIDTH], dtype);
    let matrices: Vec<NDArray> = (0..sizes.sets).map(matrix).collect::<Result<_>>()?;
    Ok(Box::new(move |turn| operation(&matrices[turn % matrices.len()]).map(drop)))
}
