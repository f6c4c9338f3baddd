//! A server and a worker on two simulated hosts, whose cable is cut.

#![allow(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    reason = "a test may abort without memory"
)]
#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a check fails by panicking")]

mod process;

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use kvstore::{DType, Device, NetStoreOptions, Optimizer, connect, create, full, ones};
use kvstore_tests::hosts::{ADDRESSES, Hosts};

use self::process::{KVSTORE, LONG, Process};

/// The number of pushes of the worker.
const NUM_PUSHES: usize = 400;

/// The program of a worker. Each push subtracts 1 from the value. Outside of the tests below, it
/// does nothing.
#[test]
fn worker() {
    if std::env::var_os("KVSTORE_TEST_WORKER").is_none() {
        return;
    }
    let name = std::env::var("KVSTORE_TEST_NAME");
    let store = create(name.as_deref().unwrap_or("dist_async")).unwrap();
    println!("\njoined {} as {}", store.name(), store.members().unwrap()[0].name);
    store.set_optimizer(Optimizer::sgd().with("learning_rate", 1.0).unwrap()).unwrap();
    store.init("w", &full([3], 1000.0, DType::F32, Device::cpu(0)).unwrap()).unwrap();
    for index in 0..NUM_PUSHES {
        store.push("w", &ones([3], DType::F32, Device::cpu(0)).unwrap()).unwrap();
        if index == 20 {
            println!("pushing");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let value = ones([3], DType::F32, Device::cpu(0)).unwrap();
    store.pull("w", &value).unwrap();
    println!("pulled {:?}", value.to_vec::<f32>().unwrap());
}

fn worker_command(command: &mut Command, servers: &str) -> Process {
    command.args(["--exact", "worker", "--nocapture"]);
    Process::start(command.env("KVSTORE_TEST_WORKER", "1").env("KVSTORE_SERVERS", servers))
}

/// The text of the value after all pushes: none was lost or counted twice.
fn expected() -> String {
    let value = 1000.0 - f32::from(u16::try_from(NUM_PUSHES).unwrap());
    format!("{:?}", [value; 3])
}

#[test]
fn dist_async_joins_the_servers_of_the_environment() {
    let this = std::env::current_exe().unwrap();
    // The aliases join as well.
    for name in ["dist_async", "dist_device_async", "dist_async_device"] {
        let servers = [0, 1].map(|_| Process::serve(&["--address", "127.0.0.1:0"]));
        let addresses: Vec<_> = servers.iter().map(|(_, address)| address.as_str()).collect();
        let mut command = Command::new(&this);
        let command = command.env("KVSTORE_TEST_NAME", name);
        let mut worker = worker_command(command, &addresses.join(", "));
        assert!(worker.rest_of_line("joined ").starts_with(&format!("{name} as ")), "{name}");
        assert_eq!(worker.rest_of_line("pulled "), expected(), "{name}");
    }
    for name in ["dist_async", "dist_device_async", "dist_async_device"] {
        let error = create(name).unwrap_err().to_string();
        assert!(error.contains("environment variable KVSTORE_SERVERS"), "{name}: {error}");
    }
}

#[test]
fn no_push_is_lost_or_counted_twice_if_the_cable_is_cut() {
    let Some(hosts) = Hosts::new() else { return };
    let program = Path::new(KVSTORE);
    let address = format!("{}:9191", ADDRESSES[0]);
    let folder = tempfile::tempdir().unwrap();
    let certificates = |role: &str| folder.path().join(role).to_str().unwrap().to_owned();
    let mut making = Command::new(program);
    making.args(["certs", "--hosts", ADDRESSES[0], "--folder"]).arg(folder.path());
    assert!(making.status().unwrap().success());
    let arguments = ["serve", "--lease", "1", "--address", &address];
    let mut server = hosts.command(0, program);
    let server = server.args(arguments).env("KVSTORE_CERTIFICATES", certificates("server"));
    let mut server = Process::start(server);
    server.rest_of_line("listening on ");
    let this = std::env::current_exe().unwrap();
    let mut worker = hosts.command(1, &this);
    worker.env("KVSTORE_CERTIFICATES", certificates("worker"));
    let mut worker = worker_command(&mut worker, &address);
    let name = worker.rest_of_line("joined dist_async as ");
    worker.rest_of_line("pushing");
    let members = || {
        let mut status = hosts.command(0, program);
        status.env("KVSTORE_CERTIFICATES", certificates("reader"));
        let output = status.args(["status", "--server", &address]).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    assert!(members().contains(&name), "{}", members());
    // The cable is cut without a reset of the connection, so only the lease tells.
    hosts.set_cable(1, "down");
    let start = Instant::now();
    while members().contains(&name) {
        assert!(start.elapsed() < LONG, "the lease does not end");
    }
    println!("the lease ended after {:?}", start.elapsed());
    hosts.set_cable(1, "up");
    assert_eq!(worker.rest_of_line("pulled "), expected());
}

#[test]
fn a_server_that_cannot_be_reached_is_named() {
    let options = NetStoreOptions::new("127.0.0.1:1").timeout(Duration::from_secs(1));
    let error = connect(&options).unwrap_err();
    assert!(error.to_string().contains("127.0.0.1:1"), "{error}");
}
