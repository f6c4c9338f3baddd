//! [`Store`]: the verbs on arrays.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::sync::Arc;

use kvstore_core::fallible;
use kvstore_core::key::check_lengths;
use kvstore_core::process::OwnedByProcess;
use kvstore_core::scratch::{with_pulled_values, with_values};
use kvstore_core::{
    Description, Error, Key, KeyStats, KvStore, NDArray, OnExisting, Outputs, PulledValue, Result,
    RowSparse, Tensor, TensorSpec, Value,
};

use crate::pairs::{IntoArrays, IntoKeys, Keys, Pairs};
use crate::values::ToValue;

/// A store of named arrays. A clone is another handle to the same store.
///
/// A verb takes keys and arrays in four forms:
///
/// - `("3", &array)`: one array for one key
/// - `("3", &arrays)`: a list of arrays for one key
/// - `(["3", "5"], &arrays)`: one array for each key
/// - `(["3", "5"], lists)`: a list of arrays for each key
///
/// A key that appears several times has several values. A push sums them, and a pull copies the
/// stored value to each. If an array is an output of several keys, it gets the value of the key
/// that was initialised last.
///
/// A call checks all its arguments before it changes anything, and a failed call changes nothing.
/// The one exception is a failing updater; see [`KvStore`].
///
/// A store belongs to the process that created it. In a forked child, every verb except
/// [`Store::name`] fails with [`Unsupported`](Error::Unsupported), and dropping the store leaks it.
/// Create a new store in the child.
#[derive(Clone, Debug)]
pub struct Store {
    inner: OwnedByProcess<Arc<dyn KvStore>>,
    /// Whether `init` keeps the values of existing keys, because each worker initialises the keys.
    keeps_existing: bool,
}

/// The advice for a forked child that uses a store of its parent.
const FORK_HINT: &str = "create a new store in the child process";

impl Store {
    /// Returns a handle to a store. [`create`](crate::create) creates stores by name.
    pub fn new(inner: Arc<dyn KvStore>) -> Self {
        Self { inner: OwnedByProcess::new(inner), keeps_existing: false }
    }

    /// Returns this store, whose `init` keeps the values of existing keys instead of failing.
    #[cfg(feature = "net")]
    pub(crate) fn keeping_existing(self) -> Self {
        Self { keeps_existing: true, ..self }
    }

    /// Returns the store.
    ///
    /// # Errors
    /// - The errors of [`Store::check_process`].
    pub(crate) fn inner(&self) -> Result<&dyn KvStore> {
        self.check_process()?;
        self.inner.peek().map(|inner| &**inner)
    }

    /// Checks that this process created the store. Every verb except [`Store::name`] does this.
    ///
    /// # Errors
    /// - [`Unsupported`](Error::Unsupported) if this process is a forked child of the process that
    ///   created the store.
    pub fn check_process(&self) -> Result<()> {
        self.inner.origin().check("the store", FORK_HINT)
    }

    /// Returns the name that the store was created with, in lower case. Works in a forked child,
    /// too.
    pub fn name(&self) -> &str {
        self.inner.peek().map_or("", |inner| inner.name())
    }

    /// Stores a snapshot of an array under each key. Use [`RowSparse`] values if most rows are 0.
    ///
    /// # Errors
    /// - The errors of [`Store::check_process`], [`Pairs::new`] and [`KvStore::init`].
    pub fn init(&self, keys: impl IntoKeys, values: impl IntoArrays<Item: ToValue>) -> Result<()> {
        self.init_pairs(&Pairs::new(keys, values)?, OnExisting::Reject)
    }

    /// Stores a snapshot of an array under each key. `existing` decides what happens to keys that
    /// are already initialised.
    ///
    /// ```
    /// use kvstore::{DType, Device, OnExisting, create, ones, zeros};
    /// let store = create("local")?;
    /// store.init("w", &ones([2], DType::F32, Device::cpu(0))?)?;
    /// store.init_with("w", &zeros([2], DType::F32, Device::cpu(0))?, OnExisting::Keep)?;
    /// assert_eq!(store.pull_new("w")?[0].to_vec::<f32>()?, [1.0, 1.0]);
    /// # Ok::<(), kvstore::Error>(())
    /// ```
    ///
    /// # Errors
    /// - The errors of [`Store::init`]. A key that is already initialised is an error only with
    ///   [`OnExisting::Reject`].
    pub fn init_with(
        &self,
        keys: impl IntoKeys,
        values: impl IntoArrays<Item: ToValue>,
        existing: OnExisting,
    ) -> Result<()> {
        self.init_pairs(&Pairs::new(keys, values)?, existing)
    }

