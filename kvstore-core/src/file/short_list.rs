//! [`short_list`]: deserializes lists that are always short in valid files.

use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::{Deserializer, Error, SeqAccess, Visitor};

/// The maximum number of items of a list in a file: axes of a shape or steps of a schedule.
pub(crate) const MAX_ITEMS: usize = 1 << 12;

/// Deserializes a list of at most [`MAX_ITEMS`] items. A longer list could take many times the
/// memory of its text.
pub(crate) fn short_list<'de, T, D>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    T: Deserialize<'de>,
    D: Deserializer<'de>,
{
    deserializer.deserialize_seq(Items(PhantomData))
}

struct Items<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for Items<T> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at most {MAX_ITEMS} items")
    }

    fn visit_seq<S: SeqAccess<'de>>(self, mut sequence: S) -> Result<Vec<T>, S::Error> {
        let mut items = Vec::new();
        while let Some(item) = sequence.next_element()? {
            if items.len() == MAX_ITEMS {
                return Err(S::Error::invalid_length(MAX_ITEMS + 1, &self));
            }
            items.push(item);
        }
        items.shrink_to_fit();
        Ok(items)
    }
}
