//! Dense values: sums, optimizer steps, pulls.

use std::io;

use kvstore::{
    DType, Key, NDArray, OnExisting, Optimizer, Pairs, Result, Scalar, Store, create, full,
};

use crate::bench::Bench;
use crate::data::{CARD, Random, Sizes};
use crate::report::{Bar, Case};
use crate::timing::Call;

/// The number of outputs of a pull.
const NUM_OUTS: usize = 8;

/// Measures sums of 2 to 16 values.
pub(crate) fn sums(bench: &mut Bench) -> io::Result<()> {
    for dtype in [DType::F32, DType::F16, DType::Bf16] {
        for num_values in [2, 4, 8, 16] {
            let len = bench.sizes.len((num_values + 1) * dtype.size());
            let num_bytes = (num_values + 1) * dtype.size() * len;
            let name = format!("sum_{dtype}_{num_values}");
            let case = Case::new(name, num_bytes, Bar::Share(0.92)).of(len, num_values);
            bench.case(&case, |random, sizes| {
                Pushes { len, dtype, num_values, optimizer: None }.call(random, sizes)
            })?;
        }
    }
    Ok(())
}

/// Returns the optimizers with their numbers of state tensors.
fn optimizers() -> Result<Vec<(&'static str, Optimizer, usize)>> {
    let momentum = |name| Optimizer::new(name)?.with("momentum", 0.9);
    Ok(vec![
        ("sgd", Optimizer::sgd(), 0),
        ("momentum", momentum("sgd")?, 1),
        ("nag", momentum("nag")?, 1),
        ("adam", Optimizer::new("adam")?, 2),
        ("adamw", Optimizer::new("adamw")?, 2),
        ("adagrad", Optimizer::new("adagrad")?, 1),
        ("rmsprop", Optimizer::new("rmsprop")?, 1),
        ("adadelta", Optimizer::new("adadelta")?, 2),
        ("ftrl", Optimizer::new("ftrl")?, 2),
        ("adamax", Optimizer::new("adamax")?, 2),
        ("nadam", Optimizer::new("nadam")?, 2),
        ("ftml", Optimizer::new("ftml")?, 3),
    ])
}

/// Measures a step of each optimizer with one gradient in `f32`.
pub(crate) fn steps(bench: &mut Bench) -> io::Result<()> {
    for (name, optimizer, num_states) in optimizers().map_err(io::Error::other)? {
        let per_element = 4 * (1 + 2 + 2 * num_states);
        let len = bench.sizes.len(per_element);
        let case = Case::new(format!("{name}_f32"), per_element * len, Bar::Share(0.88)).of(len, 1);
        bench.case(&case, |random, sizes| {
            Pushes { len, dtype: DType::F32, num_values: 1, optimizer: Some(optimizer) }
                .call(random, sizes)
        })?;
    }
    Ok(())
}

/// Measures layer-wise steps. They read weight and gradient twice, because they need the norms
/// first. The host waits between the two passes.
pub(crate) fn layer_wise_steps(bench: &mut Bench) -> io::Result<()> {
    // The number of tensors that the first pass reads. The second pass is a step like any other.
    for (name, momentum, measured, num_states) in [("lars", 0.9, 2, 1), ("lamb", 0.0, 4, 2)] {
        let per_element = 4 * (measured + 1 + 2 + 2 * num_states);
        let len = bench.sizes.len(per_element);
        let case = Case::new(format!("{name}_f32"), per_element * len, Bar::Share(0.6)).of(len, 1);
        bench.case(&case.noted("two passes"), |random, sizes| {
            let optimizer = Optimizer::new(name)?;
            let optimizer =
                if momentum > 0.0 { optimizer.with("momentum", momentum)? } else { optimizer };
            let optimizer = Some(optimizer);
            Pushes { len, dtype: DType::F32, num_values: 1, optimizer }.call(random, sizes)
        })?;
    }
    Ok(())
}

/// Measures steps of half-precision weights, whose master copy and states are in `f32`.
pub(crate) fn mixed_steps(bench: &mut Bench) -> io::Result<()> {
    for (name, optimizer, num_states) in optimizers().map_err(io::Error::other)? {
        if !["sgd", "momentum", "adam", "adamw"].contains(&name) {
            continue;
        }
        for dtype in [DType::F16, DType::Bf16] {
            // Reads the gradient, writes the weight, reads and writes the master copy and the
            // states.
            let per_element = 2 + 2 + 8 + 8 * num_states;
            let len = bench.sizes.len(per_element);
            let case = Case::new(format!("{name}_{dtype}"), per_element * len, Bar::Share(0.85));
            bench.case(&case.of(len, 1), |random, sizes| {
                let optimizer = Some(optimizer.clone());
                Pushes { len, dtype, num_values: 1, optimizer }.call(random, sizes)
            })?;
        }
    }
    Ok(())
}

