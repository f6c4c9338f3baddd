//! `kvstore certs`.

use std::fs;
use std::io::Write;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use clap::ArgMatches;
use kvstore::Error;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose, PublicKeyData,
};
use time::{Duration, OffsetDateTime};
use x509_parser::pem::parse_x509_pem;

use crate::get;
use crate::serve::report;

/// The roles, each with its folder.
const ROLES: [&str; 4] = ["server", "worker", "reader", "admin"];

/// How long a new authority is valid. Later, its certificates are not valid either.
const AUTHORITY_DAYS: i64 = 3650;

/// The most letters of a name of DNS.
const MOST_NAME: usize = 253;

/// How long before now certificates become valid, because clocks differ.
const EARLIER: Duration = Duration::hours(1);

/// Makes an authority, unless there is one, and a certificate for each role.
pub(crate) fn run(arguments: &ArgMatches) -> Result<(), Error> {
    let days = days(arguments)?;
    let hosts = hosts(get(arguments, "hosts"))?;
    let folder = PathBuf::from(get(arguments, "folder"));
    if folder.as_os_str().is_empty() {
        return Err(Error::invalid("--folder: expected a path, found an empty string"));
    }
    create_folder(&folder)?;
    // Two runs at the same time would mix two authorities.
    let lock = folder.join(".lock");
    let locked = fs::File::create(&lock).map_err(|source| io("create", &lock, source))?;
    locked.lock().map_err(|source| io("lock", &lock, source))?;
    let (certificate, key) = (folder.join("ca.pem"), folder.join("ca-key.pem"));
    let is_new = !key.exists();
    if is_new && certificate.exists() {
        return Err(Error::invalid(format!(
            "--folder: `{}` has an authority (ca.pem) without its key (ca-key.pem): bring the key \
             back, or use another folder",
            folder.display()
        )));
    }
    if is_new {
        let authority = authority()?;
        write(&certificate, &authority.as_ref().pem(), Access::All)?;
        write(&key, &authority.key().serialize_pem(), Access::Owner)?;
        issue_all(&authority, &authority.as_ref().pem(), (&folder, &hosts, days))?;
    } else {
        let pem = read(&certificate)?;
        let key_pair = KeyPair::from_pem(&read(&key)?).map_err(|error| not_valid(&key, error))?;
        check_authority((&certificate, &pem), (&key, &key_pair))?;
        let issuer = Issuer::from_ca_cert_pem(&pem, key_pair);
        let issuer = issuer.map_err(|error| not_valid(&certificate, error))?;
        issue_all(&issuer, &pem, (&folder, &hosts, days))?;
    }
    let authority = if is_new { "a new authority" } else { "the existing authority" };
    report(&format!("{}: {authority} (keep ca-key.pem secret)", folder.display()));
    for role in ROLES {
        report(&format!("{}: role {role}, valid for {days} days", folder.join(role).display()));
    }
    report(&format!("the server certificate is valid for: {}", hosts.join(", ")));
    Ok(())
}

fn days(arguments: &ArgMatches) -> Result<i64, Error> {
    let found = get(arguments, "days");
    let days = found.parse().ok().filter(|days| (1..AUTHORITY_DAYS).contains(days));
    days.ok_or_else(|| {
        let most = AUTHORITY_DAYS - 1;
        Error::invalid(format!("--days: expected a number from 1 to {most}, found `{found}`"))
    })
}

/// Returns the names and addresses in a list. Clients would not accept a certificate for others.
///
/// # Errors
/// - [`Error::InvalidArgument`] if an entry is neither a name of DNS nor an address.
fn hosts(text: &str) -> Result<Vec<String>, Error> {
    let hosts = || text.split(',').map(str::trim);
    if hosts().all(str::is_empty) {
        return Err(Error::invalid("--hosts: expected names and addresses, found none"));
    }
    for host in hosts() {
        if let Some(fault) = fault_of(host) {
            // The start of a long name identifies it.
            return Err(Error::invalid(format!("--hosts: `{host:.80}`: {fault}")));
        }
    }
    Ok(hosts().map(str::to_owned).collect())
}

/// Returns what is wrong with the name or address of a host.
fn fault_of(host: &str) -> Option<&'static str> {
    // A wildcard is the first label of a name.
    let name = host.strip_prefix("*.").unwrap_or(host);
    let is_letter = |letter: u8| letter.is_ascii_alphanumeric() || b"-_".contains(&letter);
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(is_letter)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let is_number = |label: &str| label.bytes().all(|letter| letter.is_ascii_digit());
    if host.parse::<IpAddr>().is_ok() {
        None
    } else if host.is_empty() {
        Some("expected a name or an address between the commas")
    } else if !host.is_ascii() {
        Some("expected the ASCII form of the name (xn--..)")
    } else if host.contains([':', '[', ']', '/', '%']) {
        Some("expected an address without port, brackets, zone and network")
    } else if host.len() > MOST_NAME {
        Some("expected a name of at most 253 letters")
    } else if !name.split('.').all(is_label) {
        Some("expected a name like `server-1.example.org` or `*.example.org`, or an address")
    } else if name.rsplit('.').next().is_some_and(is_number) {
        Some("expected an address of four numbers below 256, or a name that ends in letters")
    } else {
        None
    }
}

