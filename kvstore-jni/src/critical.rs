//! The elements of a Java array where they are, for reading.
//!
//! `jni` has such a guard too, but that asks for a pending exception between getting and releasing the
//! elements, and in between the JVM allows no call of JNI: `-Xcheck:jni` complains of each.

use std::ffi::c_void;
use std::marker::PhantomData;
use std::ops::Deref;
use std::ptr::NonNull;
use std::slice;

use jni::Env;
use jni::errors::{Error, JniError};
use jni::objects::{JPrimitiveArray, TypeArray};
use jni::sys::{self, JNIEnv, jarray};

/// The elements of a Java array, until it is dropped. Meanwhile the JVM may move nothing at all.
pub(crate) struct Critical<'a, T> {
    env: *mut JNIEnv,
    array: jarray,
    elements: NonNull<T>,
    len: usize,
    borrowed: PhantomData<&'a Env<'a>>,
}

impl<'a, T: TypeArray> Critical<'a, T> {
    /// # Errors
    /// When the JVM has no memory for a copy and cannot do without.
    ///
    /// # Safety
    /// Until it is dropped, this thread calls nothing of JNI and does not wait for another one. Another thread
    /// of Java may write the array meanwhile: any bits are an element.
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
        // SAFETY: both come from `jni`, which knows them to be valid in this thread as long as they are borrowed,
        // and the function has been there since JNI 1.2.
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

#[allow(unsafe_code, reason = "the JVM hands out an address")]
impl<T> Deref for Critical<'_, T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: as many elements begin there until they are released, aligned as Java aligns them.
        unsafe { slice::from_raw_parts(self.elements.as_ptr(), self.len) }
    }
}

impl<T> Drop for Critical<'_, T> {
    #[allow(unsafe_code, reason = "what was taken with a raw call is given back with one")]
    #[allow(
        clippy::multiple_unsafe_ops_per_block,
        reason = "the JVM's table is behind two pointers"
    )]
    fn drop(&mut self) {
        let elements = self.elements.as_ptr().cast::<c_void>();
        // SAFETY: the elements were taken from this array with this environment, in this thread, for neither
        // can be sent to another.
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
