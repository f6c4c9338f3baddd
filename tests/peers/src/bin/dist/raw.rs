//! The lower bound for a store on a server: the same steps over blocking sockets, without keys,
//! types, members or repeated calls.
//!
//! A worker sends the length of its gradient in bytes and the gradient. The server receives it,
//! steps the weights of this length, which start as zeros, and sends them back.

use std::collections::HashMap;
use std::io::{Read, Result as IoResult, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::thread;
use std::time::{Duration, Instant};

use kvstore::{Error, Result};

use super::{LEARNING_RATE, number, pattern, save, timed};

/// How long a worker waits for the server.
const START: Duration = Duration::from_secs(30);

/// The weights, by their number.
type Weights = Mutex<HashMap<usize, Arc<RwLock<Vec<f32>>>>>;

/// Starts a thread for each worker. It runs until the worker closes its connection.
pub(crate) fn start(address: &str, num_workers: u64) -> IoResult<()> {
    let listener = TcpListener::bind(address)?;
    let weights = Arc::<Weights>::default();
    thread::spawn(move || -> IoResult<()> {
        for rank in 0..num_workers {
            let (mut worker, _) = listener.accept()?;
            worker.set_nodelay(true)?;
            worker.write_all(&rank.to_le_bytes())?;
            let weights = Arc::clone(&weights);
            thread::spawn(move || answer(&worker, &weights));
        }
        Ok(())
    });
    Ok(())
}

/// Steps and sends the weights for each gradient of a worker.
fn answer(mut worker: &TcpStream, weights: &Weights) -> IoResult<()> {
    #[allow(clippy::cast_possible_truncation, reason = "a power of two")]
    let rate = LEARNING_RATE as f32;
    let (mut header, mut grads) = ([0; 8], Vec::new());
    loop {
        worker.read_exact(&mut header)?;
        let num_bytes = usize::try_from(u64::from_le_bytes(header)).unwrap_or(usize::MAX);
        grads.resize(num_bytes / 4, 0.0);
        worker.read_exact(bytemuck::cast_slice_mut(&mut grads))?;
        let weights = {
            let mut known = weights.lock().unwrap_or_else(PoisonError::into_inner);
            let new = || Arc::new(RwLock::new(vec![0.0; grads.len()]));
            Arc::clone(known.entry(grads.len()).or_insert_with(new))
        };
        for (weight, grad) in
            weights.write().unwrap_or_else(PoisonError::into_inner).iter_mut().zip(&grads)
        {
            *weight -= rate * grad;
        }
        // Both workers may receive at the same time.
        let weights = weights.read().unwrap_or_else(PoisonError::into_inner);
        worker.write_all(bytemuck::cast_slice(&weights))?;
    }
}

/// A worker of this server.
pub(crate) struct Worker {
    pub(crate) rank: usize,
    server: TcpStream,
    workloads: HashMap<String, Workload>,
}

struct Workload {
    /// The values of the key before the first round.
    start: Vec<f32>,
    /// The length of the gradient, and the gradient.
    sent: Vec<u8>,
    received: Vec<f32>,
}

impl Workload {
    fn round(&mut self, mut server: &TcpStream) -> Result<()> {
        let exchange = server
            .write_all(&self.sent)
            .and_then(|()| server.read_exact(bytemuck::cast_slice_mut(&mut self.received)));
        exchange.map_err(|error| Error::Internal(error.to_string()))
    }
}

impl Worker {
    pub(crate) fn connect(address: &str) -> IoResult<Self> {
        let begun = Instant::now();
        let mut server = loop {
            match TcpStream::connect(address) {
                Ok(server) => break server,
                Err(error) if begun.elapsed() > START => return Err(error),
                Err(_) => thread::park_timeout(Duration::from_millis(10)),
            }
        };
        server.set_nodelay(true)?;
        let mut rank = [0; 8];
        server.read_exact(&mut rank)?;
        let rank = usize::try_from(u64::from_le_bytes(rank)).unwrap_or(usize::MAX);
        Ok(Self { rank, server, workloads: HashMap::new() })
    }

    pub(crate) fn answer(&mut self, line: &str) -> Result<String> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let unknown = || Error::InvalidArgument(format!("`{line}`"));
        if let ["init", name, shape] = words[..] {
            let len = shape.split('x').map(number::<usize>).product::<Result<usize>>()?;
            let grads = pattern(len, 7 * (1 + self.rank));
            let grads: &[u8] = bytemuck::cast_slice(&grads);
            let mut sent = (grads.len() as u64).to_le_bytes().to_vec();
            sent.extend(grads);
            let workload = Workload { start: pattern(len, 0), sent, received: vec![0.0; len] };
            self.workloads.insert(name.to_owned(), workload);
            return Ok("[]".to_owned());
        }
        let workload = words.get(1).and_then(|name| self.workloads.get_mut(*name));
        match (words.as_slice(), workload) {
            (["rounds", _, _, warm, count], Some(workload)) => {
                let round = || workload.round(&self.server);
                Ok(format!("{:?}", timed(number(warm)?, number(count)?, round)?))
            }
            (["save", _, path], Some(workload)) => {
                // A gradient of zeros only pulls.
                workload.sent[8..].fill(0);
                workload.round(&self.server)?;
                let sums = workload.start.iter().zip(&workload.received);
                save(path, &sums.map(|(start, change)| start + change).collect::<Vec<_>>())?;
                Ok("[]".to_owned())
            }
            _ => Err(unknown()),
        }
    }
}
