//! Simulates two hosts with network namespaces. Each host has its own name, and a virtual cable
//! connects them.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a check fails by panicking")]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Command, Output, id};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::jobs::{Job, Mpi, is_installed, limited, run, send_signal, this_program};

/// The name of the network interface at each end of the cable.
const CABLE: &str = "cable";

/// The network between the hosts. It is not visible outside of the namespaces.
const NETWORK: &str = "10.113.7.0/24";
const ADDRESSES: [&str; 2] = ["10.113.7.1", "10.113.7.2"];

/// Two hosts. Dropping the value removes them and kills all their processes.
pub(crate) struct Hosts {
    /// The names of the namespaces, which are also the host names.
    pub(crate) names: [String; 2],
    folder: TempDir,
}

impl Hosts {
    /// Creates the hosts. Prints the reason and returns `None` if a tool is not installed or the
    /// permission is missing.
    pub(crate) fn new() -> Option<Self> {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        if let Some(tool) = ["ip", "unshare", "hostname"].iter().find(|tool| !is_installed(tool)) {
            println!("skipped: two hosts, for `{tool}` is not installed");
            return None;
        }
        let names = ["a", "b"].map(|letter| format!("kv{}{number}{letter}", id()));
        let hosts = Self { names, folder: tempfile::tempdir().unwrap() };
        if let Err(reason) = hosts.connect() {
            println!("skipped: two hosts: {reason}");
            return None;
        }
        hosts.write_agent();
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

    /// Writes the script that launchers call instead of `ssh`. Its arguments are options, a host
    /// and a command.
    fn write_agent(&self) {
        let [a, b] = &self.names;
        let text = format!(
            "#!/bin/sh\n\
             while :; do case $1 in -[lpo]) shift 2 ;; -*) shift ;; *) break ;; esac; done\n\
             case $1 in {}) name={a} ;; *) name={b} ;; esac\n\
             shift\n\
             exec ip netns exec $name unshare --uts sh -c \"hostname $name; $*\"\n",
            ADDRESSES[0]
        );
        fs::write(self.agent(), text).unwrap();
        fs::set_permissions(self.agent(), fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn agent(&self) -> PathBuf {
        self.folder.path().join("agent")
    }

    /// Runs a program as a job with a rank on each host. The launcher runs on the first host.
    /// Returns `None` if this MPI is not installed.
    pub(crate) fn job(&self, mpi: &Mpi, program: &str) -> Option<Job> {
        if !mpi.is_installed() {
            return None;
        }
        let (name, agent) = (&self.names[0], self.agent());
        let agent = agent.to_str().expect("a path of letters");
        let mut command = limited();
        command.args(["ip", "netns", "exec", name, "unshare", "--uts", "sh", "-c"]);
        command.args(["hostname \"$0\"; exec \"$@\"", name, mpi.command]);
        let hosts = ADDRESSES.join(",");
        if mpi.library.contains("mpich") {
            command.args(["-launcher", "ssh", "-launcher-exec", agent, "-hosts", &hosts]);
            command.args(["-iface", CABLE, "-genv", "UCX_NET_DEVICES", CABLE]);
            command.args(["-genv", "UCX_TLS", "tcp,self"]);
        } else {
            command.args(["--allow-run-as-root", "--bind-to", "none", "-H", &hosts]);
            command.args(["--mca", "plm_rsh_agent", agent, "--mca", "btl", "tcp,self"]);
            command.args(["--mca", "oob_tcp_if_include", NETWORK]);
            command.args(["--mca", "btl_tcp_if_include", NETWORK]);
        }
        command.args(["-n", "2"]).arg(this_program());
        Some(run(&mut command, program))
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for name in &self.names {
            // A namespace that does not exist needs no cleanup.
            let Ok(listed) = ip(&["netns", "pids", name]) else { continue };
            for process in String::from_utf8_lossy(&listed.stdout).split_whitespace() {
                send_signal("KILL", process);
            }
            // Deleting a namespace also deletes its end of the cable.
            let _ = ip(&["netns", "delete", name]);
        }
    }
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

/// Disconnects this host's end of the cable (`down`) or connects it (`up`).
pub(crate) fn set_cable(state: &str) {
    ip(&["link", "set", CABLE, state]).unwrap();
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
