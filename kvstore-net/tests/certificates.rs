//! Connections with certificates: who may connect, and what the roles may do.

#![allow(clippy::unwrap_used, reason = "a check fails by panicking")]
#![allow(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    reason = "a test may abort without memory"
)]

mod network;

use std::fs;
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kvstore::backends;
use kvstore_core::{Error, ErrorCode, KvStore, OnExisting, Optimizer, Result, WorkerGroup};
use kvstore_net::{Certificates, NetStore, NetStoreOptions, Server, ServerOptions, ServerStatus};

use network::authority::{Authority, expired};
use network::{LONG, SHORT, connect, key, options, server, value};

fn protected(authority: &Authority) -> Server {
    let options = ServerOptions::new("127.0.0.1:0").certificates(authority.issue("server"));
    Server::start(backends(), &options).unwrap()
}

fn with(server: &Server, certificates: Certificates) -> NetStoreOptions {
    options(server).certificates(certificates)
}

#[track_caller]
fn refused<T: std::fmt::Debug>(result: Result<T>, text: &str) {
    let error = result.unwrap_err();
    assert_eq!(error.code(), ErrorCode::Unsupported, "{error}");
    assert!(error.to_string().contains(text), "{error}");
}

/// Returns the error of a member that must not wait for its timeout.
#[track_caller]
fn refused_at_once(options: &NetStoreOptions) -> Error {
    let start = Instant::now();
    let error = NetStore::connect(backends(), options).unwrap_err();
    assert!(start.elapsed() < LONG / 2, "{error}");
    error
}

#[test]
fn members_with_certificates_use_the_store() {
    let authority = Authority::new();
    let servers = [protected(&authority), protected(&authority)];
    let addresses = servers.iter().map(|server| server.address().to_string());
    let options = NetStoreOptions::of_servers(addresses)
        .certificates(authority.issue("worker"))
        .divide_above(0)
        .timeout(LONG);
    let store = connect(&options);
    store.set_optimizer(Optimizer::sgd().with("learning_rate", 1.0).unwrap()).unwrap();
    store.init(&[key("w")], &[value(3.0)]).unwrap();
    store.push(&[key("w")], &[value(1.0)], 0).unwrap();
    assert_eq!(store.pull(&[key("w")], 0).unwrap()[0].to_vec::<f32>().unwrap(), [2.0; 2]);
    store.barrier().unwrap();
    let status = ServerStatus::of(&with(&servers[0], authority.issue("reader"))).unwrap();
    assert_eq!((status.members.len(), status.num_keys), (1, 1));
}

#[test]
fn a_reader_only_reads() {
    let authority = Authority::new();
    let server = protected(&authority);
    let worker = connect(&with(&server, authority.issue("worker")));
    worker.init(&[key("w")], &[value(3.0)]).unwrap();
    let certificates = || authority.issue("reader");
    let error = refused_at_once(&with(&server, certificates()));
    assert!(error.to_string().contains("needs a certificate with the role `worker`"), "{error}");
    // Not even a name of a worker.
    let worker_name = worker.members().unwrap()[0].name.clone();
    let error = refused_at_once(&with(&server, certificates()).reader().name(worker_name));
    assert!(error.to_string().contains("joining as a worker needs"), "{error}");
    let reader = connect(&with(&server, certificates()).reader());
    assert_eq!(reader.pull(&[key("w")], 0).unwrap()[0].to_vec::<f32>().unwrap(), [3.0; 2]);
    assert_eq!(reader.keys().unwrap(), [key("w")]);
    reader.snapshot().unwrap().get(&key("w")).unwrap();
    refused(reader.push(&[key("w")], &[value(1.0)], 0), "push needs");
    refused(reader.init(&[key("v")], &[value(1.0)]), "init needs");
    refused(reader.set_optimizer(Optimizer::sgd()), "settings");
    refused(reader.barrier(), "barrier needs");
    refused(reader.checkpoint_on_servers("a"), "needs a certificate with the role `worker`");
}

#[test]
fn only_an_administrator_removes_and_rolls_back() {
    let authority = Authority::new();
    let server = protected(&authority);
    let worker = connect(&with(&server, authority.issue("worker")));
    worker.init(&[key("w")], &[value(3.0)]).unwrap();
    let snapshot = worker.snapshot().unwrap();
    refused(worker.remove(&[key("w")]), "remove needs a certificate with the role `admin`");
    refused(worker.rollback(&snapshot), "rollback needs");
    refused(worker.send_command_to_servers(1, "stop"), "command needs");
    worker.init_with(&[key("w")], &[value(1.0)], OnExisting::Replace).unwrap();
    let admin = connect(&with(&server, authority.issue("admin")));
    admin.send_command_to_servers(1, "stop").unwrap();
    admin.rollback(&snapshot).unwrap();
    admin.remove(&[key("w")]).unwrap();
}

#[test]
fn an_init_that_fails_removes_its_keys_from_several_servers() {
    let authority = Authority::new();
    let servers = [protected(&authority), protected(&authority)];
    let addresses = servers.iter().map(|server| server.address().to_string());
    let options = NetStoreOptions::of_servers(addresses).timeout(SHORT);
    let store = connect(&options.certificates(authority.issue("worker")));
    let keys: Vec<_> = (0..20).map(|number| key(&number.to_string())).collect();
    let values = vec![value(1.0); 20];
    servers[1].shut_down();
    store.init(&keys, &values).unwrap_err();
    assert!(servers[0].store().keys().unwrap().is_empty());
}

