//! Rounds of several members: which pushes they have, and their sums.

#![allow(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    reason = "a test may abort without memory"
)]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a check fails by panicking")]

mod network;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use kvstore::backends;
use kvstore_core::{
    BinaryOp, Compression, DType, Device, Error, ErrorCode, Key, KvStore, LocalStore, Outputs,
    PulledValue, Result, RowSparse, Tensor, Value, WorkerGroup,
};
use kvstore_net::{LatePush, NetStore, NetStoreOptions, Server, ServerOptions};

use self::network::proxy::Proxy;
use self::network::pushes::{check_equal, initial, model, momentum, pushed, varied};
use self::network::recorded::{RULES, RUNNING, record};
use self::network::{LONG, SHORT, connect, eventually, key, options, server, value};

const HOUR: Duration = Duration::from_secs(3600);

fn in_rounds(server: &Server, name: &str, min: usize) -> NetStoreOptions {
    options(server).name(name).quorum(min).grace(HOUR)
}

fn member(server: &Server, name: &str, min: usize) -> NetStore {
    connect(&in_rounds(server, name, min))
}

fn number(store: &NetStore, name: &str) -> f32 {
    store.pull(&[key(name)], 0).unwrap()[0].to_vec::<f32>().unwrap()[0]
}

fn push(store: &NetStore, name: &str, number: f32) -> Result<()> {
    store.push(&[key(name)], &[value(number)], 0)
}

/// Pushes a number for each store at the same time. Returns the results.
fn push_all(stores: &[(&NetStore, f32)], name: &str) -> Vec<Result<()>> {
    thread::scope(|scope| {
        let pushes: Vec<_> = stores
            .iter()
            .map(|(store, number)| scope.spawn(move || push(store, name, *number)))
            .collect();
        pushes.into_iter().map(|push| push.join().unwrap()).collect()
    })
}

fn late(error: &Error) -> (String, u64, u64) {
    match error {
        Error::LatePush { key, pushed, current } => (key.as_str().to_owned(), *pushed, *current),
        other => panic!("{other}"),
    }
}

#[test]
fn a_round_is_one_step_with_the_sum_in_the_order_of_names() {
    let server = server();
    // They arrive in another order than that of their names.
    let names = ["b", "d", "a", "c"];
    let stores = names.map(|name| member(&server, name, 4));
    let (keys, values) = initial();
    stores[0].init(&keys, &values).unwrap();
    stores[0].set_optimizer(momentum()).unwrap();
    let model = model();
    for round in 0..4_u32 {
        let seeds = [1, 2, 3, 4].map(|member| 10 * round + member);
        thread::scope(|scope| {
            for (store, seed) in stores.iter().zip(seeds) {
                thread::sleep(Duration::from_millis(10));
                scope.spawn(move || {
                    let (keys, values) = pushed(seed);
                    store.push(&keys, &values, 0).unwrap();
                });
            }
        });
        let (keys, values): (Vec<_>, Vec<_>) =
            [seeds[2], seeds[0], seeds[3], seeds[1]].map(pushed).into_iter().unzip();
        model.push(&keys.concat(), &values.concat(), 0).unwrap();
        check_equal(&stores[1], &model);
    }
    assert_eq!(stores[0].versions(&keys[..1]).unwrap(), [4]);
}

