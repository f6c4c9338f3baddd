//! [`Coordinator`]: where the state of a group is, as users give it.

use std::sync::Arc;

use kvstore_core::Result;

use crate::certificates::Certificates;
use crate::etcd::{Address, EtcdOptions};

/// Where the state of a group is: an etcd, version 3.4 or later, and the name of the group in it.
///
/// ```
/// use kvstore_net::{Coordinator, NetStoreOptions};
///
/// let coordinator = Coordinator::parse("etcd://10.0.0.1:2379,10.0.0.2:2379/digits")?;
/// let options = NetStoreOptions::of_coordinator(coordinator);
/// # Ok::<(), kvstore_core::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Coordinator {
    address: Address,
    certificates: Option<Arc<Certificates>>,
}

impl Coordinator {
    /// Returns the coordinator in a text such as `etcd://HOST:PORT,HOST:PORT/GROUP`: the members of
    /// etcd and the name of the group, by default `kvstore`.
    ///
    /// # Errors
    /// - [`Error::InvalidArgument`](kvstore_core::Error::InvalidArgument) if the text has another
    ///   form.
    pub fn parse(text: &str) -> Result<Self> {
        Ok(Self { address: Address::parse(text)?, certificates: None })
    }

    /// Sets the certificate for etcd, and makes connections to it encrypted. They need it unless
    /// etcd is on this machine, or connections without certificates are permitted.
    #[must_use]
    pub fn certificates(mut self, certificates: Certificates) -> Self {
        self.certificates = Some(Arc::new(certificates));
        self
    }

    /// Returns the options of connections to etcd.
    pub(crate) fn options(&self, is_insecure: bool) -> EtcdOptions {
        let (address, certificates) = (self.address.clone(), self.certificates.clone());
        EtcdOptions { address, certificates, is_insecure }
    }
}
