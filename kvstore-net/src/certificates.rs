//! [`Certificates`]: the identity of a process, and the authority that it trusts.

use std::error::Error as StdError;
use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use kvstore_core::{Error, Result};
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use tonic::Status;
use tonic::transport::{Certificate, ClientTlsConfig, Identity};

/// How long a peer may take to prove who it is.
pub(crate) const HANDSHAKE: Duration = Duration::from_secs(10);

/// The most encrypted bytes that are read at once. `rustls` reads 4 KiB, and so needs up to five
/// reads for the 16 KiB that are encrypted together.
pub(crate) const ENCRYPTED: usize = 1 << 16;

/// The certificate of a process, its private key, and the authority that it trusts.
///
/// With certificates, connections are encrypted (TLS 1.2 or 1.3), and both sides must have a
/// certificate of the authority. The organizational unit (OU) in the subject of a member's
/// certificate is its role:
///
/// | role | what its calls may do |
/// |---|---|
/// | `reader` | read values, snapshots, settings and the status |
/// | `worker` | also change values and settings, wait at barriers, write checkpoints |
/// | `server` | also lead rounds over several servers |
/// | `admin` | also remove keys, roll back, restore, send commands |
///
/// A certificate with another role, or with none, may do nothing.
#[derive(Clone)]
pub struct Certificates {
    folder: PathBuf,
    authority: Certificate,
    certificate: Vec<u8>,
    key: Vec<u8>,
}

impl fmt::Debug for Certificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Certificates").field("folder", &self.folder).finish_non_exhaustive()
    }
}

impl Certificates {
    /// Reads the files of a folder, all in the format PEM: `ca.pem`, the certificate of the
    /// authority; `cert.pem`, the certificate of this process, possibly followed by intermediate
    /// ones; and `key.pem`, its private key. The command `kvstore certs` makes such folders.
    ///
    /// # Errors
    /// - [`Error::InvalidArgument`] if a file cannot be read, or does not contain what it should.
    pub fn read(folder: impl Into<PathBuf>) -> Result<Self> {
        let folder = folder.into();
        let authority = Certificate::from_pem(pem(&folder, "ca.pem", "CERTIFICATE")?);
        let certificate = pem(&folder, "cert.pem", "CERTIFICATE")?;
        let key = pem(&folder, "key.pem", "PRIVATE KEY")?;
        let certificates = Self { folder, authority, certificate, key };
        // A damaged file is reported here, where its folder is known.
        certificates.of_server()?;
        Ok(certificates)
    }

    fn identity(&self) -> Identity {
        Identity::from_pem(&self.certificate, &self.key)
    }

    /// Returns the settings of a gRPC server, whose members need certificates.
    pub(crate) fn of_server(&self) -> Result<Arc<rustls::ServerConfig>> {
        self.of_server_for(Vec::from([Vec::from(b"h2")]))
    }

    /// Returns the settings of an HTTP server, whose clients also need certificates.
    pub(crate) fn of_http_server(&self) -> Result<Arc<rustls::ServerConfig>> {
        self.of_server_for(Vec::new())
    }

    /// Returns the settings of a server for these protocols, or for any.
    fn of_server_for(&self, protocols: Vec<Vec<u8>>) -> Result<Arc<rustls::ServerConfig>> {
        let wrong = |cause: &dyn fmt::Display| {
            Error::invalid(format!("certificates in `{}`: {cause}", self.folder.display()))
        };
        let in_pem = |pem: &[u8]| {
            let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
            found.map_err(|error| wrong(&error))
        };
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(in_pem(self.authority.as_ref())?);
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
        let verifier = verifier.build().map_err(|error| wrong(&error))?;
        let key = PrivateKeyDer::from_pem_slice(&self.key).map_err(|error| wrong(&error))?;
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| wrong(&error))?
            .with_client_cert_verifier(verifier)
            .with_single_cert(in_pem(&self.certificate)?, key);
        let mut config = config.map_err(|error| wrong(&error))?;
        config.alpn_protocols = protocols;
        Ok(Arc::new(config))
    }

    /// Returns the settings of a member.
    pub(crate) fn of_member(&self) -> ClientTlsConfig {
        let member = ClientTlsConfig::new().identity(self.identity());
        member.ca_certificate(self.authority.clone()).timeout(HANDSHAKE)
    }

    pub(crate) fn not_valid(&self, error: &tonic::transport::Error) -> Error {
        let (folder, cause) = (self.folder.display(), deepest(error));
        Error::invalid(format!("certificates in `{folder}`: {cause}"))
    }
}

