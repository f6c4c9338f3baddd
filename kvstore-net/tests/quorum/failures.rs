//! Workers, servers and connections that fail during rounds.

use std::sync::Arc;
use std::thread::{self, ScopedJoinHandle};
use std::time::Duration;

use kvstore::backends;
use kvstore_core::{Key, KvStore, LocalStore, OnExisting, Value, WorkerGroup};
use kvstore_net::{LatePush, NetStore, NetStoreOptions, Server, ServerOptions};

use super::journals::Recorded;
use super::network::authority::Authority;
use super::network::journals::{MemberPush, Rounds};
use super::network::proxy::Proxy;
use super::network::pushes::{check_equal, initial, model, pushed};
use super::network::{LONG, connect, eventually};
use super::{
    DIVIDE_ABOVE, HOUR, in_rounds, init, initialise, key_of, member, number, options, push,
    push_all, start, start_with,
};

/// A worker that is connected to the servers through proxies.
pub(super) struct Worker {
    pub(super) proxies: Vec<Proxy>,
    pub(super) store: NetStore,
}

impl Worker {
    pub(super) fn connect(
        servers: &[Arc<Server>],
        options: impl Fn(NetStoreOptions) -> NetStoreOptions,
    ) -> Self {
        let proxies: Vec<_> = servers.iter().map(|server| Proxy::new(server.address())).collect();
        let addresses = proxies.iter().map(|proxy| proxy.address.to_string());
        let through = NetStoreOptions::of_servers(addresses).divide_above(DIVIDE_ABOVE);
        let store = connect(&options(through.timeout(LONG)));
        Self { proxies, store }
    }

    /// Ends all connections, so that no later message arrives.
    fn kill(&self) {
        for proxy in &self.proxies {
            *proxy.server.lock().unwrap() = None;
            proxy.cut();
        }
    }
}

fn push_to_model(model: &LocalStore, seeds: &[u32]) {
    let (keys, values): (Vec<Vec<Key>>, Vec<Vec<Value>>) =
        seeds.iter().map(|seed| pushed(*seed)).unzip();
    model.push(&keys.concat(), &values.concat(), 0).unwrap();
}

/// Calls `disturb` a few times while all stores push.
fn push_disturbed(stores: &[&NetStore], seeds: &[u32], mut disturb: impl FnMut(u64)) {
    thread::scope(|scope| {
        let pushing: Vec<_> = stores
            .iter()
            .zip(seeds)
            .map(|(store, seed)| {
                scope.spawn(move || {
                    let (keys, values) = pushed(*seed);
                    store.push(&keys, &values, 0).unwrap();
                })
            })
            .collect();
        for pause in 0..4 {
            thread::sleep(Duration::from_millis(3 + pause));
            if pushing.iter().all(ScopedJoinHandle::is_finished) {
                break;
            }
            disturb(pause);
        }
    });
}

#[test]
fn a_member_that_loses_its_connections_sends_its_values_again() {
    let servers = start(3);
    let workers = ["a", "b"].map(|name| {
        let options = |options: NetStoreOptions| {
            options.name(name).quorum(2).grace(HOUR).late(LatePush::Next)
        };
        Worker::connect(&servers, options)
    });
    let stores = [&workers[0].store, &workers[1].store];
    initialise(stores[0]);
    let model = model();
    let mut num_cuts = 0;
    for round in 0..12 {
        let seeds = [round, round + 100];
        push_disturbed(&stores, &seeds, |pause| {
            let (worker, server) = (pause % 2, (u64::from(round) + pause / 2) % 3);
            let [worker, server] = [worker, server].map(|index| usize::try_from(index).unwrap());
            workers[worker].proxies[server].cut();
            num_cuts += 1;
        });
        push_to_model(&model, &seeds);
        check_equal(stores[0], &model);
    }
    println!("connections were cut {num_cuts} times");
    assert!(num_cuts >= 12, "{num_cuts} cuts");
}

