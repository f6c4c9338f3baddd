//! Members that join, leave, die and come back, and calls whose connection is lost.

#![allow(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    reason = "a test may abort without memory"
)]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a check fails by panicking")]

mod network;

use std::net::TcpListener;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use kvstore::{backends, push_staleness};
use kvstore_core::{
    Backends, CpuBackend, Description, Device, Error, ErrorCode, Key, KvStore, OnExisting,
    Optimizer, Outputs, Tensor, Value, WorkerGroup,
};
use kvstore_net::{NetStore, NetStoreOptions, Server, ServerOptions};

use self::network::proxy::Proxy;
use self::network::{
    LONG, SHORT, connect, eventually, key, options, recorded_staleness, server, value,
};

fn number(store: &NetStore, name: &str) -> f32 {
    store.pull(&[key(name)], 0).unwrap()[0].to_vec::<f32>().unwrap()[0]
}

#[test]
fn members_share_a_store_and_have_ranks() {
    let server = server();
    let first = connect(&options(&server).name("first"));
    let second = connect(&options(&server).name("second"));
    let reader = connect(&options(&server).name("reader").reader());
    eventually("three members", || first.members().unwrap().len() == 3);
    assert_eq!((first.rank().unwrap(), second.rank().unwrap(), reader.rank().unwrap()), (0, 1, 0));
    assert_eq!((first.num_workers().unwrap(), first.num_dead_node(7).unwrap()), (2, 0));
    first.init(&[key("w")], &[value(1.0)]).unwrap();
    second.push(&[key("w"), key("w")], &[value(2.0), value(3.0)], 0).unwrap();
    assert_eq!(number(&first, "w"), 5.0);
    assert_eq!(reader.versions(&[key("w")]).unwrap(), [1]);
    second.leave().unwrap();
    eventually("two members", || first.members().unwrap().len() == 2);
    assert_eq!(first.num_dead_node(4).unwrap(), 0);
    let error = second.pull(&[key("w")], 0).unwrap_err();
    assert_eq!(error.code(), ErrorCode::Closed, "{}", error.chain());
}

/// MXNet 1.9.1 gave 15 for this program of `dist_async`.
#[test]
fn two_workers_get_the_recorded_value() {
    let server = server();
    let stores = [1.0, 2.0].map(|pushed| (connect(&options(&server)), pushed));
    stores[0].0.init(&[key("4")], &[value(0.0)]).unwrap();
    stores[0].0.set_optimizer(Optimizer::new("test").unwrap()).unwrap();
    thread::scope(|scope| {
        for (store, pushed) in &stores {
            scope.spawn(move || {
                for _ in 0..5 {
                    store.push(&[key("4")], &[value(*pushed)], 0).unwrap();
                }
            });
        }
    });
    assert_eq!(stores.each_ref().map(|(store, _)| number(store, "4")), [15.0; 2]);
}

#[test]
fn a_second_live_member_of_a_name_is_rejected() {
    let server = server();
    let first = connect(&options(&server).name("one"));
    let error = NetStore::connect(backends(), &options(&server).name("one")).unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidArgument);
    assert!(error.to_string().contains("the name `one` belongs to another live member"), "{error}");
    first.leave().unwrap();
    eventually("the name is free", || {
        NetStore::connect(backends(), &options(&server).name("one")).is_ok()
    });
}

#[test]
fn changes_of_the_group_are_reported() {
    let server = server();
    let first = connect(&options(&server).name("first"));
    let seen = Arc::new(Mutex::new(Vec::new()));
    let names = Arc::clone(&seen);
    let seeing = first.on_member(Box::new(move |members| {
        let all: Vec<_> = members.iter().map(|member| member.name.clone()).collect();
        names.lock().unwrap().push(all.join(" "));
    }));
    seeing.unwrap();
    let second = connect(&options(&server).name("second"));
    eventually("a member has joined", || {
        seen.lock().unwrap().iter().any(|all| all == "first second")
    });
    drop(second);
    eventually("a member has left", || {
        seen.lock().unwrap().last().is_some_and(|all| all == "first")
    });
}

