//! Stores with rounds by their names and options.

#![allow(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    reason = "a test may abort without memory"
)]
#![cfg(feature = "net")]
#![allow(missing_docs, clippy::unwrap_used, reason = "a check")]

use std::thread;

use kvstore::{
    DType, Device, Error, ErrorCode, Key, NDArray, Result, Server, Store, create, create_with,
    full, serve,
};

/// Far longer than any call takes.
const SECONDS: &str = "60";

fn server() -> Server {
    serve(&[("address", "127.0.0.1:0")]).unwrap()
}

/// Joins with options that replace the timeout and the grace period of the tests.
fn join(kind: &str, server: &Server, options: &[(&str, &str)]) -> Store {
    let address = server.address().to_string();
    let mut all = Vec::from([("servers", &*address), ("timeout", SECONDS), ("grace", SECONDS)]);
    all.extend(options);
    create_with(kind, &all).unwrap()
}

fn value(number: f64) -> NDArray {
    full([2], number, DType::F32, Device::cpu(0)).unwrap()
}

/// Pushes a number for each store at the same time.
fn push_all(stores: [(&Store, f64); 2]) {
    thread::scope(|scope| {
        let pushes =
            stores.map(|(store, number)| scope.spawn(move || store.push("w", &value(number))));
        for push in pushes {
            push.join().unwrap().unwrap();
        }
    });
}

#[track_caller]
fn check_stored(store: &Store, expected: f32) {
    assert_eq!(store.pull_new("w").unwrap()[0].to_vec::<f32>().unwrap(), [expected; 2]);
}

/// Returns the error of a store whose servers do not exist.
#[track_caller]
fn error_of(kind: &str, options: &[(&str, &str)]) -> Error {
    let mut all = Vec::from([("servers", "127.0.0.1:1"), ("timeout", "0.01")]);
    all.extend(options);
    create_with(kind, &all).map(|store| store.name().to_owned()).unwrap_err()
}

#[track_caller]
fn check_invalid(kind: &str, options: &[(&str, &str)], expected: &str) {
    let error = error_of(kind, options);
    assert_eq!(error.code(), ErrorCode::InvalidArgument, "{error}");
    assert!(error.to_string().contains(expected), "{error}");
}

#[test]
fn a_store_of_the_type_takes_part_in_rounds() {
    let server = server();
    let [a, b] =
        ["a", "b"].map(|name| join("Dist_Quorum", &server, &[("name", name), ("quorum", "2")]));
    assert_eq!(a.name(), "dist_quorum");
    a.init("w", &value(0.0)).unwrap();
    push_all([(&a, 1.0), (&b, 2.0)]);
    check_stored(&a, 3.0);
    assert_eq!(b.version(&Key::new("w").unwrap()).unwrap(), 1);
    assert_eq!(a.set_weight(1.0).unwrap_err().code(), ErrorCode::Unsupported);
}

#[test]
fn the_option_adds_rounds_to_every_type_on_servers() {
    for kind in ["dist_async", "dist_device_async", "dist_async_device"] {
        let server = server();
        let weighted = |name, weight| {
            join(kind, &server, &[("name", name), ("quorum", "2"), ("weight", weight)])
        };
        let (a, b) = (weighted("a", "1"), weighted("b", "0.5"));
        assert_eq!(a.name(), kind);
        a.init("w", &value(0.0)).unwrap();
        b.set_weight(3.0).unwrap();
        push_all([(&a, 1.0), (&b, 5.0)]);
        check_stored(&b, 4.0);
        assert_eq!(b.set_weight(-1.0).unwrap_err().code(), ErrorCode::InvalidArgument);
    }
}

/// The members do not wait for each other, so a round ends between the pull and the push of one.
#[test]
fn late_pushes_are_rejected_or_kept() {
    let server = server();
    let alone = |late| join("dist_quorum", &server, &[("quorum", "1"), ("grace", "0"), late]);
    let [fast, slow] = [("late", "reject"); 2].map(alone);
    let keeping = alone(("late", "next"));
    fast.init("w", &value(1.0)).unwrap();
    for store in [&slow, &keeping] {
        check_stored(store, 1.0);
    }
    let push = |store: &Store, number| -> Result<()> { store.push("w", &value(number)) };
    push(&fast, 2.0).unwrap();
    let error = push(&slow, 3.0).unwrap_err();
    assert!(matches!(error, Error::LatePush { pushed: 1, current: 2, .. }), "{error}");
    check_stored(&slow, 2.0);
    push(&slow, 3.0).unwrap();
    push(&keeping, 4.0).unwrap();
    check_stored(&fast, 4.0);
}

