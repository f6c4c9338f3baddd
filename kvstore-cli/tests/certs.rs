//! `kvstore certs` with wrong arguments and damaged authorities.

#![allow(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    reason = "a test may abort without memory"
)]
#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a check fails by panicking")]

mod process;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use kvstore::{Certificates, NetStore, NetStoreOptions, backends};
use kvstore_core::KvStore;

use self::process::{KVSTORE, LONG, Process};

fn certs(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(KVSTORE);
    command.arg("certs").arg("--folder").arg(folder).args(arguments).output().unwrap()
}

#[track_caller]
fn made(folder: &Path, arguments: &[&str]) {
    let output = certs(folder, arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Returns the contents of all files of a folder, except that of the lock.
fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(self::files(&path));
        } else if !path.ends_with(".lock") {
            files.insert(path.display().to_string(), fs::read(path).unwrap());
        }
    }
    files
}

#[test]
fn hosts_that_are_neither_names_nor_addresses_are_rejected_before_files_are_written() {
    let parent = tempfile::tempdir().unwrap();
    let folder = parent.path().join("certs");
    let (long_label, long_name) = ("a".repeat(64), "a.".repeat(127) + "org");
    for (hosts, expected) in [
        ("", "found none"),
        (" , ,", "found none"),
        ("localhost,,127.0.0.1", "``: expected a name or an address between the commas"),
        ("localhost,", "between the commas"),
        ("server 1", "`server 1`: expected a name like"),
        ("server\t1", "expected a name like"),
        ("localhost,-a.org", "`-a.org`: expected a name like"),
        ("a-.org", "expected a name like"),
        ("a..org", "expected a name like"),
        ("a.org.", "expected a name like"),
        ("*", "expected a name like"),
        ("*.", "expected a name like"),
        ("a.*.org", "expected a name like"),
        ("*a.org", "expected a name like"),
        (&long_label, "expected a name like"),
        (&long_name, "at most 253 letters"),
        ("bücher.example", "`bücher.example`: expected the ASCII form of the name (xn--..)"),
        ("10.0.0.256", "expected an address of four numbers below 256"),
        ("10.0.0", "expected an address of four numbers below 256"),
        ("[::1]", "`[::1]`: expected an address without port, brackets"),
        ("[::1]:9191", "expected an address without port"),
        ("localhost:9191", "expected an address without port"),
        ("fe80::1%eth0", "expected an address without port, brackets, zone"),
        ("10.0.0.0/8", "expected an address without port, brackets, zone and network"),
        ("::g", "expected an address without port"),
    ] {
        let output = certs(&folder, &["--hosts", hosts]);
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{hosts}: {text}");
        assert!(text.contains(expected), "{hosts}: {text}");
        assert!(text.len() < 300, "{text}");
        assert!(!folder.exists(), "{hosts}");
    }
    // An existing folder stays as it is.
    made(&folder, &[]);
    let before = files(&folder);
    assert_eq!(certs(&folder, &["--hosts", "localhost,a b"]).status.code(), Some(2));
    assert_eq!(files(&folder), before);
}

#[test]
fn a_certificate_is_valid_for_names_addresses_and_wildcards() {
    let folder = tempfile::tempdir().unwrap();
    let hosts = "server-1, xn--bcher-kva.example,*.pods.example,my_host,::1,2001:db8::1,127.0.0.1";
    made(folder.path(), &["--hosts", hosts]);
    let read = |role: &str| Certificates::read(folder.path().join(role)).unwrap();
    let certificates = folder.path().join("server").display().to_string();
    let (_server, address) =
        Process::serve(&["--address", "127.0.0.1:0", "--certificates", &certificates]);
    let options = NetStoreOptions::new(&address).timeout(LONG).certificates(read("worker"));
    assert!(NetStore::connect(backends(), &options).unwrap().keys().unwrap().is_empty());
}

#[test]
fn an_authority_with_the_key_of_another_one_issues_nothing() {
    let [folder, other] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    for folder in [&folder, &other] {
        made(folder.path(), &[]);
    }
    let issues_nothing = |expected: &str| {
        let before = files(folder.path());
        let output = certs(folder.path(), &[]);
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(text.contains(expected), "{text}");
        assert_eq!(files(folder.path()), before);
    };
    let replace = |file: &str, by: &Path| fs::copy(by, folder.path().join(file)).unwrap();
    replace("ca-key.pem", &other.path().join("ca-key.pem"));
    let authority = folder.path().join("ca.pem").display().to_string();
    issues_nothing(&format!("ca-key.pem`: this is not the private key of `{authority}`"));
    // The certificate of a role is no authority, even with its key.
    replace("ca-key.pem", &other.path().join("server/key.pem"));
    replace("ca.pem", &other.path().join("server/cert.pem"));
    issues_nothing("ca.pem`: this certificate is not that of an authority");
    replace("ca-key.pem", &other.path().join("ca-key.pem"));
    fs::write(folder.path().join("ca.pem"), "no certificate").unwrap();
    issues_nothing("ca.pem`: expected a certificate in the format PEM");
    fs::write(folder.path().join("ca-key.pem"), "no key").unwrap();
    issues_nothing("ca-key.pem`");
    for file in ["ca.pem", "ca-key.pem"] {
        replace(file, &other.path().join(file));
    }
    made(folder.path(), &[]);
}
