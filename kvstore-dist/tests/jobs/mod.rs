//! Runs MPI jobs with the installed MPI implementations. Each rank of a job runs the test
//! executable again, with only the test `rank`. That test runs the requested program
//! ([`act_as_rank`]). Outside of a job, it does nothing.

#![allow(dead_code, reason = "each program of tests uses some of it")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a check fails by panicking")]

use std::env;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use kvstore_dist::{Group, MpiCollective, MpiOptions, Wait};
use kvstore_tests::hosts::is_installed;

/// The environment variable with the name of the program that a rank runs.
const PROGRAM: &str = "KVSTORE_TEST_PROGRAM";
/// The environment variable with the MPI library that a rank opens. Without it, the crate chooses.
pub(crate) const LIBRARY: &str = "KVSTORE_TEST_LIBRARY";

/// The line that a rank prints when it has finished.
pub(crate) const DONE: &str = "this rank is done.";

/// The time limit of a job in seconds. The longest job needs about a tenth of it.
const TIME_LIMIT: &str = "100";

/// An MPI implementation: its launcher and the matching library.
pub(crate) struct Mpi {
    pub(crate) command: &'static str,
    pub(crate) arguments: &'static [&'static str],
    pub(crate) library: &'static str,
    /// Whether the launcher fails if a rank exits successfully without finalising MPI. The launcher
    /// of MPICH ends the other ranks and reports success.
    wants_an_end: bool,
    /// Whether `MPI_Finalize` may hang.
    may_hang: bool,
}

pub(crate) const OPEN_MPI: Mpi = Mpi {
    command: "mpirun.openmpi",
    arguments: &["--oversubscribe", "--allow-run-as-root", "--mca", "btl_tcp_if_include", "lo"],
    library: "libmpi.so.40",
    wants_an_end: true,
    may_hang: false,
};
pub(crate) const MPICH: Mpi = Mpi {
    command: "mpirun.mpich",
    arguments: &[],
    library: "libmpich.so.12",
    wants_an_end: false,
    may_hang: false,
};

/// Newer releases, which distributions do not have yet (`scripts/mpi.sh newer`).
pub(crate) const OPEN_MPI_5: Mpi = Mpi { command: "mpirun.openmpi5", ..OPEN_MPI };
pub(crate) const MPICH_5: Mpi = Mpi { command: "mpirun.mpich5", library: "libmpi.so.12", ..MPICH };
/// MPICH through the standard ABI.
pub(crate) const STANDARD_ABI: Mpi = Mpi { library: "libmpi_abi.so.1", ..MPICH_5 };

/// Open MPI over TCP. Without this option, processes on one machine communicate through shared
/// memory.
pub(crate) const OPEN_MPI_TCP: Mpi = Mpi {
    arguments: &[
        "--oversubscribe",
        "--allow-run-as-root",
        "--mca",
        "btl_tcp_if_include",
        "lo",
        "--mca",
        "btl",
        "tcp,self",
    ],
    ..OPEN_MPI
};
pub(crate) const MPICH_TCP: Mpi = Mpi {
    arguments: &["-genv", "UCX_TLS", "tcp,self", "-genv", "UCX_NET_DEVICES", "lo"],
    may_hang: true,
    ..MPICH
};

impl Mpi {
    pub(crate) fn is_installed(&self) -> bool {
        let is_there = is_installed(self.command);
        if !is_there {
            println!("skipped: `{}` is not installed", self.command);
        }
        is_there
    }

    /// Returns whether the launcher can lose the status of a rank that exits without `MPI_Abort`,
    /// such as a killed rank (<https://github.com/pmodels/mpich/issues/7057>).
    fn loses_status(&self) -> bool {
        let version = Command::new(self.command).arg("--version").output().expect("it starts");
        let text = String::from_utf8_lossy(&version.stdout).into_owned();
        let mut words = text.lines().filter_map(|line| line.trim().strip_prefix("Version:"));
        words.any(|version| ["4.2.0", "4.2.1"].contains(&version.trim()))
    }

    /// Runs a program as a job with this number of ranks. Returns `None` if this MPI is not
    /// installed.
    pub(crate) fn job(&self, num_ranks: usize, program: &str) -> Option<Job> {
        self.job_with(num_ranks, program, &[])
    }

    /// Runs a job like [`Mpi::job`], with additional environment variables for the ranks.
    pub(crate) fn job_with(
        &self,
        num_ranks: usize,
        program: &str,
        environment: &[(&str, &str)],
    ) -> Option<Job> {
        if !self.is_installed() {
            return None;
        }
        let mut command = limited();
        command.arg(self.command).args(self.arguments).args(["-n", &num_ranks.to_string()]);
        command.envs(environment.iter().copied());
        Some(run(command.arg(this_program()), program))
    }
}

pub(crate) fn this_program() -> PathBuf {
    env::current_exe().expect("a program has a path")
}

/// Returns a command that kills itself and its child processes after the time limit.
pub(crate) fn limited() -> Command {
    let mut command = Command::new("timeout");
    command.args(["--kill-after=10", TIME_LIMIT]);
    command
}

