//! `kvstore serve`.

use std::io::Write;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use clap::ArgMatches;
use kvstore::{Error, Server, ServerOptions, backends};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;
use signal_hook::iterator::Signals;

use crate::{get, seconds};

/// Starts a server, and ends it in order at SIGTERM or SIGINT.
pub(crate) fn run(arguments: &ArgMatches) -> Result<(), Error> {
    let address = get(arguments, "address");
    if !arguments.get_flag("insecure") {
        check_loopback(address)?;
    }
    let mut options = ServerOptions::new(address)
        .store(get(arguments, "store"))
        .lease(seconds(arguments, "lease")?);
    if let Some(folder) = arguments.get_one::<String>("checkpoints") {
        options = options.checkpoints(folder);
    }
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
    let server = Server::start(backends(), &options)?;
    report(&format!("listening on {}", server.address()));
    signals.forever().next();
    report("ending: completing the calls that run");
    server.shut_down();
    Ok(())
}

/// Prints a line. If that fails, because the reader has gone or the disk is full, the server
/// continues.
fn report(line: &str) {
    let _ = writeln!(std::io::stdout(), "{line}");
}

/// # Errors
/// - [`Error::InvalidArgument`] if another machine can reach the address.
fn check_loopback(address: &str) -> Result<(), Error> {
    let found = address.to_socket_addrs().map_err(|error| {
        Error::invalid(format!("--address: expected HOST:PORT, found `{address}`: {error}"))
    })?;
    let open: Option<SocketAddr> = found.into_iter().find(|address| !address.ip().is_loopback());
    match open {
        None => Ok(()),
        Some(open) => Err(Error::invalid(format!(
            "--address: other machines can reach {open}, and connections are neither \
             authenticated nor encrypted: use a loopback address, or add --insecure in a private \
             network"
        ))),
    }
}