/// The server asks for 1 MiB at a time. Values may end at the end of such a range, or shortly
/// before.
#[test]
fn values_may_fill_the_ranges_that_the_server_asks_for() {
    let server = server();
    let stores = ["a", "b"].map(|name| member(&server, name, 2));
    let model = LocalStore::new("local", backends().clone()).unwrap();
    let lens = [1 << 18, 1, (1 << 18) - 1, 1 << 19, (1 << 17) + 1, (1 << 18) - 2, 3];
    let dtypes =
        [DType::F32, DType::U8, DType::F32, DType::F32, DType::F16, DType::F64, DType::F64];
    let keys: Vec<_> = (0..lens.len()).map(|number| key(&format!("k{number}"))).collect();
    let values = |seed: u32| -> Vec<Value> {
        let pairs = lens.iter().zip(dtypes);
        pairs.map(|(len, dtype)| varied(&[*len], dtype, seed).into()).collect()
    };
    stores[0].init(&keys, &values(1)).unwrap();
    model.init(&keys, &values(1)).unwrap();
    thread::scope(|scope| {
        for (store, seed) in stores.iter().zip([2, 3]) {
            let (keys, values) = (&keys, &values);
            scope.spawn(move || store.push(keys, &values(seed), 0).unwrap());
        }
    });
    let both: Vec<_> = keys.iter().chain(&keys).cloned().collect();
    let pushed: Vec<_> = values(2).into_iter().chain(values(3)).collect();
    model.push(&both, &pushed, 0).unwrap();
    let (found, expected) = (stores[1].pull(&keys, 0).unwrap(), model.pull(&keys, 0).unwrap());
    for ((key, found), expected) in keys.iter().zip(found).zip(expected) {
        assert!(found.to_bytes().unwrap() == expected.to_bytes().unwrap(), "key `{key}` differs");
    }
}

#[test]
fn several_values_of_a_key_are_summed_first() {
    let server = server();
    let [a, b] = ["a", "b"].map(|name| member(&server, name, 2));
    a.init(&[key("w")], &[value(0.0)]).unwrap();
    let both = [key("w"), key("w")];
    thread::scope(|scope| {
        scope.spawn(|| a.push(&both, &[value(1.0), value(2.0)], 0).unwrap());
        push(&b, "w", 4.0).unwrap();
    });
    assert_eq!(number(&a, "w"), 7.0);
    // Nothing to push needs no round.
    a.push(&[], &[], 0).unwrap();
    let (outs, values) = ([key("w")], [value(3.0)]);
    thread::scope(|scope| {
        let pushing = scope.spawn(|| {
            let mut pulled: Vec<PulledValue> = Vec::new();
            let prepare = &mut |_: &[_]| Ok(());
            let outputs = Outputs { keys: &outs, prepare, pulled: &mut pulled };
            a.pushpull_into((&outs, &values), outputs, 0).unwrap();
            pulled[0].value.to_vec::<f32>().unwrap()
        });
        push(&b, "w", 5.0).unwrap();
        assert_eq!(pushing.join().unwrap(), [8.0, 8.0]);
    });
}

#[test]
fn a_round_closes_after_the_grace_period() {
    let server = server();
    let grace = Duration::from_millis(300);
    let [a, b, c] =
        ["a", "b", "c"].map(|name| connect(&options(&server).name(name).quorum(2).grace(grace)));
    a.init(&[key("w")], &[value(0.0)]).unwrap();
    for store in [&a, &b, &c] {
        assert_eq!(number(store, "w"), 0.0);
    }
    let start = Instant::now();
    for result in push_all(&[(&a, 1.0), (&b, 2.0)], "w") {
        result.unwrap();
    }
    assert!(start.elapsed() >= grace, "{:?}", start.elapsed());
    assert_eq!(number(&a, "w"), 3.0);
    // The third one is based on the value before the round.
    let error = push(&c, "w", 4.0).unwrap_err();
    assert_eq!(late(&error), ("w".to_owned(), 1, 2));
    assert_eq!(error.to_string(), "push of `w` for round 1: the current round is 2");
    assert_eq!(error.code(), ErrorCode::LatePush);
    assert_eq!(number(&c, "w"), 3.0);
    // All live workers have pushed, so the round does not wait.
    for result in push_all(&[(&a, 1.0), (&b, 2.0), (&c, 4.0)], "w") {
        result.unwrap();
    }
    assert_eq!(number(&a, "w"), 7.0);
}

