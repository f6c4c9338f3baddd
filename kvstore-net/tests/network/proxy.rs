//! A proxy that breaks connections.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
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
    /// The number of bytes that the server has sent.
    pub(crate) num_received: Arc<AtomicUsize>,
    /// The milliseconds that pass before data are forwarded, in each direction.
    pub(crate) delay: Arc<AtomicU64>,
    /// After how many bytes from clients the next data are lost, or 0 for never. A connection that
    /// has lost a request loses all later ones.
    pub(crate) lose_above: Arc<AtomicUsize>,
    pub(crate) num_lost: Arc<AtomicUsize>,
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
            num_received: Arc::default(),
            delay: Arc::default(),
            lose_above: Arc::default(),
            num_lost: Arc::default(),
            open: Arc::default(),
        };
        let (server, open) = (Arc::clone(&proxy.server), Arc::clone(&proxy.open));
        let closing = (Arc::clone(&proxy.limit), Arc::clone(&proxy.num_closed));
        let (delay, num_sent) = (Arc::clone(&proxy.delay), Arc::clone(&proxy.num_sent));
        let num_received = Arc::clone(&proxy.num_received);
        let losing = (Arc::clone(&proxy.lose_above), Arc::clone(&proxy.num_lost));
        thread::spawn(move || {
            for client in listener.incoming() {
                let client = client.unwrap();
                let Some(server) = *server.lock().unwrap() else { continue };
                let Ok(server) = TcpStream::connect(server) else { continue };
                for stream in [&client, &server] {
                    // Otherwise, some messages wait 40 ms.
                    stream.set_nodelay(true).unwrap();
                }
                let both = [client.try_clone().unwrap(), server.try_clone().unwrap()];
                open.lock().unwrap().extend(both);
                let (up, down) = (client.try_clone().unwrap(), server.try_clone().unwrap());
                let (closing, delays) = (closing.clone(), [0; 2].map(|_| Arc::clone(&delay)));
                let [delay_up, delay_down] = delays;
                let requests = Forwarded::Requests(Arc::clone(&num_sent), losing.clone());
                let replies = Forwarded::Replies(Arc::clone(&num_received), closing);
                thread::spawn(move || forward(up, down, &delay_up, &requests));
                thread::spawn(move || forward(server, client, &delay_down, &replies));
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

/// A number of bytes after which something happens once, and how often it has happened.
type Limit = (Arc<AtomicUsize>, Arc<AtomicUsize>);

/// What a thread forwards, and the number of its bytes.
enum Forwarded {
    Requests(Arc<AtomicUsize>, Limit),
    Replies(Arc<AtomicUsize>, Limit),
}

fn forward(mut from: TcpStream, mut to: TcpStream, delay: &AtomicU64, data: &Forwarded) {
    let mut buffer = [0; 4096];
    let (mut num_bytes, mut has_lost) = (0, false);
    while let Ok(len @ 1..) = from.read(&mut buffer) {
        if has_lost {
            continue;
        }
        num_bytes += len;
        match data {
            Forwarded::Requests(num_sent, (lose_above, num_lost)) => {
                let num_sent = num_sent.fetch_add(len, Ordering::SeqCst) + len;
                let most = lose_above.load(Ordering::SeqCst);
                if most != 0 && num_sent > most {
                    lose_above.store(0, Ordering::SeqCst);
                    num_lost.fetch_add(1, Ordering::SeqCst);
                    has_lost = true;
                    continue;
                }
            }
            Forwarded::Replies(num_received, (limit, num_closed)) => {
                num_received.fetch_add(len, Ordering::SeqCst);
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
