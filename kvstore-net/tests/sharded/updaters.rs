//! Updaters and settings of several servers.

use kvstore_core::{ErrorCode, KvStore};

use super::network::{key, recorded_staleness};
use super::{connect, numbers, start, value};

/// Each server counts the pushes of its parts.
#[test]
fn updaters_see_how_stale_a_push_of_a_divided_value_is() {
    let servers = start(2);
    let seen = [0, 1].map(|server: usize| recorded_staleness(&servers[server]));
    let (fast, slow) = (connect(&servers), connect(&servers));
    fast.init(&[key("w")], &[value(&[1.0; 10])]).unwrap();
    numbers(&slow, "w");
    for _ in 0..2 {
        numbers(&fast, "w");
        fast.push(&[key("w")], &[value(&[1.0; 10])], 0).unwrap();
    }
    slow.push(&[key("w")], &[value(&[1.0; 10])], 0).unwrap();
    for seen in seen {
        assert_eq!(*seen.lock().unwrap(), [Some(0), Some(0), Some(2)]);
    }
}

#[test]
fn several_servers_do_not_clip_by_the_global_norm() {
    let servers = start(2);
    let store = connect(&servers);
    let error = store.set_clip_global_norm(Some(1.0)).unwrap_err();
    assert_eq!(error.code(), ErrorCode::Unsupported, "{error}");
    assert!(error.to_string().contains("clip_global_norm 1 with several servers"), "{error}");
    store.set_clip_global_norm(None).unwrap();
    assert_eq!(store.clip_global_norm().unwrap(), None);
}
