//! [`RowIds`]: the indices of the rows of a row-sparse value, and their copies on devices.

use std::any::Any;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use crate::fallible;
use crate::types::Result;

/// The row indices of a row-sparse value: strictly ascending and not negative.
///
/// A backend that [plans sums of rows](super::Backend::plans_rows) keeps its copies of the indices
/// here, so that they are copied to a device once. The copies are freed with the object.
pub struct RowIds {
    host: Arc<HostIds>,
    /// Each of a type of its backend.
    copies: Mutex<Vec<Arc<dyn Any + Send + Sync>>>,
}

/// The indices in host memory. Those of a union are computed at the first use.
struct HostIds {
    len: usize,
    indices: OnceLock<Vec<i64>>,
    /// `Some` until `indices` is set.
    union: Mutex<Option<Union>>,
}

/// A union that is not computed yet. All memory that it needs is reserved.
struct Union {
    /// Lists that are not unions to be computed.
    lists: Vec<Arc<HostIds>>,
    /// Room for the next index of each list.
    heads: BinaryHeap<Reverse<Head>>,
    /// Room for the union.
    indices: Vec<i64>,
}

/// An index, the number of its list, and its position in the list.
type Head = (i64, usize, usize);

impl RowIds {
    /// Returns these indices, which must be strictly ascending and not negative.
    pub fn new(indices: Vec<i64>) -> Self {
        let len = indices.len();
        Self::of_host(Arc::new(HostIds {
            len,
            indices: OnceLock::from(indices),
            union: Mutex::default(),
        }))
    }

    /// Returns the union of several lists, which has `len` indices. It is computed when it is first
    /// read, without an allocation.
    pub(crate) fn union(lists: &[Arc<Self>], len: usize) -> Result<Self> {
        let lists = fallible::collect(lists.iter().map(|list| {
            // Compute unions of unions now, so that chains of them cannot grow.
            list.indices();
            Arc::clone(&list.host)
        }))?;
        let heads = BinaryHeap::from(fallible::with_capacity(lists.len())?);
        let union = Union { heads, indices: fallible::with_capacity(len)?, lists };
        let (indices, union) = (OnceLock::new(), Mutex::new(Some(union)));
        Ok(Self::of_host(Arc::new(HostIds { len, indices, union })))
    }

    fn of_host(host: Arc<HostIds>) -> Self {
        Self { host, copies: Mutex::default() }
    }

    /// Returns the same indices without copies on devices, for a value on another device. They
    /// share the memory of the host.
    pub(crate) fn without_copies(&self) -> Self {
        Self::of_host(Arc::clone(&self.host))
    }

    /// Returns whether both share the memory of the host.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.host, &other.host)
    }

    /// Returns the number of indices.
    pub fn len(&self) -> usize {
        self.host.len
    }

    /// Returns whether there are no indices.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the indices, ascending. Computes those of a union at the first call.
    pub fn indices(&self) -> &[i64] {
        self.host.indices()
    }

    /// Returns the copy of type `T` for which `is_usable` returns true, or `None`.
    pub fn device_copy<T: Any + Send + Sync>(
        &self,
        is_usable: impl Fn(&T) -> bool,
    ) -> Option<Arc<T>> {
        let copies = self.copies();
        let mut copies = copies.iter().filter_map(|copy| Arc::clone(copy).downcast::<T>().ok());
        copies.find(|copy| is_usable(copy))
    }

    /// Keeps a copy in the memory of a device, in the form of a backend.
    ///
    /// # Errors
    /// - [`Error::OutOfMemory`](crate::Error::OutOfMemory) if there is not enough memory.
    pub fn keep_device_copy<T: Any + Send + Sync>(&self, copy: Arc<T>) -> Result<()> {
        fallible::push(&mut self.copies(), copy)
    }

    fn copies(&self) -> MutexGuard<'_, Vec<Arc<dyn Any + Send + Sync>>> {
        self.copies.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for RowIds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RowIds[{} rows]", self.len())
    }
}

impl HostIds {
    fn indices(&self) -> &[i64] {
        self.indices.get_or_init(|| {
            let union = self.union.lock().unwrap_or_else(PoisonError::into_inner).take();
            union.map(Union::compute).unwrap_or_default()
        })
    }
}

impl Union {
    /// Merges the lists. Allocates nothing: the heap has an entry for each list.
    fn compute(self) -> Vec<i64> {
        let Self { lists, mut heads, mut indices } = self;
        for (list, ids) in lists.iter().enumerate() {
            heads.extend(ids.indices().first().map(|first| Reverse((*first, list, 0))));
        }
        while let Some(mut head) = heads.peek_mut() {
            let Reverse((index, list, position)) = *head;
            if indices.last() != Some(&index) {
                indices.push(index);
            }
            let next = position + 1;
            match lists.get(list).and_then(|ids| ids.indices().get(next)) {
                Some(&following) => *head = Reverse((following, list, next)),
                None => drop(PeekMut::pop(head)),
            }
        }
        indices
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::collections::BTreeSet;
    use std::thread;

    use super::*;
    use crate::noise::Distribution;

    #[allow(clippy::cast_possible_truncation, reason = "keeps the integer part")]
    fn random_lists(num_lists: u64, call: u64) -> Vec<Vec<i64>> {
        let draw = |below: f64, index: u64| {
            let distribution = Distribution::Uniform { low: 0.0, high: below };
            distribution.sample([3, 4], call, index) as i64
        };
        let list = |list: u64| {
            let len = draw(30.0, 1000 * list).unsigned_abs();
            let indices: BTreeSet<i64> =
                (1..=len).map(|index| draw(60.0, 1000 * list + index)).collect();
            indices.into_iter().collect()
        };
        (0..num_lists).map(list).collect()
    }

    fn union(lists: &[Vec<i64>]) -> (RowIds, Vec<i64>) {
        let expected: BTreeSet<i64> = lists.iter().flatten().copied().collect();
        let lists: Vec<_> = lists.iter().map(|ids| Arc::new(RowIds::new(ids.clone()))).collect();
        (RowIds::union(&lists, expected.len()).unwrap(), expected.into_iter().collect())
    }

    #[test]
    fn a_union_has_each_index_of_its_lists_once() {
        for num_lists in 0..if cfg!(miri) { 4 } else { 18 } {
            for call in 0..if cfg!(miri) { 2 } else { 20 } {
                let (ids, expected) = union(&random_lists(num_lists, call));
                assert_eq!(ids.len(), expected.len());
                assert_eq!(ids.indices(), expected);
                let again = Arc::new(RowIds::union(&[Arc::new(ids)], expected.len()).unwrap());
                assert_eq!(again.without_copies().indices(), expected);
                assert!(again.is_same(&again.without_copies()));
            }
        }
    }

    #[test]
    fn threads_that_read_a_union_first_see_the_same_indices() {
        for call in 0..if cfg!(miri) { 2 } else { 50 } {
            let (ids, expected) = union(&random_lists(5, call));
            let found = thread::scope(|scope| {
                let readers: Vec<_> = (0..3).map(|_| scope.spawn(|| ids.indices())).collect();
                readers.into_iter().map(|reader| reader.join().unwrap()).collect::<Vec<_>>()
            });
            for indices in found {
                assert_eq!(indices, expected);
                assert_eq!(indices.as_ptr(), ids.indices().as_ptr());
            }
        }
    }
}
