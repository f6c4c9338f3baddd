//! Options by name, for programs in other languages: those of a store on servers, and those of a
//! server.

use std::num::NonZeroUsize;
use std::str::FromStr;
use std::time::Duration;

use kvstore_core::{Error, Result};
use kvstore_net::{NetStoreOptions, ServerOptions};
use strsim::levenshtein;

use crate::environment;

/// The options of a store on servers.
const OF_STORE: [&str; 7] =
    ["servers", "name", "timeout", "staleness", "reader", "connections", "divide_above"];

/// The options of a server.
const OF_SERVER: [&str; 4] = ["address", "store", "checkpoints", "lease"];

/// The address that a server listens on if none is given.
const ADDRESS: &str = "127.0.0.1:9191";

/// Returns the addresses in a list that is separated by commas.
pub(super) fn addresses(list: &str) -> impl Iterator<Item = &str> {
    list.split(',').map(str::trim).filter(|address| !address.is_empty())
}

/// Returns the value of an option, or `None` if it is not in the list.
pub(super) fn find<'a>(options: &[(&str, &'a str)], name: &str) -> Option<&'a str> {
    // The last one takes effect, as in a map that is filled in this order.
    options.iter().rev().find(|(option, _)| *option == name).map(|(_, value)| *value)
}

/// Returns how long calls of a store wait, or `None` if the options do not say it.
///
/// # Errors
/// - [`Error::InvalidArgument`] if the value is not a number of seconds.
pub(super) fn timeout(options: &[(&str, &str)]) -> Result<Option<Duration>> {
    find(options, "timeout").map(|value| seconds("timeout", value)).transpose()
}

/// Sets the options of a store, except its servers.
///
/// # Errors
/// - [`Error::InvalidArgument`] if a name is not an option, or a value is not valid.
pub(super) fn set_all(
    mut store: NetStoreOptions,
    options: &[(&str, &str)],
) -> Result<NetStoreOptions> {
    let mut is_reader = false;
    for (name, value) in options {
        store = match *name {
            "name" => store.name(*value),
            "timeout" => store.timeout(seconds(name, value)?),
            "staleness" => store.staleness(parse(name, value, "a whole number of at least 0")?),
            "servers" => store,
            "reader" => {
                is_reader = parse(name, value, "true or false")?;
                store
            }
            "connections" => {
                store.connections(parse::<NonZeroUsize>(name, value, "a whole number above 0")?)
            }
            "divide_above" => store.divide_above(parse(name, value, "a number of bytes")?),
            _ => return Err(unknown(name, &OF_STORE)),
        };
    }
    Ok(if is_reader { store.reader() } else { store })
}

/// Returns the options of a server.
///
/// # Errors
/// - [`Error::InvalidArgument`] if a name is not an option, or a value is not valid.
pub(super) fn of_server(options: &[(&str, &str)]) -> Result<ServerOptions> {
    let mut server = ServerOptions::new(find(options, "address").unwrap_or(ADDRESS));
    for (name, value) in options {
        server = match *name {
            "address" => server,
            "store" => server.store(*value),
            "checkpoints" => server.checkpoints(*value),
            "lease" => server.lease(seconds(name, value)?),
            _ => return Err(unknown(name, &OF_SERVER)),
        };
    }
    Ok(server)
}

fn seconds(name: &str, value: &str) -> Result<Duration> {
    environment::seconds(value).ok_or_else(|| wrong(name, value, "a number of seconds above 0"))
}

fn parse<T: FromStr>(name: &str, value: &str, expected: &str) -> Result<T> {
    value.parse().map_err(|_| wrong(name, value, expected))
}

fn wrong(name: &str, value: &str, expected: &str) -> Error {
    Error::invalid(format!("option `{name}`: expected {expected}, found `{value}`"))
}

fn unknown(name: &str, known: &[&str]) -> Error {
    let nearest = known.iter().min_by_key(|known| levenshtein(known, name)).unwrap_or(&"");
    let known = known.join(", ");
    Error::invalid(format!(
        "unknown option `{name}`: did you mean `{nearest}`? Expected one of {known}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_the_option_and_its_value() {
        let none = || NetStoreOptions::of_servers(["127.0.0.1:1"]);
        let text = |options: &[(&str, &str)]| set_all(none(), options).unwrap_err().to_string();
        assert!(text(&[("stalenes", "1")]).contains("did you mean `staleness`?"));
        for (name, value) in [
            ("staleness", "-1"),
            ("timeout", "0"),
            ("timeout", "soon"),
            ("connections", "0"),
            ("reader", "yes"),
            ("divide_above", ""),
        ] {
            let text = text(&[("name", "a"), (name, value)]);
            assert!(text.contains(&format!("option `{name}`")), "{text}");
            assert!(text.contains(&format!("found `{value}`")), "{text}");
        }
        let text = of_server(&[("adress", "127.0.0.1:0")]).unwrap_err().to_string();
        assert!(text.contains("did you mean `address`?"), "{text}");
        assert!(of_server(&[("lease", "-1")]).is_err());
    }

    #[test]
    fn the_last_value_of_an_option_takes_effect() {
        assert_eq!(find(&[("name", "a"), ("name", "b")], "name"), Some("b"));
        assert_eq!(find(&[], "name"), None);
        assert!(addresses(" a:1, ,b:2,").eq(["a:1", "b:2"]));
    }
}
