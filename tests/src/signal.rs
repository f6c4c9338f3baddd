//! Sends signals to other processes.

use std::process::{Child, Command};
use std::time::{Duration, Instant};

/// How long a process may take to stop.
const STOP: Duration = Duration::from_secs(60);

/// Sends a signal to a process, for example `TERM`. After `STOP`, waits until each of its threads
/// has stopped: on a busy machine, a thread may still answer a call after the signal was sent.
///
/// # Panics
/// If that fails.
pub fn signal(process: &Child, name: &str) {
    let id = process.id().to_string();
    let sent = Command::new("kill").args([&format!("-{name}"), &id]).status();
    assert!(sent.expect("the command `kill`").success(), "{name}");
    let start = Instant::now();
    while name == "STOP" && cfg!(target_os = "linux") && !is_stopped(&id) {
        assert!(start.elapsed() < STOP, "process {id} has not stopped");
        std::thread::yield_now();
    }
}

/// Whether each thread of a process has stopped.
fn is_stopped(id: &str) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{id}/task")).expect("a running process");
    threads.map(|thread| thread.expect("a folder").path().join("stat")).all(|stat| {
        // A thread that has ended meanwhile has no file.
        let text = std::fs::read_to_string(stat).unwrap_or_default();
        // The state follows the name of the program, which is in parentheses.
        text.rsplit_once(')').is_none_or(|(_, rest)| rest.trim_start().starts_with(['T', 'Z', 'X']))
    })
}
