//! Simulates two hosts with network namespaces. A virtual cable connects them.

use std::path::Path;
use std::process::{Command, Output, id};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use crate::skip::skip_or_fail;

/// The name of the network interface at each end of the cable.
pub const CABLE: &str = "cable";

/// The network between the hosts. It is not visible outside of the namespaces.
pub const NETWORK: &str = "10.113.7.0/24";

/// The addresses of the hosts.
pub const ADDRESSES: [&str; 2] = ["10.113.7.1", "10.113.7.2"];

/// Two hosts. Dropping the value removes them and kills all their processes.
#[derive(Debug)]
pub struct Hosts {
    /// The names of the namespaces.
    pub names: [String; 2],
}

impl Hosts {
    /// Creates the hosts. Prints the reason and returns `None` if a tool is not installed or the
    /// permission is missing.
    ///
    /// # Panics
    /// - The panics of [`skip_or_fail`].
    pub fn new() -> Option<Self> {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        if let Some(tool) = ["ip", "unshare", "hostname"].iter().find(|tool| !is_installed(tool)) {
            skip_or_fail("two hosts", &format!("`{tool}` is not installed"));
            return None;
        }
        let hosts = Self { names: ["a", "b"].map(|letter| format!("kv{}{number}{letter}", id())) };
        if let Err(reason) = hosts.connect() {
            skip_or_fail("two hosts", &reason);
            return None;
        }
        Some(hosts)
    }

    fn connect(&self) -> Result<(), String> {
        let [a, b] = self.names.each_ref().map(String::as_str);
        ip(&["netns", "add", a])?;
        ip(&["netns", "add", b])?;
        let other_end = ["type", "veth", "peer", "name", CABLE, "netns", b];
        ip(&[&["link", "add", CABLE, "netns", a][..], &other_end].concat())?;
        for (name, address) in [a, b].into_iter().zip(ADDRESSES) {
            let address = format!("{address}/24");
            ip(&["-n", name, "address", "add", &address, "dev", CABLE])?;
            ip(&["-n", name, "link", "set", "lo", "up"])?;
            ip(&["-n", name, "link", "set", CABLE, "up"])?;
        }
        [a, b].into_iter().try_for_each(comes_up)
    }

    /// Returns a command that runs a program on a host, 0 or 1.
    ///
    /// # Panics
    /// If there is no such host.
    pub fn command(&self, host: usize, program: &Path) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.names[host]]).arg(program);
        command
    }

    /// Disconnects a host's end of the cable (`down`) or connects it (`up`).
    ///
    /// # Panics
    /// If there is no such host, or the command fails.
    pub fn set_cable(&self, host: usize, state: &str) {
        ip(&["-n", &self.names[host], "link", "set", CABLE, state]).expect("the cable");
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for name in &self.names {
            // A namespace that does not exist needs no cleanup.
            let Ok(listed) = ip(&["netns", "pids", name]) else { continue };
            for process in String::from_utf8_lossy(&listed.stdout).split_whitespace() {
                let _ = Command::new("kill").args(["-s", "KILL", process]).status();
            }
            // Deleting a namespace also deletes its end of the cable.
            let _ = ip(&["netns", "delete", name]);
        }
    }
}

/// Disconnects this host's end of the cable (`down`) or connects it (`up`).
///
/// # Panics
/// If the command fails.
pub fn set_cable(state: &str) {
    ip(&["link", "set", CABLE, state]).expect("the cable");
}

/// Returns whether a command is in the search path.
pub fn is_installed(command: &str) -> bool {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&folders).any(|folder| folder.join(command).exists())
}

/// Waits until the end of the cable at a host is up.
fn comes_up(host: &str) -> Result<(), String> {
    let (begun, (_send, receive)) = (Instant::now(), mpsc::channel::<()>());
    while begun.elapsed() < Duration::from_secs(20) {
        let shown = ip(&["-n", host, "link", "show", CABLE])?;
        if String::from_utf8_lossy(&shown.stdout).contains("state UP") {
            return Ok(());
        }
        let _ = receive.recv_timeout(Duration::from_millis(20));
    }
    Err(format!("the cable of {host} does not come up"))
}

fn ip(arguments: &[&str]) -> Result<Output, String> {
    let output = Command::new("ip").args(arguments).output();
    let output = output.map_err(|error| format!("`ip`: {error}"))?;
    if output.status.success() {
        return Ok(output);
    }
    let text = String::from_utf8_lossy(&output.stderr);
    Err(format!("`ip {}`: {}", arguments.join(" "), text.trim()))
}
