//! How long do the verbs of an MPI job take? `mpirun -n 2 target/release/examples/latency`
//!
//! Each number is the median over rounds on rank 0, in microseconds. "exchange" is what a push with an optimizer and a
//! pull send: each rank sends every other one a slice, and gathers what became of them.

#![allow(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    reason = "a test may end without memory"
)]

use std::slice::from_mut;
use std::time::Instant;

use kvstore_core::Result;
use kvstore_dist::{
    Buffer, Collective, DEFAULT_TIMEOUT, MpiCollective, MpiOptions, SharedSlices, Slices, Wait,
};

/// What a round sends.
struct Round {
    member: MpiCollective,
    sent: [SharedSlices; 1],
    received: Slices,
    gathered: Slices,
    whole: Buffer,
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
        self.member.broadcast(0, &mut self.whole, &Wait::new(&"init", DEFAULT_TIMEOUT))
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
            whole: Buffer::zeroed(num_bytes),
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
    MpiCollective::finalize(&Wait::new(&"end", DEFAULT_TIMEOUT))
}
