//! How long do the verbs of an MPI job take? `mpirun -n 2 target/release/examples/latency`
//!
//! Each number is the median over rounds on rank 0, in microseconds. "exchange" is what a push with
//! an optimizer and a pull send: each rank sends every other one a slice, and gathers what became
//! of them. "init" and "push" measure one key of a store: an init, and a push until a pull returns
//! the value.

#![allow(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    reason = "a test may abort without memory"
)]

use std::slice::from_mut;
use std::sync::Arc;
use std::time::Instant;

use kvstore_core::{
    Backends, CpuBackend, Device, Error, Key, KvStore, Result, Tensor, Value, WorkerGroup,
};
use kvstore_dist::{
    Buffer, Collective, DEFAULT_TIMEOUT, DistStore, Group, MpiCollective, MpiOptions, SharedSlices,
    Slices, Wait,
};

/// What a round sends.
struct Round {
    member: MpiCollective,
    sent: [SharedSlices; 1],
    received: Slices,
    gathered: Slices,
    buffer: Buffer,
}

type Verb = fn(&mut Round) -> Result<()>;

impl Round {
    fn all_to_all(&mut self) -> Result<()> {
        let Self { member, sent, received, .. } = self;
        member.all_to_all(sent, from_mut(received), &Wait::new(&"slices", DEFAULT_TIMEOUT))
    }

    fn all_gather(&mut self) -> Result<()> {
        self.member
            .all_gather(from_mut(&mut self.gathered), &Wait::new(&"weights", DEFAULT_TIMEOUT))
    }

    fn broadcast(&mut self) -> Result<()> {
        self.member.broadcast(0, &mut self.buffer, &Wait::new(&"init", DEFAULT_TIMEOUT))
    }

    fn barrier(&mut self) -> Result<()> {
        self.member.barrier(&Wait::new(&"barrier", DEFAULT_TIMEOUT))
    }

    fn exchange(&mut self) -> Result<()> {
        self.all_to_all()?;
        self.all_gather()
    }
}

fn main() -> Result<()> {
    let options =
        MpiOptions { libraries: std::env::args().skip(1).collect(), ..Default::default() };
    let member = MpiCollective::open(&options, &Wait::new(&"start", DEFAULT_TIMEOUT))?;
    let (rank, size) = (member.rank(), member.size());
    if rank == 0 {
        println!("{size} ranks, {}", member.library());
    }
    for (name, num_bytes, num_rounds) in
        [("4 KiB", 4 << 10, 20_000), ("1 MiB", 1 << 20, 1000), ("64 MiB", 64 << 20, 20)]
    {
        let counts = vec![num_bytes / size; size];
        // What a rank keeps for itself does not travel.
        let mut others = counts.clone();
        others[rank] = 0;
        let mut round = Round {
            member: member.clone(),
            sent: [Slices::zeroed(&others).into()],
            received: Slices::zeroed(&others),
            gathered: Slices::zeroed(&counts),
            buffer: Buffer::zeroed(num_bytes),
        };
        let verbs: [(&str, Verb); 5] = [
            ("barrier", Round::barrier),
            ("broadcast", Round::broadcast),
            ("all_to_all", Round::all_to_all),
            ("all_gather", Round::all_gather),
            ("exchange", Round::exchange),
        ];
        for (verb, act) in verbs {
            let mut times = Vec::with_capacity(num_rounds);
            for _ in 0..num_rounds {
                let begun = Instant::now();
                act(&mut round)?;
                times.push(begun.elapsed());
            }
            times.sort_unstable();
            if rank == 0 {
                let median = times[times.len() / 2].as_secs_f64() * 1e6;
                println!("{name:>7} {verb:<10} {median:>10.1} us");
            }
        }
    }
    stores(member)?;
    MpiCollective::finalize(&Wait::new(&"end", DEFAULT_TIMEOUT))
}

/// Measures a store on the collective.
fn stores(member: MpiCollective) -> Result<()> {
    let rank = member.rank();
    let group = Group::new(Arc::new(member))?;
    let backends = Backends::new(vec![CpuBackend::new()]);
    let store = DistStore::new("dist_sync", &backends, &group)
        .ok_or_else(|| Error::invalid("`dist_sync` is not a store name"))?;
    for (name, num_bytes, num_rounds) in
        [("1 MiB", 1 << 20, 200), ("64 MiB", 64 << 20, 9), ("256 MiB", 256 << 20, 5)]
    {
        let elements = vec![1f32; num_bytes / 4];
        let value = Tensor::from_slice(&backends, Device::cpu(0), [elements.len()], &elements)?;
        let value = Value::from(value);
        let (mut inits, mut pushes) = (Vec::new(), Vec::new());
        for round in 0..num_rounds {
            let keys = [Key::new(&format!("{name} {round}"))?];
            let values = std::slice::from_ref(&value);
            store.barrier()?;
            let begun = Instant::now();
            store.init(&keys, values)?;
            inits.push(begun.elapsed());
            // The first push allocates, as init does. The second reuses the memory.
            for _ in 0..2 {
                store.barrier()?;
                let begun = Instant::now();
                store.push(&keys, values, 0)?;
                store.pull(&keys, 0)?;
                pushes.push(begun.elapsed());
            }
            store.remove(&keys)?;
        }
        for (verb, mut times) in [("init", inits), ("push", pushes)] {
            times.sort_unstable();
            if rank == 0 {
                let median = times[times.len() / 2].as_secs_f64() * 1e6;
                println!("{name:>7} {verb:<10} {median:>10.1} us");
            }
        }
    }
    Ok(())
}
