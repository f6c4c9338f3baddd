//! [`Key`], and a check of lists that are parallel to a list of keys.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

use super::error::{Error, Result};

/// The name of a stored tensor: any UTF-8 string without NUL. The empty string is a key.
///
/// A clone shares the string.
///
/// ```
/// let key = kvstore_core::Key::new("w1")?;
/// assert_eq!(key.as_str(), "w1");
/// # Ok::<(), kvstore_core::Error>(())
/// ```
#[derive(Clone, Default, Eq, Hash, PartialOrd, Ord)]
#[allow(clippy::derived_hash_with_manual_eq, reason = "keys are equal if their strings are")]
pub struct Key(Arc<str>);

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        // Fast path: most lists that repeat a key repeat a clone of it.
        Arc::ptr_eq(&self.0, &other.0) || self.0 == other.0
    }
}

impl Key {
    /// Returns the key with this name.
    ///
    /// # Errors
    /// - [`Error::InvalidArgument`] if the name contains a NUL character.
    pub fn new(text: &str) -> Result<Self> {
        if text.contains('\0') {
            return Err(Error::invalid(format!("key {text:?} has a NUL character")));
        }
        Ok(Self(text.into()))
    }

    /// Returns the name as a string.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", &*self.0)
    }
}

impl Borrow<str> for Key {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl TryFrom<&str> for Key {
    type Error = Error;

    fn try_from(text: &str) -> Result<Self> {
        Self::new(text)
    }
}

/// Returns a hash of a text (FNV-1a, 64 bits). It is the same on all machines and in all versions.
pub fn stable_hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// Checks that a list is as long as the list of keys. `what` describes both lists in the error.
///
/// # Errors
/// - [`Error::LengthMismatch`] if the lengths differ.
pub fn check_lengths<T>(what: &str, keys: &[Key], items: &[T]) -> Result<()> {
    if keys.len() == items.len() {
        return Ok(());
    }
    let what = what.to_owned();
    Err(Error::LengthMismatch { what, expected: keys.len(), found: items.len() })
}

/// Describes a call for an error: ``push of `w` and 2 more``.
pub fn describe_call<'a>(verb: &str, keys: impl IntoIterator<Item = &'a Key>) -> String {
    let mut keys = keys.into_iter();
    match (keys.next(), keys.count()) {
        (None, _) => verb.to_owned(),
        (Some(key), 0) => format!("{verb} of `{key}`"),
        (Some(key), more) => format!("{verb} of `{key}` and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_rejects_nul_and_accepts_the_empty_key() {
        assert!(Key::new("a\0b").is_err());
        assert_eq!(Key::new("").unwrap().as_str(), "");
    }
}
