//! If a checkpoint fails after its handle was dropped, the failure is logged.
//!
//! This file has one test, because the log belongs to the process.

#![allow(clippy::unwrap_used, reason = "a check fails by panicking")]

use std::fmt::{Debug, Write};
use std::sync::Mutex;
use std::sync::mpsc::{Sender, channel};

use kvstore::create;
use kvstore_tests::suite::before_the_deadline;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Sends the fields of every error event.
struct Errors(Mutex<Sender<String>>);

impl Subscriber for Errors {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() == Level::ERROR
    }

    fn event(&self, event: &Event<'_>) {
        let mut text = Text(String::new());
        event.record(&mut text);
        self.0.lock().unwrap().send(text.0).unwrap();
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let _ = write!(self.0, "{field}={value:?} ");
    }
}

#[test]
fn a_failure_without_a_waiter_is_logged() {
    let (sender, logged) = channel();
    tracing::subscriber::set_global_default(Errors(Mutex::new(sender))).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let (good, bad) = (folder.path().join("model"), folder.path().join("none").join("model"));
    let store = create("local").unwrap();
    // `wait` returns this failure, so it is not logged.
    store.checkpoint(&bad).unwrap().wait().unwrap_err();
    drop(store.checkpoint(&good).unwrap());
    drop(store.checkpoint(&bad).unwrap());
    let text = before_the_deadline(move || {
        let text = logged.recv().unwrap();
        assert!(logged.try_recv().is_err());
        text
    });
    assert!(text.contains(bad.to_str().unwrap()), "{text}");
}
