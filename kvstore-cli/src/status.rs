//! `kvstore status`.

use clap::ArgMatches;
use kvstore::{Error, ServerStatus, status_of};

use crate::get;
use crate::settings::{CONNECTION, given};

/// Prints the state of a server as a table.
pub(crate) fn run(arguments: &ArgMatches) -> Result<(), Error> {
    let mut options = given(arguments, &CONNECTION);
    options.push(("timeout", get(arguments, "timeout").to_owned()));
    let options: Vec<(&str, &str)> =
        options.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let status: ServerStatus = status_of(get(arguments, "server"), &options)?;
    println!("store     {}", status.store);
    println!("uptime    {} s", status.uptime.as_secs());
    println!("keys      {}", status.num_keys);
    println!("bytes     {}", status.num_bytes);
    println!("pushes    {}", status.num_pushes);
    println!("dead      {}", status.num_dead);
    if let Some(journal) = &status.journal {
        println!("journal   {}, {} bytes", journal.mode, journal.num_bytes);
        if let Some(error) = &journal.error {
            println!("  error   {error}");
        }
    }
    if let Some(recovery) = &status.recovery {
        let age = recovery.age.map(|age| format!(", the last {} s ago", age.as_secs()));
        let (num_points, num_bytes) = (recovery.num_points, recovery.num_bytes);
        println!("recovery  {num_points} points{}, {num_bytes} bytes", age.unwrap_or_default());
        if recovery.awaits_others {
            println!("  waits   until all servers go back to the same recovery point");
        }
        if let Some(error) = &recovery.error {
            println!("  error   {error}");
        }
    }
    println!("members   {}", status.members.len());
    for member in &status.members {
        let role = if member.is_reader { "reader" } else { "worker" };
        println!("  {:>4}  {role}  {}", member.rank, member.name);
    }
    let waits = status.recovery.is_some_and(|recovery| recovery.awaits_others);
    if waits && arguments.get_flag("ready") {
        let server = get(arguments, "server");
        let (operation, source) = (format!("server `{server}`"), "it waits for other servers");
        return Err(Error::Transport { operation, source: source.into() });
    }
    Ok(())
}