#[test]
fn a_late_push_may_belong_to_the_next_round() {
    let server = server();
    let [a, b] = ["a", "b"].map(|name| {
        let options = options(&server).name(name).quorum(1).late(LatePush::Next);
        connect(&options.grace(Duration::from_millis(50)))
    });
    a.init(&[key("w")], &[value(0.0)]).unwrap();
    assert_eq!((number(&a, "w"), number(&b, "w")), (0.0, 0.0));
    push(&a, "w", 1.0).unwrap();
    assert_eq!(number(&a, "w"), 1.0);
    push(&b, "w", 2.0).unwrap();
    assert_eq!(number(&a, "w"), 2.0);
}

#[test]
fn the_next_round_may_have_another_rule() {
    let server = server();
    let rules = [LatePush::Next, LatePush::Reject].map(|late| {
        let options = options(&server).name(format!("{late:?}")).grace(Duration::ZERO);
        connect(&options.quorum(1).late(late))
    });
    rules[0].init(&[key("w")], &[value(0.0)]).unwrap();
    for round in 0..300_u16 {
        for (store, late) in rules.iter().zip([0.0, 0.5]) {
            // So that the push is not late.
            number(store, "w");
            push(store, "w", f32::from(round) + late).unwrap();
        }
    }
    assert_eq!(number(&rules[0], "w"), 299.5);
}

#[test]
fn a_worker_that_leaves_is_not_waited_for() {
    let server = server();
    let [a, b] = ["a", "b"].map(|name| member(&server, name, 1));
    a.init(&[key("w")], &[value(0.0)]).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| push(&a, "w", 5.0).unwrap());
        thread::sleep(Duration::from_millis(100));
        b.leave().unwrap();
    });
    assert_eq!(number(&a, "w"), 5.0);
}

#[test]
fn a_push_without_enough_members_times_out() {
    let server = server();
    let a = connect(&in_rounds(&server, "a", 2).timeout(SHORT));
    let b = connect(&in_rounds(&server, "b", 2));
    a.init(&[key("w")], &[value(1.0)]).unwrap();
    let error = push(&a, "w", 5.0).unwrap_err();
    assert_eq!(
        error.to_string(),
        "timed out: push of `w` to a round: 1 members have pushed, at least 2 must, waiting for `b`"
    );
    // The push was withdrawn.
    for result in push_all(&[(&a, 2.0), (&b, 4.0)], "w") {
        result.unwrap();
    }
    assert_eq!(number(&b, "w"), 6.0);
}

#[test]
fn weights_give_the_weighted_mean() {
    let server = server();
    let [a, b] = ["a", "b"].map(|name| connect(&in_rounds(&server, name, 2).weight(1.0)));
    a.init(&[key("w"), key("rows")], &[value(0.0), value(0.0)]).unwrap();
    a.set_weight(3.0).unwrap();
    for result in push_all(&[(&a, 0.1), (&b, 0.7)], "w") {
        result.unwrap();
    }
    let expected = (0.1_f32 * 3.0 + 0.7) / 4.0;
    assert_eq!(number(&a, "w").to_bits(), expected.to_bits());
    let rows = |index, number: f32| {
        let row = Tensor::from_slice(backends(), Device::cpu(0), [1], &[number]).unwrap();
        Value::from(RowSparse::new([2], Vec::from([index]), row).unwrap())
    };
    thread::scope(|scope| {
        scope.spawn(|| a.push(&[key("rows")], &[rows(0, 2.0)], 0).unwrap());
        b.push(&[key("rows")], &[rows(1, 2.0)], 0).unwrap();
    });
    let found = b.pull(&[key("rows")], 0).unwrap()[0].to_vec::<f32>().unwrap();
    assert_eq!(found, [1.5, 0.5]);
    for weight in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let text = a.set_weight(weight).unwrap_err().to_string();
        assert!(text.starts_with("weight: expected a finite number above 0, found "), "{text}");
        let options = in_rounds(&server, "c", 2).weight(weight);
        assert!(NetStore::connect(backends(), &options).is_err());
    }
    let plain = member(&server, "plain", 2);
    assert_eq!(plain.set_weight(1.0).unwrap_err().code(), ErrorCode::Unsupported);
    let integers = Tensor::from_slice(backends(), Device::cpu(0), [2], &[1_i32, 2]).unwrap();
    a.init(&[key("i")], &[integers.clone().into()]).unwrap();
    let error = a.push(&[key("i")], &[integers.into()], 0).unwrap_err();
    assert_eq!(error.to_string(), "key `i`: weights need a floating-point dtype, found i32");
}

