//! Options by name, for programs in other languages: those of a store on servers, and those of a
//! server.

use std::fs;
use std::io::Read;
use std::num::NonZeroUsize;
use std::str::FromStr;
use std::time::Duration;

use kvstore_core::{Error, Result};
use kvstore_net::{Certificates, JournalMode, LatePush, NetStoreOptions, ServerOptions};
use strsim::levenshtein;
use toml::Table;

use super::coordinator::{coordinate, index_in};
use crate::environment::{self, variable};

/// The options of a store on servers.
const OF_STORE: [&str; 15] = [
    "servers",
    "coordinator",
    "coordinator_certificates",
    "name",
    "timeout",
    "staleness",
    "reader",
    "connections",
    "divide_above",
    "certificates",
    "insecure",
    "quorum",
    "grace",
    "late",
    "weight",
];

/// The names of the options of [`serve`](crate::serve). The commands that start servers have a
/// setting of the same name for each.
pub const SERVER_OPTIONS: [&str; 23] = [
    "config",
    "address",
    "store",
    "checkpoints",
    "recovery",
    "save_every",
    "journal",
    "journal_mode",
    "journal_required",
    "lease",
    "certificates",
    "insecure",
    "peer_connections",
    "peer_bytes",
    "keys",
    "metrics",
    "status_page",
    "followers",
    "coordinator",
    "coordinator_certificates",
    "server_index",
    "num_servers",
    "advertise",
];

/// The environment variables with the folder of the certificates, and with whether connections may
/// do without.
const CERTIFICATES_VARIABLE: &str = "KVSTORE_CERTIFICATES";
const INSECURE_VARIABLE: &str = "KVSTORE_INSECURE";

/// The options of the same meaning. One at most may be set.
const CERTIFICATES: &str = "certificates";
const INSECURE: &str = "insecure";

/// The address that a server listens on if none is given.
pub const DEFAULT_ADDRESS: &str = "127.0.0.1:9191";

/// The most bytes of a configuration file.
const MOST_CONFIG_BYTES: u64 = 1 << 20;

/// What a count must be.
const WHOLE: &str = "a whole number above 0";

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

/// How connections are protected.
enum Protection {
    /// Only on this machine, without encryption.
    Local,
    Certificates(Certificates),
    /// Not at all.
    Insecure,
}

impl Protection {
    /// Returns the protection in the options, or otherwise that in the environment.
    ///
    /// # Errors
    /// - [`Error::InvalidArgument`] if a value is not valid, or both are set.
    fn of(options: &[(&str, &str)]) -> Result<Self> {
        let folder = find(options, CERTIFICATES);
        let insecure = find(options, INSECURE).map(|value| truth(INSECURE, value)).transpose()?;
        // A variable takes effect if no option contradicts it.
        let (folder, names) = match folder {
            Some(folder) => {
                (Some(folder.to_owned()), "option `certificates` and option `insecure`")
            }
            None if insecure == Some(true) => (None, ""),
            None => (variable(CERTIFICATES_VARIABLE), "KVSTORE_CERTIFICATES and KVSTORE_INSECURE"),
        };
        let is_insecure = match (insecure, variable(INSECURE_VARIABLE)) {
            (Some(given), _) => given,
            (None, Some(found)) if find(options, CERTIFICATES).is_none() => is_true(&found)
                .ok_or_else(|| {
                    let text = "expected true or false";
                    Error::invalid(format!("{INSECURE_VARIABLE}: {text}, found `{found}`"))
                })?,
            (None, _) => false,
        };
        match (folder, is_insecure) {
            (Some(_), true) => {
                Err(Error::invalid(format!("{names}: expected one of them, found both")))
            }
            (Some(folder), false) => Certificates::read(folder).map(Self::Certificates),
            (None, true) => Ok(Self::Insecure),
            (None, false) => Ok(Self::Local),
        }
    }
}

