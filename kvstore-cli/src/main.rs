//! The command `kvstore`: `serve` starts a server, `status` shows the state of one, `replay` makes
//! the calls of a journal again, `certs` makes certificates.

mod certs;
mod log;
mod replay;
mod serve;
mod settings;
mod status;

use std::process::ExitCode;

use clap::{Arg, ArgAction, ArgMatches, Command};
use kvstore::{DEFAULT_ADDRESS, Error, ErrorCode};

/// The exit code for wrong arguments, that of the library for the command line. Others have 1.
const WRONG: u8 = 2;

fn main() -> ExitCode {
    let arguments = command().get_matches();
    let done = match arguments.subcommand() {
        Some(("serve", arguments)) => serve::run(arguments),
        Some(("status", arguments)) => status::run(arguments),
        Some(("replay", arguments)) => replay::run(arguments),
        Some(("certs", arguments)) => certs::run(arguments),
        _ => Err(Error::invalid("no command")),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("kvstore: {}", error.chain());
            match error.code() {
                ErrorCode::InvalidArgument => ExitCode::from(WRONG),
                _ => ExitCode::FAILURE,
            }
        }
    }
}

fn command() -> Command {
    let serve = Command::new("serve")
        .about("Starts a server and runs until SIGTERM or SIGINT")
        .after_help(
            "Each option has an environment variable, such as KVSTORE_ADDRESS. The command line \
             has precedence over variables, and these over the configuration file.",
        )
        .arg(text("config", "A configuration file (TOML) with the other options"))
        .arg(text("address", "The address to listen on [default: 127.0.0.1:9191]"))
        .arg(text("store", "The store that holds the values: local (the default) or device"))
        .arg(text("checkpoints", "The folder for checkpoints on the server; without one, none"))
        .arg(text(
            "recovery",
            "The folder for recovery points, from which the server continues after it was killed; \
             without one, it starts empty",
        ))
        .arg(text("save_every", "How many seconds between recovery points [default: 30]"))
        .arg(text("journal", "The file for all calls that change values; without one, none"))
        .arg(text(
            "journal_mode",
            "What the journal keeps: full (the default) for `kvstore replay`, or order, without \
             values",
        ))
        .arg(flag(
            "journal_required",
            "Fails calls, instead of stopping the journal, if it cannot be written",
        ))
        .arg(text("lease", "How many seconds a silent member stays live [default: 10]"))
        .args(protection("Listens on addresses that other machines reach, without certificates"))
        .arg(text("peer_connections", "The most connections from one machine [default: 256]"))
        .arg(text(
            "peer_bytes",
            "The most bytes in calls from one machine [default: half of the memory limit, at \
             least 64 MiB]",
        ))
        .arg(text("keys", "The most keys [default: 4000000]"))
        .arg(text("metrics", "The address for /metrics and /healthz over HTTP; without one, none"))
        .arg(flag(
            "status_page",
            "Adds a page with members, keys and throughput to the address of --metrics",
        ))
        .arg(
            text("followers", "For the first of several servers: the others, which it leads")
                .value_name("HOST:PORT,.."),
        )
        .arg(text(
            "coordinator",
            "Where the state of the group is: etcd://HOST:PORT,../GROUP; without one, here",
        ))
        .arg(text("coordinator_certificates", "A folder with the certificates for the coordinator"))
        .arg(text("server_index", "The index of this server in the group, from 0 [default: 0]"))
        .arg(text("num_servers", "How many servers the group has [default: 1]"))
        .arg(text("advertise", "Where members connect [default: the address]"))
        .arg(text("log", "What to log: error, warn (the default), info, debug or trace"))
        .arg(text("log_format", "How to log: text (the default) or json, one object per line"));
    let status = Command::new("status")
        .about("Shows the members and the size of a server")
        .arg(text("server", "The address of the server").default_value(DEFAULT_ADDRESS))
        .arg(text("timeout", "How many seconds to wait").default_value("5"))
        .arg(flag("ready", "Fails if the server waits for other servers and accepts no calls"))
        .args(protection("Connects to other machines without certificates"));
    let certs = Command::new("certs")
        .about("Makes certificates for servers and members, signed by a private authority")
        .after_help(
            "Makes a folder for each role: server, worker, reader, admin. If the folder has an \
             authority, keeps it and renews the certificates.",
        )
        .arg(text("folder", "Where to write the files").default_value("certs"))
        .arg(
            text("hosts", "The names and addresses of the servers, separated by commas")
                .default_value("localhost,127.0.0.1,::1"),
        )
        .arg(text("days", "How many days the certificates are valid").default_value("30"));
    Command::new("kvstore")
        .version(env!("CARGO_PKG_VERSION"))
        .about("Servers of tensor key-value stores")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommands([serve, status, replay_command(), certs])
}

/// Describes the arguments of `kvstore replay`.
fn replay_command() -> Command {
    Command::new("replay")
        .about("Makes the calls of a journal again and compares the values")
        .after_help(
            "Exits with 1 if a value differs or the journal is damaged. A journal without values \
             (--journal-mode order) is not replayed: its members and keys are shown.",
        )
        .arg(Arg::new("file").required(true).value_name("FILE").help("The journal of a server"))
        .arg(text("from", "The checkpoint to begin with, a file or a folder [default: the start]"))
        .arg(text("to", "The checkpoint to end with and to compare [default: the end]"))
        .arg(text("write", "Where to write a checkpoint of the values at the end"))
        .arg(flag("steps", "Lists each push and round with its keys, versions and members"))
}

/// Returns an argument without a value.
fn flag(name: &'static str, help: &'static str) -> Arg {
    text(name, help).action(ArgAction::SetTrue)
}

fn text(name: &'static str, help: &'static str) -> Arg {
    let arg = Arg::new(name).help(help);
    // In configuration files and variables, it has an underscore.
    arg.long(name.replace('_', "-"))
}

/// Returns the arguments about the certificates of connections.
fn protection(insecure: &'static str) -> [Arg; 2] {
    let certificates = text("certificates", "A folder with ca.pem, cert.pem and key.pem");
    let insecure = Arg::new("insecure").long("insecure").action(ArgAction::SetTrue).help(insecure);
    [certificates, insecure.conflicts_with("certificates")]
}

/// Returns an argument that has a default.
fn get<'a>(arguments: &'a ArgMatches, name: &str) -> &'a str {
    arguments.get_one::<String>(name).map_or("", String::as_str)
}