#[test]
fn servers_that_lose_their_connections_commit_the_same_rounds() {
    let proxies = std::cell::RefCell::new(Vec::new());
    let through = |server: &Server| {
        let proxy = Proxy::new(server.address());
        let address = proxy.address;
        proxies.borrow_mut().push(proxy);
        address
    };
    let servers = start_with(3, || ServerOptions::new("127.0.0.1:0"), through);
    let proxies = proxies.into_inner();
    let stores = ["b", "a"].map(|name| member(&servers, name, 2));
    initialise(&stores[0]);
    let model = model();
    let mut num_cuts = 0;
    for round in 0..12_u32 {
        let seeds = [round, round + 100];
        // Also after any number of messages of a follower.
        proxies[usize::from(round % 2 == 0)]
            .limit
            .store(usize::try_from(20 + 31 * round).unwrap(), std::sync::atomic::Ordering::SeqCst);
        push_disturbed(&[&stores[0], &stores[1]], &seeds, |pause| {
            proxies[usize::try_from(pause % 2).unwrap()].cut();
            num_cuts += 1;
        });
        push_to_model(&model, &[round + 100, round]);
        check_equal(&stores[0], &model);
    }
    println!("connections were cut {num_cuts} times");
    assert!(num_cuts >= 12, "{num_cuts} cuts");
    assert_eq!(stores[0].versions(&initial().0).unwrap(), [12; 4]);
}

/// The servers have the values of the other members, and begin to add up those of this one.
#[test]
fn a_worker_that_dies_within_its_values_is_in_no_sum() {
    let mut num_given_up_bytes = 0;
    for num_servers in [1, 2, 3] {
        let recorded = Recorded::start(num_servers);
        let servers = &recorded.servers;
        let stores = ["a", "c"].map(|name| member(servers, name, 2));
        let model = model();
        for death in 0..4_u32 {
            let worker =
                Worker::connect(servers, |options| options.name("b").quorum(2).grace(HOUR));
            // The last server gets no more than the beginning of the values.
            let last = &worker.proxies[num_servers - 1];
            let sent = last.num_sent.load(std::sync::atomic::Ordering::SeqCst);
            let most = sent + 20_000 * usize::try_from(death + 1).unwrap();
            last.lose_above.store(most, std::sync::atomic::Ordering::SeqCst);
            let seeds = [10 * death, 10 * death + 1];
            thread::scope(|scope| {
                let dying = scope.spawn(|| {
                    let (keys, values) = pushed(1000);
                    worker.store.push(&keys, &values, 0)
                });
                let pushing: Vec<_> = stores
                    .iter()
                    .zip(seeds)
                    .map(|(store, seed)| {
                        scope.spawn(move || {
                            let (keys, values) = pushed(seed);
                            store.push(&keys, &values, 0).unwrap();
                        })
                    })
                    .collect();
                eventually("values are lost", || {
                    last.num_lost.load(std::sync::atomic::Ordering::SeqCst) == 1
                });
                worker.kill();
                for pushing in pushing {
                    pushing.join().unwrap();
                }
                worker.store.leave().unwrap();
                dying.join().unwrap().unwrap_err();
            });
            push_to_model(&model, &seeds);
            check_equal(&stores[1], &model);
        }
        drop(stores);
        // The journals also have the values of the attempts with this worker, which do not count.
        let rounds = recorded.end();
        let names =
            |round: &[MemberPush]| round.iter().map(|push| push.name.clone()).collect::<Vec<_>>();
        for Rounds { applied, .. } in &rounds {
            assert!(applied.len() == 4 && applied.iter().all(|round| names(round) == ["a", "c"]));
        }
        // The last server was waiting for the values of this worker.
        let given_up = &rounds[num_servers - 1].given_up;
        let members = |attempt: &Vec<(String, usize)>| {
            attempt.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>()
        };
        let attempts = given_up.iter().filter(|attempt| members(attempt) == ["a", "b", "c"]);
        assert!(attempts.count() >= 4, "{given_up:?}");
        num_given_up_bytes +=
            given_up.iter().flatten().map(|(_, num_bytes)| num_bytes).sum::<usize>();
    }
    assert!(num_given_up_bytes > 0);
}

