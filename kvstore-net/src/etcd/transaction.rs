//! [`Transaction`]: changes of etcd that are made together or not at all.

use super::proto::etcdserverpb::compare::{CompareResult, CompareTarget, TargetUnion};
use super::proto::etcdserverpb::request_op::Request;
use super::proto::etcdserverpb::{
    Compare, DeleteRangeRequest, PutRequest, RangeRequest, RequestOp, TxnRequest,
};

/// Changes that are made together if all conditions are true. Otherwise keys are read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Transaction(TxnRequest);

impl Transaction {
    fn when(mut self, key: &str, target: CompareTarget, expected: TargetUnion) -> Self {
        self.0.compare.push(Compare {
            result: CompareResult::Equal.into(),
            target: target.into(),
            key: key.as_bytes().to_owned(),
            target_union: Some(expected),
        });
        self
    }

    /// Requires that the key does not exist.
    pub(crate) fn if_absent(self, key: &str) -> Self {
        self.if_unchanged(key, 0)
    }

    /// Requires that the last change of the key was at this revision; 0 if it does not exist.
    pub(crate) fn if_unchanged(self, key: &str, revision: i64) -> Self {
        self.when(key, CompareTarget::Mod, TargetUnion::ModRevision(revision))
    }

    /// Requires that the key exists and has this lease.
    pub(crate) fn if_leased(self, key: &str, lease: i64) -> Self {
        self.when(key, CompareTarget::Lease, TargetUnion::Lease(lease))
    }

    /// Requires that the key exists and has this value.
    pub(crate) fn if_value(self, key: &str, value: &str) -> Self {
        self.when(key, CompareTarget::Value, TargetUnion::Value(value.as_bytes().to_owned()))
    }

    /// Sets the value of a key, which is deleted when the lease ends; never for the lease 0.
    pub(crate) fn put(mut self, key: &str, value: &str, lease: i64) -> Self {
        let (key, value) = (key.as_bytes().to_owned(), value.as_bytes().to_owned());
        self.0.success.push(operation(Request::RequestPut(PutRequest { key, value, lease })));
        self
    }

    /// Deletes a key, if it exists.
    pub(crate) fn delete(mut self, key: &str) -> Self {
        let deletion = DeleteRangeRequest { key: key.as_bytes().to_owned(), range_end: Vec::new() };
        self.0.success.push(operation(Request::RequestDeleteRange(deletion)));
        self
    }

    /// Reads a key if a condition is false.
    pub(crate) fn or_get(mut self, key: &str) -> Self {
        let range = RangeRequest { key: key.as_bytes().to_owned(), range_end: Vec::new() };
        self.0.failure.push(operation(Request::RequestRange(range)));
        self
    }

    pub(super) fn into_request(self) -> TxnRequest {
        self.0
    }
}

fn operation(request: Request) -> RequestOp {
    RequestOp { request: Some(request) }
}