#[test]
fn a_round_without_its_quorum_times_out() {
    let server = server();
    let alone = join("dist_quorum", &server, &[("quorum", "2"), ("timeout", "0.2")]);
    alone.init("w", &value(1.0)).unwrap();
    let error = alone.push("w", &value(2.0)).unwrap_err();
    assert_eq!(error.code(), ErrorCode::Timeout, "{error}");
    check_stored(&alone, 1.0);
}

#[test]
fn the_quorum_is_required() {
    let text =
        "store type `dist_quorum`: expected the option `quorum`, the least number of members";
    check_invalid("dist_quorum", &[], text);
    check_invalid("DIST_QUORUM", &[("connections", "2")], text);
    let error = create("dist_quorum").map(|store| store.name().to_owned()).unwrap_err();
    assert!(error.to_string().contains(text), "{error}");
    for kind in ["dist_quorum", "dist_async"] {
        for option in [("grace", "0"), ("late", "next"), ("weight", "1")] {
            let text = "quorum: expected the least number of members of a round, because";
            check_invalid(kind, &[option], text);
        }
    }
}

#[test]
fn wrong_options_are_named() {
    for (name, value, expected) in [
        ("quorum", "0", "option `quorum`: expected a whole number above 0, found `0`"),
        ("quorum", "two", "option `quorum`: expected a whole number above 0, found `two`"),
        ("grace", "-1", "option `grace`: expected a number of seconds of at least 0, found `-1`"),
        ("grace", "inf", "option `grace`: expected a number of seconds of at least 0, found `inf`"),
        ("late", "Reject", "option `late`: expected `reject` or `next`, found `Reject`"),
        ("weight", "heavy", "option `weight`: expected a number above 0, found `heavy`"),
        ("weight", "0", "weight: expected a finite number above 0, found 0"),
        ("weight", "NaN", "weight: expected a finite number above 0, found NaN"),
        ("weight", "-inf", "weight: expected a finite number above 0, found -inf"),
        ("quorm", "2", "unknown option `quorm`: did you mean `quorum`?"),
    ] {
        check_invalid("dist_quorum", &[("quorum", "2"), (name, value)], expected);
    }
    check_invalid("dist_quorom", &[], "did you mean `dist_quorum`?");
    let error = create_with("local", &[("quorum", "2")]).map(drop).unwrap_err();
    assert!(error.to_string().contains("stores of type `local` have no options"), "{error}");
}

/// The first server must know the others, because all of them commit the same rounds.
#[test]
fn rounds_over_several_servers_need_followers() {
    let servers = [0; 2].map(|_| server());
    let join = |servers: [&Server; 2]| {
        let addresses = servers.map(|server| server.address().to_string()).join(",");
        create_with("dist_quorum", &[("quorum", "1"), ("servers", &addresses)]).unwrap()
    };
    let store = join([&servers[0], &servers[1]]);
    store.init("w", &value(0.0)).unwrap();
    let error = store.push("w", &value(1.0)).unwrap_err();
    assert_eq!(error.code(), ErrorCode::Unsupported);
    let expected = "the option `followers` (KVSTORE_FOLLOWERS) of the first server, found 0";
    assert!(error.to_string().ends_with(expected), "{error}");
    drop(store);

    let follower = server();
    let address = follower.address().to_string();
    let leader = serve(&[("address", "127.0.0.1:0"), ("followers", &address)]).unwrap();
    let store = join([&leader, &follower]);
    for name in ["w", "a", "b", "c"] {
        store.init(name, &value(0.0)).unwrap();
        store.push(name, &value(3.0)).unwrap();
        assert_eq!(store.pull_new(name).unwrap()[0].to_vec::<f32>().unwrap(), [3.0; 2]);
    }
    let twice = format!("{address}, {address}");
    for (wrong, expected) in [
        ("127.0.0.1", "followers: expected HOST:PORT, found `127.0.0.1`"),
        (",", "option `followers`: expected HOST:PORT, separated by commas, found `,`"),
        (&*twice, "is in the list twice"),
    ] {
        let options = [("address", "127.0.0.1:0"), ("followers", wrong)];
        let text = serve(&options).unwrap_err().to_string();
        assert!(text.contains(expected), "{text}");
    }
}
