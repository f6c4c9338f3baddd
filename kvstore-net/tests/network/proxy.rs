//! A proxy that breaks connections.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// Forwards connections to a server, and closes them after a number of bytes.
pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    /// The server, or `None` to refuse connections.
    pub(crate) server: Arc<Mutex<Option<SocketAddr>>>,
    /// After how many bytes from the server the next connection is closed, or 0 for never.
    pub(crate) limit: Arc<AtomicUsize>,
    pub(crate) num_closed: Arc<AtomicUsize>,
    /// The number of bytes that clients have sent.
    pub(crate) num_sent: Arc<AtomicUsize>,
    /// The milliseconds that pass before data are forwarded, in each direction.
    pub(crate) delay: Arc<AtomicU64>,
    /// Whether data are lost. A connection that has lost data forwards none any more.
    pub(crate) loses: Arc<AtomicBool>,
    open: Arc<Mutex<Vec<TcpStream>>>,
}

impl Proxy {
    pub(crate) fn new(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let proxy = Self {
            address: listener.local_addr().unwrap(),
            server: Arc::new(Mutex::new(Some(server))),
            limit: Arc::default(),
            num_closed: Arc::default(),
            num_sent: Arc::default(),
            delay: Arc::default(),
            loses: Arc::default(),
            open: Arc::default(),
        };
        let (server, open) = (Arc::clone(&proxy.server), Arc::clone(&proxy.open));
        let closing = (Arc::clone(&proxy.limit), Arc::clone(&proxy.num_closed));
        let (delay, num_sent) = (Arc::clone(&proxy.delay), Arc::clone(&proxy.num_sent));
        let loses = Arc::clone(&proxy.loses);
        thread::spawn(move || {
            for client in listener.incoming() {
                let client = client.unwrap();
                let Some(server) = *server.lock().unwrap() else { continue };
                let Ok(server) = TcpStream::connect(server) else { continue };
                let both = [client.try_clone().unwrap(), server.try_clone().unwrap()];
                open.lock().unwrap().extend(both);
                let (up, down) = (client.try_clone().unwrap(), server.try_clone().unwrap());
                let (closing, delays) = (closing.clone(), [0; 2].map(|_| Arc::clone(&delay)));
                let [delay_up, delay_down] = delays;
                let [loses_up, loses_down] = [(); 2].map(|()| Arc::clone(&loses));
                let num_sent = Arc::clone(&num_sent);
                let (requests, replies) =
                    (Forwarded::Requests(num_sent), Forwarded::Replies(closing));
                thread::spawn(move || forward(up, down, (&delay_up, &loses_up), &requests));
                thread::spawn(move || {
                    forward(server, client, (&delay_down, &loses_down), &replies);
                });
            }
        });
        proxy
    }

    /// Returns the number of connections that have been accepted and not cut.
    pub(crate) fn num_open(&self) -> usize {
        self.open.lock().unwrap().len() / 2
    }

    /// Closes all connections.
    pub(crate) fn cut(&self) {
        for stream in self.open.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

type Closing = (Arc<AtomicUsize>, Arc<AtomicUsize>);

/// What a thread forwards: requests, whose bytes it counts, or replies.
enum Forwarded {
    Requests(Arc<AtomicUsize>),
    Replies(Closing),
}

fn forward(
    mut from: TcpStream,
    mut to: TcpStream,
    (delay, loses): (&AtomicU64, &AtomicBool),
    data: &Forwarded,
) {
    let mut buffer = [0; 4096];
    let (mut num_bytes, mut has_lost) = (0, false);
    while let Ok(len @ 1..) = from.read(&mut buffer) {
        has_lost |= loses.load(Ordering::SeqCst);
        if has_lost {
            continue;
        }
        num_bytes += len;
        match data {
            Forwarded::Requests(num_sent) => {
                num_sent.fetch_add(len, Ordering::SeqCst);
            }
            Forwarded::Replies((limit, num_closed)) => {
                let most = limit.load(Ordering::SeqCst);
                if most != 0 && num_bytes > most {
                    limit.store(0, Ordering::SeqCst);
                    num_closed.fetch_add(1, Ordering::SeqCst);
                    break;
                }
            }
        }
        thread::sleep(Duration::from_millis(delay.load(Ordering::SeqCst)));
        if to.write_all(&buffer[..len]).is_err() {
            break;
        }
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}