#[test]
fn a_bounded_pull_waits_for_the_slowest_worker() {
    let server = server();
    let fast = connect(&options(&server).name("fast").staleness(1));
    let slow = connect(&options(&server).name("slow"));
    fast.init(&[key("w")], &[value(0.0)]).unwrap();
    fast.push(&[key("w")], &[value(1.0)], 0).unwrap();
    assert_eq!(number(&fast, "w"), 1.0);
    fast.push(&[key("w")], &[value(2.0)], 0).unwrap();
    let has_pulled = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            assert_eq!(number(&fast, "w"), 5.0);
            has_pulled.store(true, Ordering::SeqCst);
        });
        // An unbounded pull does not wait.
        assert_eq!(number(&slow, "w"), 2.0);
        assert!(!has_pulled.load(Ordering::SeqCst));
        slow.push(&[key("w")], &[value(5.0)], 0).unwrap();
    });
    // A member that is gone is not waited for.
    fast.push(&[key("w")], &[value(6.0)], 0).unwrap();
    fast.push(&[key("w")], &[value(7.0)], 0).unwrap();
    drop(slow);
    assert_eq!(number(&fast, "w"), 7.0);
}

#[test]
fn a_push_takes_effect_while_its_bounded_pull_waits() {
    let server = server();
    let fast = connect(&options(&server).name("fast").staleness(0));
    let slow = connect(&options(&server).name("slow"));
    fast.init(&[key("w")], &[value(0.0)]).unwrap();
    thread::scope(|scope| {
        let both = scope.spawn(|| pushpull(&fast, 1.0, &mut |_| Ok(())).unwrap());
        eventually("the push takes effect", || number(&slow, "w") == 1.0);
        slow.push(&[key("w")], &[value(5.0)], 0).unwrap();
        assert_eq!(both.join().unwrap(), [5.0; 2]);
    });
}

#[test]
fn a_bounded_pull_reports_for_whom_it_waits() {
    let server = server();
    let fast = connect(&options(&server).name("fast").staleness(0).timeout(SHORT));
    let _slow = connect(&options(&server).name("slow"));
    fast.init(&[key("w")], &[value(0.0)]).unwrap();
    fast.push(&[key("w")], &[value(1.0)], 0).unwrap();
    let error = fast.pull(&[key("w")], 0).unwrap_err();
    assert_eq!(error.code(), ErrorCode::Timeout);
    assert!(error.to_string().contains("waiting for pushes of `slow`"), "{error}");
}

#[test]
fn commands_reach_the_server() {
    let server = server();
    let store = connect(&options(&server));
    store.send_command_to_servers(1, "without a handler").unwrap();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let commands = Arc::clone(&seen);
    server.on_command(Arc::new(move |head, body| {
        commands.lock().unwrap().push((head, body.to_owned()));
        Ok(())
    }));
    store.send_command_to_servers(7, "decay").unwrap();
    assert_eq!(*seen.lock().unwrap(), [(7, "decay".to_owned())]);
}

#[test]
fn calls_at_the_same_time_use_several_connections() {
    for number in [1, 3] {
        let server = server();
        let proxy = Proxy::new(server.address());
        // Each command waits for the others, so all of them need a stream.
        let all = Arc::new(Barrier::new(4));
        server.on_command(Arc::new(move |_, _| {
            all.wait();
            Ok(())
        }));
        let options = NetStoreOptions::new(proxy.address.to_string()).timeout(LONG);
        let store = connect(&options.connections(NonZeroUsize::new(number).unwrap()));
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| store.send_command_to_servers(0, "").unwrap());
            }
        });
        assert_eq!(proxy.num_open(), number);
    }
}

#[test]
fn an_updater_needs_the_process_of_the_server() {
    let server = server();
    let store = connect(&options(&server));
    let error = store
        .set_updater(Some(Arc::new(|_: &Key, _: &Tensor, _: &mut Tensor| Ok(()))))
        .unwrap_err();
    assert_eq!(error.code(), ErrorCode::Unsupported);
    // The program of the server sets it, and its errors reach the worker that pushes.
    server
        .store()
        .set_updater(Some(Arc::new(|_: &Key, _: &Tensor, _: &mut Tensor| Err("no".into()))))
        .unwrap();
    store.init(&[key("w")], &[value(1.0)]).unwrap();
    let error = store.push(&[key("w")], &[value(2.0)], 0).unwrap_err();
    assert_eq!(error.to_string(), "updater failed on key `w`: no");
    // In the same process, it is the same object.
    let failing = |_: &Key, _: &Tensor, _: &mut Tensor| Err(std::fmt::Error.into());
    server.store().set_updater(Some(Arc::new(failing))).unwrap();
    let error = store.push(&[key("w")], &[value(2.0)], 0).unwrap_err();
    let Error::Updater { source, .. } = error else { panic!("{error}") };
    assert!(source.is::<std::fmt::Error>());
    // A panic does, too, and the server continues.
    server
        .store()
        .set_updater(Some(Arc::new(|_: &Key, _: &Tensor, _: &mut Tensor| panic!("broken"))))
        .unwrap();
    let error = store.push(&[key("w")], &[value(2.0)], 0).unwrap_err();
    assert!(error.to_string().contains("broken"), "{error}");
    server.store().set_updater(None).unwrap();
    store.remove(&[key("w")]).unwrap();
    store.init(&[key("w")], &[value(1.0)]).unwrap();
    assert_eq!(number(&store, "w"), 1.0);
}

