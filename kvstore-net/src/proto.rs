//! The messages of the protocol, and the generated parts of client and server.

#![allow(missing_docs, clippy::pedantic, unreachable_pub, reason = "generated code")]

include!("proto/messages.rs");
include!("proto/replies.rs");
include!("proto/client.rs");
include!("proto/server.rs");
include!("proto/peers.rs");
