//! [`Pairs`]: parallel lists of keys and arrays, made from the four forms that a verb takes.

use kvstore_core::fallible;
use kvstore_core::{Error, Key, NDArray, Result, RowSparse, Value};
use smallvec::SmallVec;

/// The keys of a call: one, or a list.
#[derive(Clone, Debug)]
pub enum Keys {
    /// One key, for one array or for all arrays of a list.
    One(Key),
    /// A list of keys, parallel to a list of arrays or of lists of arrays. It may repeat keys.
    Many(Vec<Key>),
}

/// The arrays of a call.
#[derive(Clone, Debug)]
pub enum Arrays<A = NDArray> {
    /// One array.
    One(A),
    /// A list of arrays, parallel to the keys or all for one key.
    Many(Vec<A>),
    /// A list of arrays for each key.
    Nested {
        /// The arrays of all lists, concatenated.
        arrays: Vec<A>,
        /// The length of each list. The sum is the number of arrays.
        lengths: Vec<usize>,
    },
}

/// A type that converts to keys: a `&str`, a [`Key`], or a list of them.
pub trait IntoKeys {
    /// Returns the keys.
    ///
    /// # Errors
    /// - [`Error::InvalidArgument`] if a string is not a valid key.
    /// - [`Error::OutOfMemory`] if there is not enough memory for the list.
    fn into_keys(self) -> Result<Keys>;
}

/// A type that converts to arrays or other values: one, a list, or a list of lists.
pub trait IntoArrays {
    /// The type of the arrays.
    type Item;

    /// Returns the arrays.
    ///
    /// # Errors
    /// - [`Error::OutOfMemory`] if there is not enough memory for the list.
    fn into_arrays(self) -> Result<Arrays<Self::Item>>;
}

/// A list of pairs of a key and an array (or another value), in call order.
#[derive(Clone, Debug)]
pub struct Pairs<A = NDArray> {
    keys: Few<Key>,
    arrays: Few<A>,
}

/// A list that holds one item without the heap.
type Few<T> = SmallVec<[T; 1]>;

impl<A> Default for Pairs<A> {
    fn default() -> Self {
        Self { keys: Few::new(), arrays: Few::new() }
    }
}

impl<A> Pairs<A> {
    /// Pairs keys with arrays. The four forms are a key and an array; a key and a list of arrays
    /// for it; a list of keys and a list of arrays; a list of keys and a list of lists.
    ///
    /// # Errors
    /// - [`Error::LengthMismatch`] if two lists have different lengths.
    /// - [`Error::InvalidArgument`] if a string is not a valid key.
    /// - [`Error::OutOfMemory`] if there is not enough memory for the lists.
    pub fn new(keys: impl IntoKeys, arrays: impl IntoArrays<Item = A>) -> Result<Self> {
        match (keys.into_keys()?, arrays.into_arrays()?) {
            (Keys::One(key), Arrays::One(array)) => {
                let (keys, arrays) = (std::iter::once(key), std::iter::once(array));
                Ok(Self { keys: keys.collect(), arrays: arrays.collect() })
            }
            (Keys::One(key), Arrays::Many(arrays)) => Self::of_one_key(&key, arrays),
            (Keys::One(key), Arrays::Nested { arrays, lengths }) => {
                Self::of_lists(&[key], arrays, &lengths)
            }
            (Keys::Many(keys), Arrays::One(array)) => Self::zip(keys, Vec::from([array])),
            (Keys::Many(keys), Arrays::Many(arrays)) => Self::zip(keys, arrays),
            (Keys::Many(keys), Arrays::Nested { arrays, lengths }) => {
                Self::of_lists(&keys, arrays, &lengths)
            }
        }
    }

    fn of_one_key(key: &Key, arrays: Vec<A>) -> Result<Self> {
        let keys = fallible::filled(key.clone(), arrays.len())?;
        Ok(Self { keys: keys.into(), arrays: arrays.into() })
    }

    fn zip(keys: Vec<Key>, arrays: Vec<A>) -> Result<Self> {
        check(keys.len(), arrays.len())?;
        Ok(Self { keys: keys.into(), arrays: arrays.into() })
    }

    fn of_lists(keys: &[Key], arrays: Vec<A>, lengths: &[usize]) -> Result<Self> {
        check(keys.len(), lengths.len())?;
        // The caller provides the lengths, and the capacity below is the number of arrays.
        check(lengths.iter().fold(0, |sum, length| sum.saturating_add(*length)), arrays.len())?;
        let mut repeated = fallible::with_capacity(arrays.len())?;
        for (key, length) in keys.iter().zip(lengths) {
            repeated.extend(std::iter::repeat_n(key, *length).cloned());
        }
        Self::zip(repeated, arrays)
    }

    /// Returns the keys, one per array.
    pub fn keys(&self) -> &[Key] {
        &self.keys
    }

    /// Returns the arrays, one per key.
    pub fn arrays(&self) -> &[A] {
        &self.arrays
    }
}

fn check(num_keys: usize, num_values: usize) -> Result<()> {
    if num_keys == num_values {
        return Ok(());
    }
    let what = "values for keys".to_owned();
    Err(Error::LengthMismatch { what, expected: num_keys, found: num_values })
}