/// Checks that an authority can sign with this key: otherwise, all connections would fail.
fn check_authority(
    (certificate, pem): (&Path, &str),
    (key, key_pair): (&Path, &KeyPair),
) -> Result<(), Error> {
    let (_, found) = parse_x509_pem(pem.as_bytes())
        .map_err(|_| not_valid(certificate, "expected a certificate in the format PEM"))?;
    let found = found.parse_x509().map_err(|error| not_valid(certificate, error))?;
    if !found.is_ca() {
        return Err(not_valid(certificate, "this certificate is not that of an authority"));
    }
    if found.public_key().raw != key_pair.subject_public_key_info() {
        let text = format!("this is not the private key of `{}`", certificate.display());
        return Err(not_valid(key, text));
    }
    Ok(())
}

/// Returns a new authority.
fn authority() -> Result<CertifiedIssuer<'static, KeyPair>, Error> {
    let mut params = params("kvstore authority", None, AUTHORITY_DAYS);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = Vec::from([KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign]);
    let key = KeyPair::generate().map_err(|error| failed(&error))?;
    CertifiedIssuer::self_signed(params, key).map_err(|error| failed(&error))
}

fn issue_all(
    issuer: &Issuer<'_, KeyPair>,
    authority: &str,
    (folder, hosts, days): (&Path, &[String], i64),
) -> Result<(), Error> {
    for role in ROLES {
        let mut params = params(&format!("kvstore {role}"), Some(role), days);
        params.key_usages = Vec::from([KeyUsagePurpose::DigitalSignature]);
        // A server is also a member of other servers.
        params.extended_key_usages = Vec::from([ExtendedKeyUsagePurpose::ClientAuth]);
        if role == "server" {
            params.extended_key_usages.push(ExtendedKeyUsagePurpose::ServerAuth);
            let named = CertificateParams::new(hosts)
                .map_err(|error| Error::invalid(format!("--hosts: {error}")))?;
            params.subject_alt_names = named.subject_alt_names;
        }
        let key = KeyPair::generate().map_err(|error| failed(&error))?;
        let certificate = params.signed_by(&key, issuer).map_err(|error| failed(&error))?;
        let folder = folder.join(role);
        create_folder(&folder)?;
        write(&folder.join("ca.pem"), authority, Access::All)?;
        write(&folder.join("cert.pem"), &certificate.pem(), Access::All)?;
        write(&folder.join("key.pem"), &key.serialize_pem(), Access::Owner)?;
    }
    Ok(())
}

fn params(name: &str, role: Option<&str>, days: i64) -> CertificateParams {
    let mut params = CertificateParams::default();
    let mut subject = DistinguishedName::new();
    subject.push(DnType::CommonName, name);
    if let Some(role) = role {
        subject.push(DnType::OrganizationalUnitName, role);
    }
    params.distinguished_name = subject;
    // Strict clients require it.
    params.use_authority_key_identifier_extension = role.is_some();
    let now = OffsetDateTime::now_utc();
    params.not_before = now - EARLIER;
    params.not_after = now + Duration::days(days);
    params
}

/// Who may read a file.
#[derive(Clone, Copy)]
enum Access {
    All,
    Owner,
}

fn create_folder(folder: &Path) -> Result<(), Error> {
    fs::create_dir_all(folder).map_err(|source| io("create", folder, source))
}

/// Writes a file, and replaces it if it exists.
fn write(file: &Path, text: &str, access: Access) -> Result<(), Error> {
    // Beside it first, so that a reader or a crash never sees half of it.
    let new = file.with_extension("new");
    let _ = fs::remove_file(&new);
    let mut options = fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    if let Access::Owner = access {
        use std::os::unix::fs::OpenOptionsExt;
        options.mode(0o600);
    }
    #[cfg(not(unix))]
    let _ = access;
    let mut opened = options.open(&new).map_err(|source| io("create", &new, source))?;
    let written = opened.write_all(text.as_bytes()).and_then(|()| opened.sync_all());
    written.map_err(|source| io("write", &new, source))?;
    fs::rename(&new, file).map_err(|source| io("replace", file, source))
}

#[expect(clippy::disallowed_methods, reason = "these files are short")]
fn read(file: &Path) -> Result<String, Error> {
    fs::read_to_string(file).map_err(|source| io("read", file, source))
}

fn io(operation: &str, path: &Path, source: std::io::Error) -> Error {
    Error::Io { path: path.to_owned(), operation: operation.to_owned(), source }
}

fn not_valid(file: &Path, error: impl std::fmt::Display) -> Error {
    Error::invalid(format!("--folder: `{}`: {error}", file.display()))
}

fn failed(error: &rcgen::Error) -> Error {
    Error::Internal(format!("cannot make a certificate: {error}"))
}