#[test]
fn wrong_pushes_are_rejected_and_change_nothing() {
    let server = server();
    let a = member(&server, "a", 2);
    a.init(&[key("w"), key("v")], &[value(1.0), value(1.0)]).unwrap();
    let error = push(&a, "missing", 1.0).unwrap_err();
    assert_eq!((error.code(), error.key().unwrap().as_str()), (ErrorCode::KeyNotFound, "missing"));
    let wrong = varied(&[3], DType::F32, 1);
    let error = a.push(&[key("w")], &[wrong.clone().into()], 0).unwrap_err();
    assert_eq!(error.to_string(), "key `w`: expected [2] f32, found [3] f32");
    let error = a.push(&[key("w"), key("w")], &[value(1.0), wrong.into()], 0).unwrap_err();
    assert_eq!(error.to_string(), "key `w`: expected [2] f32, found [3] f32");
    let text = NetStore::connect(backends(), &options(&server).quorum(0)).unwrap_err().to_string();
    assert_eq!(text, "quorum: expected at least 1, found 0");
    // While a push of `w` waits.
    thread::scope(|scope| {
        let waiting = scope.spawn(|| push(&a, "w", 2.0));
        let b = connect(&in_rounds(&server, "b", 2));
        let other = connect(&in_rounds(&server, "c", 3).weight(2.0).late(LatePush::Next));
        eventually("a push waits", || {
            let found = push(&other, "w", 1.0);
            let text = found.unwrap_err().to_string();
            text == "quorum: expected quorum 2, grace 3600 s, late `reject`, weights false, as \
                     other members have, found quorum 3, grace 3600 s, late `next`, weights true"
        });
        let both = [key("v"), key("w")];
        let error = b.push(&both, &[value(1.0), value(1.0)], 0).unwrap_err();
        assert_eq!(
            error.to_string(),
            "push of `w` to a round: expected the keys that other members push together with it, \
             found 2 keys"
        );
        let error = push(&a, "w", 3.0).unwrap_err();
        assert_eq!(
            error.to_string(),
            "push of `w` to a round: another push of this member is waiting"
        );
        assert_eq!(number(&b, "w"), 1.0);
        other.leave().unwrap();
        push(&b, "w", 5.0).unwrap();
        waiting.join().unwrap().unwrap();
    });
    assert_eq!(number(&a, "w"), 7.0);
}

#[test]
fn a_failing_updater_fails_the_push_of_every_member() {
    let server = server();
    let [a, b] = ["a", "b"].map(|name| member(&server, name, 2));
    a.init(&[key("w")], &[value(1.0)]).unwrap();
    let fails = Arc::new(AtomicBool::new(true));
    let failing = Arc::clone(&fails);
    let updater = move |_: &Key, pushed: &Tensor, stored: &mut Tensor| {
        if failing.load(Ordering::Relaxed) {
            return Err("no".into());
        }
        stored.binary_assign(BinaryOp::Add, pushed)?;
        Ok(())
    };
    server.store().set_updater(Some(Arc::new(updater))).unwrap();
    for result in push_all(&[(&a, 1.0), (&b, 2.0)], "w") {
        assert_eq!(result.unwrap_err().code(), ErrorCode::Updater);
    }
    fails.store(false, Ordering::Relaxed);
    for result in push_all(&[(&a, 1.0), (&b, 2.0)], "w") {
        result.unwrap();
    }
    assert_eq!(number(&a, "w"), 4.0);
}