    /// Sums the arrays of each key and passes the sum to the optimizer or updater. Without either,
    /// the sum replaces the stored value.
    ///
    /// A row-sparse value ([`RowSparse`]) has the effect of its dense form, bit for bit, and
    /// summing it costs only its rows. The one exception is an optimizer with `lazy_update`: it
    /// changes weight and state only in the rows that at least one of the values contains. If a
    /// pulled array still shares memory with the stored value, the step first copies that memory
    /// completely. To avoid this, use [`Store::pull_rows`].
    ///
    /// ```
    /// use kvstore::{DType, Device, Optimizer, RowSparse, array, create, ones};
    /// let store = create("local")?;
    /// store.init("embedding", &ones([1000, 2], DType::F32, Device::cpu(0))?)?;
    /// store.set_optimizer(Optimizer::sgd().with("learning_rate", 0.5)?)?;
    /// let rows = array(&[1f32, 1.0, 2.0, 2.0], [2, 2], Device::cpu(0))?;
    /// store.push("embedding", &RowSparse::from_ids([1000, 2], &[700, 3], rows.tensor())?)?;
    /// let pulled = &store.pull_rows("embedding", &[[3, 4, 700]])?[0];
    /// assert_eq!(pulled.rows().to_vec::<f32>()?, [0.0, 0.0, 1.0, 1.0, 0.5, 0.5]);
    /// # Ok::<(), kvstore::Error>(())
    /// ```
    ///
    /// # Errors
    /// - The errors of [`Store::check_process`], [`Pairs::new`] and [`KvStore::push`].
    pub fn push(&self, keys: impl IntoKeys, values: impl IntoArrays<Item: ToValue>) -> Result<()> {
        self.push_pairs(&Pairs::new(keys, values)?, 0)
    }

    /// Copies the newest value of its key to each array, cast to the array's dtype. O(1) if the
    /// array has the dtype and device of the stored value.
    ///
    /// # Errors
    /// - The errors of [`Store::check_process`], [`Pairs::new`] and [`KvStore::pull`].
    /// - [`SpecMismatch`](Error::SpecMismatch) if the shape of an array differs from the stored
    ///   one.
    pub fn pull(&self, keys: impl IntoKeys, outs: impl IntoArrays<Item = NDArray>) -> Result<()> {
        self.pull_pairs(&Pairs::new(keys, outs)?, 0)
    }

    /// Returns a new array with the newest value of each key, in the order of `keys`.
    ///
    /// # Errors
    /// - The errors of [`Store::check_process`], [`IntoKeys::into_keys`] and [`KvStore::pull`].
    pub fn pull_new(&self, keys: impl IntoKeys) -> Result<Vec<NDArray>> {
        let values = self.inner()?.pull(&list(keys)?, 0)?;
        fallible::collect(values.into_iter().map(NDArray::new))
    }

    /// Returns the rows `ids[i]` of the newest value of `keys[i]`, for each `i`.
    ///
    /// `ids[i]` may have any order and may contain duplicates. The result contains each requested
    /// row once, in ascending order, including rows of zeros. The cost depends on the number of
    /// requested rows, not on the size of the value.
    ///
    /// ```
    /// use kvstore::{Device, array, create};
    /// let store = create("local")?;
    /// store.init("w", &array(&[1f32, 2.0, 3.0, 4.0], [4, 1], Device::cpu(0))?)?;
    /// let pulled = &store.pull_rows("w", &[[3, 1, 1]])?[0];
    /// assert_eq!(pulled.indices(), [1, 3]);
    /// assert_eq!(pulled.rows().to_vec::<f32>()?, [2.0, 4.0]);
    /// # Ok::<(), kvstore::Error>(())
    /// ```
    ///
    /// # Errors
    /// - The errors of [`Store::check_process`], [`IntoKeys::into_keys`] and
    ///   [`KvStore::pull_rows`].
    #[doc(alias = "row_sparse_pull")]
    pub fn pull_rows(
        &self,
        keys: impl IntoKeys,
        ids: &[impl AsRef<[i64]>],
    ) -> Result<Vec<RowSparse>> {
        let ids: Vec<&[i64]> = fallible::collect(ids.iter().map(AsRef::as_ref))?;
        self.inner()?.pull_rows(&list(keys)?, &ids, 0)
    }

