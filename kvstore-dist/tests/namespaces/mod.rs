//! Runs MPI jobs on two simulated hosts. Each host has its own name.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a check fails by panicking")]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use kvstore_tests::hosts::{self, ADDRESSES, CABLE, NETWORK};
use tempfile::TempDir;

use crate::jobs::{Job, Mpi, limited, run, this_program};

/// Two hosts, and the script with which launchers reach them.
pub(crate) struct Hosts {
    hosts: hosts::Hosts,
    folder: TempDir,
}

impl Hosts {
    /// Creates the hosts. Prints the reason and returns `None` if a tool is not installed or the
    /// permission is missing.
    pub(crate) fn new() -> Option<Self> {
        let hosts = Self { hosts: hosts::Hosts::new()?, folder: tempfile::tempdir().unwrap() };
        hosts.write_agent();
        Some(hosts)
    }

    /// Returns the names of the hosts.
    pub(crate) fn names(&self) -> &[String; 2] {
        &self.hosts.names
    }

    /// Writes the script that launchers call instead of `ssh`. Its arguments are options, a host
    /// and a command.
    fn write_agent(&self) {
        let [a, b] = self.names();
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
        let (name, agent) = (&self.names()[0], self.agent());
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
