//! Layouts of keys, when calls overlap.

use std::time::Duration;

use kvstore_core::{Backends, CpuBackend, Device, LocalStore, Tensor};
use tokio::time::Instant;

use super::*;
use crate::rules::Role;
use crate::server::access::Identity;
use crate::server::group::Earlier;

/// A server in a group of several, and the incarnation of its member.
struct Tested(Holder, u64);

impl Tested {
    async fn start() -> Self {
        let backends = Backends::new(Vec::from([CpuBackend::with_threads(1)]));
        let store = Arc::new(LocalStore::new("local", backends.clone()).unwrap());
        let group = Arc::new(Group::new(Duration::from_secs(9), 0));
        let process = (1, &Identity::NONE);
        let joined = group
            .join("a", process, (Role::Worker, Earlier::default()), Instant::now())
            .await
            .unwrap()
            .0;
        let contents = Contents::new(store, backends, usize::MAX);
        let holder = Holder::new(Arc::new(contents), Checkpoints::new(None), group, 0);
        holder.use_layouts(true);
        Self(holder, joined.incarnation)
    }

    /// Makes a call and returns whether it was made.
    fn make(&self, verb: Verb, payload: Payload) -> bool {
        self.0.make(self.1, verb, payload).unwrap().reply.failure.is_none()
    }

    /// Stores the key `w`, without finishing it.
    fn init(&self, existing: proto::OnExisting, layout: u64) -> bool {
        let value = Tensor::from_slice(self.0.contents.backends(), Device::cpu(0), [1], &[1.0]);
        let placement = Some(proto::Placement { layout, ..Default::default() });
        let message = proto::Value { key: "w".to_owned(), placement, ..Default::default() };
        let values = Vec::from([message]);
        let init = proto::Init { values, on_existing: existing.into(), continues: true };
        let payload = Payload::Values(Vec::from([value.unwrap().into()]));
        self.make(Verb::Init(init), payload)
    }

    fn keys(layout: u64) -> proto::Keys {
        let (keys, layouts) = (Vec::from(["w".to_owned()]), Vec::from([layout]));
        proto::Keys { keys, layouts, only_present: true }
    }

    fn finish(&self, layout: u64) -> bool {
        self.make(Verb::FinishInit(Self::keys(layout)), Payload::Values(Vec::new()))
    }

    fn remove(&self, layout: u64) -> bool {
        self.make(Verb::Remove(Self::keys(layout)), Payload::Values(Vec::new()))
    }

    /// Rolls back to the present contents.
    fn rollback(&self, layout: u64) -> bool {
        let bytes = self.0.contents.snapshot().unwrap().to_bytes().unwrap();
        let len = [bytes.len()];
        let file = Tensor::from_slice(self.0.contents.backends(), Device::cpu(0), len, &bytes);
        let rollback = proto::Rollback { layout, ..Default::default() };
        self.make(Verb::Rollback(rollback), Payload::Tensor(file.unwrap()))
    }

    fn is_visible(&self) -> bool {
        self.0.records().visible("w", u64::MAX).is_some()
    }
}

#[tokio::test]
async fn a_key_that_is_replaced_again_stays_visible() {
    let server = Tested::start().await;
    assert!(server.init(proto::OnExisting::Reject, 1) && !server.is_visible());
    assert!(server.finish(1) && server.is_visible());
    for layout in [10, 14] {
        assert!(server.init(proto::OnExisting::Replace, layout) && server.is_visible());
    }
    assert!(!server.init(proto::OnExisting::Replace, 13) && server.is_visible());
}

/// The member may still store a part with the layout that was given up on another server.
#[tokio::test]
async fn a_key_needs_a_larger_layout_than_one_that_was_given_up() {
    let server = Tested::start().await;
    assert!(server.init(proto::OnExisting::Keep, 10) && server.remove(10));
    assert!(!server.init(proto::OnExisting::Keep, 9));
    assert!(server.init(proto::OnExisting::Keep, 11) && server.finish(11));
    // A finished key has all its parts.
    assert!(server.remove(11) && server.init(proto::OnExisting::Keep, 10));
}

#[tokio::test]
async fn a_rollback_needs_a_larger_layout_than_every_init() {
    let server = Tested::start().await;
    assert!(server.init(proto::OnExisting::Keep, 16) && server.finish(16));
    assert!(!server.rollback(11) && server.is_visible());
    assert!(server.rollback(20));
    // An earlier rollback has no effect, and an earlier `init` starts again.
    assert!(server.rollback(19) && !server.init(proto::OnExisting::Keep, 19));
    assert!(server.init(proto::OnExisting::Keep, 21));
}