#[test]
fn a_port_in_use_is_an_error() {
    let server = server();
    let error = Server::start(backends(), &ServerOptions::new(server.address().to_string()));
    let text = error.unwrap_err().to_string();
    assert!(text.starts_with(&format!("cannot listen on {}: ", server.address())), "{text}");
    let error = Server::start(backends(), &ServerOptions::new("127.0.0.1:0").store("dist"));
    assert_eq!(error.unwrap_err().code(), ErrorCode::InvalidArgument);
}

#[test]
fn a_server_that_does_not_answer_is_an_error() {
    // A port without a listener.
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let options = NetStoreOptions::new(address.to_string()).timeout(SHORT);
    let error = NetStore::connect(backends(), &options).unwrap_err();
    assert_eq!(error.code(), ErrorCode::Timeout);
    let text = error.to_string();
    assert!(text.contains(&address.to_string()) && text.contains("refused"), "{text}");
}

#[test]
fn a_call_completes_before_the_server_ends() {
    let server = server();
    let store = connect(&options(&server).timeout(SHORT));
    store.init(&[key("w")], &[value(1.0)]).unwrap();
    let entered = Arc::new((Mutex::new(false), std::sync::Condvar::new()));
    let inside = Arc::clone(&entered);
    let slow = move |_: &Key, pushed: &Tensor, stored: &mut Tensor| {
        *inside.0.lock().unwrap() = true;
        inside.1.notify_all();
        thread::sleep(Duration::from_millis(100));
        *stored = pushed.clone();
        Ok(())
    };
    server.store().set_updater(Some(Arc::new(slow))).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| store.push(&[key("w")], &[value(2.0)], 0).unwrap());
        let entering = entered.0.lock().unwrap();
        let entering = entered.1.wait_while(entering, |entered| !*entered).unwrap();
        drop(entering);
        server.shut_down();
    });
    assert_eq!(
        server.store().pull(&[key("w")], 0).unwrap()[0].to_vec::<f32>().unwrap(),
        [2.0, 2.0]
    );
    // `Backend` if the push was sent before the end of the connection was noticed.
    let error = store.push(&[key("w")], &[value(3.0)], 0).unwrap_err();
    let code = error.code();
    assert!(matches!(code, ErrorCode::Timeout | ErrorCode::Backend), "{}", error.chain());
}

/// Pushes a number to `w` and pulls `w` in one call.
fn pushpull(
    store: &NetStore,
    number: f32,
    prepare: &mut dyn FnMut(&[Description]) -> Result<(), Error>,
) -> Result<Vec<f32>, Error> {
    let (keys, mut pulled) = ([key("w")], Vec::new());
    let outputs = Outputs { keys: &keys, prepare, pulled: &mut pulled };
    store.pushpull_into((&keys, &[value(number)]), outputs, 0)?;
    pulled[0].value.to_vec()
}

#[test]
fn a_push_with_a_pull_finds_a_key_that_another_worker_has_replaced() {
    let server = server();
    let [store, other] = ["one", "two"].map(|name| connect(&options(&server).name(name)));
    store.init(&[key("w")], &[value(0.0)]).unwrap();
    assert_eq!(pushpull(&store, 1.0, &mut |_| Ok(())).unwrap(), [1.0; 2]);
    let double: Value =
        Tensor::from_slice(backends(), Device::cpu(0), [2], &[5.0_f64; 2]).unwrap().into();
    other.init_with(&[key("w")], &[double], OnExisting::Replace).unwrap();
    let error = pushpull(&store, 2.0, &mut |_| Ok(())).unwrap_err();
    assert_eq!(error.code(), ErrorCode::SpecMismatch, "{}", error.chain());
    other.init_with(&[key("w")], &[value(6.0)], OnExisting::Replace).unwrap();
    assert_eq!(pushpull(&store, 3.0, &mut |_| Ok(())).unwrap(), [3.0; 2]);
    // The caller refuses what it gets, so nothing is pushed.
    let refuse = &mut |_: &[Description]| Err(Error::InvalidArgument("no".to_owned()));
    let error = pushpull(&store, 4.0, refuse).unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidArgument);
    assert_eq!(number(&store, "w"), 3.0);
    other.remove(&[key("w")]).unwrap();
    let error = pushpull(&store, 5.0, &mut |_| Ok(())).unwrap_err();
    assert_eq!(error.code(), ErrorCode::KeyNotFound, "{}", error.chain());
}

