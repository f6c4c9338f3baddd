//! The coordinator of a group, from options and variables.

use kvstore_core::{Error, Result};
use kvstore_net::{Certificates, Coordinator, NetStoreOptions, ServerOptions};

use super::SERVERS;
use super::options::{addresses, find, parse};
use crate::environment::variable;

/// The environment variables with the coordinator, and with the folder of the certificates for it.
const COORDINATOR: &str = "KVSTORE_COORDINATOR";
const CERTIFICATES: &str = "KVSTORE_COORDINATOR_CERTIFICATES";

/// Returns the coordinator at this address, with the certificates in the options or, if `variables`
/// says so, in the environment.
fn coordinator(address: &str, options: &[(&str, &str)], variables: bool) -> Result<Coordinator> {
    let coordinator = Coordinator::parse(address)?;
    let folder = find(options, "coordinator_certificates").map(str::to_owned);
    let folder = folder.or_else(|| if variables { variable(CERTIFICATES) } else { None });
    Ok(match folder {
        Some(folder) => coordinator.certificates(Certificates::read(folder)?),
        None => coordinator,
    })
}

/// Returns options with the servers or the coordinator in the options, or otherwise in the
/// environment, or `None` if neither has them.
///
/// # Errors
/// - [`Error::InvalidArgument`] if a value is not valid, or both are set.
pub(super) fn servers_in(options: &[(&str, &str)]) -> Result<Option<NetStoreOptions>> {
    let (places, list, address) = match (find(options, "servers"), find(options, "coordinator")) {
        (None, None) => ([SERVERS, COORDINATOR], variable(SERVERS), variable(COORDINATOR)),
        (list, address) => {
            let places = ["option `servers`", "option `coordinator`"];
            (places, list.map(str::to_owned), address.map(str::to_owned))
        }
    };
    match (list, address) {
        (None, None) => Ok(None),
        (Some(_), Some(_)) => {
            let [servers, coordinator] = places;
            let text = format!("{servers} and {coordinator}: expected one of them, found both");
            Err(Error::invalid(text))
        }
        (Some(list), None) => {
            let servers: Vec<&str> = addresses(&list).collect();
            if servers.is_empty() {
                return Err(Error::invalid(format!(
                    "{}: expected HOST:PORT, separated by commas, found `{list}`",
                    places[0]
                )));
            }
            Ok(Some(NetStoreOptions::of_servers(servers)))
        }
        (None, Some(address)) => {
            coordinator(&address, options, true).map(NetStoreOptions::of_coordinator).map(Some)
        }
    }
}

/// Sets the coordinator of a server, if the options have one.
///
/// # Errors
/// - [`Error::InvalidArgument`] if a value is not valid, or needs a coordinator.
pub(super) fn coordinate(server: ServerOptions, options: &[(&str, &str)]) -> Result<ServerOptions> {
    let Some(address) = find(options, "coordinator") else {
        let is_in_list = find(options, "followers").is_some();
        for (name, may_be, needs) in [
            ("coordinator_certificates", false, "`coordinator`"),
            ("server_index", is_in_list, "`coordinator` or `followers`"),
            ("num_servers", false, "`coordinator`"),
        ] {
            if let Some(found) = find(options, name).filter(|_| !may_be) {
                return Err(Error::invalid(format!(
                    "option `{name}`: expected also {needs}, found only `{found}`"
                )));
            }
        }
        return Ok(server);
    };
    let (index, num_servers) = (index_in(options)?, count_in(options, "num_servers", 1)?);
    Ok(server.coordinator(coordinator(address, options, false)?, index, num_servers))
}

/// Returns the index of a server in its group.
pub(super) fn index_in(options: &[(&str, &str)]) -> Result<u32> {
    count_in(options, "server_index", 0)
}

fn count_in(options: &[(&str, &str)], name: &str, default: u32) -> Result<u32> {
    let expected = "a whole number of at least 0";
    find(options, name).map_or(Ok(default), |found| parse(name, found, expected))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_has_servers_or_a_coordinator() {
        let text = |options: &[(&str, &str)]| servers_in(options).unwrap_err().to_string();
        let both = [("servers", "a:1"), ("coordinator", "etcd://a:1")];
        assert!(text(&both).contains("expected one of them, found both"), "{}", text(&both));
        assert!(text(&[("servers", " ,")]).contains("option `servers`: expected HOST:PORT"));
        assert!(text(&[("coordinator", "a:1")]).contains("expected etcd://HOST:PORT"));
        assert!(servers_in(&[("coordinator", "etcd://a:1/b")]).unwrap().is_some());
        let wrong = [("coordinator", "etcd://a:1"), ("coordinator_certificates", "nowhere")];
        assert!(text(&wrong).contains("nowhere"), "{}", text(&wrong));
    }

    #[test]
    fn the_place_of_a_server_needs_a_coordinator() {
        let new = || ServerOptions::new("127.0.0.1:0");
        for name in ["coordinator_certificates", "server_index", "num_servers"] {
            let text = coordinate(new(), &[(name, "1")]).unwrap_err().to_string();
            assert!(
                text.contains(&format!("option `{name}`: expected also `coordinator`")),
                "{text}"
            );
        }
        let all = [("coordinator", "etcd://a:1"), ("server_index", "-1")];
        let text = coordinate(new(), &all).unwrap_err().to_string();
        assert!(text.contains("option `server_index`") && text.contains("found `-1`"), "{text}");
    }
}