/// Measures the sum of eight gradients with a step of Adam, in one pass and as separate calls.
pub(crate) fn fused(bench: &mut Bench) -> io::Result<()> {
    let (num_values, dtype) = (8, DType::F32);
    let (fused, apart) = (4 * (8 + 6), 4 * (8 + 1 + 1 + 6));
    let len = bench.sizes.len(fused);
    let case = Case::new("adam_f32_8_values", fused * len, Bar::Share(0.88)).of(len, num_values);
    bench.case(&case, |random, sizes| {
        let optimizer = Some(Optimizer::new("adam")?);
        Pushes { len, dtype, num_values, optimizer }.call(random, sizes)
    })?;
    let case = Case::new("adam_f32_8_values_apart", apart * len, Bar::None).of(len, num_values);
    bench.case(&case.noted("a store sums, another one steps"), |random, sizes| {
        let sums = Pushes { len, dtype, num_values, optimizer: None }.sets(random, sizes)?;
        let optimizer = Some(Optimizer::new("adam")?);
        let steps = Pushes { len, dtype, num_values: 1, optimizer }.sets(random, sizes)?;
        Ok(Box::new(move |turn| {
            sums.push(turn)?;
            let key = &sums.keys[turn % sums.keys.len()];
            steps.store.push(key, &sums.store.pull_new(key)?)
        }))
    })
}

/// Measures a pull into many arrays, and beside it a copy and a fill.
pub(crate) fn pulls(bench: &mut Bench) -> io::Result<()> {
    let dtype = DType::F32;
    let len = bench.sizes.len(4 * (1 + NUM_OUTS));
    let case = Case::new("pull_into_8", 0, Bar::None).of(len, NUM_OUTS);
    bench.case(&case.noted("copies nothing: the arrays share the value"), |random, _| {
        let store = create("device")?;
        store.init("w", &random.array(len, dtype)?)?;
        let outs = (0..NUM_OUTS).map(|_| random.array(len, dtype)).collect::<Result<Vec<_>>>()?;
        let outs = Pairs::new("w", outs)?;
        Ok(Box::new(move |_| store.pull_pairs(&outs, 0)))
    })?;
    let num_bytes = 4 * len * (1 + NUM_OUTS);
    let case = Case::new("pull_into_8_parts", num_bytes, Bar::Share(0.85));
    let note = "into parts of one array: the value is read once";
    bench.case(&case.of(len, NUM_OUTS).noted(note), |random, sizes| {
        let store = create("device")?;
        let mut outs = Vec::new();
        for set in 0..sizes.sets {
            let key = format!("w{set}");
            store.init(&key, &random.array(len, dtype)?)?;
            let dense = random.array(NUM_OUTS * len, dtype)?;
            let part = |number: usize| dense.slice(number * len, (number + 1) * len);
            let parts = (0..NUM_OUTS).map(part).collect::<Result<Vec<_>>>()?;
            outs.push(Pairs::new(&key, parts)?);
        }
        Ok(Box::new(move |turn| store.pull_pairs(&outs[turn % outs.len()], 0)))
    })?;
    let len = bench.sizes.len(4);
    let case = Case::new("fill_f32", 4 * len, Bar::Share(0.85)).of(len, 1);
    bench.case(&case.noted("writes only"), |_, sizes| {
        let array = |_| full([len], 1.0, dtype, CARD);
        let arrays: Vec<NDArray> = (0..sizes.sets).map(array).collect::<Result<_>>()?;
        Ok(Box::new(move |turn| arrays[turn % arrays.len()].fill(Scalar::Float(0.5))))
    })
}

/// A push with some values. Each set has its own key.
#[derive(Debug)]
struct Pushes {
    len: usize,
    dtype: DType,
    num_values: usize,
    optimizer: Option<Optimizer>,
}

/// A push that is ready to run.
#[derive(Debug)]
struct Ready {
    store: Store,
    keys: Vec<Key>,
    pushed: Vec<Pairs>,
}

impl Pushes {
    fn sets(self, random: &Random, sizes: &Sizes) -> Result<Ready> {
        let store = create("device")?;
        if let Some(optimizer) = self.optimizer {
            store.set_optimizer(optimizer)?;
        }
        let (mut keys, mut pushed) = (Vec::new(), Vec::new());
        for set in 0..sizes.sets {
            let key = Key::new(&format!("w{set}"))?;
            let array = |_| random.array(self.len, self.dtype);
            store.init_pairs(&Pairs::new(&key, vec![array(0)?])?, OnExisting::Reject)?;
            let values = (0..self.num_values).map(array).collect::<Result<Vec<_>>>()?;
            pushed.push(Pairs::new(&key, values)?);
            keys.push(key);
        }
        Ok(Ready { store, keys, pushed })
    }

    fn call(self, random: &Random, sizes: &Sizes) -> Result<Call> {
        let ready = self.sets(random, sizes)?;
        Ok(Box::new(move |turn| ready.push(turn)))
    }
}

impl Ready {
    fn push(&self, turn: usize) -> Result<()> {
        self.store.push_pairs(&self.pushed[turn % self.pushed.len()], 0)
    }
}
