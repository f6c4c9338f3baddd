//! Runs the suite for collectives as jobs of the installed MPI implementations, and tests how jobs
//! start and end.
//!
//! A job runs this test executable again, with only the test `rank`, which runs the requested
//! program. Outside of a job, `rank` does nothing.

#![allow(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    reason = "a test may abort without memory"
)]
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a check fails by panicking")]

use std::time::Duration;

use jobs::{
    LIBRARY, MPICH, MPICH_5, MPICH_TCP, OPEN_MPI, OPEN_MPI_5, OPEN_MPI_TCP, STANDARD_ABI, end,
    limited, open, open_with, options, run, signal, this_program,
};
use kvstore_core::ErrorCode;
use kvstore_dist::{Collective, MpiCollective, MpiOptions, Wait};

mod collective_suite;
mod jobs;
mod own_mpi;

/// Returns whether this process has loaded an MPI library.
fn is_loaded() -> bool {
    std::fs::read_to_string("/proc/self/maps").expect("there is a /proc").contains("libmpi")
}

fn suite() {
    assert!(!is_loaded(), "MPI is loaded before the first use");
    let member = open();
    assert!(is_loaded(), "`is_loaded` does not find the MPI library");
    collective_suite::all(&member);
}

/// The programs that ranks run, by name.
const PROGRAMS: [(&str, fn()); 14] = [
    ("suite", suite),
    ("suite and end", || {
        suite();
        end();
    }),
    ("pieces", || {
        collective_suite::all(&open_with(&MpiOptions { max_message: 1000, ..options() }));
    }),
    ("late", || {
        last_stays_away(|| {}, |member| collective_suite::late(member, Duration::from_secs(1)));
    }),
    ("stopped", || {
        last_stays_away(
            || signal("STOP"),
            |member| collective_suite::late(member, Duration::from_secs(2)),
        );
    }),
    ("killed", || {
        let member = open();
        if member.rank() == 1 {
            signal("KILL");
        }
        member.barrier(&collective_suite::wait()).expect_err("rank 1 is dead");
    }),
    ("absent", || {
        // MPI is not initialised yet, so read the rank from the environment of the launcher.
        if ["OMPI_COMM_WORLD_RANK", "PMI_RANK"]
            .iter()
            .any(|name| std::env::var(name).is_ok_and(|rank| rank == "1"))
        {
            let (_send, receive) = std::sync::mpsc::channel::<()>();
            let _ = receive.recv_timeout(collective_suite::LONG);
            return;
        }
        let wait = Wait::new(&"the start", Duration::from_secs(2));
        let error = MpiCollective::open(&options(), &wait).unwrap_err();
        assert_eq!(error.code(), ErrorCode::Timeout);
        assert!(
            error.to_string().contains("the start: MPI was not initialised within 2s"),
            "{error}"
        );
        let again = MpiCollective::open(&options(), &wait).unwrap_err();
        assert!(again.to_string().contains("was not initialised within 2s"), "{again}");
        println!("the absent rank was reported");
        #[expect(clippy::disallowed_methods, reason = "a thread still waits in the MPI library")]
        std::process::exit(1);
    }),
    ("verbs", || collective_suite::different_verbs(&open())),
    ("fewer", || collective_suite::different_lengths(&open(), 8)),
    ("more", || collective_suite::different_lengths(&open(), 10)),
    ("finalize", finalize),
    ("signals", signals),
    ("host", own_mpi::initialises_mpi),
    ("alone", || {
        let member = open();
        assert_eq!((member.rank(), member.size()), (0, 1));
        collective_suite::all(&member);
    }),
];

#[test]
fn rank() {
    jobs::act_as_rank(&PROGRAMS);
}

/// Runs `check` on all ranks except the last. The last rank runs `act`, and then waits until the
/// launcher ends it because the other ranks have exited.
fn last_stays_away(act: impl Fn(), check: impl Fn(&MpiCollective)) {
    let member = open();
    member.barrier(&collective_suite::wait()).expect("all ranks are here");
    if member.rank() < member.size() - 1 {
        return check(&member);
    }
    act();
    let (_send, receive) = std::sync::mpsc::channel::<()>();
    let _ = receive.recv_timeout(collective_suite::LONG);
}

