//! Settings from the command line and from environment variables.

use clap::ArgMatches;
use clap::parser::ValueSource;

/// The settings of a connection to a server.
pub(crate) const CONNECTION: [&str; 2] = ["certificates", "insecure"];

/// Of these, one at most may be set.
const EXCLUSIVE: [&str; 2] = ["certificates", "insecure"];

/// Returns the settings that are on the command line, or otherwise in an environment variable such
/// as `KVSTORE_ADDRESS`.
pub(crate) fn given(arguments: &ArgMatches, names: &[&'static str]) -> Vec<(&'static str, String)> {
    let is_given = |name: &&str| arguments.value_source(name) == Some(ValueSource::CommandLine);
    let excludes_variables = EXCLUSIVE.iter().any(is_given);
    let setting = |name: &&'static str| {
        let value = if is_given(name) {
            match arguments.try_get_one::<String>(name) {
                Ok(value) => value.cloned(),
                // A flag.
                Err(_) => Some("true".to_owned()),
            }
        } else if excludes_variables && EXCLUSIVE.contains(name) {
            None
        } else {
            variable(name)
        };
        value.map(|value| (*name, value))
    };
    names.iter().filter_map(setting).collect()
}

fn variable(name: &str) -> Option<String> {
    let name = format!("KVSTORE_{}", name.to_uppercase());
    std::env::var(name).ok().filter(|value| !value.is_empty())
}