    /// Pushes, then pulls the same keys.
    ///
    /// # Errors
    /// - The errors of [`Store::push`] and [`Store::pull`]. Except for a failing updater, a failed
    ///   call changes nothing.
    pub fn pushpull(
        &self,
        keys: impl IntoKeys,
        values: impl IntoArrays<Item: ToValue>,
        outs: impl IntoArrays<Item = NDArray>,
    ) -> Result<()> {
        let keys = keys.into_keys()?;
        self.pushpull_pairs(&Pairs::new(keys.copied()?, values)?, &Pairs::new(keys, outs)?, 0)
    }

    /// Initialises keys, then pulls them.
    ///
    /// # Errors
    /// - The errors of [`Store::init`] and [`Store::pull`]. A failed call changes nothing.
    pub fn broadcast(
        &self,
        keys: impl IntoKeys,
        values: impl IntoArrays<Item: ToValue>,
        outs: impl IntoArrays<Item = NDArray>,
    ) -> Result<()> {
        let keys = keys.into_keys()?;
        self.broadcast_pairs(&Pairs::new(keys.copied()?, values)?, &Pairs::new(keys, outs)?, 0)
    }

    /// Works like [`Store::init_with`].
    pub fn init_pairs(&self, pairs: &Pairs<impl ToValue>, existing: OnExisting) -> Result<()> {
        with_present(pairs, |keys, values| self.init_values(keys, values, existing))
    }

    /// Works like [`Store::push`]. If a network is involved, values of a higher `priority` may be
    /// sent earlier.
    pub fn push_pairs(&self, pairs: &Pairs<impl ToValue>, priority: i32) -> Result<()> {
        with_present(pairs, |keys, values| self.push_values(keys, values, priority))
    }

    /// Works like [`Store::pull`].
    pub fn pull_pairs(&self, outs: &Pairs<impl Borrow<NDArray>>, priority: i32) -> Result<()> {
        self.pull_arrays(outs.keys(), outs.arrays(), priority)
    }

    /// Works like [`Store::pushpull`], but the outputs have their own list of keys.
    pub fn pushpull_pairs(
        &self,
        values: &Pairs<impl ToValue>,
        outs: &Pairs<impl Borrow<NDArray>>,
        priority: i32,
    ) -> Result<()> {
        let outs = (outs.keys(), outs.arrays());
        with_present(values, |keys, values| self.pushpull_values((keys, values), outs, priority))
    }

    /// Works like [`Store::broadcast`], but the outputs have their own list of keys. Each of these
    /// keys must also have a value in `values`.
    pub fn broadcast_pairs(
        &self,
        values: &Pairs<impl ToValue>,
        outs: &Pairs<impl Borrow<NDArray>>,
        priority: i32,
    ) -> Result<()> {
        let outs = (outs.keys(), outs.arrays());
        with_present(values, |keys, values| self.broadcast_values((keys, values), outs, priority))
    }

    /// Works like [`Store::init_with`], with a key for each value.
    pub fn init_values(&self, keys: &[Key], values: &[Value], existing: OnExisting) -> Result<()> {
        let existing = match existing {
            OnExisting::Reject if self.keeps_existing => OnExisting::Keep,
            existing => existing,
        };
        self.inner()?.init_with(keys, values, existing)
    }

    /// Works like [`Store::push`], with a key for each value. If a network is involved, values of a
    /// higher `priority` may be sent earlier.
    ///
    /// ```
    /// use std::slice::from_ref;
    /// use kvstore::{DType, Device, Key, create, ones, zeros};
    /// let (store, key) = (create("local")?, Key::new("w")?);
    /// store.init(&key, &zeros([2], DType::F32, Device::cpu(0))?)?;
    /// store.push_values(from_ref(&key), &[ones([2], DType::F32, Device::cpu(0))?.into()], 0)?;
    /// let out = zeros([2], DType::F64, Device::cpu(0))?;
    /// store.pull_arrays(from_ref(&key), from_ref(&out), 0)?;
    /// assert_eq!(out.to_vec::<f64>()?, [1.0, 1.0]);
    /// let other = zeros([3], DType::F32, Device::cpu(0))?;
    /// assert!(store.pull_arrays(&[key], &[other], 0).is_err());
    /// # Ok::<(), kvstore::Error>(())
    /// ```
    pub fn push_values(&self, keys: &[Key], values: &[Value], priority: i32) -> Result<()> {
        self.inner()?.push(keys, values, priority)
    }

    /// Works like [`Store::pull`], with a key for each output.
    pub fn pull_arrays(
        &self,
        keys: &[Key],
        outs: &[impl Borrow<NDArray>],
        priority: i32,
    ) -> Result<()> {
        check_lengths("outputs for keys", keys, outs)?;
        with_pulled_values(|pulled| {
            self.inner()?.pull_into(keys, priority, pulled)?;
            land((keys, outs), Reserved::default(), pulled)
        })
    }

