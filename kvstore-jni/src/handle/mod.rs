//! Handles: the numbers that identify Rust objects on the Java side.
//!
//! - `slots`: maps numbers to objects
//! - `table`: [`HandleTable`], the same for many threads
//! - `models`: tests the table under every schedule of a few threads

#[cfg(test)]
mod models;
mod slots;
mod table;

pub(crate) use table::HandleTable;

/// The synchronization types of the table. The models use the types of loom instead.
mod sync {
    pub(super) use std::sync::{Arc, RwLock, RwLockReadGuard, RwLockWriteGuard};
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::thread;

    use kvstore::ErrorCode;

    use super::*;
    use kvstore_allocators::{FailingAllocator, without_memory};

    #[global_allocator]
    static ALLOCATOR: FailingAllocator = FailingAllocator;

    #[test]
    fn an_object_is_found_until_it_is_removed() {
        let table = HandleTable::new("thing");
        let handle = table.insert("a").unwrap();
        assert_eq!(*table.get(handle).unwrap(), "a");
        assert_eq!(*table.remove(handle).unwrap(), "a");
        let error = table.get(handle).unwrap_err();
        assert_eq!(
            (error.code(), error.to_string().as_str()),
            (ErrorCode::Closed, "thing is closed")
        );
        assert!(table.remove(handle).is_none());
    }

    #[test]
    fn insert_without_memory_returns_out_of_memory() {
        let table = HandleTable::new("thing");
        let mut handles = vec![0; 100_000];
        let (count, error) = without_memory(|| {
            let mut values = 0..;
            let failed = |value| match table.insert(value) {
                Ok(handle) => {
                    handles[value] = handle;
                    None
                }
                Err(error) => Some((value, error)),
            };
            values.find_map(failed).unwrap()
        });
        assert_eq!(error.code(), ErrorCode::OutOfMemory, "{error}");
        assert_eq!(table.len(), count);
        handles[count] = table.insert(count).unwrap();
        for (value, handle) in handles.into_iter().enumerate().take(count + 1) {
            assert_eq!(*table.get(handle).unwrap(), value);
        }
    }

    #[test]
    fn removing_needs_no_memory() {
        let table = HandleTable::new("thing");
        let handles: Vec<i64> = (0..100_000).map(|value| table.insert(value).unwrap()).collect();
        without_memory(|| {
            for handle in handles {
                drop(table.remove(handle));
            }
        });
        assert_eq!(table.len(), 0);
    }

    #[test]
    fn zero_and_unknown_numbers_are_closed() {
        let table = HandleTable::<u8>::new("thing");
        for handle in [0, 1, -1, i64::MAX, i64::MIN] {
            assert_eq!(table.get(handle).unwrap_err().code(), ErrorCode::Closed);
            assert!(table.remove(handle).is_none());
        }
    }

    #[test]
    fn an_object_outlives_its_removal_while_it_is_in_use() {
        let table = HandleTable::new("thing");
        let handle = table.insert(String::from("used")).unwrap();
        let used = table.get(handle).unwrap();
        drop(table.remove(handle));
        assert_eq!(*used, "used");
        assert_eq!(table.len(), 0);
    }

    #[test]
    fn threads_never_share_a_number_or_see_each_others_objects() {
        let table = HandleTable::new("thing");
        let kept: Vec<i64> = thread::scope(|scope| {
            let workers: Vec<_> = (0..4_i64)
                .map(|worker| {
                    let table = &table;
                    scope.spawn(move || {
                        let mut kept = Vec::new();
                        for round in 0..500 {
                            let value = worker * 1000 + round;
                            let handle = table.insert(value).unwrap();
                            assert_eq!(*table.get(handle).unwrap(), value);
                            if round % 2 == 0 {
                                assert_eq!(*table.remove(handle).unwrap(), value);
                                assert!(table.remove(handle).is_none());
                            } else {
                                kept.push(handle);
                            }
                        }
                        kept
                    })
                })
                .collect();
            workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
        });
        assert_eq!(kept.iter().collect::<HashSet<_>>().len(), 1000);
        assert_eq!(table.len(), 1000);
    }

    #[test]
    fn only_one_of_many_threads_removes_an_object() {
        let table = HandleTable::new("thing");
        for _ in 0..200 {
            let handle = table.insert(()).unwrap();
            let removed: usize = thread::scope(|scope| {
                let table = &table;
                let closers: Vec<_> =
                    (0..3).map(|_| scope.spawn(move || table.remove(handle))).collect();
                closers.into_iter().map(|c| c.join().unwrap().iter().count()).sum()
            });
            assert_eq!(removed, 1);
        }
    }
}
