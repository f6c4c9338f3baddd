//! Settings of pushes: updaters, optimizers, gradient compression and clipping.

use std::sync::Arc;

use kvstore_core::{
    BoxError, Compression, Error, Key, NDArray, Optimizer, Result, Tensor, Updater,
};

use crate::store::Store;

impl Store {
    /// Sets the updater of all later pushes. Each push calls `update(key, pushed, stored)` for each
    /// key.
    ///
    /// `pushed` is the sum of the values. The updater changes `stored` in place. Both arrays are
    /// private to the call, so later changes to them have no effect. If the updater fails, the key
    /// keeps its old value, and the push returns [`Error::Updater`] with the failure as its source.
    ///
    /// The updater should not wait for the thread pool that the push runs on. The waiting thread
    /// may run another task of that pool. If that task changes this store, it fails as if the
    /// updater had made the call.
    ///
    /// ```
    /// use kvstore::{DType, Device, create, ones};
    /// let store = create("local")?;
    /// store.init("5", &ones([2], DType::F32, Device::cpu(0))?)?;
    /// store.set_updater(|_key, pushed, stored| Ok(stored.add_assign(&pushed.mul_scalar(2)?)?))?;
    /// store.push("5", &ones([2], DType::F32, Device::cpu(0))?)?;
    /// assert_eq!(store.pull_new("5")?[0].to_vec::<f32>()?, [3.0, 3.0]);
    /// # Ok::<(), kvstore::Error>(())
    /// ```
    ///
    /// # Errors
    /// - The errors of [`Store::check_process`] and
    ///   [`KvStore::set_updater`](crate::KvStore::set_updater).
    pub fn set_updater<F>(&self, update: F) -> Result<()>
    where
        F: Fn(&Key, &NDArray, &NDArray) -> Result<(), BoxError> + Send + Sync + 'static,
    {
        self.inner()?.set_updater(Some(Arc::new(OnArrays(update))))
    }

    /// Removes the updater or optimizer. The sum of a later push replaces the stored value.
    ///
    /// # Errors
    /// - The errors of [`Store::check_process`] and
    ///   [`KvStore::set_updater`](crate::KvStore::set_updater).
    pub fn clear_updater(&self) -> Result<()> {
        self.inner()?.set_updater(None)
    }

    /// Sets the optimizer of all later pushes. The optimizer states of all keys start anew.
    ///
    /// # Errors
    /// - The errors of [`Store::check_process`] and
    ///   [`KvStore::set_optimizer`](crate::KvStore::set_optimizer).
    pub fn set_optimizer(&self, optimizer: Optimizer) -> Result<()> {
        self.inner()?.set_optimizer(optimizer)
    }

    /// Returns the optimizer with its current hyper-parameters, or `None` if none is set.
    ///
    /// # Errors
    /// - The errors of [`Store::check_process`] and
    ///   [`KvStore::optimizer`](crate::KvStore::optimizer).
    pub fn optimizer(&self) -> Result<Option<Optimizer>> {
        self.inner()?.optimizer()
    }

    /// Returns the hyper-parameters of the store's optimizer.
    ///
    /// # Errors
    /// - The errors of [`Store::optimizer`].
    /// - [`InvalidArgument`](Error::InvalidArgument) if no optimizer is set.
    pub fn hyper_parameters(&self) -> Result<Vec<(&'static str, f64)>> {
        let optimizer = self.inner()?.optimizer()?.ok_or_else(|| {
            Error::InvalidArgument(
                "cannot read hyper-parameters: the store has no optimizer".to_owned(),
            )
        })?;
        Ok(optimizer.hyper_parameters())
    }

    /// Changes hyper-parameters of the store's optimizer, all or none. States and counts stay.
    ///
    /// ```
    /// use kvstore::{Optimizer, create};
    /// let store = create("local")?;
    /// store.set_optimizer(Optimizer::sgd())?;
    /// store.set_hyper_parameters(&[("learning_rate", 0.001)])?;
    /// assert_eq!(store.hyper_parameters()?[0], ("learning_rate", 0.001));
    /// # Ok::<(), kvstore::Error>(())
    /// ```
    ///
    /// # Errors
    /// - The errors of [`Store::check_process`] and
    ///   [`KvStore::set_hyper_parameters`](crate::KvStore::set_hyper_parameters).
    pub fn set_hyper_parameters(&self, parameters: &[(&str, f64)]) -> Result<()> {
        self.inner()?.set_hyper_parameters(parameters)
    }

