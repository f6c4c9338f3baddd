//! An authority for certificates of tests.

use std::fs;
use std::net::TcpStream;
use std::path::PathBuf;
use std::sync::Arc;

use kvstore_net::Certificates;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, KeyUsagePurpose,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use tempfile::TempDir;
use time::{Duration, OffsetDateTime};
use tonic::transport::{Certificate, ClientTlsConfig, Identity};

/// An authority, and the folders of its certificates.
pub(crate) struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    folder: TempDir,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        Self { issuer, folder: tempfile::tempdir().unwrap() }
    }

    /// Returns a certificate for the role and `127.0.0.1`.
    pub(crate) fn issue(&self, role: &str) -> Certificates {
        Certificates::read(self.folder(role, |_| {})).unwrap()
    }

    /// Returns a certificate whose parameters `change` has changed.
    pub(crate) fn issue_with(
        &self,
        role: &str,
        change: impl FnOnce(&mut CertificateParams),
    ) -> Certificates {
        Certificates::read(self.folder(role, change)).unwrap()
    }

    /// Encrypts a connection to `127.0.0.1`, with a certificate for the role or without one.
    pub(crate) fn encrypted(
        &self,
        stream: TcpStream,
        role: Option<&str>,
    ) -> StreamOwned<ClientConnection, TcpStream> {
        let mut roots = RootCertStore::empty();
        roots.add(self.issuer.as_ref().der().clone()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider);
        let config = config.with_safe_default_protocol_versions().unwrap();
        let config = config.with_root_certificates(roots);
        let config = match role {
            None => config.with_no_client_auth(),
            Some(role) => {
                let folder = self.folder(role, |_| {});
                let file = |name: &str| fs::read(folder.join(name)).unwrap();
                let certificate = CertificateDer::from_pem_slice(&file("cert.pem")).unwrap();
                let key = PrivateKeyDer::from_pem_slice(&file("key.pem")).unwrap();
                config.with_client_auth_cert(vec![certificate], key).unwrap()
            }
        };
        let host = ServerName::try_from("127.0.0.1").unwrap();
        StreamOwned::new(ClientConnection::new(Arc::new(config), host).unwrap(), stream)
    }

    /// Returns the settings of a gRPC client, with a certificate for the role or without one.
    pub(crate) fn client(&self, role: Option<&str>) -> ClientTlsConfig {
        let authority = Certificate::from_pem(self.issuer.as_ref().pem());
        let client = ClientTlsConfig::new().ca_certificate(authority);
        let Some(role) = role else { return client };
        let folder = self.folder(role, |_| {});
        let file = |name: &str| fs::read(folder.join(name)).unwrap();
        client.identity(Identity::from_pem(file("cert.pem"), file("key.pem")))
    }

    /// Returns the folder of a new certificate.
    pub(crate) fn folder(
        &self,
        role: &str,
        change: impl FnOnce(&mut CertificateParams),
    ) -> PathBuf {
        let mut params = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
        params.distinguished_name.push(DnType::OrganizationalUnitName, role);
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let folder = tempfile::tempdir_in(&self.folder).unwrap().keep();
        fs::write(folder.join("ca.pem"), self.issuer.as_ref().pem()).unwrap();
        fs::write(folder.join("cert.pem"), certificate.pem()).unwrap();
        fs::write(folder.join("key.pem"), key.serialize_pem()).unwrap();
        folder
    }
}

/// Makes a certificate that has expired an hour ago.
pub(crate) fn expired(params: &mut CertificateParams) {
    params.not_before = OffsetDateTime::now_utc() - Duration::days(2);
    params.not_after = OffsetDateTime::now_utc() - Duration::hours(1);
}
