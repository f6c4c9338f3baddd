//! The table under every schedule of a few threads, by `loom`.
//!
//! Its source is compiled here a second time, on loom's lock and reference counts: loom runs a
//! program in every order of coming to them that can make a difference. Each test names all the
//! results that its program may have, so a result too many fails, and so does a race that never
//! happened.

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

/// An object that uses its table while it is dropped. Dropped under the table's lock it would wait
/// for ever, which loom reports as a deadlock and ends the process.
struct TestObject {
    name: char,
    things: Weak<TestTable>,
}

/// A table, and what has become of the objects in it.
struct TestTable {
    table: HandleTable<TestObject>,
    dropped: Mutex<Vec<char>>,
}

impl Drop for TestObject {
    fn drop(&mut self) {
        // Not after a failure, and not when the table itself is dropped.
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

/// Runs a program on an empty table under every schedule of its threads and returns its results.
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

/// Says whether two numbers are of one slot, which is their lower half.
fn same_slot(one: i64, other: i64) -> bool {
    (one ^ other).trailing_zeros() >= 32
}

#[test]
fn a_user_gets_the_object_or_nothing_and_the_last_to_let_go_drops_it() {
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
fn an_object_is_never_found_again_after_it_was_not() {
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
fn of_two_that_remove_an_object_one_gets_it() {
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
fn a_late_user_never_gets_the_next_object_of_the_slot() {
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
fn two_inserts_into_an_empty_table_have_slots_of_their_own() {
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
fn of_two_inserts_one_gets_the_free_slot() {
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
