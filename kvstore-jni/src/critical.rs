//! Direct read access to the elements of a Java array.
//!
//! `jni` has a guard for this, too. But it checks for a pending exception between getting and
//! releasing the elements. The JVM allows no JNI call in between, and `-Xcheck:jni` reports each of
//! them.

use std::ffi::c_void;
use std::marker::PhantomData;
use std::ops::Deref;
use std::ptr::NonNull;
use std::slice;

use jni::Env;
use jni::errors::{Error, JniError};
use jni::objects::{JPrimitiveArray, TypeArray};
use jni::sys::{self, JNIEnv, jarray};

/// The elements of a Java array. While this exists, the JVM moves no objects.
pub(crate) struct Critical<'a, T> {
    env: *mut JNIEnv,
    array: jarray,
    elements: NonNull<T>,
    len: usize,
    borrowed: PhantomData<&'a Env<'a>>,
}

impl<'a, T: TypeArray> Critical<'a, T> {
    /// Returns the elements of `array`.
    ///
    /// # Errors
    /// - [`JniError::NoMemory`] if the JVM must copy the elements and has no memory for the copy.
    ///
    /// # Safety
    /// Until the result is dropped:
    /// - This thread makes no JNI call.
    /// - This thread does not wait for another thread.
    ///
    /// Another Java thread may write to the array meanwhile. This is harmless, because any bit
    /// pattern is a valid element.
    #[allow(unsafe_code, reason = "`jni` calls the JVM again while it holds the elements")]
    #[allow(
        clippy::multiple_unsafe_ops_per_block,
        reason = "the JVM's table is behind two pointers"
    )]
    pub(crate) unsafe fn new(
        env: &'a Env<'_>,
        array: &'a JPrimitiveArray<'_, T>,
    ) -> jni::errors::Result<Self> {
        let len = array.len(env)?;
        let (env, array) = (env.get_raw(), array.as_raw());
        // SAFETY: both pointers come from `jni`, which guarantees that they are valid in this
        // thread while they are borrowed. The function exists since JNI 1.2.
        let elements = unsafe {
            ((**env).v1_2.GetPrimitiveArrayCritical)(
                env,
                array,
                std::ptr::null_mut::<sys::jboolean>(),
            )
        };
        let elements = NonNull::new(elements.cast::<T>());
        let elements = elements.ok_or(Error::JniCall(JniError::NoMemory))?;
        Ok(Self { env, array, elements, len, borrowed: PhantomData })
    }
}

#[allow(unsafe_code, reason = "the JVM returns an address")]
impl<T> Deref for Critical<'_, T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: the pointer refers to `len` elements until they are released, and Java aligns
        // them.
        unsafe { slice::from_raw_parts(self.elements.as_ptr(), self.len) }
    }
}

impl<T> Drop for Critical<'_, T> {
    #[allow(unsafe_code, reason = "the elements were acquired with a raw call")]
    #[allow(
        clippy::multiple_unsafe_ops_per_block,
        reason = "the JVM's table is behind two pointers"
    )]
    fn drop(&mut self) {
        let elements = self.elements.as_ptr().cast::<c_void>();
        // SAFETY: the elements come from this array, this environment and this thread, because this
        // type is not `Send`.
        unsafe {
            ((**self.env).v1_2.ReleasePrimitiveArrayCritical)(
                self.env,
                self.array,
                elements,
                sys::JNI_ABORT,
            );
        };
    }
}