#[test]
fn a_push_counts_once_although_replies_are_lost() {
    let server = server();
    let proxy = Proxy::new(server.address());
    let store = NetStoreOptions::new(proxy.address.to_string()).timeout(LONG).name("one");
    let store = connect(&store);
    store.init(&[key("w")], &[value(0.0)]).unwrap();
    let mut optimizer = kvstore_core::Optimizer::new("sgd").unwrap();
    // Each push adds 1, so a push that is lost or counted twice changes the result.
    optimizer.set("learning_rate", 1.0).unwrap();
    optimizer.set("wd", 0.0).unwrap();
    store.set_optimizer(optimizer).unwrap();
    for round in 0..100_u16 {
        // Somewhere in the next replies.
        proxy.limit.store(1 + usize::from(round) * 37 % 500, Ordering::SeqCst);
        if round % 2 == 0 {
            store.push(&[key("w")], &[value(-1.0)], 0).unwrap();
        } else {
            let pulled = pushpull(&store, -1.0, &mut |_| Ok(())).unwrap();
            assert_eq!(pulled, [f32::from(round + 1); 2]);
        }
    }
    proxy.limit.store(0, Ordering::SeqCst);
    let num_closed = proxy.num_closed.load(Ordering::SeqCst);
    println!("{num_closed} connections were closed");
    assert!(num_closed >= 20, "{num_closed} connections were closed");
    assert_eq!(number(&store, "w"), 100.0);
    assert_eq!(store.versions(&[key("w")]).unwrap(), [100]);
}

#[test]
fn a_lost_member_is_noticed_and_may_come_back() {
    let server = server();
    let proxy = Proxy::new(server.address());
    let watcher = connect(&options(&server).name("watcher"));
    let lost = NetStoreOptions::new(proxy.address.to_string()).timeout(LONG).name("lost");
    let lost = connect(&lost);
    eventually("two members", || watcher.members().unwrap().len() == 2);
    let rank = lost.rank().unwrap();
    proxy.cut();
    // A call waits until it is a member again.
    lost.init(&[key("w")], &[value(1.0)]).unwrap();
    assert_eq!(number(&watcher, "w"), 1.0);
    assert_eq!((lost.rank().unwrap(), watcher.num_dead_node(4).unwrap()), (rank, 0));
}

#[test]
fn a_process_that_takes_a_name_fences_the_earlier_one() {
    let server = server();
    let proxy = Proxy::new(server.address());
    let old = connect(&NetStoreOptions::new(proxy.address.to_string()).timeout(LONG).name("one"));
    old.init(&[key("w")], &[value(1.0)]).unwrap();
    // The earlier process cannot reach the server for a while.
    *proxy.server.lock().unwrap() = None;
    proxy.cut();
    let start = Instant::now();
    let new = loop {
        match NetStore::connect(backends(), &options(&server).name("one")) {
            Ok(new) => break new,
            Err(error) => assert_eq!(error.code(), ErrorCode::InvalidArgument),
        }
        assert!(start.elapsed() < LONG, "the name is never free");
    };
    assert_eq!(new.rank().unwrap(), 0);
    *proxy.server.lock().unwrap() = Some(server.address());
    let error = old.push(&[key("w")], &[value(2.0)], 0).unwrap_err();
    assert!(error.to_string().contains("a later one has its name"), "{}", error.chain());
    assert_eq!(number(&new, "w"), 1.0);
}

#[test]
fn a_reader_cannot_push() {
    let server = server();
    let reader = connect(&options(&server).reader());
    reader.init(&[key("w")], &[value(1.0)]).unwrap();
    let error = reader.push(&[key("w")], &[value(2.0)], 0).unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidArgument);
    assert_eq!(number(&reader, "w"), 1.0);
}

