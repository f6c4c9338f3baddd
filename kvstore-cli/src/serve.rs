//! `kvstore serve`.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use clap::ArgMatches;
use kvstore::{Error, SERVER_OPTIONS, serve};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;
use signal_hook::iterator::Signals;

use crate::log;
use crate::settings::given;

/// Starts a server, and ends it in order at SIGTERM or SIGINT.
pub(crate) fn run(arguments: &ArgMatches) -> Result<(), Error> {
    log::start(arguments)?;
    let options = given(arguments, &SERVER_OPTIONS);
    // Before the server starts, so that a signal at any time ends it in order.
    let failed =
        |error: std::io::Error| Error::Unsupported(format!("signals cannot be received: {error}"));
    let mut signals = Signals::new([SIGINT, SIGTERM]).map_err(failed)?;
    // A second signal ends the process at once.
    let is_second = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        flag::register_conditional_shutdown(signal, 1, Arc::clone(&is_second)).map_err(failed)?;
        flag::register(signal, Arc::clone(&is_second)).map_err(failed)?;
    }
    let options: Vec<(&str, &str)> =
        options.iter().map(|(name, value)| (*name, value.as_str())).collect();
    // Each connection is an open file.
    let _ = rlimit::increase_nofile_limit(u64::MAX);
    let server = Arc::new(serve(&options)?);
    report(&format!("listening on {}", server.address()));
    if let Some(address) = server.metrics_address() {
        report(&format!("metrics on {address}"));
    }
    let (handle, watched) = (signals.handle(), Arc::clone(&server));
    std::thread::spawn(move || {
        if watched.wait_for_loss().is_some() {
            // Ends the wait for signals.
            handle.close();
        }
    });
    signals.forever().next();
    report("ending: completing the calls that run");
    server.shut_down();
    server.loss().map_or(Ok(()), |reason| {
        Err(Error::Transport { operation: "coordinator".to_owned(), source: reason.into() })
    })
}

/// Prints a line. If that fails, because the reader has gone or the disk is full, the server
/// continues.
pub(crate) fn report(line: &str) {
    let _ = writeln!(std::io::stdout(), "{line}");
}