fn finalize() {
    let member = open();
    let clone = open();
    drop(member);
    clone
        .barrier(&collective_suite::wait())
        .expect("a collective continues when another one is dropped");
    for _ in 0..2 {
        MpiCollective::finalize(&collective_suite::wait()).expect("all ranks are here");
    }
    assert_eq!(clone.barrier(&collective_suite::wait()).unwrap_err().code(), ErrorCode::Closed);
    let again = MpiCollective::open(&options(), &collective_suite::wait());
    assert_eq!(again.unwrap_err().code(), ErrorCode::Closed);
}

/// Opening MPI must not install handlers for these signals, because virtual machines such as the
/// JVM use them.
fn signals() {
    const THEIRS: [u32; 5] = [4, 6, 7, 8, 11]; // SIGILL, SIGABRT, SIGBUS, SIGFPE, SIGSEGV
    let caught = || {
        let status = std::fs::read_to_string("/proc/self/status").expect("there is a /proc");
        let line = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).expect("a mask");
        let mask = u64::from_str_radix(line.trim(), 16).expect("a number");
        THEIRS.map(|signal| mask >> (signal - 1) & 1)
    };
    let before = caught();
    open().barrier(&collective_suite::wait()).expect("all ranks are here");
    assert_eq!(caught(), before);
}

/// Defines tests of jobs that succeed: `jobs! { name: MPI, ranks, program; .. }`.
macro_rules! jobs {
    ($($name:ident: $mpi:ident, $num_ranks:literal, $program:literal;)*) => {
        $(
            #[test]
            fn $name() {
                let Some(job) = $mpi.job($num_ranks, $program) else { return };
                job.succeeds($num_ranks);
            }
        )*
    };
}

jobs! {
    two_ranks_of_open_mpi_pass_the_suite: OPEN_MPI, 2, "suite";
    three_ranks_of_open_mpi_pass_the_suite: OPEN_MPI, 3, "suite";
    two_ranks_of_mpich_pass_the_suite: MPICH, 2, "suite";
    open_mpi_passes_the_suite_over_tcp: OPEN_MPI_TCP, 3, "suite";
    long_messages_of_open_mpi_are_split: OPEN_MPI, 3, "pieces";
    long_messages_of_mpich_are_split: MPICH, 2, "pieces";
    one_rank_of_open_mpi_passes_the_suite: OPEN_MPI, 1, "alone";
    one_rank_of_mpich_passes_the_suite: MPICH, 1, "alone";
    open_mpi_is_finalised_once: OPEN_MPI, 2, "finalize";
    mpich_is_finalised_once: MPICH, 2, "finalize";
    open_mpi_leaves_signals_alone: OPEN_MPI, 2, "signals";
    mpich_leaves_signals_alone: MPICH, 2, "signals";
    a_program_may_initialise_open_mpi_itself: OPEN_MPI, 2, "host";
    a_program_may_initialise_mpich_itself: MPICH, 2, "host";
}

#[test]
fn mpich_passes_the_suite_over_tcp() {
    let Some(job) = MPICH_TCP.job(2, "suite and end") else { return };
    job.succeeds_but_for_its_end(&MPICH_TCP, 2);
}

/// `MPI_Finalize` of MPICH 4.0.2 sometimes hangs over TCP. Then there is nothing to check.
#[test]
fn mpich_is_finalised_once_over_tcp() {
    let Some(job) = MPICH_TCP.job(2, "finalize") else { return };
    match job.hang(&MPICH_TCP) {
        Some(reason) => println!("skipped: `{}`: {reason}", MPICH_TCP.command),
        None => job.succeeds(2),
    }
}