#[test]
fn a_function_for_members_may_call_the_store() {
    let server = server();
    let first = Arc::new(connect(&options(&server).name("first")));
    first.init(&[key("w")], &[value(1.0)]).unwrap();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (store, pulled) = (Arc::downgrade(&first), Arc::clone(&seen));
    let seeing = first.on_member(Box::new(move |_| {
        if let Some(store) = store.upgrade() {
            pulled.lock().unwrap().push(number(&store, "w"));
        }
    }));
    seeing.unwrap();
    let _second = connect(&options(&server).name("second"));
    eventually("the function was called", || seen.lock().unwrap().contains(&1.0));
}

#[test]
fn wrong_options_are_rejected() {
    for lease in [Duration::ZERO, Duration::from_secs(100_000)] {
        let error = Server::start(backends(), &ServerOptions::new("127.0.0.1:0").lease(lease));
        assert_eq!(error.unwrap_err().code(), ErrorCode::InvalidArgument);
    }
    let server = server();
    for options in [NetStoreOptions::new("not an address"), options(&server).name("")] {
        let error = NetStore::connect(backends(), &options).unwrap_err();
        assert_eq!(error.code(), ErrorCode::InvalidArgument, "{}", error.chain());
    }
    // No limit of time.
    connect(&options(&server).timeout(Duration::MAX));
}

#[test]
fn a_call_in_doubt_is_reported_after_a_restart() {
    // A long lease, so that no renewal is the next message.
    let quiet = ServerOptions::new("127.0.0.1:0").lease(Duration::from_secs(3600));
    let first = Server::start(backends(), &quiet).unwrap();
    let proxy = Proxy::new(first.address());
    let options = NetStoreOptions::new(proxy.address.to_string()).timeout(LONG);
    let store = connect(&options);
    store.init(&[key("w")], &[value(1.0)]).unwrap();
    // The reply of the next push is lost, and the server does not come back with its state. The
    // updater cuts the connection, so that no earlier message does.
    *proxy.server.lock().unwrap() = None;
    let limit = Arc::clone(&proxy.limit);
    let cut = move |_: &Key, _: &Tensor, _: &mut Tensor| {
        limit.store(1, Ordering::SeqCst);
        Ok(())
    };
    first.store().set_updater(Some(Arc::new(cut))).unwrap();
    let second = server();
    thread::scope(|scope| {
        let push = scope.spawn(|| store.push(&[key("w")], &[value(2.0)], 0).unwrap_err());
        eventually("the reply is lost", || proxy.num_closed.load(Ordering::SeqCst) == 1);
        *proxy.server.lock().unwrap() = Some(second.address());
        let error = push.join().unwrap();
        assert!(error.to_string().starts_with("push of `w`: the connection was lost"), "{error}");
        assert_eq!(error.code(), ErrorCode::Backend);
    });
    // Later calls use the new server.
    store.init(&[key("w")], &[value(3.0)]).unwrap();
    assert_eq!(number(&store, "w"), 3.0);
}

#[test]
fn an_updater_cannot_change_its_store_through_the_network() {
    let server = server();
    let store = Arc::new(connect(&options(&server)));
    store.init(&[key("w")], &[value(1.0)]).unwrap();
    let inner = Arc::clone(&store);
    let update = move |key: &Key, pushed: &Tensor, stored: &mut Tensor| {
        // Reading is allowed.
        let keys = std::slice::from_ref(key);
        inner.pull(keys, 0)?;
        inner.push(keys, &[pushed.clone().into()], 0)?;
        *stored = pushed.clone();
        Ok(())
    };
    server.store().set_updater(Some(Arc::new(update))).unwrap();
    let error = store.push(&[key("w")], &[value(2.0)], 0).unwrap_err();
    assert!(error.to_string().contains("`push` cannot be called from an updater"), "{error}");
    assert_eq!(number(&store, "w"), 1.0);
}

#[test]
fn updaters_see_how_stale_a_push_is() {
    let server = server();
    let seen = recorded_staleness(&server);
    let (fast, slow) = (connect(&options(&server)), connect(&options(&server)));
    fast.init(&[key("w"), key("x")], &[value(1.0), value(1.0)]).unwrap();
    let push = |store: &NetStore| store.push(&[key("w")], &[value(1.0)], 0).unwrap();
    number(&slow, "w");
    for _ in 0..3 {
        number(&fast, "w");
        push(&fast);
    }
    push(&slow);
    number(&slow, "w");
    push(&slow);
    // A local push is not stale, and other keys do not count.
    server.store().push(&[key("w")], &[value(1.0)], 0).unwrap();
    fast.push(&[key("x")], &[value(1.0)], 0).unwrap();
    let expected = [Some(0), Some(0), Some(0), Some(3), Some(0), None, Some(0)];
    assert_eq!(*seen.lock().unwrap(), expected);
    assert_eq!(push_staleness(&key("w")), None);
}