/// Reads a file that must have a section of this kind.
#[expect(clippy::disallowed_methods, reason = "these files are short")]
fn pem(folder: &Path, name: &str, kind: &str) -> Result<Vec<u8>> {
    let file = folder.join(name);
    let shown = file.display();
    let text = std::fs::read(&file)
        .map_err(|error| Error::invalid(format!("certificates: cannot read `{shown}`: {error}")))?;
    // A private key may have its algorithm in this line.
    let is_start = |line: &[u8]| {
        line.starts_with(b"-----BEGIN ") && line.ends_with(format!("{kind}-----").as_bytes())
    };
    if !text.split(|byte| *byte == b'\n').any(|line| is_start(line.trim_ascii_end())) {
        return Err(Error::invalid(format!(
            "certificates: `{shown}`: expected a file in the format PEM with a section `{kind}`"
        )));
    }
    Ok(text)
}

/// Checks that no other machine can reach an address, because connections without certificates are
/// neither authenticated nor encrypted.
///
/// # Errors
/// - [`Error::InvalidArgument`] if another machine can reach it, or it is not an address.
pub(crate) fn check_on_this_machine(what: &str, address: &str) -> Result<()> {
    let found = address.to_socket_addrs().map_err(|error| {
        Error::invalid(format!("{what}: expected HOST:PORT, found `{address}`: {error}"))
    })?;
    let open: Option<SocketAddr> =
        found.into_iter().find(|address| !address.ip().to_canonical().is_loopback());
    let Some(open) = open else { return Ok(()) };
    Err(Error::invalid(format!(
        "{what}: `{address}` is {open}, which is not an address of this machine alone, and without \
         certificates, connections are neither authenticated nor encrypted: set `certificates` \
         (KVSTORE_CERTIFICATES), or, in a private network, `insecure` (KVSTORE_INSECURE)"
    )))
}

/// Returns why the other side or this one has refused the certificate of a connection, or that one
/// side uses certificates and the other does not. Returns `None` for other errors.
pub(crate) fn refusal(status: &Status) -> Option<String> {
    let mut source = StdError::source(status);
    while let Some(error) = source {
        match as_tls(error) {
            Some(rustls::Error::InvalidMessage(_)) => {
                let text = "the server does not use certificates, or is another program";
                return Some(text.to_owned());
            }
            Some(refused) => return Some(format!("certificates: {refused}")),
            None => source = error.source(),
        }
    }
    // The HTTP library turns an alert that arrives after the handshake into a text.
    let text = deepest(status);
    if text.contains("received fatal alert") {
        return Some(format!("certificates: {text}"));
    }
    // That is how it reads an alert that arrives instead of HTTP.
    text.contains("frame with invalid size").then(|| {
        "the server uses certificates, and this member does not, or it is another program"
            .to_owned()
    })
}

/// Returns an error of TLS, which may be inside of one of the system.
fn as_tls<'a>(error: &'a (dyn StdError + 'static)) -> Option<&'a rustls::Error> {
    let inner = || error.downcast_ref::<std::io::Error>()?.get_ref()?.downcast_ref();
    error.downcast_ref().or_else(inner)
}

/// Returns the text of the deepest cause.
fn deepest(error: &(dyn StdError + 'static)) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}

/// The certificates of a connection, or that it has none on purpose.
#[derive(Clone, Debug, Default)]
pub(crate) struct Security {
    pub(crate) certificates: Option<Arc<Certificates>>,
    pub(crate) is_insecure: bool,
}

impl Security {
    /// Returns the certificates to use for an address, or `None` for plain text.
    ///
    /// # Errors
    /// - [`Error::InvalidArgument`] if there are none, although the address needs them, or if plain
    ///   text was requested, too.
    pub(crate) fn of(&self, what: &str, address: &str) -> Result<Option<&Certificates>> {
        match (&self.certificates, self.is_insecure) {
            (Some(_), true) => Err(Error::invalid(
                "`certificates` and `insecure`: expected one of them, found both",
            )),
            (Some(certificates), false) => Ok(Some(certificates)),
            (None, true) => Ok(None),
            (None, false) => check_on_this_machine(what, address).map(|()| None),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_of_this_machine_alone_need_no_certificates() {
        for address in ["127.0.0.1:0", "127.8.9.1:80", "[::1]:9", "[::ffff:127.0.0.1]:1"] {
            check_on_this_machine("address", address).unwrap();
        }
        for address in ["0.0.0.0:0", "[::]:9191", "10.0.0.1:1", "192.0.2.1:9191"] {
            let text = check_on_this_machine("address", address).unwrap_err().to_string();
            assert!(text.contains(address) && text.contains("`insecure`"), "{text}");
        }
        for address in ["127.0.0.1", "", "127.0.0.1:70000"] {
            let text = check_on_this_machine("address", address).unwrap_err().to_string();
            assert!(text.contains("expected HOST:PORT"), "{text}");
        }
    }
}
