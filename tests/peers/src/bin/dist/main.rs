//! A worker for `dist.py`. It connects to the driver (`KVSTORE_PEERS`, host and port), sends its
//! rank, and executes the driver's lines. Its answers are lines of JSON.
//!
//! - `init NAME SHAPE..`: initialises keys with these shapes, such as `64x3x7x7`
//! - `rounds NAME list|keys WARM COUNT`: runs rounds of push, SGD and pull; answers the seconds
//!   of each round after the first WARM
//! - `overlap NAME wait|work SECONDS COUNT`: measures how much of a transfer overlaps with
//!   computation ([`overlap`])
//! - `save NAME PATH`: writes the floats that were pulled last
//! - `end`
//!
//! With the argument `wire`, it is not a worker, but two threads that exchange the same bytes over
//! loopback ([`wire`]).
#![allow(missing_docs, reason = "a program")]

mod overlap;
mod wire;

use std::env;
use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use kvstore::{Device, Error, Key, NDArray, OnExisting, Optimizer, Pairs, Result, Store};

use overlap::Kind;
use wire::Wire;

/// A power of two. Values are multiples of 1 / 1024, so every sum and step is exact, in any order.
const LEARNING_RATE: f64 = 1.0 / 16.0;

/// The keys of the store, with the values that this rank pushes and the outputs of its pulls.
struct Workload {
    name: String,
    pushed: Pairs,
    pulled: Pairs,
    /// The same, one pair of lists for each key.
    each: Vec<(Pairs, Pairs)>,
}

impl Workload {
    fn new(store: &Store, name: &str, shapes: &[Vec<usize>]) -> Result<Self> {
        let (mut keys, mut grads, mut outs) = (Vec::new(), Vec::new(), Vec::new());
        for (index, shape) in shapes.iter().enumerate() {
            let array = |seed| {
                let len = shape.iter().product();
                kvstore::array(&pattern(len, seed), shape.as_slice(), Device::cpu(0))
            };
            keys.push(Key::new(&format!("{name} {index}"))?);
            outs.push(array(index)?);
            grads.push(array(index + 7 * (1 + store.rank()?))?);
        }
        let pairs = |arrays: &[NDArray]| Pairs::new(keys.clone(), arrays.to_vec());
        let (pushed, pulled) = (pairs(&grads)?, pairs(&outs)?);
        store.init_pairs(&pulled, OnExisting::Reject)?;
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

    fn save(&self, path: &str) -> Result<()> {
        let failed = |error| Error::InvalidArgument(format!("{path}: {error}"));
        let mut file = BufWriter::new(File::create(path).map_err(failed)?);
        for array in self.pulled.arrays() {
            for number in array.to_vec::<f32>()? {
                file.write_all(&number.to_le_bytes()).map_err(failed)?;
            }
        }
        file.flush().map_err(failed)
    }
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
    workloads: Vec<Workload>,
}

impl Worker {
    fn answer(&mut self, line: &str) -> Result<String> {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["init", name, ref shapes @ ..] => {
                let shapes = shapes.iter().map(|shape| shape.split('x').map(number).collect());
                let shapes = shapes.collect::<Result<Vec<Vec<usize>>>>()?;
                self.workloads.push(Workload::new(&self.store, name, &shapes)?);
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
            ["save", name, path] => self.workload(name)?.save(path).map(|()| "[]".to_owned()),
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
    rank: usize,
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
    let address = env::var("KVSTORE_PEERS").map_err(|_| "`dist.py` starts this program")?;
    let connected = || -> std::io::Result<TcpStream> {
        let driver = TcpStream::connect(&address)?;
        driver.set_nodelay(true)?;
        Ok(driver)
    };
    if env::args().nth(1).as_deref() == Some("wire") {
        let mut wire = Wire::new()?;
        serve(&connected()?, 0, |line| wire.answer(line))?;
        return Ok(());
    }
    let store = kvstore::create("dist_sync")?;
    store.set_optimizer(Optimizer::sgd().with("learning_rate", LEARNING_RATE)?)?;
    let rank = store.rank()?;
    let mut worker = Worker { store, workloads: Vec::new() };
    serve(&connected()?, rank, |line| worker.answer(line))?;
    Ok(())
}
