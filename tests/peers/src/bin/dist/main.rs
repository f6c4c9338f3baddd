//! A worker for `dist.py` and `net.py`. It connects to the driver (`KVSTORE_PEERS`, host and port),
//! sends its rank, and executes the driver's lines. Its answers are lines of JSON.
//!
//! - `init NAME SHAPE..`: initialises keys with these shapes, such as `64x3x7x7`
//! - `rounds NAME list|keys|pushpull WARM COUNT`: runs rounds of push, SGD and pull; answers the
//!   seconds of each round after the first WARM
//! - `overlap NAME wait|work SECONDS COUNT`: measures how much of a transfer overlaps with
//!   computation ([`overlap`])
//! - `save NAME PATH`: pulls once more and writes the floats
//! - `end`
//!
//! The arguments select the kind of process:
//!
//! - none: a worker of an MPI job
//! - `wire`: two threads that exchange the same bytes over loopback ([`wire`])
//! - `net-server ADDRESS`, `net-worker ADDRESS MOMENTUM`: a server of the network store, a worker;
//!   with certificates if `KVSTORE_CERTIFICATES` names some
//! - `net-calls ADDRESS EVERY`: the calls that `languages.py` compares ([`calls`]). Each call of
//!   EVERY ones is in a trace, or none if EVERY is 0
//! - `raw-server ADDRESS NUM_WORKERS`, `raw-worker ADDRESS`: the same over plain sockets ([`raw`])
#![allow(missing_docs, reason = "a program")]

mod calls;
mod overlap;
mod raw;
mod wire;

use std::env;
use std::fmt::Display;
use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use kvstore::{Device, Error, Key, NDArray, OnExisting, Optimizer, Pairs, Result, Store};

use overlap::Kind;
use wire::Wire;

/// A power of two. Values are multiples of 1 / 1024, so every sum and step is exact, in any order.
const LEARNING_RATE: f64 = 1.0 / 16.0;

/// What a server sends as its rank. It answers the driver's lines with nothing, and ends with it.
const SERVER: &str = "\"server\"";

/// The keys of the store, with the values that this rank pushes and the outputs of its pulls.
struct Workload {
    name: String,
    pushed: Pairs,
    pulled: Pairs,
    /// The same, one pair of lists for each key.
    each: Vec<(Pairs, Pairs)>,
}

impl Workload {
    /// Initialises the keys. The gradients are those of the worker with this rank.
    fn new(store: &Store, rank: usize, name: &str, shapes: &[Vec<usize>]) -> Result<Self> {
        let (mut keys, mut grads, mut outs) = (Vec::new(), Vec::new(), Vec::new());
        for (index, shape) in shapes.iter().enumerate() {
            let array = |seed| {
                let len = shape.iter().product();
                kvstore::array(&pattern(len, seed), shape.as_slice(), Device::cpu(0))
            };
            keys.push(Key::new(&format!("{name} {index}"))?);
            outs.push(array(index)?);
            grads.push(array(index + 7 * (1 + rank))?);
        }
        let pairs = |arrays: &[NDArray]| Pairs::new(keys.clone(), arrays.to_vec());
        let (pushed, pulled) = (pairs(&grads)?, pairs(&outs)?);
        store.init_pairs(&pulled, OnExisting::Keep)?;
        // On a server, no worker may push before all have initialised.
        store.barrier()?;
        let single_pairs = |((key, grad), out): ((&Key, &NDArray), &NDArray)| {
            Ok((Pairs::new(key, grad)?, Pairs::new(key, out)?))
        };
        let each =
            keys.iter().zip(&grads).zip(&outs).map(single_pairs).collect::<Result<Vec<_>>>()?;
        Ok(Self { name: name.to_owned(), pushed, pulled, each })
    }

    /// Pushes and pulls the lists, or key by key. The first keys have the highest priority.
    fn round(&self, store: &Store, mode: &str) -> Result<()> {
        match mode {
            "list" => {
                store.push_pairs(&self.pushed, 0)?;
                store.pull_pairs(&self.pulled, 0)
            }
            "pushpull" => store.pushpull_pairs(&self.pushed, &self.pulled, 0),
            "keys" => {
                let mut priorities = (0..).map(|index: i32| -index);
                for ((pushed, _), priority) in self.each.iter().zip(&mut priorities) {
                    store.push_pairs(pushed, priority)?;
                }
                self.each.iter().try_for_each(|(_, pulled)| store.pull_pairs(pulled, 0))
            }
            _ => Err(Error::InvalidArgument(format!("rounds of `{mode}`"))),
        }
    }

    fn save(&self, store: &Store, path: &str) -> Result<()> {
        // Another worker may have pushed after this one's last pull.
        store.pull_pairs(&self.pulled, 0)?;
        let arrays = self.pulled.arrays().iter().map(NDArray::to_vec::<f32>);
        save(path, &arrays.collect::<Result<Vec<_>>>()?.concat())
    }
}

fn save(path: &str, floats: &[f32]) -> Result<()> {
    let failed = |error| Error::InvalidArgument(format!("{path}: {error}"));
    let mut file = BufWriter::new(File::create(path).map_err(failed)?);
    for number in floats {
        file.write_all(&number.to_le_bytes()).map_err(failed)?;
    }
    file.flush().map_err(failed)
}