/// Sets the certificates of a store.
///
/// # Errors
/// - [`Error::InvalidArgument`] if a value is not valid.
pub(super) fn protected(
    store: NetStoreOptions,
    options: &[(&str, &str)],
) -> Result<NetStoreOptions> {
    Ok(match Protection::of(options)? {
        Protection::Local => store,
        Protection::Certificates(certificates) => store.certificates(certificates),
        Protection::Insecure => store.insecure(),
    })
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
            "servers"
            | "coordinator"
            | "coordinator_certificates"
            | "certificates"
            | "insecure" => store,
            "reader" => {
                is_reader = truth(name, value)?;
                store
            }
            "connections" => store.connections(parse::<NonZeroUsize>(name, value, WHOLE)?),
            "divide_above" => store.divide_above(parse(name, value, "a number of bytes")?),
            "quorum" => store.quorum(parse::<NonZeroUsize>(name, value, WHOLE)?.get()),
            "grace" => store.grace(
                environment::duration(value)
                    .ok_or_else(|| wrong(name, value, "a number of seconds of at least 0"))?,
            ),
            "late" => store.late(match *value {
                "reject" => LatePush::Reject,
                "next" => LatePush::Next,
                _ => return Err(wrong(name, value, "`reject` or `next`")),
            }),
            "weight" => store.weight(parse(name, value, "a number above 0")?),
            _ => return Err(unknown(name, &OF_STORE)),
        };
    }
    store.check()?;
    protected(if is_reader { store.reader() } else { store }, options)
}

/// Returns the options of a server.
///
/// # Errors
/// - [`Error::InvalidArgument`] if a name is not an option, or a value is not valid.
pub(super) fn of_server(options: &[(&str, &str)]) -> Result<ServerOptions> {
    let configured = find(options, "config").map_or(Ok(Vec::new()), read_config)?;
    // An option of the caller replaces that of the file, and one that contradicts it.
    let insecure = find(options, INSECURE).map(|value| truth(INSECURE, value)).transpose()?;
    let is_replaced = |name: &str| {
        find(options, name).is_some()
            || name == CERTIFICATES && insecure == Some(true)
            || name == INSECURE && find(options, CERTIFICATES).is_some()
    };
    let configured = configured.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    let configured = configured.filter(|(name, _)| !is_replaced(name));
    let options: Vec<(&str, &str)> = configured.chain(options.iter().copied()).collect();
    let options = &options;
    let mut server = ServerOptions::new(find(options, "address").unwrap_or(DEFAULT_ADDRESS));
    let mode = match (find(options, "journal_mode"), find(options, "journal")) {
        (None, _) => JournalMode::default(),
        (Some(mode), Some(_)) => JournalMode::from_name(mode)
            .map_err(|_| wrong("journal_mode", mode, "order or full"))?,
        (Some(_), None) => {
            let text = "option `journal_mode`: expected also `journal`, the file of the journal";
            return Err(Error::invalid(text));
        }
    };
    for (name, value) in options {
        server = match *name {
            "status_page" if truth(name, value)? => server.status_page(),
            "journal_required" if truth(name, value)? => server.journal_required(),
            // Set before or after the others, or switched off.
            "config"
            | "address"
            | "certificates"
            | "insecure"
            | "status_page"
            | "journal_mode"
            | "journal_required"
            | "coordinator"
            | "coordinator_certificates"
            | "server_index"
            | "num_servers" => server,
            "advertise" => server.advertise(*value),
            "store" => server.store(*value),
            "checkpoints" => server.checkpoints(*value),
            "recovery" => server.recovery(*value),
            "save_every" => server.save_every(seconds(name, value)?),
            "journal" => server.journal(*value, mode),
            "lease" => server.lease(seconds(name, value)?),
            "peer_connections" => {
                server.peer_connections(parse::<NonZeroUsize>(name, value, WHOLE)?.get())
            }
            "peer_bytes" => server.peer_bytes(parse::<NonZeroUsize>(name, value, WHOLE)?.get()),
            "metrics" => server.metrics(*value),
            "followers" => lead(server, value, options)?,
            "keys" => server.keys(parse::<NonZeroUsize>(name, value, WHOLE)?.get()),
            _ => return Err(unknown(name, &SERVER_OPTIONS)),
        };
    }
    let server = coordinate(server, options)?;
    Ok(match Protection::of(options)? {
        Protection::Local => server,
        Protection::Certificates(certificates) => server.certificates(certificates),
        Protection::Insecure => server.insecure(),
    })
}