impl Keys {
    /// Returns a copy.
    ///
    /// # Errors
    /// - [`Error::OutOfMemory`] if there is not enough memory for the list.
    pub(crate) fn copied(&self) -> Result<Self> {
        match self {
            Self::One(key) => Ok(Self::One(key.clone())),
            Self::Many(keys) => fallible::copied(keys).map(Self::Many),
        }
    }
}

impl IntoKeys for Keys {
    fn into_keys(self) -> Result<Keys> {
        Ok(self)
    }
}

impl IntoKeys for &str {
    fn into_keys(self) -> Result<Keys> {
        Key::new(self).map(Keys::One)
    }
}

impl IntoKeys for &String {
    fn into_keys(self) -> Result<Keys> {
        Key::new(self).map(Keys::One)
    }
}

impl IntoKeys for &Key {
    fn into_keys(self) -> Result<Keys> {
        Ok(Keys::One(self.clone()))
    }
}

impl IntoKeys for Vec<Key> {
    fn into_keys(self) -> Result<Keys> {
        Ok(Keys::Many(self))
    }
}

impl IntoKeys for &[Key] {
    fn into_keys(self) -> Result<Keys> {
        fallible::copied(self).map(Keys::Many)
    }
}

impl IntoKeys for &[&str] {
    fn into_keys(self) -> Result<Keys> {
        fallible::try_collect(self.iter().map(|text| Key::new(text))).map(Keys::Many)
    }
}

impl IntoKeys for &[String] {
    fn into_keys(self) -> Result<Keys> {
        fallible::try_collect(self.iter().map(|text| Key::new(text))).map(Keys::Many)
    }
}

impl<const N: usize> IntoKeys for [&str; N] {
    fn into_keys(self) -> Result<Keys> {
        self.as_slice().into_keys()
    }
}

impl<const N: usize> IntoKeys for &[&str; N] {
    fn into_keys(self) -> Result<Keys> {
        self.as_slice().into_keys()
    }
}

impl<A> IntoArrays for Arrays<A> {
    type Item = A;

    fn into_arrays(self) -> Result<Self> {
        Ok(self)
    }
}

/// Returns lists of these lengths. `items` are the arrays of all lists, concatenated.
fn nested<A>(lengths: Vec<usize>, items: impl Iterator<Item = A>) -> Result<Arrays<A>> {
    let mut arrays = fallible::with_capacity(lengths.iter().sum())?;
    arrays.extend(items);
    Ok(Arrays::Nested { arrays, lengths })
}

/// Implements [`IntoArrays`] for every shape of these types. One implementation for all types is
/// impossible, because a list of lists would then also be a list of values.
macro_rules! into_arrays {
    ($($Item:ident),+) => {$(
        impl IntoArrays for &$Item {
            type Item = $Item;

            fn into_arrays(self) -> Result<Arrays<$Item>> {
                Ok(Arrays::One(self.clone()))
            }
        }

        impl IntoArrays for Vec<$Item> {
            type Item = $Item;

            fn into_arrays(self) -> Result<Arrays<$Item>> {
                Ok(Arrays::Many(self))
            }
        }

        impl IntoArrays for &[$Item] {
            type Item = $Item;

            fn into_arrays(self) -> Result<Arrays<$Item>> {
                fallible::copied(self).map(Arrays::Many)
            }
        }

        impl IntoArrays for &Vec<$Item> {
            type Item = $Item;

            fn into_arrays(self) -> Result<Arrays<$Item>> {
                fallible::copied(self).map(Arrays::Many)
            }
        }

        impl<const N: usize> IntoArrays for &[$Item; N] {
            type Item = $Item;

            fn into_arrays(self) -> Result<Arrays<$Item>> {
                fallible::copied(self).map(Arrays::Many)
            }
        }

        impl<const N: usize> IntoArrays for [&$Item; N] {
            type Item = $Item;

            fn into_arrays(self) -> Result<Arrays<$Item>> {
                fallible::collect(self.into_iter().cloned()).map(Arrays::Many)
            }
        }

        impl IntoArrays for Vec<Vec<$Item>> {
            type Item = $Item;

            fn into_arrays(self) -> Result<Arrays<$Item>> {
                let lengths = fallible::collect(self.iter().map(Vec::len))?;
                nested(lengths, self.into_iter().flatten())
            }
        }

        impl IntoArrays for &[Vec<$Item>] {
            type Item = $Item;

            fn into_arrays(self) -> Result<Arrays<$Item>> {
                let lengths = fallible::collect(self.iter().map(Vec::len))?;
                nested(lengths, self.iter().flatten().cloned())
            }
        }

        impl<const N: usize> IntoArrays for &[Vec<$Item>; N] {
            type Item = $Item;

            fn into_arrays(self) -> Result<Arrays<$Item>> {
                let lengths = fallible::collect(self.iter().map(Vec::len))?;
                nested(lengths, self.iter().flatten().cloned())
            }
        }
    )+};
}

into_arrays!(NDArray, RowSparse, Value);
