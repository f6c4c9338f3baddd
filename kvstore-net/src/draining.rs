//! The end of a server.

use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use kvstore_core::{Backends, CpuBackend, Device, Key, KvStore, Tensor};

use crate::client::{NetStore, NetStoreOptions};
use crate::server::{Server, ServerOptions};

/// The test would never end if the server waited for the call, which ends after the server.
#[test]
fn a_server_does_not_wait_longer_than_its_limit_for_a_call() {
    let backends = Backends::new(vec![CpuBackend::new()]);
    let server = Server::start(&backends, &ServerOptions::new("127.0.0.1:0")).unwrap();
    // The call repeats until its timeout, because its server has ended.
    let options =
        NetStoreOptions::new(server.address().to_string()).timeout(Duration::from_secs(5));
    let store = NetStore::connect(&backends, &options).unwrap();
    let (key, value) =
        ([Key::new("w").unwrap()], Tensor::from_slice(&backends, Device::cpu(0), [2], &[0_f32; 2]));
    let value = [value.unwrap().into()];
    store.init(&key, &value).unwrap();
    let ((enter, entered), (release, released)) = (channel(), channel());
    let channels = Mutex::new((enter, released));
    let stuck = move |_: &Key, _: &Tensor, _: &mut Tensor| {
        let channels = channels.lock().unwrap();
        channels.0.send(())?;
        Ok(channels.1.recv()?)
    };
    server.store().set_updater(Some(Arc::new(stuck))).unwrap();
    thread::scope(|scope| {
        let push = scope.spawn(|| store.push(&key, &value, 0));
        entered.recv().unwrap();
        server.shut_down_within(Duration::from_millis(10));
        assert_eq!(server.num_running_calls(), 1, "the call still runs");
        release.send(()).unwrap();
        let _ = push.join().unwrap();
    });
}
