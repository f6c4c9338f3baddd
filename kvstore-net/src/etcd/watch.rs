//! [`Watch`]: the changes of keys.

use std::time::Duration;

use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Status, Streaming};

use super::proto::etcdserverpb::watch_client::WatchClient;
use super::proto::etcdserverpb::watch_request::RequestUnion;
use super::proto::etcdserverpb::{WatchCreateRequest, WatchRequest, WatchResponse};
use super::proto::mvccpb::event::EventType;
use super::{Etcd, KeyValue, end_of, with_leader};

/// The changes of keys, in the order in which they were made.
pub(crate) struct Watch {
    /// etcd ends the stream when this is dropped.
    _requests: mpsc::Sender<WatchRequest>,
    responses: Streaming<WatchResponse>,
}

impl Etcd {
    /// Returns the changes of the keys that begin with `prefix`, from a revision on.
    pub(crate) async fn watch(
        &self,
        prefix: &str,
        revision: i64,
        limit: Duration,
    ) -> Result<Watch, Status> {
        self.call(limit, |channel| async move {
            let (sender, receiver) = mpsc::channel(1);
            let create = WatchCreateRequest {
                key: prefix.as_bytes().to_owned(),
                range_end: end_of(prefix),
                start_revision: revision,
            };
            let request_union = Some(RequestUnion::CreateRequest(create));
            // The channel is empty, so this does not wait.
            let _ = sender.try_send(WatchRequest { request_union });
            let requests = with_leader(Request::new(ReceiverStream::new(receiver)));
            let responses = WatchClient::new(channel).watch(requests).await?.into_inner();
            Ok(Watch { _requests: sender, responses })
        })
        .await
    }
}

impl Watch {
    /// Waits for the next keys that were set. Deleted keys are left out.
    ///
    /// # Errors
    /// - The status of the connection, or that etcd does not have the revision any more. Then the
    ///   caller reads the keys again.
    pub(crate) async fn next(&mut self) -> Result<Vec<KeyValue>, Status> {
        let ended = || Status::unavailable("the watch has ended");
        let response = self.responses.message().await?.ok_or_else(ended)?;
        if response.canceled {
            return Err(ended());
        }
        let events = response.events.into_iter();
        let set = events.filter(|event| event.r#type() == EventType::Put);
        Ok(set.filter_map(|event| event.kv).collect())
    }
}