    /// Compresses the values of all later pushes. `name` is `2bit` or `1bit`; see [`Compression`].
    ///
    /// The residual (what compression has not sent yet) is kept for each key and each position in
    /// the list of its values, and later pushes send it.
    ///
    /// ```
    /// use kvstore::{Compression, Device, array, create};
    /// let store = create("local")?;
    /// store.init("w", &array(&[0f32, 0.0], [2], Device::cpu(0))?)?;
    /// store.set_gradient_compression("2bit", Compression::DEFAULT_THRESHOLD)?;
    /// store.push("w", &array(&[0.3f32, -0.7], [2], Device::cpu(0))?)?;
    /// assert_eq!(store.pull_new("w")?[0].to_vec::<f32>()?, [0.0, -0.5]);
    /// store.push("w", &array(&[0.3f32, 0.0], [2], Device::cpu(0))?)?;
    /// assert_eq!(store.pull_new("w")?[0].to_vec::<f32>()?, [0.5, 0.0]);
    /// # Ok::<(), kvstore::Error>(())
    /// ```
    ///
    /// # Errors
    /// - The errors of [`Store::check_process`] and
    ///   [`KvStore::set_compression`](crate::KvStore::set_compression).
    /// - [`InvalidArgument`](Error::InvalidArgument) if the name is unknown.
    /// - [`InvalidArgument`](Error::InvalidArgument) if the threshold is not a number above 0.
    pub fn set_gradient_compression(&self, name: &str, threshold: f64) -> Result<()> {
        self.inner()?.set_compression(Some(Compression::new(name, threshold)?))
    }

    /// Turns compression off. The residuals are kept, and later compressed pushes send them.
    ///
    /// # Errors
    /// - The errors of [`Store::check_process`] and
    ///   [`KvStore::set_compression`](crate::KvStore::set_compression).
    pub fn clear_gradient_compression(&self) -> Result<()> {
        self.inner()?.set_compression(None)
    }

    /// Returns how pushed values are compressed, or `None` if compression is off.
    ///
    /// # Errors
    /// - The errors of [`Store::check_process`] and
    ///   [`KvStore::compression`](crate::KvStore::compression).
    pub fn gradient_compression(&self) -> Result<Option<Compression>> {
        self.inner()?.compression()
    }

    /// Clips all later pushes by their global norm: scales the sums so that the Euclidean norm over
    /// all keys of a push is at most `bound`. The factor is `bound / (norm + 1e-8)`.
    ///
    /// Each push has its own norm, so push all gradients of a model in one call. The optimizer or
    /// updater receives the clipped sums; `rescale_grad` applies after clipping. A norm that is NaN
    /// or infinite does not clip.
    ///
    /// ```
    /// use kvstore::{Device, array, create};
    /// let store = create("local")?;
    /// let zeros = || array(&[0f32, 0.0], [2], Device::cpu(0));
    /// store.init(["a", "b"], [&zeros()?, &zeros()?])?;
    /// store.set_clip_global_norm(1.0)?;
    /// // The norm over both keys is 10.
    /// let gradient = |a: f32, b: f32| array(&[a, b], [2], Device::cpu(0));
    /// let gradients = [gradient(6.0, 0.0)?, gradient(0.0, 8.0)?];
    /// store.push(["a", "b"], &gradients)?;
    /// let pulled = store.pull_new(["a", "b"])?;
    /// assert!((pulled[0].to_vec::<f32>()?[0] - 0.6).abs() < 1e-6);
    /// assert!((pulled[1].to_vec::<f32>()?[1] - 0.8).abs() < 1e-6);
    /// # Ok::<(), kvstore::Error>(())
    /// ```
    ///
    /// While a bound is set, a push of integers fails with
    /// [`InvalidArgument`](Error::InvalidArgument).
    ///
    /// # Errors
    /// - The errors of [`Store::check_process`] and
    ///   [`KvStore::set_clip_global_norm`](crate::KvStore::set_clip_global_norm).
    pub fn set_clip_global_norm(&self, bound: f64) -> Result<()> {
        self.inner()?.set_clip_global_norm(Some(bound))
    }

    /// Turns clipping by the global norm off.
    ///
    /// # Errors
    /// - The errors of [`Store::check_process`] and
    ///   [`KvStore::set_clip_global_norm`](crate::KvStore::set_clip_global_norm).
    pub fn clear_clip_global_norm(&self) -> Result<()> {
        self.inner()?.set_clip_global_norm(None)
    }

    /// Returns the bound of the global norm, or `None` if clipping is off.
    ///
    /// # Errors
    /// - The errors of [`Store::check_process`] and
    ///   [`KvStore::clip_global_norm`](crate::KvStore::clip_global_norm).
    pub fn clip_global_norm(&self) -> Result<Option<f64>> {
        self.inner()?.clip_global_norm()
    }
}

/// Adapts an updater on arrays to the core's updaters on tensors.
struct OnArrays<F>(F);

impl<F> Updater for OnArrays<F>
where
    F: Fn(&Key, &NDArray, &NDArray) -> Result<(), BoxError> + Send + Sync,
{
    fn update(&self, key: &Key, pushed: &Tensor, stored: &mut Tensor) -> Result<(), BoxError> {
        let cell = NDArray::new(stored.clone());
        (self.0)(key, &NDArray::new(pushed.clone()), &cell)?;
        *stored = cell.tensor();
        Ok(())
    }
}
