//! Tests the table under every schedule of a few threads with `loom`.
//!
//! The source of the table is compiled a second time here, with loom's locks and reference counts.
//! Loom runs a program in every order of lock and reference count operations that can make a
//! difference. Each test lists all results that its program may have. So the test fails if there is
//! an unexpected result, and also if an expected race did not occur.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, Weak};

use loom::thread::{self, JoinHandle};
use table::HandleTable;

#[expect(clippy::duplicate_mod, reason = "compiled once per kind of lock")]
#[path = "table.rs"]
mod table;

mod sync {
    pub(super) use loom::sync::{Arc, RwLock, RwLockReadGuard, RwLockWriteGuard};
}

/// An object that uses its table in `drop`. If the table dropped it under its lock, this would
/// deadlock. Loom reports a deadlock and terminates the process.
struct TestObject {
    name: char,
    things: Weak<TestTable>,
}

/// A table, and the names of the objects that were dropped.
struct TestTable {
    table: HandleTable<TestObject>,
    dropped: Mutex<Vec<char>>,
}

impl Drop for TestObject {
    fn drop(&mut self) {
        // Skip this after a failed assertion and when the table itself is dropped.
        if let Some(things) = self.things.upgrade().filter(|_| !std::thread::panicking()) {
            assert!(things.table.remove(0).is_none());
            things.dropped.lock().unwrap().push(self.name);
        }
    }
}

impl TestTable {
    fn insert(self: &Arc<Self>, name: char) -> i64 {
        self.table.insert(TestObject { name, things: Arc::downgrade(self) }).unwrap()
    }

    fn get(&self, handle: i64) -> Option<char> {
        self.table.get(handle).ok().map(|thing| thing.name)
    }

    fn remove(&self, handle: i64) -> Option<char> {
        self.table.remove(handle).map(|thing| thing.name)
    }

    fn dropped(&self) -> Vec<char> {
        self.dropped.lock().unwrap().clone()
    }

    fn spawn<R: 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Arc<Self>) -> R + 'static,
    ) -> JoinHandle<R> {
        let things = Arc::clone(self);
        thread::spawn(move || work(&things))
    }
}

/// Runs a program with an empty table under every schedule of its threads. Returns all its results.
fn results<R, P>(program: P) -> BTreeSet<R>
where
    R: Ord + Send + 'static,
    P: Fn(&Arc<TestTable>) -> R + Send + Sync + 'static,
{
    let results = Arc::new(Mutex::new(BTreeSet::new()));
    let sink = Arc::clone(&results);
    loom::model(move || {
        let table = HandleTable::new("thing");
        let result = program(&Arc::new(TestTable { table, dropped: Mutex::default() }));
        sink.lock().unwrap().insert(result);
    });
    std::mem::take(&mut *results.lock().unwrap())
}

/// Returns whether two handles belong to the same slot, which is the lower half of a handle.
fn same_slot(a: i64, b: i64) -> bool {
    (a ^ b).trailing_zeros() >= 32
}

#[test]
fn a_lookup_during_a_removal_finds_the_object_or_nothing() {
    let results = results(|things| {
        let handle = things.insert('a');
        let user = things.spawn(move |things| things.get(handle));
        assert_eq!(things.remove(handle), Some('a'));
        let got = user.join().unwrap();
        assert_eq!(things.dropped(), ['a']);
        assert_eq!(things.get(handle), None);
        got
    });
    assert_eq!(results, [None, Some('a')].into());
}

#[test]
fn an_object_is_never_found_after_a_failed_lookup() {
    let results = results(|things| {
        let handle = things.insert('a');
        let user = things.spawn(move |things| (things.get(handle), things.get(handle)));
        things.remove(handle);
        user.join().unwrap()
    });
    let a = Some('a');
    assert_eq!(results, [(a, a), (a, None), (None, None)].into());
}

#[test]
fn only_one_of_two_threads_removes_an_object() {
    let results = results(|things| {
        let handle = things.insert('a');
        let closer = things.spawn(move |things| things.remove(handle));
        let removed = (things.remove(handle), closer.join().unwrap());
        assert_eq!(things.dropped(), ['a']);
        removed
    });
    assert_eq!(results, [(Some('a'), None), (None, Some('a'))].into());
}

#[test]
fn a_late_lookup_never_finds_the_next_object_of_the_slot() {
    let results = results(|things| {
        let old = things.insert('a');
        let user = things.spawn(move |things| things.get(old));
        let closer = things.spawn(move |things| things.remove(old));
        let new = things.insert('b');
        assert_ne!(new, old);
        assert_eq!(closer.join().unwrap(), Some('a'));
        let got = user.join().unwrap();
        assert_eq!(things.get(new), Some('b'));
        assert_eq!(things.dropped(), ['a']);
        (got, same_slot(old, new))
    });
    let all = [(None, false), (None, true), (Some('a'), false), (Some('a'), true)];
    assert_eq!(results, all.into());
}

#[test]
fn a_late_remove_never_takes_the_next_object_of_the_slot() {
    let results = results(|things| {
        let old = things.insert('a');
        let late = things.spawn(move |things| things.remove(old));
        let removed = things.remove(old);
        let new = things.insert('b');
        assert!(same_slot(old, new));
        let removed = (removed, late.join().unwrap());
        assert_eq!(things.get(new), Some('b'));
        assert_eq!(things.dropped(), ['a']);
        removed
    });
    assert_eq!(results, [(Some('a'), None), (None, Some('a'))].into());
}

#[test]
fn two_inserts_into_an_empty_table_use_different_slots() {
    let results = results(|things| {
        let maker = things.spawn(|things| things.insert('a'));
        let b = things.insert('b');
        let a = maker.join().unwrap();
        assert!(!same_slot(a, b));
        assert_eq!((things.get(a), things.get(b)), (Some('a'), Some('b')));
        assert_eq!(things.table.len(), 2);
        a < b
    });
    assert_eq!(results, [false, true].into());
}

#[test]
fn only_one_of_two_inserts_reuses_a_free_slot() {
    let results = results(|things| {
        let old = things.insert('a');
        things.remove(old);
        let maker = things.spawn(|things| things.insert('b'));
        let c = things.insert('c');
        let b = maker.join().unwrap();
        let found = [old, b, c].map(|handle| things.get(handle));
        assert_eq!(found, [None, Some('b'), Some('c')]);
        (same_slot(old, b), same_slot(old, c))
    });
    assert_eq!(results, [(false, true), (true, false)].into());
}
