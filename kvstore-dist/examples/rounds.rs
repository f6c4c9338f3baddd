//! How long does a round take: push, SGD on the sum over all ranks, pull? `mpirun -n 2 target/release/examples/rounds`
//!
//! Medians on rank 0, in microseconds.

use std::sync::Arc;
use std::time::Instant;

use kvstore_core::{Backends, CpuBackend, Device, Key, KvStore, Optimizer, Result, Tensor};
use kvstore_dist::{DEFAULT_TIMEOUT, DistStore, Group, MpiCollective, MpiOptions, Wait};

fn main() -> Result<()> {
    let options =
        MpiOptions { libraries: std::env::args().skip(1).collect(), ..Default::default() };
    let member = MpiCollective::open(&options, &Wait::new(&"start", DEFAULT_TIMEOUT))?;
    let library = member.library().to_owned();
    let group = Group::new(Arc::new(member))?;
    let backends = Backends::new(vec![CpuBackend::with_threads(1)]);
    let Some(store) = DistStore::new("dist_sync", &backends, &group) else { return Ok(()) };
    store.set_optimizer(Optimizer::sgd())?;
    if store.rank() == 0 {
        println!("{} ranks, {library}", store.num_workers());
    }
    for (name, len, num_rounds) in
        [("4 KiB", 1 << 10, 5000), ("1 MiB", 1 << 18, 500), ("64 MiB", 1 << 24, 20)]
    {
        let key = [Key::new(name)?];
        let value =
            |number: f32| Tensor::from_slice(&backends, Device::cpu(0), [len], &vec![number; len]);
        store.init(&key, &[value(0.0)?.into()])?;
        let gradient = [value(1e-3)?.into()];
        let mut times = Vec::with_capacity(num_rounds);
        for _ in 0..num_rounds {
            let start = Instant::now();
            store.push(&key, &gradient, 0)?;
            store.pull(&key, 0)?;
            times.push(start.elapsed().as_secs_f64() * 1e6);
        }
        times.sort_by(f64::total_cmp);
        if store.rank() == 0 {
            println!("{name}: {:.1}", times[num_rounds / 2]);
        }
    }
    Ok(())
}
