//! A failed allocation in a call, in the worker or in a server, returns an error, and later calls
//! succeed.
//!
//! The file has one test, because the allocator is global.

#![allow(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    reason = "a test may abort without memory"
)]
#![allow(clippy::unwrap_used, reason = "a check fails by panicking")]

use std::slice;

use kvstore_allocators::{Case, FailingAllocator, case, fail_from, run_cases, without_failures};
use kvstore_core::{
    Backends, Compression, CpuBackend, DType, Device, Error, ErrorCode, Key, KvStore, OnExisting,
    Optimizer, Result, RowSparse, Tensor, TensorSpec, Value,
};
use kvstore_net::{NetStore, NetStoreOptions, Server, ServerOptions};

#[global_allocator]
static ALLOCATOR: FailingAllocator = FailingAllocator;

/// The size in bytes from which an allocation fails: more than the largest frame of HTTP/2, which
/// the libraries of the network read into buffers of their own.
const LONG: usize = 640 << 10;

/// A row has 8 bytes, so a value has 4 MiB.
const NUM_ROWS: usize = 1 << 19;

/// A store on servers, with the key `w`, whose elements are ones.
struct Connected {
    store: NetStore,
    backends: Backends,
    servers: Vec<Server>,
}

fn key(name: &str) -> [Key; 1] {
    [Key::new(name).unwrap()]
}

impl Connected {
    fn new(num_servers: usize) -> Self {
        let backends = Backends::new(vec![CpuBackend::with_threads(1)]);
        let start = |_| Server::start(&backends, &ServerOptions::new("127.0.0.1:0")).unwrap();
        let servers: Vec<Server> = (0..num_servers).map(start).collect();
        let addresses: Vec<String> =
            servers.iter().map(|server| server.address().to_string()).collect();
        let options = NetStoreOptions::of_servers(addresses).divide_above(1 << 18);
        let store = NetStore::connect(&backends, &options).unwrap();
        let connected = Self { store, backends, servers };
        connected.store.init(&key("w"), &[connected.value(1.0)]).unwrap();
        connected
    }

    fn tensor(&self, number: f64) -> Tensor {
        let spec = TensorSpec::new([NUM_ROWS, 2], DType::F32);
        Tensor::full(&self.backends, Device::cpu(0), spec, number.into()).unwrap()
    }

    fn value(&self, number: f64) -> Value {
        self.tensor(number).into()
    }

    fn rows(&self) -> Value {
        RowSparse::new([NUM_ROWS, 2], ids(), self.tensor(1.0)).unwrap().into()
    }

    fn push(&self, value: &Value) -> Result<()> {
        self.store.push(&key("w"), slice::from_ref(value), 0)
    }

    /// Checks that the next call succeeds, and that each server has its part of the old value or
    /// that of the new one.
    fn check(&self) {
        let value = &self.store.pull(&key("w"), 0).unwrap()[0];
        let numbers = value.as_slice::<f32>().unwrap();
        for part in numbers.chunks(numbers.len() / self.servers.len()) {
            assert!(part.iter().all(|number| *number == part[0]), "a part of a push was made");
        }
    }
}

fn ids() -> Vec<i64> {
    (0..).take(NUM_ROWS).collect()
}

/// Returns cases with one server and with two.
fn on_servers<T: Send + 'static>(
    names: [&'static str; 2],
    prepare: fn(&Connected) -> T,
    call: fn(&Connected, &T) -> Result<()>,
) -> [Case<Error>; 2] {
    [1, 2].map(|num_servers| {
        let prepare = move || {
            let connected = Connected::new(num_servers);
            let given = prepare(&connected);
            (connected, given)
        };
        case(names[num_servers - 1], prepare, move |(connected, given)| {
            let result = call(&connected, &given);
            without_failures(|| connected.check());
            result
        })
    })
}

#[test]
fn a_failed_allocation_is_an_error() {
    fail_from(LONG);
    let cases = [
        on_servers(["push", "push, 2"], |it| it.value(2.0), Connected::push),
        on_servers(["push of rows", "push of rows, 2"], Connected::rows, Connected::push),
        on_servers(
            ["push with an optimizer", "push with an optimizer, 2"],
            |it| {
                it.store.set_optimizer(Optimizer::new("adam").unwrap()).unwrap();
                it.value(2.0)
            },
            Connected::push,
        ),
        on_servers(
            ["compressed push", "compressed push, 2"],
            |it| {
                let compression = Compression::new("2bit", 0.5).unwrap();
                it.store.set_compression(Some(compression)).unwrap();
                it.value(2.0)
            },
            Connected::push,
        ),
        on_servers(["pull", "pull, 2"], |_| (), |it, ()| it.store.pull(&key("w"), 0).map(drop)),
        on_servers(
            ["pull of rows", "pull of rows, 2"],
            |_| ids(),
            |it, ids| it.store.pull_rows(&key("w"), &[&ids[..]], 0).map(drop),
        ),
        on_servers(
            ["init", "init, 2"],
            |it| it.value(2.0),
            |it, value| it.store.init(&key("v"), slice::from_ref(value)),
        ),
        on_servers(
            ["init with replacement", "init with replacement, 2"],
            |it| it.value(2.0),
            |it, value| it.store.init_with(&key("w"), slice::from_ref(value), OnExisting::Replace),
        ),
        on_servers(
            ["snapshot", "snapshot, 2"],
            |_| (),
            |it, ()| it.store.snapshot()?.to_bytes().map(drop),
        ),
        on_servers(
            ["rollback", "rollback, 2"],
            |it| it.store.snapshot().unwrap(),
            |it, snapshot| it.store.rollback(snapshot),
        ),
    ];
    let cases = cases.into_iter().flatten().collect();
    let is_out_of_memory = |error: &Error| {
        error.code() == ErrorCode::OutOfMemory || error.chain().contains("out of memory")
    };
    run_cases("a_failed_allocation_is_an_error", cases, is_out_of_memory);
}
