//! Journals with rounds.

use std::thread;
use std::time::Duration;

use kvstore_core::{Compression, Optimizer, RowSparse};

use super::*;

/// Pushes of three workers, also with weights, rows and compression.
fn make_rounds(recorded: &Recorded, weight: Option<f64>) {
    let workers = ["c", "a", "b"].map(|name| {
        let address = recorded.server.address().to_string();
        let options = NetStoreOptions::new(address).name(name).timeout(LONG);
        let options = options.quorum(3).grace(Duration::from_secs(3600));
        let options = weight.into_iter().fold(options, NetStoreOptions::weight);
        NetStore::connect(backends(), &options).unwrap()
    });
    let first = &workers[0];
    first.init(&["w", "rows"].map(key), &[value(&[1.0; 300]), value(&[0.5; 6])]).unwrap();
    first.set_optimizer(Optimizer::new("adam").unwrap()).unwrap();
    for round in 0..5_u8 {
        if round == 3 {
            let compression = Compression::new("2bit", 0.5).unwrap();
            first.set_compression(Some(compression)).unwrap();
        }
        thread::scope(|scope| {
            for (worker, number) in workers.iter().zip([0.1, 0.7, -3.3]) {
                scope.spawn(move || {
                    let number = number * f32::from(round + 1);
                    let row = RowSparse::new([6], Vec::from([i64::from(round)]), tensor(&[number]));
                    // Rows are not compressed.
                    let (keys, values) = if round < 3 {
                        (vec!["w", "rows"], vec![value(&[number; 300]), row.unwrap().into()])
                    } else {
                        (vec!["w"], vec![value(&[number; 300])])
                    };
                    let keys: Vec<_> = keys.into_iter().map(key).collect();
                    worker.push(&keys, &values, 0).unwrap();
                });
            }
        });
    }
}

#[test]
fn replays_of_rounds_have_their_members_and_bits() {
    for weight in [None, Some(0.25)] {
        let recorded = Recorded::start(JournalMode::Full);
        make_rounds(&recorded, weight);
        let report = recorded.end_and_replay();
        let members: Vec<_> = report.members.iter().map(|(name, num)| (&**name, *num)).collect();
        assert_eq!(members, [("a", 5), ("b", 5), ("c", 5)]);
        assert_eq!(report.num_steps, 5);
    }
}

#[test]
fn without_values_the_journal_has_the_members_of_rounds() {
    let recorded = Recorded::start(JournalMode::Order);
    make_rounds(&recorded, None);
    recorded.server.shut_down();
    let mut steps = Vec::new();
    let options = ReplayOptions::default();
    let on_step = &mut |step: &ReplayedStep| steps.push(step.clone());
    let report = replay_steps(backends(), recorded.journal(), &options, on_step).unwrap();
    assert_eq!(report.difference, None);
    assert_eq!((report.num_steps, report.members["b"]), (5, 5));
    for (step, version) in steps.iter().zip(1..) {
        let members: Vec<_> = step.members.iter().map(|member| &*member.name).collect();
        assert_eq!(members, ["a", "b", "c"]);
        assert!(step.members.iter().all(|member| member.weight.is_none()));
        assert_eq!(step.keys[0], ("w".to_owned(), version));
    }
    assert_eq!(steps.len(), 5);
}
