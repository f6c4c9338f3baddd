//! Random programs with deaths: every round has the bits of one local push with the values of its
//! members.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use kvstore::backends;
use kvstore_core::{Error, KvStore, WorkerGroup};
use kvstore_net::{LatePush, NetStore, NetStoreOptions, Server, ServerOptions};

use super::network::proxy::Proxy;
use super::network::pushes::{check_equal, model, pushed, weighted_mean};
use super::network::recorded::{RULES, RUNNING, record};
use super::network::{connect, key};
use super::{DIVIDE_ABOVE, initialise, options, start_with};

/// Returns the weight of a push.
fn weight_of(seed: u32) -> f64 {
    [0.7, 3.0, 0.1, 1.0][seed as usize % 4]
}

/// Workers die, come back under their name, are slow or leave, and servers lose their connections.
#[test]
fn rounds_with_random_deaths_have_the_bits_of_a_local_store() {
    let servers_and_weights = [(2, false), (3, true), (2, false)];
    for ((num_servers, has_weights), rule) in servers_and_weights.into_iter().zip(RULES) {
        record();
        let proxies = std::cell::RefCell::new(Vec::new());
        let through = |server: &Server| {
            let proxy = Proxy::new(server.address());
            let address = proxy.address;
            proxies.borrow_mut().push(proxy);
            address
        };
        let lease = || ServerOptions::new("127.0.0.1:0").lease(Duration::from_secs(1));
        let servers = start_with(num_servers, lease, through);
        let proxies = proxies.into_inner();
        let reader = connect(&options(&servers).name("reader").reader());
        let init = connect(&options(&servers).name("init"));
        initialise(&init);
        init.leave().unwrap();
        RUNNING.lock().unwrap().as_mut().unwrap().rounds.clear();
        let counts = [0; 4].map(AtomicUsize::new);
        let num_rounds = || RUNNING.lock().unwrap().as_ref().map_or(0, |found| found.rounds.len());
        let ends = AtomicBool::new(false);
        thread::scope(|scope| {
            for (number, name) in (0_u32..).zip(["random-d", "random-b", "random-a", "random-c"]) {
                let (servers, ends, counts) = (&servers, &ends, &counts);
                let rule = (rule, has_weights);
                scope.spawn(move || work(servers, (number, name), rule, (ends, counts)));
            }
            let mut num_cuts = 0;
            let start = Instant::now();
            let is_enough = |index: usize, least| counts[index].load(Ordering::Relaxed) >= least;
            while num_rounds() < 30 || !is_enough(2, 12) || !is_enough(3, 3) {
                assert!(start.elapsed() < 2 * super::LONG, "{counts:?}");
                thread::sleep(Duration::from_millis(150));
                proxies[num_cuts % proxies.len()].cut();
                num_cuts += 1;
            }
            ends.store(true, Ordering::Relaxed);
        });
        let rounds = RUNNING.lock().unwrap().as_ref().unwrap().rounds.clone();
        let model = model();
        for round in &rounds {
            let (keys, values) = if has_weights {
                let pushes: Vec<_> = round.iter().map(|seed| (*seed, weight_of(*seed))).collect();
                weighted_mean(&pushes)
            } else {
                let pushes = round.iter().map(|seed| pushed(*seed));
                let (keys, values): (Vec<_>, Vec<_>) = pushes.unzip();
                (keys.concat(), values.concat())
            };
            model.push(&keys, &values, 0).unwrap();
        }
        println!(
            "{rule:?}: {} rounds; pushes, late pushes, members that were killed or have left: \
             {counts:?}",
            rounds.len()
        );
        check_equal(&reader, &model);
        let lens: Vec<usize> = rounds.iter().map(Vec::len).collect();
        assert!(lens.iter().any(|len| *len < 4), "{lens:?}");
    }
}

/// Pushes until the end, as a member that is killed or leaves now and then.
fn work(
    servers: &[Arc<Server>],
    (number, name): (u32, &str),
    ((quorum, late), has_weights): ((usize, LatePush), bool),
    (ends, [num_pushed, num_late, num_killed, num_left]): (&AtomicBool, &[AtomicUsize; 4]),
) {
    let mut seed = 1000 * number;
    while !ends.load(Ordering::Relaxed) {
        let proxies: Vec<_> = servers.iter().map(|server| Proxy::new(server.address())).collect();
        let addresses = proxies.iter().map(|proxy| proxy.address.to_string());
        let options = NetStoreOptions::of_servers(addresses).divide_above(DIVIDE_ABOVE);
        let options = options
            .timeout(Duration::from_secs(1))
            .name(name)
            .quorum(quorum)
            .late(late)
            .grace(Duration::from_millis(40));
        let options = if has_weights { options.weight(1.0) } else { options };
        let Ok(store) = NetStore::connect(backends(), &options) else { continue };
        let life = Duration::from_millis(u64::from(200 + 137 * (seed % 11)));
        let (death, pause) =
            (Instant::now() + life, Duration::from_millis(u64::from(seed % 3) * 5));
        let leaves = seed % 4 == 0;
        thread::scope(|scope| {
            scope.spawn(|| {
                thread::sleep(life);
                if leaves {
                    return;
                }
                // As a kill does: no later message arrives. Sometimes one server notices it first.
                for proxy in &proxies {
                    *proxy.server.lock().unwrap() = None;
                    proxy.cut();
                    thread::sleep(pause);
                }
            });
            while Instant::now() < death {
                seed += 1;
                // A value per push, so that a push that counts twice would be seen.
                let keys = ["a", "half", "rows", "z"].map(key);
                if store.pull(&keys, 0).is_err() {
                    break;
                }
                if let Some(recorded) = &mut *RUNNING.lock().unwrap() {
                    recorded.running.insert(name.to_owned(), seed);
                }
                let (keys, values) = pushed(seed);
                if has_weights && store.set_weight(weight_of(seed)).is_err() {
                    break;
                }
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