/// Sets the servers that a server leads if it is the first one. All servers may have the same list.
///
/// # Errors
/// - [`Error::InvalidArgument`] if the list is empty, or shorter than the index of the server.
fn lead(server: ServerOptions, list: &str, options: &[(&str, &str)]) -> Result<ServerOptions> {
    let followers: Vec<&str> = addresses(list).collect();
    if followers.is_empty() {
        return Err(wrong("followers", list, "HOST:PORT, separated by commas"));
    }
    let (index, num_followers) = (index_in(options)?, followers.len());
    if index as usize > num_followers {
        let expected = format!("at most {num_followers}, the number of `followers`");
        return Err(wrong("server_index", &index.to_string(), &expected));
    }
    // With a coordinator, the list is an error, whatever the index.
    let has_list = index == 0 || find(options, "coordinator").is_some();
    Ok(if has_list { server.followers(followers) } else { server })
}

/// Returns the options in a configuration file.
///
/// # Errors
/// - [`Error::Io`] if the file cannot be read.
/// - [`Error::InvalidArgument`] if it is not TOML, an option is unknown, or a value is not a
///   string, a number or a truth value.
#[expect(clippy::disallowed_methods, reason = "a configuration file is short")]
fn read_config(file: &str) -> Result<Vec<(String, String)>> {
    let failed = |source| Error::Io { path: file.into(), operation: "read".to_owned(), source };
    let in_file = |text: &str| Error::invalid(format!("configuration file `{file}`: {text}"));
    let mut text = String::new();
    let opened = fs::File::open(file).map_err(failed)?;
    opened.take(MOST_CONFIG_BYTES + 1).read_to_string(&mut text).map_err(failed)?;
    if text.len() as u64 > MOST_CONFIG_BYTES {
        return Err(in_file(&format!("expected at most {MOST_CONFIG_BYTES} bytes")));
    }
    let table: Table =
        text.parse().map_err(|error: toml::de::Error| in_file(&error.to_string()))?;
    let option = |(name, value): (String, toml::Value)| {
        if name == "config" || !SERVER_OPTIONS.contains(&&*name) {
            return Err(in_file(&unknown(&name, &SERVER_OPTIONS[1..]).to_string()));
        }
        let value = match value {
            toml::Value::String(text) => text,
            toml::Value::Integer(_) | toml::Value::Float(_) | toml::Value::Boolean(_) => {
                value.to_string()
            }
            other => {
                let text = "expected a string, a number, true or false";
                return Err(in_file(&format!("option `{name}`: {text}, found `{other}`")));
            }
        };
        Ok((name, value))
    };
    table.into_iter().map(option).collect()
}

fn seconds(name: &str, value: &str) -> Result<Duration> {
    environment::seconds(value).ok_or_else(|| wrong(name, value, "a number of seconds above 0"))
}

pub(super) fn parse<T: FromStr>(name: &str, value: &str, expected: &str) -> Result<T> {
    value.parse().map_err(|_| wrong(name, value, expected))
}

/// Returns the truth value that a text names, or `None` for other texts.
fn is_true(text: &str) -> Option<bool> {
    match text {
        "true" | "1" => Some(true),
        "false" | "0" => Some(false),
        _ => None,
    }
}

