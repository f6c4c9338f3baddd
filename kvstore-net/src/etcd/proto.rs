//! The generated messages of etcd.

#![allow(
    dead_code,
    missing_docs,
    clippy::enum_variant_names,
    clippy::pedantic,
    unreachable_pub,
    reason = "generated code, and only a part of the protocol is used"
)]

pub mod mvccpb {
    include!("proto/mvccpb.rs");
}

pub mod etcdserverpb {
    include!("proto/etcdserverpb.rs");
}