#[test]
fn compressed_pushes_have_the_bits_of_a_local_store() {
    let server = server();
    let [a, b] = ["a", "b"].map(|name| member(&server, name, 2));
    let model = LocalStore::new("local", backends().clone()).unwrap();
    let compression = Compression::new("2bit", 0.5).unwrap();
    let start = Value::from(varied(&[100], DType::F32, 0));
    for store in [&a as &dyn KvStore, &model] {
        store.init(&[key("w")], std::slice::from_ref(&start)).unwrap();
        store.set_compression(Some(compression)).unwrap();
        store.set_optimizer(momentum()).unwrap();
    }
    for round in 0..5 {
        let values = [round, round + 100].map(|seed| Value::from(varied(&[100], DType::F32, seed)));
        thread::scope(|scope| {
            scope.spawn(|| a.push(&[key("w")], &values[..1], 0).unwrap());
            b.push(&[key("w")], &values[1..], 0).unwrap();
        });
        model.push(&[key("w"), key("w")], &values, 0).unwrap();
        let [found, expected] = [&a as &dyn KvStore, &model]
            .map(|store| store.pull(&[key("w")], 0).unwrap()[0].to_bytes().unwrap());
        assert!(found == expected, "round {round}");
    }
}

/// Cuts connections while the server receives the values of rounds.
#[test]
fn a_member_that_loses_its_connection_sends_its_values_again() {
    let server = server();
    let (keys, values) = initial();
    let proxies = [0; 2].map(|_| Proxy::new(server.address()));
    let stores: Vec<_> = proxies
        .iter()
        .zip(["a", "b"])
        .map(|(proxy, name)| {
            let options = NetStoreOptions::new(proxy.address.to_string()).timeout(LONG);
            connect(&options.name(name).quorum(2).grace(HOUR).late(LatePush::Next))
        })
        .collect();
    stores[0].init(&keys, &values).unwrap();
    stores[0].set_optimizer(momentum()).unwrap();
    let model = model();
    let mut num_cuts = 0;
    for round in 0..12 {
        thread::scope(|scope| {
            let pushing: Vec<_> = stores
                .iter()
                .zip([round, round + 100])
                .map(|(store, seed)| {
                    scope.spawn(move || {
                        let (keys, values) = pushed(seed);
                        store.push(&keys, &values, 0).unwrap();
                    })
                })
                .collect();
            for pause in 0..4 {
                thread::sleep(Duration::from_millis(3 + pause));
                if pushing.iter().all(thread::ScopedJoinHandle::is_finished) {
                    break;
                }
                proxies[usize::try_from(pause % 2).unwrap()].cut();
                num_cuts += 1;
            }
        });
        let (keys, values): (Vec<_>, Vec<_>) =
            [pushed(round), pushed(round + 100)].into_iter().unzip();
        model.push(&keys.concat(), &values.concat(), 0).unwrap();
        check_equal(&stores[0], &model);
    }
    println!("connections were cut {num_cuts} times");
    assert!(num_cuts >= 12, "{num_cuts} cuts");
}

/// Workers die, come back under their name, are slow or leave. Every round has the bits of one
/// local push with the values of its members.
#[test]
fn rounds_with_random_deaths_have_the_bits_of_a_local_store() {
    RULES.into_iter().for_each(check_random_deaths);
}

