//! Runs a real etcd, from Debian's package `etcd-server`, on this machine.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// How long etcd may take to start.
const START: Duration = Duration::from_secs(60);

/// How often etcd is started with other ports.
const TRIES: u32 = 5;

/// An etcd with its own data. Dropping the value ends it.
#[derive(Debug)]
pub struct Etcd {
    process: Child,
    data: TempDir,
    /// For clients, for other members, and for questions about its health. There are no other
    /// members.
    ports: [u16; 3],
    certificates: Option<PathBuf>,
}

impl Etcd {
    /// Starts etcd without data.
    ///
    /// # Panics
    /// If etcd is not installed or does not start.
    pub fn start() -> Self {
        Self::start_with(None)
    }

    /// Starts etcd with the certificates of a folder: `ca.pem`, `cert.pem` and `key.pem`. Clients
    /// need certificates of the same authority.
    ///
    /// # Panics
    /// If etcd is not installed or does not start.
    pub fn start_with_certificates(folder: &Path) -> Self {
        Self::start_with(Some(folder))
    }

    fn start_with(certificates: Option<&Path>) -> Self {
        for _ in 0..TRIES {
            let listeners =
                [(); 3].map(|()| TcpListener::bind("127.0.0.1:0").expect("a free port"));
            let port = |listener: &TcpListener| listener.local_addr().expect("an address").port();
            let ports = listeners.each_ref().map(port);
            drop(listeners);
            let data = tempfile::tempdir().expect("a folder");
            let process = run(&data, ports, certificates);
            let certificates = certificates.map(Path::to_owned);
            let mut etcd = Self { process, data, ports, certificates };
            if etcd.wait() {
                return etcd;
            }
            // Another program has taken one of the ports since they were found.
        }
        panic!("etcd ended {TRIES} times when it started");
    }

    /// Starts etcd again, with the data that it had.
    ///
    /// # Panics
    /// If etcd does not start.
    pub fn restart(&mut self) {
        self.kill();
        self.process = run(&self.data, self.ports, self.certificates.as_deref());
        assert!(self.wait(), "etcd ended when it started again");
    }

    /// Kills etcd.
    ///
    /// # Panics
    /// If that fails.
    pub fn kill(&mut self) {
        self.process.kill().expect("a process");
        self.process.wait().expect("a process");
    }

    /// Sends a signal, for example `STOP`.
    ///
    /// # Panics
    /// If that fails.
    pub fn signal(&self, name: &str) {
        crate::signal::signal(&self.process, name);
    }

    /// Returns the address for clients, `HOST:PORT`.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.ports[0])
    }

    /// Waits until etcd is ready. Returns false if it has ended.
    fn wait(&mut self) -> bool {
        let start = Instant::now();
        while !self.is_healthy() {
            if self.process.try_wait().expect("a process").is_some() {
                return false;
            }
            assert!(start.elapsed() < START, "etcd does not answer on {}", self.address());
            std::thread::yield_now();
        }
        // The answer could be that of another etcd, which has taken the port first.
        self.process.try_wait().expect("a process").is_none()
    }

    fn is_healthy(&self) -> bool {
        let Ok(mut stream) = TcpStream::connect(("127.0.0.1", self.ports[2])) else { return false };
        let _ = stream.set_read_timeout(Some(Duration::from_secs(1)));
        let (mut answer, mut buffer) = (Vec::new(), [0; 512]);
        if stream.write_all(b"GET /health HTTP/1.0\r\n\r\n").is_ok() {
            while let Ok(len @ 1..) = stream.read(&mut buffer) {
                answer.extend_from_slice(&buffer[..len]);
            }
        }
        String::from_utf8_lossy(&answer).contains("\"health\":\"true\"")
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn run(data: &TempDir, [clients, peers, health]: [u16; 3], certificates: Option<&Path>) -> Child {
    let scheme = if certificates.is_some() { "https" } else { "http" };
    let clients = format!("{scheme}://127.0.0.1:{clients}");
    let peers = format!("http://127.0.0.1:{peers}");
    let mut etcd = Command::new("etcd");
    etcd.env_clear().args(["--log-level", "error", "--unsafe-no-fsync"]);
    etcd.arg("--data-dir").arg(data.path());
    etcd.args(["--listen-client-urls", &clients, "--advertise-client-urls", &clients]);
    etcd.args(["--listen-peer-urls", &peers, "--initial-advertise-peer-urls", &peers]);
    etcd.args(["--listen-metrics-urls", &format!("http://127.0.0.1:{health}")]);
    etcd.args(["--initial-cluster", &format!("default={peers}")]);
    if let Some(folder) = certificates {
        etcd.args(["--client-cert-auth", "--trusted-ca-file"]).arg(folder.join("ca.pem"));
        etcd.arg("--cert-file").arg(folder.join("cert.pem"));
        etcd.arg("--key-file").arg(folder.join("key.pem"));
    }
    etcd.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap_or_else(|error| {
        panic!(
            "cannot run `etcd`: {error}: these tests need it: apt-get install -y \
             --no-install-recommends etcd-server"
        )
    })
}