/// Returns the truth value of an option.
fn truth(name: &str, value: &str) -> Result<bool> {
    is_true(value).ok_or_else(|| wrong(name, value, "true or false"))
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
    use crate::net::serve;

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
        for name in ["peer_connections", "peer_bytes", "keys"] {
            let text = of_server(&[(name, "0")]).unwrap_err().to_string();
            assert!(text.contains(&format!("option `{name}`")), "{text}");
        }
        let text = of_server(&[("adress", "127.0.0.1:0")]).unwrap_err().to_string();
        assert!(text.contains("did you mean `address`?"), "{text}");
        assert!(of_server(&[("lease", "-1")]).is_err());
    }

    #[test]
    fn options_replace_those_of_the_configuration_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("server.toml");
        let file_name = file.to_str().unwrap();
        let read = |text: &str, options: &[(&str, &str)]| {
            fs::write(&file, text).unwrap();
            let mut all = Vec::from([("config", file_name)]);
            all.extend(options);
            of_server(&all)
        };
        let text = "address = '127.0.0.1:1'\nlease = 2.5\ninsecure = true\nkeys = 10\n";
        let debug = |options: ServerOptions| format!("{options:?}");
        let expected = of_server(&[
            ("address", "127.0.0.1:1"),
            ("lease", "2.5"),
            ("insecure", "true"),
            ("keys", "10"),
        ]);
        assert_eq!(debug(read(text, &[]).unwrap()), debug(expected.unwrap()));
        let expected = of_server(&[
            ("address", "127.0.0.1:2"),
            ("lease", "2.5"),
            ("insecure", "false"),
            ("keys", "10"),
        ]);
        let given = [("address", "127.0.0.1:2"), ("insecure", "false")];
        assert_eq!(debug(read(text, &given).unwrap()), debug(expected.unwrap()));
        // Switching `insecure` off leaves the certificates of the file.
        let error = read("certificates = 'nowhere'", &[("insecure", "false")]).unwrap_err();
        assert!(error.to_string().contains("nowhere"), "{error}");
        read("certificates = 'nowhere'", &[("insecure", "true")]).unwrap();
        // The certificates of the caller replace what the file permits.
        let error = read(text, &[("certificates", "nowhere")]).unwrap_err().to_string();
        assert!(error.contains("nowhere"), "{error}");
        for (text, expected) in [
            ("adress = 'x'", "did you mean `address`?"),
            ("config = 'x'", "unknown option `config`"),
            ("lease = [1]", "option `lease`: expected a string, a number, true or false"),
            ("lease = 0", "option `lease`"),
            ("lease", "server.toml"),
        ] {
            let error = read(text, &[]).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        assert!(of_server(&[("config", "nowhere.toml")]).is_err());
    }

    #[test]
    fn a_journal_needs_a_file() {
        let text = |options: &[(&str, &str)]| of_server(options).unwrap_err().to_string();
        assert_eq!(
            text(&[("journal_mode", "order")]),
            "option `journal_mode`: expected also `journal`, the file of the journal"
        );
        assert_eq!(
            text(&[("journal", "j"), ("journal_mode", "all")]),
            "option `journal_mode`: expected order or full, found `all`"
        );
        assert!(text(&[("journal", "j"), ("journal_required", "yes")]).contains("found `yes`"));
        let debug = |options: &[(&str, &str)]| format!("{:?}", of_server(options).unwrap());
        assert!(debug(&[("journal", "j")]).contains("Full"));
        let all = [("journal_required", "true"), ("journal_mode", "order"), ("journal", "j")];
        let all = debug(&all);
        assert!(all.contains("Order") && all.contains("is_journal_required: true"), "{all}");
    }

    #[test]
    fn only_the_first_server_leads_the_others() {
        let list = ("followers", "127.0.0.1:1,127.0.0.1:2");
        let debug = |index| format!("{:?}", of_server(&[list, ("server_index", index)]).unwrap());
        assert!(debug("0").contains("127.0.0.1:1"));
        assert_eq!(debug("2"), format!("{:?}", of_server(&[]).unwrap()));
        let text = of_server(&[list, ("server_index", "3")]).unwrap_err().to_string();
        let expected = "option `server_index`: expected at most 2, the number of `followers`";
        assert_eq!(text, format!("{expected}, found `3`"));
        for index in ["0", "1"] {
            let etcd = ("coordinator", "etcd://127.0.0.1:1");
            let all = [etcd, ("num_servers", "2"), ("server_index", index), list];
            let text = serve(&all).unwrap_err().to_string();
            assert!(text.contains("followers: expected none with `coordinator`"), "{text}");
        }
    }

    #[test]
    fn certificates_and_plain_text_exclude_each_other() {
        let both = [("certificates", "a"), ("insecure", "true")];
        assert!(of_server(&both).unwrap_err().to_string().contains("found both"));
        let none = NetStoreOptions::of_servers(["127.0.0.1:1"]);
        assert!(set_all(none, &both).unwrap_err().to_string().contains("found both"));
        let text = of_server(&[("insecure", "maybe")]).unwrap_err().to_string();
        assert!(
            text.contains("option `insecure`: expected true or false, found `maybe`"),
            "{text}"
        );
    }

    #[test]
    fn the_last_value_of_an_option_takes_effect() {
        assert_eq!(find(&[("name", "a"), ("name", "b")], "name"), Some("b"));
        assert_eq!(find(&[], "name"), None);
        assert!(addresses(" a:1, ,b:2,").eq(["a:1", "b:2"]));
    }
}