fn check_random_deaths(rule: (usize, LatePush)) {
    record();
    let options = ServerOptions::new("127.0.0.1:0").lease(Duration::from_secs(1));
    let server = Arc::new(Server::start(backends(), &options).unwrap());
    let (keys, values) = initial();
    let reader = connect(&network::options(&server).name("reader").reader());
    let init = connect(&network::options(&server).name("init"));
    init.init(&keys, &values).unwrap();
    init.set_optimizer(momentum()).unwrap();
    init.leave().unwrap();
    let counts = [0; 4].map(AtomicUsize::new);
    let num_rounds = || RUNNING.lock().unwrap().as_ref().map_or(0, |found| found.rounds.len());
    let ends = AtomicBool::new(false);
    thread::scope(|scope| {
        for (number, name) in (0_u32..).zip(["random-d", "random-b", "random-a", "random-c"]) {
            let (server, ends, counts) = (&server, &ends, &counts);
            scope.spawn(move || work(server, (number, name), rule, (ends, counts)));
        }
        eventually("rounds and deaths", || {
            thread::sleep(Duration::from_millis(50));
            let is_enough = |index: usize, least| counts[index].load(Ordering::Relaxed) >= least;
            num_rounds() >= 30 && is_enough(2, 12) && is_enough(3, 3)
        });
        ends.store(true, Ordering::Relaxed);
    });
    let recorded = RUNNING.lock().unwrap().take().unwrap();
    let model = model();
    for round in &recorded.rounds {
        let (keys, values): (Vec<_>, Vec<_>) = round.iter().map(|seed| pushed(*seed)).unzip();
        model.push(&keys.concat(), &values.concat(), 0).unwrap();
    }
    let num_rounds = recorded.rounds.len();
    println!(
        "{rule:?}: {num_rounds} rounds; pushes, late pushes, members that were killed or have \
         left: {counts:?}"
    );
    check_equal(&reader, &model);
    let lens: Vec<usize> = recorded.rounds.iter().map(Vec::len).collect();
    assert!(lens.iter().any(|len| *len < 4), "{lens:?}");
}

/// Pushes until the end, as a member that is killed or leaves now and then.
fn work(
    server: &Server,
    (number, name): (u32, &str),
    (quorum, late): (usize, LatePush),
    (ends, [num_pushed, num_late, num_killed, num_left]): (&AtomicBool, &[AtomicUsize; 4]),
) {
    let mut seed = 1000 * number;
    while !ends.load(Ordering::Relaxed) {
        let proxy = Proxy::new(server.address());
        let options = NetStoreOptions::new(proxy.address.to_string()).timeout(SHORT).name(name);
        let options = options.quorum(quorum).late(late).grace(Duration::from_millis(40));
        let Ok(store) = NetStore::connect(backends(), &options) else { continue };
        let life = Duration::from_millis(u64::from(200 + 137 * (seed % 11)));
        let death = Instant::now() + life;
        let leaves = seed % 4 == 0;
        thread::scope(|scope| {
            scope.spawn(|| {
                thread::sleep(life);
                if leaves {
                    return;
                }
                // As a kill does: no later message arrives.
                *proxy.server.lock().unwrap() = None;
                proxy.cut();
            });
            while Instant::now() < death {
                seed += 1;
                // A value per push, so that a push that counts twice would be seen.
                if store.pull(&[key("a")], 0).is_err() {
                    break;
                }
                if let Some(recorded) = &mut *RUNNING.lock().unwrap() {
                    recorded.running.insert(name.to_owned(), seed);
                }
                let (keys, values) = pushed(seed);
                match store.push(&keys, &values, 0) {
                    Ok(()) => num_pushed.fetch_add(1, Ordering::Relaxed),
                    Err(Error::LatePush { .. }) => num_late.fetch_add(1, Ordering::Relaxed),
                    Err(_) => break,
                };
                thread::sleep(Duration::from_millis(u64::from(seed * 7 % 13)));
            }
        });
        // If that fails, it is a death.
        let has_left = leaves && store.leave().is_ok();
        if has_left { num_left } else { num_killed }.fetch_add(1, Ordering::Relaxed);
    }
}
