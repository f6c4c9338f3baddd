//! The memory of a decoded message, which may be much more than its bytes.

use std::ops::RangeInclusive;

use prost::encoding::{WireType, decode_key, decode_varint};

/// The memory of an element of a list of messages or strings, with what a call makes of it.
const ENTRY: usize = 512;

/// The memory of a number, whose encoding may have one byte.
const NUMBER: usize = 8;

/// The numbers of the fields of a request that are verbs. Those before them have no lists of
/// messages. Those after them belong to a later version, and decoding skips them.
const VERBS: RangeInclusive<u32> = 10..=34;

/// The number of the field `push_pull` of a request, the only verb with messages that have lists.
const PUSH_PULL: u32 = 30;

/// Returns an upper bound of the bytes that a decoded request needs. For bytes that are no message
/// of this protocol, it is larger than every limit.
pub(super) fn decoded_bytes(request: &[u8]) -> usize {
    let Ok(num_entries) = count_entries(request) else { return usize::MAX };
    let of_entries = num_entries.saturating_mul(ENTRY);
    request.len().saturating_mul(NUMBER).saturating_add(of_entries)
}

/// Returns the number of entries of lists.
fn count_entries(request: &[u8]) -> Result<usize, Damaged> {
    let mut num_entries = 0_usize;
    for field in Fields(request) {
        let (number, verb) = field?;
        num_entries += 1;
        if !VERBS.contains(&number) {
            continue;
        }
        for field in Fields(verb) {
            let (_, list) = field?;
            num_entries += 1;
            if number == PUSH_PULL {
                for entry in Fields(list) {
                    entry?;
                    num_entries += 1;
                }
            }
        }
    }
    Ok(num_entries)
}

/// A damaged message, or one with a group, which no version of the protocol has.
struct Damaged;

/// The numbers and contents of the fields of a message that have a length. Ends after an error.
struct Fields<'a>(&'a [u8]);

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u32, &'a [u8]), Damaged>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.0.is_empty() {
            match self.field() {
                Ok(Field::WithLength(number, contents)) => return Some(Ok((number, contents))),
                Ok(Field::Other) => {}
                Err(damaged) => {
                    self.0 = &[];
                    return Some(Err(damaged));
                }
            }
        }
        None
    }
}

enum Field<'a> {
    WithLength(u32, &'a [u8]),
    Other,
}

impl<'a> Fields<'a> {
    /// Removes the next field.
    fn field(&mut self) -> Result<Field<'a>, Damaged> {
        let (number, kind) = decode_key(&mut self.0).map_err(|_| Damaged)?;
        let skipped = match kind {
            WireType::LengthDelimited => {
                let len = decode_varint(&mut self.0).map_err(|_| Damaged)?;
                let len = usize::try_from(len).map_err(|_| Damaged)?;
                let (contents, rest) = self.0.split_at_checked(len).ok_or(Damaged)?;
                self.0 = rest;
                return Ok(Field::WithLength(number, contents));
            }
            WireType::Varint => {
                decode_varint(&mut self.0).map_err(|_| Damaged)?;
                0
            }
            WireType::ThirtyTwoBit => 4,
            WireType::SixtyFourBit => 8,
            WireType::StartGroup | WireType::EndGroup => return Err(Damaged),
        };
        self.0 = self.0.get(skipped..).ok_or(Damaged)?;
        Ok(Field::Other)
    }
}

#[cfg(test)]
#[allow(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "a test may abort without memory, and fails by panicking"
)]
mod tests {
    use prost::Message;

    use super::*;
    use crate::proto::request::Verb;
    use crate::proto::{Keys, Pull, Push, PushPull, Request, Value};

    fn size_with(verb: Verb) -> usize {
        decoded_bytes(&Request { verb: Some(verb), ..Request::default() }.encode_to_vec())
    }

    #[test]
    fn each_entry_of_a_list_counts() {
        // Two bytes each.
        let values = vec![Value::default(); 1000];
        let memory = 1000 * size_of::<Value>();
        assert!(ENTRY >= size_of::<Value>());
        let push = Push { values, ..Push::default() };
        assert!(size_with(Verb::Push(push.clone())) >= memory);
        let keys = vec![String::new(); 1000];
        let both = PushPull {
            push: Some(push),
            pull: Some(Pull { keys: keys.clone(), ..Pull::default() }),
            ..PushPull::default()
        };
        assert!(size_with(Verb::PushPull(both)) >= 2 * 1000 * ENTRY);
        let layouts = vec![1; 1000];
        let keys = Keys { keys, layouts, ..Keys::default() };
        assert!(size_with(Verb::Describe(keys)) >= 1000 * (ENTRY + NUMBER));
    }

    #[test]
    fn all_verbs_of_the_protocol_count() {
        let protocol = include_str!("../../proto/kvstore/v1/store.proto");
        let (_, verbs) = protocol.split_once("oneof verb {").unwrap();
        let (verbs, _) = verbs.split_once('}').unwrap();
        let number = |line: &str| line.split_once(" = ")?.1.trim_end_matches(';').parse().ok();
        let numbers: Vec<u32> = verbs.lines().filter_map(number).collect();
        assert_eq!(numbers.iter().min(), Some(VERBS.start()));
        assert_eq!(numbers.iter().max(), Some(VERBS.end()));
    }

    #[test]
    fn fields_of_a_later_version_may_have_any_contents() {
        // Field 100, which is no message.
        let text = [0xA2, 0x06, 0x03, 0xFF, 0xFF, 0xFF];
        assert_eq!(decoded_bytes(&text), text.len() * NUMBER + ENTRY);
    }

    #[test]
    fn damaged_messages_exceed_every_limit() {
        assert_eq!(decoded_bytes(&[]), 0);
        let group = [&[0xC3, 0x3E, 0xC4, 0x3E][..], &[0x5A, 0x02, 0x0A, 0x00]].concat();
        let inside = [0x5A, 0x04, 0xC3, 0x3E, 0xC4, 0x3E];
        for bytes in [&[0xFF; 20][..], &[0x52, 0x7F], &[0x0D, 1, 2], &group, &inside] {
            assert_eq!(decoded_bytes(bytes), usize::MAX, "{bytes:?}");
        }
    }
}