/// Runs ranks through a launcher, or runs one rank without a launcher.
pub(crate) fn run(command: &mut Command, program: &str) -> Job {
    // Ranks of MPICH busy-wait while they start, and there are few cores. Run one job at a time.
    static ONE_JOB: Mutex<()> = Mutex::new(());
    let _turn = ONE_JOB.lock().unwrap_or_else(PoisonError::into_inner);
    let command = command.args(["--exact", "rank", "--nocapture"]).env(PROGRAM, program);
    Job(command.stdin(Stdio::null()).output().expect("a command can be started"))
}

/// The result of a job.
pub(crate) struct Job(Output);

impl Job {
    pub(crate) fn text(&self) -> String {
        let texts = [&self.0.stdout, &self.0.stderr].map(|text| String::from_utf8_lossy(text));
        format!("{}\n{}", self.0.status, texts.join("\n"))
    }

    /// Asserts that all ranks have finished and that the launcher reports success.
    pub(crate) fn succeeds(&self, num_ranks: usize) {
        self.ranks_are_done(num_ranks);
        assert!(self.0.status.success(), "{}", self.text());
    }

    /// Returns the line that reports a hang of `MPI_Finalize`, if this MPI may hang there.
    pub(crate) fn hang(&self, mpi: &Mpi) -> Option<String> {
        const HANGS: &str = "MPI_Finalize does not return";
        let text = self.text();
        let hang = text.lines().find(|line| mpi.may_hang && line.contains(HANGS));
        hang.map(str::to_owned)
    }

    /// Like [`Job::succeeds`], for ranks that have called [`end`]. MPICH 4.0.2 over TCP sometimes
    /// hangs there. Such a hang does not affect the results of the program, so it is ignored.
    pub(crate) fn succeeds_but_for_its_end(&self, mpi: &Mpi, num_ranks: usize) {
        let Some(reason) = self.hang(mpi) else { return self.succeeds(num_ranks) };
        // Do not print the complete output, because its `test result:` lines would be counted.
        println!("`{}`: {reason}", mpi.command);
        self.ranks_are_done(num_ranks);
    }

    /// Asserts that this number of ranks have finished.
    pub(crate) fn ranks_are_done(&self, num_ranks: usize) {
        let num_done = self.text().matches(DONE).count();
        assert_eq!(num_done, num_ranks, "{}", self.text());
    }

    /// Asserts that the job ended before the time limit.
    fn ends(&self) {
        const BY_LIMIT: i32 = 124;
        assert!(self.0.status.code().is_some_and(|code| code != BY_LIMIT), "{}", self.text());
    }

    /// Asserts that the launcher reports a failure.
    pub(crate) fn fails(&self) {
        self.ends();
        assert!(!self.0.status.success(), "{}", self.text());
    }

    /// Asserts that no rank finished and that the launcher reports a failure, unless it has lost
    /// the status of the killed rank.
    pub(crate) fn is_killed(&self, mpi: &Mpi) {
        self.ranks_are_done(0);
        if self.0.status.success() && mpi.loses_status() {
            println!("`{}` lost the status of a killed rank", mpi.command);
            return;
        }
        self.fails();
    }

    /// Asserts that at least one rank finished after it detected the end of the collective, that no
    /// rank panicked, and that the launcher ended the job.
    pub(crate) fn is_ended(&self, mpi: &Mpi) {
        if mpi.wants_an_end {
            self.fails();
        }
        self.ends();
        let text = self.text();
        assert!(text.contains(DONE) && !text.contains("panicked"), "{text}");
    }
}

/// Runs the program that the environment requests. Returns `false` if it requests none. The test
/// `rank` calls this function.
pub(crate) fn act_as_rank(programs: &[(&str, fn())]) -> bool {
    let Ok(name) = env::var(PROGRAM) else { return false };
    let program = programs.iter().find(|(known, _)| *known == name);
    let (_, act) = program.unwrap_or_else(|| panic!("no program `{name}`"));
    act();
    println!("{DONE}");
    true
}

/// Finalises MPI on a rank that has finished. Prints the error if this fails.
pub(crate) fn end() {
    let wait = Wait::new(&"the end of a rank", Duration::from_secs(10));
    if let Err(error) = MpiCollective::finalize(&wait) {
        println!("{}", error.chain());
    }
}

pub(crate) fn options() -> MpiOptions {
    MpiOptions { libraries: env::var(LIBRARY).into_iter().collect(), ..MpiOptions::default() }
}

pub(crate) fn open() -> MpiCollective {
    open_with(&options())
}

pub(crate) fn open_with(options: &MpiOptions) -> MpiCollective {
    let wait = Wait::new(&"a job", Duration::from_secs(60));
    MpiCollective::open(options, &wait).unwrap_or_else(|error| panic!("{}", error.chain()))
}

/// Returns the group of all ranks.
pub(crate) fn group() -> Arc<Group> {
    let group = Group::new(Arc::new(open())).expect("a thread can be started");
    group.set_timeout(Duration::from_secs(60));
    group
}

/// Sends a signal to this process.
pub(crate) fn signal(name: &str) {
    send_signal(name, &std::process::id().to_string());
}

/// Sends a signal to a process with the shell's built-in `kill`, because not every system has the
/// program.
pub(crate) fn send_signal(name: &str, process: &str) {
    let shell = Command::new("sh").args(["-c", "kill -s \"$0\" \"$1\"", name, process]).status();
    shell.expect("a shell can be started");
}