#[test]
fn a_worker_that_leaves_is_not_waited_for() {
    let servers = start(2);
    let keys = [0, 1].map(|server| key_of(server, 2));
    let [a, b] = ["a", "b"].map(|name| member(&servers, name, 1));
    init(&a, &keys);
    thread::scope(|scope| {
        scope.spawn(|| push(&a, &keys, 5.0).unwrap());
        thread::sleep(Duration::from_millis(100));
        b.leave().unwrap();
    });
    assert_eq!((number(&a, &keys[0]), number(&a, &keys[1])), (5.0, 5.0));
}

/// Each server in turn loses its values. Rounds continue when the values are there again.
#[test]
fn rounds_continue_after_a_restart_of_a_server() {
    let mut servers = start(3);
    let addresses: Vec<_> = servers.iter().map(|server| server.address().to_string()).collect();
    let keys = [0, 1, 2].map(|server| key_of(server, 3));
    let a = connect(&in_rounds(&servers, "a", 2).timeout(Duration::from_secs(10)));
    init(&a, &keys);
    for restarted in [1, 2, 0] {
        // A push waits for a second one.
        thread::scope(|scope| {
            let waiting = scope.spawn(|| push(&a, &keys, 1.0));
            thread::sleep(Duration::from_millis(200));
            servers[restarted].shut_down();
            let options = ServerOptions::new(addresses[restarted].clone());
            let options =
                if restarted == 0 { options.followers(addresses[1..].to_vec()) } else { options };
            let started = Server::start(backends(), &options).unwrap();
            servers[restarted] = Arc::new(started);
            waiting.join().unwrap().unwrap_err();
        });
        let stores = ["b", "c"].map(|name| member(&servers, name, 2));
        let values = keys.each_ref().map(|_| super::value(0.0));
        eventually("the values are there again", || {
            stores[0].init_with(&keys, &values, OnExisting::Replace).is_ok()
        });
        a.pull(&keys, 0).unwrap();
        thread::scope(|scope| {
            let third = scope.spawn(|| push(&a, &keys, 4.0));
            for result in push_all(&[(&stores[0], 1.0), (&stores[1], 2.0)], &keys) {
                result.unwrap();
            }
            third.join().unwrap().unwrap();
        });
        for key in &keys {
            assert_eq!(number(&stores[1], key), 7.0, "{key}");
        }
        for store in stores {
            store.leave().unwrap();
        }
    }
}

#[test]
fn only_servers_and_administrators_may_lead() {
    let authority = Authority::new();
    for (role, is_permitted) in [("server", true), ("admin", true), ("worker", false)] {
        let certificates = |role: &str| authority.issue(role);
        let follower = ServerOptions::new("127.0.0.1:0").certificates(certificates("server"));
        let follower = Arc::new(Server::start(backends(), &follower).unwrap());
        let leader = ServerOptions::new("127.0.0.1:0").certificates(certificates(role));
        let leader = leader.followers([follower.address().to_string()]);
        let servers = [Arc::new(Server::start(backends(), &leader).unwrap()), follower];
        let timeout = if is_permitted { LONG } else { Duration::from_secs(3) };
        let options = options(&servers).certificates(certificates("worker")).timeout(timeout);
        let a = connect(&options.name("a").quorum(1).grace(HOUR));
        let keys = [0, 1].map(|server| key_of(server, 2));
        init(&a, &keys);
        let pushed = push(&a, &keys, 3.0);
        if is_permitted {
            pushed.unwrap();
            assert_eq!((number(&a, &keys[0]), number(&a, &keys[1])), (3.0, 3.0));
            continue;
        }
        let key = keys.iter().min().unwrap();
        let follower = servers[1].address();
        assert_eq!(
            pushed.unwrap_err().to_string(),
            format!(
                "timed out: push of `{key}` to a round: waiting until other servers have their \
                 parts: `{follower}` (not connected)"
            )
        );
        assert_eq!((number(&a, &keys[0]), number(&a, &keys[1])), (0.0, 0.0));
    }
}
