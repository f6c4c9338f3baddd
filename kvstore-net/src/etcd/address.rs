//! [`Address`]: where the state of a group is.

use kvstore_core::{Error, Result};

/// The start of an address.
const SCHEME: &str = "etcd://";

/// The name of a group whose address has none.
const DEFAULT_GROUP: &str = "kvstore";

/// The most bytes of the name of a group.
const MOST_GROUP_BYTES: usize = 256;

/// Where the state of a group is: the addresses of etcd, and the name of the group in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    pub(crate) endpoints: Vec<String>,
    pub(crate) group: String,
}

impl Address {
    /// Returns the address in a text such as `etcd://10.0.0.1:2379,10.0.0.2:2379/group`. The
    /// default group is `kvstore`.
    ///
    /// # Errors
    /// - [`Error::InvalidArgument`] if the text is not such an address.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let wrong = || {
            Error::invalid(format!(
                "coordinator: expected etcd://HOST:PORT,../GROUP, where the group has letters, \
                 digits, `-`, `_` and `.`, found `{text}`"
            ))
        };
        let rest = text.strip_prefix(SCHEME).ok_or_else(wrong)?;
        let (list, group) = rest.split_once('/').unwrap_or((rest, DEFAULT_GROUP));
        let group = if group.is_empty() { DEFAULT_GROUP } else { group };
        let is_letter = |letter: u8| letter.is_ascii_alphanumeric() || b"-_.".contains(&letter);
        if group.len() > MOST_GROUP_BYTES || !group.bytes().all(is_letter) {
            return Err(wrong());
        }
        let is_endpoint = |endpoint: &str| {
            let has_port = |(host, port): (&str, &str)| {
                !host.is_empty()
                    && !host.contains('@')
                    && port.parse().is_ok_and(|port: u16| port > 0)
            };
            endpoint.rsplit_once(':').is_some_and(has_port)
        };
        let endpoints: Vec<String> = list.split(',').map(|each| each.trim().to_owned()).collect();
        if !endpoints.iter().all(|endpoint| is_endpoint(endpoint)) {
            return Err(wrong());
        }
        Ok(Self { endpoints, group: group.to_owned() })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_endpoints_and_a_group() {
        for (text, endpoints, group) in [
            ("etcd://127.0.0.1:2379", "127.0.0.1:2379", "kvstore"),
            ("etcd://a:1/", "a:1", "kvstore"),
            ("etcd://a:1, b:2,[::1]:3/run-7_b.c", "a:1|b:2|[::1]:3", "run-7_b.c"),
        ] {
            let found = Address::parse(text).unwrap();
            assert_eq!(
                (found.endpoints.join("|").as_str(), found.group.as_str()),
                (endpoints, group)
            );
        }
    }

    #[test]
    fn other_texts_are_rejected() {
        for text in [
            "",
            "127.0.0.1:2379",
            "http://a:1",
            "etcd://",
            "etcd://a",
            "etcd://a:0",
            "etcd://a:x",
            "etcd://:1",
            "etcd://a:1,",
            "etcd://a:1/b/c",
            "etcd://a:1/b c",
            "etcd://user@a:1",
        ] {
            let error = Address::parse(text).unwrap_err().to_string();
            assert!(error.contains(&format!("found `{text}`")), "{error}");
        }
    }
}
