//! Processes that end with the test that has started them.

use std::io::{BufRead, BufReader, Lines};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

/// Longer than anything here takes.
#[allow(dead_code, reason = "some tests use it")]
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// The command `kvstore`.
pub(crate) const KVSTORE: &str = env!("CARGO_BIN_EXE_kvstore");

/// Where servers listen: members reach the first one by its Unix socket, the second one by TCP.
#[allow(dead_code, reason = "some tests use it")]
pub(crate) const ADDRESSES: &[&str] =
    if cfg!(target_os = "linux") { &["127.0.0.1:0", "127.0.0.2:0"] } else { &["127.0.0.1:0"] };

/// Runs a test for each of the [`ADDRESSES`].
#[allow(dead_code, reason = "some tests use it")]
pub(crate) fn for_each_address(test: impl Fn(&str)) {
    for address in ADDRESSES {
        println!("servers on {address}");
        test(address);
    }
}

/// A process and the lines that it prints.
pub(crate) struct Process {
    pub(crate) child: Child,
    lines: Option<Lines<BufReader<ChildStdout>>>,
}

impl Process {
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines: Some(lines) }
    }

    /// Starts a server, and returns it with its address.
    #[allow(dead_code, reason = "some tests use it")]
    pub(crate) fn serve(arguments: &[&str]) -> (Self, String) {
        let mut server = Self::start(Command::new(Path::new(KVSTORE)).arg("serve").args(arguments));
        let address = server.rest_of_line("listening on ");
        (server, address)
    }

    /// Waits for a line that begins with a text, and returns the rest of the line.
    pub(crate) fn rest_of_line(&mut self, start: &str) -> String {
        let mut lines = self.lines.iter_mut().flatten().map_while(Result::ok);
        lines.find_map(|line| line.strip_prefix(start).map(str::to_owned)).expect(start)
    }

    /// Closes the pipe from the process, so that it cannot print any more.
    #[allow(dead_code, reason = "some tests use it")]
    pub(crate) fn stop_reading(&mut self) {
        self.lines = None;
    }

    #[allow(dead_code, reason = "some tests use it")]
    pub(crate) fn signal(&self, name: &str) {
        kvstore_tests::signal::signal(&self.child, name);
    }

    /// Returns the rest of each line that starts with `start`, until the process ends.
    #[allow(dead_code, reason = "some tests use it")]
    pub(crate) fn rest_of_lines(&mut self, start: &str) -> Vec<String> {
        let lines = self.lines.iter_mut().flatten().map_while(Result::ok);
        lines.filter_map(|line| line.strip_prefix(start).map(str::to_owned)).collect()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
