//! The command `kvstore`: `serve` starts a server, `status` shows the state of one.

mod serve;
mod status;

use std::process::ExitCode;

use clap::{Arg, ArgAction, ArgMatches, Command};
use kvstore::Error;

/// The address of a server if none is given.
const ADDRESS: &str = "127.0.0.1:9191";

fn main() -> ExitCode {
    let arguments = command().get_matches();
    let done = match arguments.subcommand() {
        Some(("serve", arguments)) => serve::run(arguments),
        Some(("status", arguments)) => status::run(arguments),
        _ => Err(Error::invalid("no command")),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("kvstore: {}", error.chain());
            ExitCode::FAILURE
        }
    }
}

fn command() -> Command {
    let serve = Command::new("serve")
        .about("Starts a server and runs until SIGTERM or SIGINT")
        .arg(text("address", "The address to listen on").default_value(ADDRESS))
        .arg(
            text("store", "The store that holds the values: local or device")
                .default_value("local"),
        )
        .arg(text("checkpoints", "The folder for checkpoints on the server; without one, none"))
        .arg(text("lease", "How many seconds a silent member stays live").default_value("10"))
        .arg(
            Arg::new("insecure")
                .long("insecure")
                .action(ArgAction::SetTrue)
                .help("Listens on addresses that other machines reach, without encryption"),
        );
    let status = Command::new("status")
        .about("Shows the members and the size of a server")
        .arg(text("server", "The address of the server").default_value(ADDRESS))
        .arg(text("timeout", "How many seconds to wait").default_value("5"));
    Command::new("kvstore")
        .version(env!("CARGO_PKG_VERSION"))
        .about("Servers of tensor key-value stores")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommands([serve, status])
}

fn text(name: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).help(help)
}

/// Returns an argument that has a default.
fn get<'a>(arguments: &'a ArgMatches, name: &str) -> &'a str {
    arguments.get_one::<String>(name).map_or("", String::as_str)
}

/// Returns an argument in seconds.
///
/// # Errors
/// - [`Error::InvalidArgument`] if it is not a number above 0.
fn seconds(arguments: &ArgMatches, name: &str) -> Result<std::time::Duration, Error> {
    let found = get(arguments, name);
    let seconds =
        found.parse().ok().and_then(|number| std::time::Duration::try_from_secs_f64(number).ok());
    seconds.filter(|seconds| !seconds.is_zero()).ok_or_else(|| {
        Error::invalid(format!("--{name}: expected a number of seconds above 0, found `{found}`"))
    })
}