    /// Works like [`Store::pushpull`], with a key for each value and for each output.
    pub fn pushpull_values(
        &self,
        (keys, values): (&[Key], &[Value]),
        outs: (&[Key], &[impl Borrow<NDArray>]),
        priority: i32,
    ) -> Result<()> {
        check_lengths("outputs for keys", outs.0, outs.1)?;
        with_pulled_values(|pulled| {
            let mut reserved = Reserved::default();
            let mut reserve = |descriptions: &[Description]| {
                let described =
                    descriptions.iter().map(|description| (description.order, &description.spec));
                reserved = Reserved::for_outputs(outs, described)?;
                Ok(())
            };
            let outputs = Outputs { keys: outs.0, prepare: &mut reserve, pulled };
            self.inner()?.pushpull_into((keys, values), outputs, priority)?;
            land(outs, reserved, pulled)
        })
    }

    /// Works like [`Store::broadcast`], with a key for each value and for each output. Each key of
    /// an output must also be the key of a value.
    pub fn broadcast_values(
        &self,
        (keys, values): (&[Key], &[Value]),
        outs: (&[Key], &[impl Borrow<NDArray>]),
        priority: i32,
    ) -> Result<()> {
        check_lengths("values for keys", keys, values)?;
        check_lengths("outputs for keys", outs.0, outs.1)?;
        if self.keeps_existing {
            // Another worker may initialise the keys meanwhile.
            self.init_values(keys, values, OnExisting::Keep)?;
            return self.pull_arrays(outs.0, outs.1, priority);
        }
        // The outputs are checked against the values, because the keys are not initialised yet.
        let mut specs: HashMap<&Key, (u64, &TensorSpec)> = fallible::hash_map(keys.len())?;
        for ((key, value), order) in keys.iter().zip(values).zip(0..) {
            if self.inner()?.contains(key)? || specs.insert(key, (order, value.spec())).is_some() {
                return Err(Error::KeyExists { key: key.clone() });
            }
        }
        let mut described = fallible::with_capacity(outs.0.len())?;
        for key in outs.0 {
            let Some(spec) = specs.get(key) else {
                if self.inner()?.contains(key)? {
                    let text = format!("outs: key `{key}` is not among the keys of the call");
                    return Err(Error::invalid(text));
                }
                return Err(Error::KeyNotFound { key: (*key).clone() });
            };
            described.push(*spec);
        }
        // Reserve memory first: after `init_values`, the call must not fail.
        with_pulled_values(|pulled| {
            fallible::reserve(pulled, outs.1.len())?;
            let reserved = Reserved::for_outputs(outs, described.iter().copied())?;
            self.init_values(keys, values, OnExisting::Reject)?;
            self.inner()?.pull_into(outs.0, priority, pulled)?;
            land(outs, reserved, pulled)
        })
    }

    /// Removes the keys with their values and optimizer states.
    ///
    /// # Errors
    /// - The errors of [`Store::check_process`], [`IntoKeys::into_keys`] and [`KvStore::remove`].
    pub fn remove(&self, keys: impl IntoKeys) -> Result<()> {
        self.inner()?.remove(&list(keys)?)
    }

    /// Returns every key in the order of initialisation.
    ///
    /// # Errors
    /// - The errors of [`Store::check_process`] and [`KvStore::keys`].
    pub fn keys(&self) -> Result<Vec<Key>> {
        self.inner()?.keys()
    }

    /// Returns the statistics of every key, in the order of initialisation: shape, dtype, device,
    /// number of pushes, bytes of the optimizer state. An updater may call this.
    ///
    /// ```
    /// use kvstore::{DType, Device, create, ones};
    /// let store = create("local")?;
    /// let array = ones([2, 3], DType::F32, Device::cpu(0))?;
    /// store.init("w", &array)?;
    /// store.push("w", &array)?;
    /// assert_eq!(store.stats()?[0].num_pushes, 1);
    /// # Ok::<(), kvstore::Error>(())
    /// ```
    ///
    /// # Errors
    /// - The errors of [`Store::check_process`] and [`KvStore::stats`].
    pub fn stats(&self) -> Result<Vec<KeyStats>> {
        self.inner()?.stats()
    }