#[test]
fn other_roles_may_do_nothing() {
    let authority = Authority::new();
    let server = protected(&authority);
    for role in ["", "boss", "Admin"] {
        let other = || with(&server, authority.issue(role));
        let error = refused_at_once(&other().reader());
        assert!(error.to_string().contains("found `none`"), "{error}");
        refused(ServerStatus::of(&other()), "found `none`");
    }
    let two = authority.issue_with("reader", |params| {
        params.distinguished_name.remove(rcgen::DnType::OrganizationalUnitName);
    });
    assert!(refused_at_once(&with(&server, two).reader()).to_string().contains("found `none`"));
}

#[test]
fn expired_and_foreign_certificates_are_rejected() {
    let (authority, other) = (Authority::new(), Authority::new());
    let server = protected(&authority);
    for (certificates, text) in [
        (authority.issue_with("worker", expired), "ertificate"),
        (other.issue("worker"), "ertificate"),
    ] {
        let error = refused_at_once(&with(&server, certificates));
        assert_eq!(error.code(), ErrorCode::Unsupported, "{error}");
        assert!(error.to_string().contains(text), "{error}");
    }
    // A member of the right authority does not trust other servers.
    let issue: [fn(&Authority) -> Certificates; 2] = [
        |authority| authority.issue_with("server", expired),
        |authority| authority.issue_with("server", |params| params.subject_alt_names = Vec::new()),
    ];
    for issue in issue {
        let options = ServerOptions::new("127.0.0.1:0").certificates(issue(&authority));
        let server = Server::start(backends(), &options).unwrap();
        let error = refused_at_once(&with(&server, authority.issue("worker")));
        assert!(error.to_string().contains("certificate"), "{error}");
    }
    let error = refused_at_once(&with(&protected(&other), authority.issue("worker")));
    assert!(error.to_string().contains("certificate"), "{error}");
    // The server still serves others.
    assert!(connect(&with(&server, authority.issue("worker"))).keys().unwrap().is_empty());
}

#[test]
fn plain_text_and_encryption_do_not_mix() {
    let authority = Authority::new();
    let (plain, encrypted) = (server(), protected(&authority));
    let error = refused_at_once(&options(&encrypted));
    assert_eq!(error.code(), ErrorCode::Unsupported, "{error}");
    assert!(error.to_string().contains("the server uses certificates"), "{error}");
    let error = refused_at_once(&with(&plain, authority.issue("worker")));
    assert_eq!(error.code(), ErrorCode::Unsupported, "{error}");
    assert!(error.to_string().contains("does not use certificates"), "{error}");
    assert!(connect(&options(&plain)).keys().unwrap().is_empty());
}

#[test]
fn other_machines_need_certificates() {
    let text = |error: Error| {
        assert_eq!(error.code(), ErrorCode::InvalidArgument, "{error}");
        error.to_string()
    };
    let start = |options| Server::start(backends(), &options);
    let open = || ServerOptions::new("0.0.0.0:0");
    assert!(text(start(open()).unwrap_err()).contains("set `certificates`"));
    let authority = Authority::new();
    let both = open().certificates(authority.issue("server")).insecure();
    assert!(text(start(both).unwrap_err()).contains("found both"));
    let server = start(open().insecure()).unwrap();
    let here = NetStoreOptions::new(format!("127.0.0.1:{}", server.address().port()));
    connect(&here.timeout(LONG)).keys().unwrap();
    start(open().certificates(authority.issue("server"))).unwrap();
    let elsewhere = || NetStoreOptions::new("192.0.2.1:9191").timeout(Duration::from_millis(100));
    let error = NetStore::connect(backends(), &elsewhere()).unwrap_err();
    assert!(text(error).contains("192.0.2.1:9191"));
    let error = NetStore::connect(backends(), &elsewhere().insecure()).unwrap_err();
    assert_eq!(error.code(), ErrorCode::Timeout, "{error}");
}

#[test]
fn damaged_files_are_named() {
    let authority = Authority::new();
    for name in ["ca.pem", "cert.pem", "key.pem"] {
        for (damaged, text) in [
            (None, "cannot read"),
            (Some(""), "expected a file in the format PEM"),
            (Some("-----BEGIN NOTHING-----\n-----END NOTHING-----\n"), "expected a file"),
        ] {
            let folder = authority.folder("worker", |_| {});
            let file = folder.join(name);
            match damaged {
                None => fs::remove_file(&file).unwrap(),
                Some(damaged) => fs::write(&file, damaged).unwrap(),
            }
            let error = Certificates::read(&folder).unwrap_err().to_string();
            assert!(error.contains(name) && error.contains(text), "{error}");
        }
    }
    // The key of another certificate.
    let (folder, other) = (authority.folder("worker", |_| {}), authority.folder("admin", |_| {}));
    fs::copy(other.join("key.pem"), folder.join("key.pem")).unwrap();
    let error = Certificates::read(&folder).unwrap_err().to_string();
    assert!(error.contains(&folder.display().to_string()), "{error}");
}

#[test]
fn silent_connections_do_not_delay_the_end_of_a_server() {
    let authority = Authority::new();
    let (encrypted, plain) = (Arc::new(protected(&authority)), server());
    let members = [with(&encrypted, authority.issue("worker")), options(&plain)];
    for (server, member) in [encrypted, plain].into_iter().zip(members) {
        let _silent = TcpStream::connect(server.address()).unwrap();
        // The server accepts connections in their order.
        drop(connect(&member));
        let start = Instant::now();
        server.shut_down();
        // It waits 5 s for connections with calls.
        assert!(start.elapsed() < Duration::from_secs(4));
    }
}
