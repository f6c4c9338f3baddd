//! What a push does with a sum: updaters, optimizers, gradient compression.

use std::sync::Arc;

use kvstore_core::{
    BoxError, Compression, Error, Key, NDArray, Optimizer, Result, Tensor, Updater,
};

use crate::store::Store;

impl Store {
    /// Lets `update(key, pushed, stored)` change the stored value on every push from now on.
    ///
    /// `pushed` is the sum; `stored` is changed in place. Both arrays are private to the call, so later
    /// changes to them have no effect. If the updater fails, the key keeps its old value, and the push
    /// returns [`Error::Updater`] with the failure as its source.
    ///
    /// The updater should not wait for a thread pool that the push itself runs on. Such a wait may run
    /// another task of that pool, and a change of this store by that task fails as one by the updater.
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
    /// [`InvalidArgument`](Error::InvalidArgument) from inside an updater of this store.
    pub fn set_updater<F>(&self, update: F) -> Result<()>
    where
        F: Fn(&Key, &NDArray, &NDArray) -> Result<(), BoxError> + Send + Sync + 'static,
    {
        self.inner()?.set_updater(Some(Arc::new(OnArrays(update))))
    }

    /// Lets the sum replace the stored value on every push from now on.
    ///
    /// # Errors
    /// [`InvalidArgument`](Error::InvalidArgument) from inside an updater of this store.
    pub fn clear_updater(&self) -> Result<()> {
        self.inner()?.set_updater(None)
    }

    /// Lets an optimizer run on the store from now on; the states of all keys start anew.
    ///
    /// # Errors
    /// [`InvalidArgument`](Error::InvalidArgument) from inside an updater of this store.
    pub fn set_optimizer(&self, optimizer: Optimizer) -> Result<()> {
        self.inner()?.set_optimizer(optimizer)
    }

    /// Returns the optimizer with its current hyper-parameters, or `None` if none is set.
    ///
    /// # Errors
    /// - Those of [`Store::check_process`] and [`KvStore::optimizer`](crate::KvStore::optimizer).
    pub fn optimizer(&self) -> Result<Option<Optimizer>> {
        self.inner()?.optimizer()
    }

    /// Returns the hyper-parameters of the optimizer that runs on the store.
    ///
    /// # Errors
    /// [`InvalidArgument`](Error::InvalidArgument) when no optimizer is set.
    pub fn hyper_parameters(&self) -> Result<Vec<(&'static str, f64)>> {
        let optimizer = self.inner()?.optimizer()?.ok_or_else(|| {
            Error::InvalidArgument("the store has no optimizer with hyper-parameters".to_owned())
        })?;
        Ok(optimizer.hyper_parameters())
    }

    /// Changes hyper-parameters of the running optimizer, all or none. States and counts stay.
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
    /// [`InvalidArgument`](Error::InvalidArgument) when no optimizer is set, it has none of such a
    /// name, or it cannot have such a value.
    pub fn set_hyper_parameters(&self, parameters: &[(&str, f64)]) -> Result<()> {
        self.inner()?.set_hyper_parameters(parameters)
    }

    /// Compresses the values of every push from now on, `2bit` or `1bit` an element; see [`Compression`]. What is
    /// not sent is kept for each key and each position in the list of its values, and is sent later.
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
    /// [`InvalidArgument`](Error::InvalidArgument) for another name, a threshold that is not a number above 0, or
    /// from inside an updater of this store.
    pub fn set_gradient_compression(&self, name: &str, threshold: f64) -> Result<()> {
        self.inner()?.set_compression(Some(Compression::new(name, threshold)?))
    }

    /// Pushes uncompressed values again. Keeps the residuals that were not sent yet.
    ///
    /// # Errors
    /// [`InvalidArgument`](Error::InvalidArgument) from inside an updater of this store.
    pub fn clear_gradient_compression(&self) -> Result<()> {
        self.inner()?.set_compression(None)
    }

    /// Returns how pushed values are compressed, or `None` if compression is off.
    ///
    /// # Errors
    /// - Those of [`Store::check_process`] and [`KvStore::compression`](crate::KvStore::compression).
    pub fn gradient_compression(&self) -> Result<Option<Compression>> {
        self.inner()?.compression()
    }

    /// Scales the sums of every push from now on, so that the Euclidean norm over all keys of the push is at
    /// most `bound`: clipping by the global norm. The factor is `bound / (norm + 1e-8)`.
    ///
    /// Each push has a norm of its own, so the gradients of a model belong in one push. An optimizer or
    /// updater gets the clipped sums; `rescale_grad` comes after. A norm that is not finite clips nothing.
    ///
    /// ```
    /// use kvstore::{Device, array, create};
    /// let store = create("local")?;
    /// let zeros = || array(&[0f32, 0.0], [2], Device::cpu(0));
    /// store.init(["a", "b"], [&zeros()?, &zeros()?])?;
    /// store.set_clip_global_norm(1.0)?;
    /// // The norm of both keys is 10.
    /// let gradients = [array(&[6f32, 0.0], [2], Device::cpu(0))?, array(&[0f32, 8.0], [2], Device::cpu(0))?];
    /// store.push(["a", "b"], &gradients)?;
    /// let pulled = store.pull_new(["a", "b"])?;
    /// assert!((pulled[0].to_vec::<f32>()?[0] - 0.6).abs() < 1e-6);
    /// assert!((pulled[1].to_vec::<f32>()?[1] - 0.8).abs() < 1e-6);
    /// # Ok::<(), kvstore::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`InvalidArgument`](Error::InvalidArgument) for a bound that is not a finite number above 0, beside a
    /// compression, or from inside an updater of this store. A push of integers then fails with it, too.
    pub fn set_clip_global_norm(&self, bound: f64) -> Result<()> {
        self.inner()?.set_clip_global_norm(Some(bound))
    }

    /// Pushes sums of any norm again.
    ///
    /// # Errors
    /// [`InvalidArgument`](Error::InvalidArgument) from inside an updater of this store.
    pub fn clear_clip_global_norm(&self) -> Result<()> {
        self.inner()?.set_clip_global_norm(None)
    }

    /// Returns the bound of the norm of a push, or `None` if there is none.
    ///
    /// # Errors
    /// - Those of [`Store::check_process`] and
    ///   [`KvStore::clip_global_norm`](crate::KvStore::clip_global_norm).
    pub fn clip_global_norm(&self) -> Result<Option<f64>> {
        self.inner()?.clip_global_norm()
    }
}

/// An updater on arrays, as core knows them: on tensors.
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