    /// Returns how many pushes have changed a key since it was initialised.
    ///
    /// # Errors
    /// - The errors of [`Store::check_process`].
    /// - [`KeyNotFound`](Error::KeyNotFound) if the key is not initialised.
    pub fn version(&self, key: &Key) -> Result<u64> {
        let versions = self.inner()?.versions(std::slice::from_ref(key))?;
        Ok(versions.first().copied().unwrap_or_default())
    }

    /// Returns whether the key is initialised.
    ///
    /// # Errors
    /// - The errors of [`Store::check_process`] and [`KvStore::contains`].
    pub fn contains(&self, key: &Key) -> Result<bool> {
        self.inner()?.contains(key)
    }
}

/// Memory for the outputs of a call that changes the store, reserved before the change.
#[derive(Default)]
struct Reserved<'a> {
    /// The memory of each output whose value must be converted.
    converted: Vec<Option<Tensor>>,
    /// Capacity for the outputs in the order of their keys, if the call has another order.
    landing: Vec<(usize, (&'a NDArray, PulledValue))>,
}

impl<'a> Reserved<'a> {
    /// Checks the shape of each output, and reserves memory for it. `described` has the order and
    /// the spec of each key.
    fn for_outputs<'s>(
        (keys, outs): (&[Key], &'a [impl Borrow<NDArray>]),
        described: impl Iterator<Item = (u64, &'s TensorSpec)> + Clone,
    ) -> Result<Self> {
        let len = outs.len();
        let mut reserved = Self { converted: fallible::with_capacity(len)?, landing: Vec::new() };
        if !described.clone().is_sorted_by_key(|(order, _)| order) {
            fallible::reserve(&mut reserved.landing, len)?;
        }
        for ((_, spec), (key, out)) in described.zip(keys.iter().zip(borrowed(outs))) {
            check_shape(key, spec, out)?;
            reserved.converted.push(out.reserve(spec.dtype())?);
        }
        Ok(reserved)
    }
}

/// Writes the pulled value of its key to every output, in the order of the keys' initialisation.
/// All fallible steps come before the first write. Uses memory from `reserved` where available.
fn land<'a>(
    (keys, outs): (&[Key], &'a [impl Borrow<NDArray>]),
    reserved: Reserved<'a>,
    pulled: &mut Vec<PulledValue>,
) -> Result<()> {
    let Reserved { mut converted, mut landing } = reserved;
    let places = keys.iter().zip(borrowed(outs));
    for (index, ((key, out), pulled)) in places.zip(&mut *pulled).enumerate() {
        check_shape(key, pulled.value.spec(), out)?;
        if !out.can_share(&pulled.value) {
            let converted = converted.get_mut(index).and_then(Option::take);
            pulled.value = out.convert(&pulled.value, converted)?;
        }
    }
    if pulled.is_sorted_by_key(|pulled| pulled.order) {
        let landing = borrowed(outs).zip(pulled.drain(..));
        return NDArray::land_all(landing.map(|(out, pulled)| (out, pulled.value)));
    }
    fallible::reserve(&mut landing, pulled.len())?;
    landing.extend(borrowed(outs).zip(pulled.drain(..)).enumerate());
    // The index keeps outputs of one key in the order of the call. A stable sort would
    // allocate.
    landing.sort_unstable_by_key(|(index, (_, pulled))| (pulled.order, *index));
    let landing = landing.into_iter().map(|(_, landing)| landing);
    NDArray::land_all(landing.map(|(out, pulled)| (out, pulled.value)))
}

/// Runs `call` with the keys and the current value of each array.
fn with_present<R>(
    pairs: &Pairs<impl ToValue>,
    call: impl FnOnce(&[Key], &[Value]) -> Result<R>,
) -> Result<R> {
    with_values(|values| {
        fallible::reserve(values, pairs.arrays().len())?;
        values.extend(pairs.arrays().iter().map(ToValue::to_value));
        call(pairs.keys(), values)
    })
}

/// Returns references to the arrays of a call.
fn borrowed(outs: &[impl Borrow<NDArray>]) -> impl Iterator<Item = &NDArray> {
    outs.iter().map(Borrow::borrow)
}

/// Checks that an output has the shape of the stored value. Its dtype may differ.
fn check_shape(key: &Key, stored: &TensorSpec, out: &NDArray) -> Result<()> {
    if stored.shape() == out.shape() {
        return Ok(());
    }
    Err(Error::spec_mismatch(key, &stored.with_dtype(out.dtype()), out.spec()))
}

fn list(keys: impl IntoKeys) -> Result<Vec<Key>> {
    Ok(match keys.into_keys()? {
        Keys::One(key) => Vec::from([key]),
        Keys::Many(keys) => keys,
    })
}
