//! A process can wait for its checkpoints, and receives each failure once.
//!
//! This file has one test, because the list belongs to the process.

#![allow(clippy::unwrap_used, reason = "a check fails by panicking")]

use std::time::Duration;

use kvstore::{Checkpoints, DType, Device, ErrorCode, create, finish_checkpoints, full};
use kvstore_tests::suite::before_the_deadline;

#[test]
fn finish_checkpoints_waits_and_reports_each_failure_once() {
    before_the_deadline(|| {
        let folder = tempfile::tempdir().unwrap();
        let (good, bad) = (folder.path().join("model"), folder.path().join("none").join("model"));
        let store = create("local").unwrap();
        let value = full([1 << 20], 7.0, DType::F32, Device::cpu(0)).unwrap();
        store.init("w", &value).unwrap();

        // The handle and the store are dropped.
        drop(store.checkpoint(&good).unwrap());
        drop(store);
        finish_checkpoints().unwrap();
        let store = create("local").unwrap();
        store.restore(&good).unwrap();
        let found = store.pull_new("w").unwrap()[0].to_vec::<f32>().unwrap();
        assert_eq!(found, vec![7.0; 1 << 20]);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);

        // An existing handle reports the failure, too.
        let failed = store.checkpoint(&bad).unwrap();
        let error = finish_checkpoints().unwrap_err();
        assert_eq!(error.code(), ErrorCode::Io);
        assert!(error.to_string().starts_with(&format!("{}: writing: ", bad.display())), "{error}");
        finish_checkpoints().unwrap();
        assert!(failed.is_done());
        assert_eq!(failed.wait().unwrap_err().to_string(), error.to_string());

        // A failure returned by `wait` is not reported again.
        store.checkpoint(&bad).unwrap().wait().unwrap_err();
        finish_checkpoints().unwrap();

        // Unreported failures are kept up to a limit.
        for _ in 0..300 {
            let checkpoint = store.checkpoint(&bad).unwrap();
            assert!(checkpoint.progress().wait_timeout(Duration::from_secs(60)));
        }
        let all = Checkpoints::of_process();
        let errors = all.finish();
        assert_eq!(errors.len(), 100);
        assert!(all.finish().is_empty() && all.running().is_empty());
        drop(errors);
    });
}