#[test]
fn a_push_is_stale_although_its_key_was_removed_meanwhile() {
    let server = server();
    let seen = recorded_staleness(&server);
    let (fast, slow) = (connect(&options(&server)), connect(&options(&server)));
    let init = || fast.init(&[key("w")], &[value(1.0)]).unwrap();
    let push = |store: &NetStore| store.push(&[key("w")], &[value(1.0)], 0).unwrap();
    init();
    for _ in 0..5 {
        push(&fast);
    }
    number(&slow, "w");
    fast.remove(&[key("w")]).unwrap();
    init();
    push(&fast);
    push(&fast);
    push(&slow);
    let expected = [0, 1, 2, 3, 4, 0, 1, 2].map(Some);
    assert_eq!(*seen.lock().unwrap(), expected);
}

#[test]
fn optimizers_take_smaller_steps_for_stale_pushes() {
    let server = server();
    let (fast, slow) = (connect(&options(&server)), connect(&options(&server)));
    fast.init(&[key("w")], &[value(0.0)]).unwrap();
    let options = [("learning_rate", 1.0), ("wd", 0.0), ("staleness_power", 2.0)];
    let options = options.map(|(name, value)| (name.to_owned(), value));
    fast.set_optimizer(Optimizer::from_options("sgd", &options).unwrap()).unwrap();
    let push = |store: &NetStore| store.push(&[key("w")], &[value(-1.0)], 0).unwrap();
    number(&slow, "w");
    for _ in 0..3 {
        number(&fast, "w");
        push(&fast);
    }
    push(&slow);
    assert_eq!(number(&slow, "w"), 3.0 + 1.0 / 16.0);
    push(&slow);
    assert_eq!(number(&slow, "w"), 4.0 + 1.0 / 16.0);
    fast.set_hyper_parameters(&[("staleness_power", 0.0)]).unwrap();
    push(&fast);
    assert_eq!(number(&slow, "w"), 5.0 + 1.0 / 16.0);
}

#[test]
fn a_push_that_does_not_fit_the_memory_of_the_server_changes_nothing() {
    let cpu = CpuBackend::new();
    cpu.set_memory_limit(Some(40_000));
    let limited = Backends::new(vec![cpu]);
    let server = Server::start(&limited, &ServerOptions::new("127.0.0.1:0")).unwrap();
    let store = connect(&options(&server));
    let large = |number: f32| -> Value {
        let numbers = vec![number; 4000];
        Tensor::from_slice(backends(), Device::cpu(0), [4000], &numbers).unwrap().into()
    };
    store.init(&[key("w")], &[large(1.0)]).unwrap();
    store.set_optimizer(Optimizer::new("adam").unwrap()).unwrap();
    // The message fits, but the step needs two more values.
    let error = store.push(&[key("w")], &[large(2.0)], 0).unwrap_err();
    assert_eq!(error.code(), ErrorCode::OutOfMemory, "{}", error.chain());
    let expected = format!("server `{}`: out of memory on cpu(0): ", server.address());
    assert!(error.chain().starts_with(&expected), "{}", error.chain());
    // The message does not fit.
    let error = store.push(&[key("w"), key("w")], &[large(2.0), large(3.0)], 0).unwrap_err();
    assert_eq!(error.code(), ErrorCode::OutOfMemory, "{}", error.chain());
    assert_eq!((number(&store, "w"), store.versions(&[key("w")]).unwrap()), (1.0, vec![0]));
    // A rollback to a file needs memory for the old values, the file, and the new values.
    let snapshot = store.snapshot().unwrap();
    let error = store.rollback(&snapshot.load().unwrap()).unwrap_err();
    assert_eq!(error.code(), ErrorCode::OutOfMemory, "{}", error.chain());
    assert!(snapshot.changed_keys(&store.snapshot().unwrap()).unwrap().is_empty());
    store.set_updater(None).unwrap();
    store.push(&[key("w")], &[large(2.0)], 0).unwrap();
    assert_eq!(number(&store, "w"), 2.0);
}
