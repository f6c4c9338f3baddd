//! A warm step makes no large allocation, and no more allocations for many keys than for one.
//!
//! This file has one test, because it counts the allocations of the process.

#![allow(clippy::unwrap_used, reason = "a check fails by panicking")]

use kvstore::{DType, Device, Key, NDArray, Optimizer, Pairs, Result, Store, create, ones};
use kvstore_allocators::{CountingAllocator, counts};

#[global_allocator]
static COUNTER: CountingAllocator = CountingAllocator;

/// Returns how many blocks a call may allocate, whatever the number of its keys: a small one for
/// each helping thread, and a few of the thread pool.
fn most_blocks() -> u64 {
    3 + std::thread::available_parallelism().map_or(1, usize::from) as u64
}

struct Setting {
    name: &'static str,
    optimizer: Option<Optimizer>,
    dtype: DType,
    num_keys: usize,
    num_values: usize,
    length: usize,
}

impl Setting {
    fn describe(&self) -> String {
        let Self { name, dtype, num_keys, num_values, length, .. } = self;
        format!("{name}, {num_keys} keys of {length} {dtype}, {num_values} values each")
    }

    fn run(&self) -> Result<()> {
        let device = Device::cpu(0);
        let keys: Vec<Key> =
            (0..self.num_keys).map(|n| Key::new(&format!("k{n}"))).collect::<Result<_>>()?;
        let arrays = |count: usize| -> Result<Vec<NDArray>> {
            (0..count).map(|_| ones([self.length], self.dtype, device)).collect()
        };
        let store = create("local")?;
        store.init(keys.clone(), arrays(self.num_keys)?)?;
        if let Some(optimizer) = &self.optimizer {
            store.set_optimizer(optimizer.clone())?;
        }
        let values = (0..self.num_keys).map(|_| arrays(self.num_values));
        let values: Vec<Vec<NDArray>> = values.collect::<Result<_>>()?;
        let values = Pairs::new(keys.clone(), values)?;
        let outs = Pairs::new(keys, arrays(self.num_keys)?)?;
        let step = |store: &Store| -> Result<()> {
            store.push_pairs(&values, 0)?;
            store.pull_pairs(&outs, 0)
        };
        for _ in 0..3 {
            step(&store)?;
        }
        let allocations = |_| {
            let before = counts();
            step(&store)?;
            let after = counts();
            Ok((after.bytes - before.bytes, after.blocks - before.blocks))
        };
        let mut steps = (0..5).map(allocations).collect::<Result<Vec<(u64, u64)>>>()?;
        // What a step allocates, most steps allocate. The thread pool sometimes allocates, too: for
        // its queue, and when one of its threads looks for work for the first time.
        steps.sort_unstable();
        let (bytes, blocks) = steps[2];
        // On most machines, all of them together are smaller than one large allocation.
        let most_bytes = 4096.max(most_blocks() * 64);
        assert!(bytes < most_bytes, "{}: bytes and blocks: {steps:?}", self.describe());
        assert!(blocks <= most_blocks(), "{}: bytes and blocks: {steps:?}", self.describe());
        Ok(())
    }
}

#[test]
fn a_warm_step_allocates_next_to_nothing() {
    let momentum = Optimizer::sgd().with("momentum", 0.9).expect("a hyper-parameter of SGD");
    let optimizers = [
        ("no optimizer", None),
        ("SGD with momentum", Some(momentum)),
        ("Adam", Some(Optimizer::new("adam").expect("a known optimizer"))),
    ];
    let mut count = 0;
    for (name, optimizer) in optimizers {
        for dtype in [DType::F32, DType::F16] {
            for (num_keys, length) in [(1, 1), (1, 300_000), (7, 5000), (1000, 64)] {
                for num_values in [1, 4, 11] {
                    let optimizer = optimizer.clone();
                    Setting { name, optimizer, dtype, num_keys, num_values, length }
                        .run()
                        .expect("a step that is allowed");
                    count += 1;
                }
            }
        }
    }
    println!("{count} settings");
}
