//! Measures the speed of loopback. Two threads send each other the bytes of two workers, without a
//! store.
//!
//! In a round, each thread sends half of the bytes of the value and receives the other half, first
//! for the sums, then for the weights. Each thread serves both directions in turn, as MPI does.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;

use kvstore::{Error, Result};

use super::{number, timed};

/// The two ends of a connection.
pub(crate) struct Wire {
    ends: [TcpStream; 2],
    workloads: Vec<(String, usize)>,
}

impl Wire {
    pub(crate) fn new() -> std::io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        let ends = [TcpStream::connect(listener.local_addr()?)?, listener.accept()?.0];
        for end in &ends {
            end.set_nodelay(true)?;
            end.set_nonblocking(true)?;
        }
        Ok(Self { ends, workloads: Vec::new() })
    }

    pub(crate) fn answer(&mut self, line: &str) -> Result<String> {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["init", name, ref shapes @ ..] => {
                let len = |shape: &&str| -> Result<usize> {
                    shape.split('x').map(number::<usize>).product()
                };
                let num_bytes = 4 * shapes.iter().map(len).sum::<Result<usize>>()?;
                self.workloads.push((name.to_owned(), num_bytes));
                Ok("[]".to_owned())
            }
            ["rounds", name, _, warm, count] => {
                let found = self.workloads.iter().find(|(known, _)| known == name);
                let num_bytes = found.map_or(0, |(_, num_bytes)| num_bytes / 2);
                let (warm, count) = (number(warm)?, number(count)?);
                let rounds = |mut end: &TcpStream| {
                    let (sent, mut received) = (vec![1; num_bytes], vec![0; num_bytes]);
                    timed(warm, count, || {
                        (0..2).try_for_each(|_| exchange(&mut end, &sent, &mut received))
                    })
                };
                let [first, second] = &self.ends;
                let seconds = thread::scope(|scope| {
                    let other = scope.spawn(|| rounds(second));
                    let seconds = rounds(first);
                    other.join().map_err(|_| Error::Internal("a panic".to_owned()))??;
                    seconds
                })?;
                Ok(format!("{seconds:?}"))
            }
            _ => Err(Error::InvalidArgument(format!("`{line}`"))),
        }
    }
}

fn exchange(end: &mut &TcpStream, mut sent: &[u8], received: &mut [u8]) -> Result<()> {
    let failed = |error: std::io::Error| Error::Internal(error.to_string());
    let mut room = received;
    while !(sent.is_empty() && room.is_empty()) {
        let mut is_idle = true;
        if !sent.is_empty() {
            match end.write(sent) {
                Ok(count) => (sent, is_idle) = (&sent[count..], false),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(failed(error)),
            }
        }
        if !room.is_empty() {
            match end.read(room) {
                Ok(0) => return Err(Error::Internal("the other end is closed".to_owned())),
                Ok(count) => (room, is_idle) = (&mut room[count..], false),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(failed(error)),
            }
        }
        // The other end may need this core.
        if is_idle {
            thread::yield_now();
        }
    }
    Ok(())
}