#[test]
fn timeouts_name_the_rank_that_does_not_call() {
    for (mpi, num_ranks) in [(OPEN_MPI, 2), (OPEN_MPI, 3), (MPICH, 2)] {
        let Some(job) = mpi.job(num_ranks, "late") else { continue };
        job.is_ended(&mpi);
    }
}

#[test]
fn opening_mpi_times_out_if_a_rank_does_not_open_it() {
    for mpi in [OPEN_MPI, MPICH] {
        let Some(job) = mpi.job(2, "absent") else { continue };
        job.fails();
        assert!(job.text().contains("the absent rank was reported"), "{}", job.text());
    }
}

#[test]
fn timeouts_name_a_stopped_rank() {
    for (mpi, num_ranks) in [(OPEN_MPI, 2), (MPICH, 2)] {
        let Some(job) = mpi.job(num_ranks, "stopped") else { continue };
        job.is_ended(&mpi);
        job.ranks_are_done(num_ranks - 1);
    }
}

#[test]
fn a_rank_that_is_killed_ends_the_job() {
    for mpi in [OPEN_MPI, MPICH] {
        let Some(job) = mpi.job(2, "killed") else { continue };
        job.is_killed(&mpi);
    }
}

#[test]
fn different_calls_fail_on_every_rank() {
    for (mpi, num_ranks) in [(OPEN_MPI, 2), (OPEN_MPI, 3), (MPICH, 2)] {
        for program in ["verbs", "fewer", "more"] {
            let Some(job) = mpi.job(num_ranks, program) else { continue };
            job.is_ended(&mpi);
        }
    }
}

/// Tests the newer release of each implementation and the standard ABI. The library is named
/// explicitly.
#[test]
fn newer_releases_pass_the_suite() {
    for mpi in [OPEN_MPI_5, MPICH_5, STANDARD_ABI] {
        for program in ["suite", "pieces", "finalize", "signals"] {
            let Some(job) = mpi.job_with(2, program, &[(LIBRARY, mpi.library)]) else { break };
            println!("{}, {}: {program}", mpi.command, mpi.library);
            job.succeeds(2);
        }
    }
}

#[test]
fn without_a_launcher_there_is_one_rank() {
    for mpi in [OPEN_MPI, MPICH] {
        if mpi.is_installed() {
            let mut command = limited();
            run(command.arg(this_program()).env(LIBRARY, mpi.library), "alone").succeeds(1);
        }
    }
}

#[test]
fn a_library_that_does_not_match_the_launcher_is_reported() {
    for (mpi, other) in [(OPEN_MPI, MPICH), (MPICH, OPEN_MPI)] {
        if !mpi.is_installed() || !other.is_installed() {
            continue;
        }
        let mut command = limited();
        command.arg(mpi.command).args(mpi.arguments).args(["-n", "2"]).arg(this_program());
        let job = run(command.env(LIBRARY, other.library), "suite");
        job.fails();
        assert!(job.text().contains("they belong to different MPIs"), "{}", job.text());
    }
}

#[test]
fn errors_for_missing_libraries_name_the_packages() {
    let libraries = ["libmpi.so.1234".to_owned(), "libc.so.6".to_owned()];
    let options = MpiOptions { libraries: libraries.into(), ..MpiOptions::default() };
    let error =
        MpiCollective::open(&options, &Wait::new(&"a store", collective_suite::LONG)).unwrap_err();
    assert_eq!(error.code(), ErrorCode::Unsupported);
    let text = error.to_string();
    for part in ["openmpi-bin", "mpich", "not found: libmpi.so.1234;", "libc.so.6: it is"] {
        assert!(text.contains(part), "{text}");
    }
    MpiCollective::finalize(&collective_suite::wait()).expect("there is nothing to end");
}

#[test]
fn max_message_must_be_positive_and_fit_the_counts_of_mpi() {
    for max_message in [0, 1 << 31] {
        let options = MpiOptions { max_message, ..MpiOptions::default() };
        let error = MpiCollective::open(&options, &collective_suite::wait()).unwrap_err();
        assert_eq!(error.code(), ErrorCode::InvalidArgument);
    }
}
