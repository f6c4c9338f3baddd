//! [`Watch`]: the changes of keys.

use std::time::Duration;

use tonic::Status;

use super::exchange::{Exchange, decode};
use super::proto::etcdserverpb::watch_request::RequestUnion;
use super::proto::etcdserverpb::{WatchCreateRequest, WatchRequest, WatchResponse};
use super::proto::mvccpb::event::EventType;
use super::{Etcd, KeyValue, end_of};

/// The changes of keys, in the order in which they were made.
pub(crate) struct Watch(Exchange);

impl Etcd {
    /// Returns the changes of the keys that begin with `prefix`, from a revision on.
    pub(crate) async fn watch(
        &self,
        prefix: &str,
        revision: i64,
        limit: Duration,
    ) -> Result<Watch, Status> {
        let create = WatchCreateRequest {
            key: prefix.as_bytes().to_owned(),
            range_end: end_of(prefix),
            start_revision: revision,
        };
        let request = WatchRequest { request_union: Some(RequestUnion::CreateRequest(create)) };
        let (created, exchange) =
            self.exchange("/etcdserverpb.Watch/Watch", &request, limit).await?;
        changed(decode(created)?)?;
        Ok(Watch(exchange))
    }
}

impl Watch {
    /// Waits for the next keys that were set. Deleted keys are left out.
    ///
    /// # Errors
    /// - The status of the connection, or that etcd does not have the revision any more. Then the
    ///   caller reads the keys again.
    pub(crate) async fn next(&mut self) -> Result<Vec<KeyValue>, Status> {
        changed(decode(self.0.next().await?)?)
    }
}

/// Returns the keys that were set.
fn changed(response: WatchResponse) -> Result<Vec<KeyValue>, Status> {
    if response.canceled {
        return Err(Status::unavailable("etcd has ended the watch"));
    }
    let set = response.events.into_iter().filter(|event| event.r#type() == EventType::Put);
    Ok(set.filter_map(|event| event.kv).collect())
}
