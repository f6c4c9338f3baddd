//! [`create`]: stores by name.

use std::sync::Arc;

use kvstore_core::{Error, LocalStore, Result};
use strsim::levenshtein;

use crate::runtime::backends;
use crate::store::Store;

/// Names of stores that are known but not provided, with the reason.
const NOT_PROVIDED: [(&str, &str); 2] =
    [("nccl", "stores on NCCL"), ("p3", "stores with priority-based parameter propagation")];

/// Returns a store of the kind with this name. It is empty unless servers hold its values. Upper
/// and lower case are equal.
///
/// | name | where the store sums the values of a key |
/// |---|---|
/// | `local`, `local_update_cpu`, `local_allreduce_cpu` | on the host |
/// | `device`, `local_allreduce_device` | on the device of the first value |
/// | `dist_sync`, `dist` | like `local`, then over all processes of the MPI job |
/// | `dist_device_sync`, `dist_sync_device` | like `device`, then over all processes of the job |
/// | `dist_async`, `dist_device_async`, `dist_async_device` | on the servers in `KVSTORE_SERVERS` |
/// | `dist_quorum` | there, over the workers of a round; see [`NetStoreOptions::quorum`] |
///
/// [`create_with`] sets options.
///
/// [`NetStoreOptions::quorum`]: crate::NetStoreOptions::quorum
///
/// # Errors
/// - [`Error::InvalidArgument`] if the name is unknown. The message lists the known names and the
///   nearest one.
/// - [`Error::Unsupported`] if stores of this kind are not provided, or MPI is not installed.
/// - [`Error::InvalidArgument`] for `dist_async` if the servers are not known.
/// - [`Error::Timeout`] if another process of the job does not create its store in time, or a
///   server does not answer.
/// - [`Error::Transport`] if MPI fails.
pub fn create(name: &str) -> Result<Store> {
    create_with(name, &[])
}

/// Returns a store of the kind with this name, with options by name. Only stores on servers
/// have options.
///
/// | option | default | meaning |
/// |---|---|---|
/// | `servers` | `KVSTORE_SERVERS` | addresses, `HOST:PORT`, separated by commas |
/// | `coordinator` | `KVSTORE_COORDINATOR` | `etcd://HOST:PORT,../GROUP`, which has the addresses |
/// | `coordinator_certificates` | `KVSTORE_COORDINATOR_CERTIFICATES` | the folder for it |
/// | `name` | a new one | the name of this member; see [`NetStoreOptions::name`] |
/// | `timeout` | `KVSTORE_DIST_TIMEOUT`, or 300 | how many seconds a call waits |
/// | `staleness` | no bound | pulls wait for workers that are further behind |
/// | `reader` | `false` | whether this member never pushes |
/// | `connections` | 1 | the number of connections to each server |
/// | `divide_above` | 4 MiB | larger values are divided among the servers, in bytes |
/// | `certificates` | `KVSTORE_CERTIFICATES` | the folder of the certificate of this member |
/// | `insecure` | `KVSTORE_INSECURE`, or `false` | permits other machines without certificates |
/// | `quorum` | none; `dist_quorum` needs it | the least number of members of a round |
/// | `grace` | 1 | how many seconds a round with this number waits for others |
/// | `late` | `reject` | whether late pushes fail, or with `next` belong to the next round |
/// | `weight` | none | the weight of this worker, if a round computes the weighted mean |
///
/// [`NetStoreOptions::name`]: crate::NetStoreOptions::name
///
/// # Errors
/// - [`Error::InvalidArgument`] if the kind has no such option, or a value is not valid.
/// - The errors of [`create`].
pub fn create_with(name: &str, options: &[(&str, &str)]) -> Result<Store> {
    let lower = name.to_lowercase();
    if let Some(store) = on_servers(&lower, options) {
        return store;
    }
    let is_known = LocalStore::NAMES.contains(&&*lower) || SPANNING.contains(&&*lower);
    if let Some((option, _)) = options.first().filter(|_| is_known) {
        return Err(Error::invalid(format!(
            "unknown option `{option}`: stores of type `{lower}` have no options"
        )));
    }
    if let Some(store) = LocalStore::new(&lower, backends().clone()) {
        return Ok(Store::new(Arc::new(store)));
    }
    if let Some(store) = span_processes(&lower) {
        return store;
    }
    if let Some((_, what)) = NOT_PROVIDED.iter().find(|(known, _)| *known == lower) {
        let text = format!("store type `{lower}`: {what} are not supported");
        return Err(Error::Unsupported(text));
    }
    let known: Vec<&str> =
        LocalStore::NAMES.into_iter().chain(SPANNING).chain(ON_SERVERS).collect();
    let nearest =
        known.iter().min_by_key(|known| levenshtein(known, &lower)).copied().unwrap_or("local");
    Err(Error::invalid(format!(
        "unknown store type `{name}`: did you mean `{nearest}`? Expected one of {}",
        known.join(", ")
    )))
}

#[cfg(feature = "dist")]
use crate::dist::{NAMES as SPANNING, create as span_processes};

#[cfg(feature = "net")]
use crate::net::{NAMES as ON_SERVERS, create as on_servers};

/// The names of stores that span processes.
#[cfg(not(feature = "dist"))]
const SPANNING: [&str; 4] = ["dist", "dist_sync", "dist_device_sync", "dist_sync_device"];

#[cfg(not(feature = "dist"))]
fn span_processes(name: &str) -> Option<Result<Store>> {
    SPANNING.contains(&name).then(|| Err(left_out(name, "dist")))
}

/// The names of stores on servers.
#[cfg(not(feature = "net"))]
const ON_SERVERS: [&str; 4] =
    ["dist_async", "dist_device_async", "dist_async_device", "dist_quorum"];

#[cfg(not(feature = "net"))]
fn on_servers(name: &str, _options: &[(&str, &str)]) -> Option<Result<Store>> {
    ON_SERVERS.contains(&name).then(|| Err(left_out(name, "net")))
}

/// The error for a store of a feature that this build does not have.
#[cfg(not(all(feature = "dist", feature = "net")))]
fn left_out(name: &str, feature: &str) -> Error {
    Error::Unsupported(format!(
        "store type `{name}`: this build has no distributed stores (feature `{feature}`)"
    ))
}

#[cfg(test)]
mod tests {
    use kvstore_core::ErrorCode;

    use super::*;

    #[test]
    fn the_error_proposes_the_nearest_name() {
        let text = create("locale").unwrap_err().to_string();
        assert!(text.contains("did you mean `local`?"), "{text}");
        assert!(text.contains("local_allreduce_device"), "{text}");
        let text = create("foo").unwrap_err().to_string();
        assert!(!text.contains("p3"), "what is not provided is not proposed: {text}");
    }

    #[test]
    fn only_stores_on_servers_have_options() {
        for name in ["local", "Device", "dist_sync"] {
            let text = create_with(name, &[("staleness", "1")]).unwrap_err().to_string();
            assert!(text.contains("unknown option `staleness`"), "{text}");
        }
    }

    #[test]
    fn names_are_matched_completely_and_in_any_case() {
        assert_eq!(create("LOCAL").unwrap().name(), "local");
        assert_eq!(create("").unwrap_err().code(), ErrorCode::InvalidArgument);
        assert_eq!(create("my_device").unwrap_err().code(), ErrorCode::InvalidArgument);
        assert_eq!(create("p3").unwrap_err().code(), ErrorCode::Unsupported);
    }
}