/// Returns floats that the driver can compute, too.
fn pattern(len: usize, seed: usize) -> Vec<f32> {
    #[allow(clippy::cast_precision_loss, reason = "below 31")]
    let number = |index: usize| ((7 * index + 13 * seed) % 31) as f32 - 15.0;
    (0..len).map(|index| number(index) / 1024.0).collect()
}

/// Returns the seconds of each round after the first `warm` ones.
fn timed(warm: usize, count: usize, mut round: impl FnMut() -> Result<()>) -> Result<Vec<f64>> {
    (0..warm).try_for_each(|_| round())?;
    let mut seconds = Vec::with_capacity(count);
    for _ in 0..count {
        let begun = Instant::now();
        round()?;
        seconds.push(begun.elapsed().as_secs_f64());
    }
    Ok(seconds)
}

struct Worker {
    store: Store,
    /// The rank whose gradients this worker pushes.
    pushes_as: usize,
    workloads: Vec<Workload>,
}

impl Worker {
    fn new(store: Store, momentum: f64) -> Result<Self> {
        let sgd = Optimizer::sgd().with("learning_rate", LEARNING_RATE)?;
        store.set_optimizer(sgd.with("momentum", momentum)?)?;
        // With momentum, weights depend on the order of pushes unless all gradients are equal.
        let pushes_as = if momentum == 0.0 { store.rank()? } else { 0 };
        Ok(Self { store, pushes_as, workloads: Vec::new() })
    }

    fn answer(&mut self, line: &str) -> Result<String> {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["init", name, ref shapes @ ..] => {
                let shapes = shapes.iter().map(|shape| shape.split('x').map(number).collect());
                let shapes = shapes.collect::<Result<Vec<Vec<usize>>>>()?;
                let workload = Workload::new(&self.store, self.pushes_as, name, &shapes)?;
                self.workloads.push(workload);
                Ok("[]".to_owned())
            }
            ["rounds", name, mode, warm, count] => {
                let workload = self.workload(name)?;
                let round = || workload.round(&self.store, mode);
                Ok(format!("{:?}", timed(number(warm)?, number(count)?, round)?))
            }
            ["overlap", name, kind, seconds, count] => {
                let step = Duration::try_from_secs_f64(number(seconds)?);
                let step = step.map_err(|error| Error::InvalidArgument(error.to_string()))?;
                let kind = Kind::of(kind, step)?;
                overlap::measured(&self.store, self.workload(name)?, kind, number(count)?)
            }
            ["save", name, path] => {
                self.workload(name)?.save(&self.store, path)?;
                Ok("[]".to_owned())
            }
            _ => Err(Error::InvalidArgument(format!("`{line}`"))),
        }
    }

    fn workload(&self, name: &str) -> Result<&Workload> {
        let found = self.workloads.iter().find(|workload| workload.name == name);
        found.ok_or_else(|| Error::InvalidArgument(format!("no workload `{name}`")))
    }
}

fn number<T: std::str::FromStr>(text: &str) -> Result<T> {
    text.parse().map_err(|_| Error::InvalidArgument(format!("`{text}` is no number")))
}

/// Answers the driver's lines until it sends `end` or closes the connection.
fn serve(
    driver: &TcpStream,
    rank: impl Display,
    mut answer: impl FnMut(&str) -> Result<String>,
) -> std::io::Result<()> {
    let mut to_driver = driver;
    writeln!(to_driver, "{{\"rank\": {rank}}}")?;
    for line in BufReader::new(driver).lines() {
        let line = line?;
        if line == "end" {
            break;
        }
        let answer = answer(&line).unwrap_or_else(|error| {
            let text = error.to_string().replace(['"', '\\'], "'");
            format!("{{\"error\": \"{text}\"}}")
        });
        writeln!(to_driver, "{answer}")?;
    }
    Ok(())
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    if let ["net-calls", server, every] = words[..] {
        return calls::answer(server, every.parse()?);
    }
    let address = env::var("KVSTORE_PEERS").map_err(|_| "`dist.py` starts this program")?;
    let connected = || -> std::io::Result<TcpStream> {
        let driver = TcpStream::connect(&address)?;
        driver.set_nodelay(true)?;
        Ok(driver)
    };
    let worker = |store: Store, momentum| -> std::result::Result<(), Box<dyn std::error::Error>> {
        let rank = store.rank()?;
        let mut worker = Worker::new(store, momentum)?;
        Ok(serve(&connected()?, rank, |line| worker.answer(line))?)
    };
    match words[..] {
        [] => worker(kvstore::create("dist_sync")?, 0.0)?,
        ["wire"] => {
            let mut wire = Wire::new()?;
            serve(&connected()?, 0, |line| wire.answer(line))?;
        }
        ["net-server", server] => {
            let _server = kvstore::serve(&[("address", server)])?;
            serve(&connected()?, SERVER, |_| Ok("[]".to_owned()))?;
        }
        ["net-worker", server, momentum] => {
            let store = kvstore::create_with("dist_async", &[("servers", server)])?;
            worker(store, number(momentum)?)?;
        }
        ["raw-server", server, num_workers] => {
            raw::start(server, number(num_workers)?)?;
            serve(&connected()?, SERVER, |_| Ok("[]".to_owned()))?;
        }
        ["raw-worker", server] => {
            let mut worker = raw::Worker::connect(server)?;
            serve(&connected()?, worker.rank, |line| worker.answer(line))?;
        }
        _ => Err(format!("unknown arguments: {}", words.join(" ")))?,
    }
    Ok(())
}
