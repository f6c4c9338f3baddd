//! Clients in other languages, whose deadline of gRPC ends before their calls do.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Mutex};

use super::*;
use crate::proto::Barrier;

#[test]
fn a_call_that_waits_ends_at_the_deadline_of_its_caller() {
    let _loading = loads_the_machine();
    let backends = backends();
    let server = server(&backends);
    // It never arrives at the barrier.
    let other = member(&server);
    let mut attacker = Attacker::join(&server, "attacker");
    // Its own timeout would be an hour.
    attacker.use_timeout(3_600_000);
    let sequence = attacker.next_sequence();
    let barrier = || Verb::Barrier(Barrier { round: 1 });
    let status = attacker.status_within("300m", sequence, barrier());
    assert_eq!(status.code(), Code::DeadlineExceeded, "{status}");
    let start = Instant::now();
    while server.num_running_calls() > 0 {
        assert!(start.elapsed() < LONG, "the server waits for a caller that has gone");
        std::thread::yield_now();
    }
    // Others wait no longer for it, and the outcome is that of the first attempt.
    let failure = attacker.repeat(sequence, barrier());
    assert_eq!(failure.code, ErrorCode::Timeout as u32, "{failure:?}");
    // Also calls that change nothing: the other member is behind by a push.
    other.init(&[key("w")], &[ones(&backends, 1)]).unwrap();
    attacker.ok(push(vec![value_of("w", [1])]), &[0; 4]);
    attacker.ok(push(vec![value_of("w", [1])]), &[0; 4]);
    let keys = vec!["w".to_owned()];
    let bounded = Verb::Pull(Pull { keys, staleness: Some(0), ..Pull::default() });
    let status = attacker.status_within("300m", 0, bounded);
    assert_eq!(status.code(), Code::DeadlineExceeded, "{status}");
    serves(&server);
}

#[test]
fn a_push_whose_deadline_passes_takes_effect_once() {
    let _loading = loads_the_machine();
    let backends = backends();
    let server = server(&backends);
    let count = Arc::new(AtomicUsize::new(0));
    let (started, is_started) = mpsc::channel();
    let (release, released) = mpsc::channel::<()>();
    let (counted, released) = (Arc::clone(&count), Mutex::new(released));
    let updater = move |_: &Key, _: &Tensor, _: &mut Tensor| {
        counted.fetch_add(1, Ordering::Relaxed);
        started.send(Instant::now())?;
        Ok(released.lock().unwrap().recv()?)
    };
    server.store().set_updater(Some(Arc::new(updater))).unwrap();
    let mut attacker = Attacker::join(&server, "attacker");
    attacker.ok(init(vec![value_of("w", [1])]), &[0; 4]);
    let sequence = attacker.next_sequence();
    let releasing = std::thread::spawn(move || {
        // The request has arrived before, so its deadline has passed then.
        let end = is_started.recv().unwrap() + Duration::from_millis(200);
        let (_never, pause) = mpsc::channel::<()>();
        let _ = pause.recv_timeout(end.saturating_duration_since(Instant::now()));
        release.send(()).unwrap();
    });
    let verb = || push(vec![value_of("w", [1])]);
    let status = attacker.status_within("200m", sequence, verb());
    assert_eq!(status.code(), Code::DeadlineExceeded, "{status}");
    attacker.ok_with(sequence, verb(), &[0; 4]);
    assert_eq!(count.load(Ordering::Relaxed), 1);
    releasing.join().unwrap();
    serves(&server);
}
