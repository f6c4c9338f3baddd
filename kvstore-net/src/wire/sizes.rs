//! The memory of a decoded message, which may be much more than its bytes.

use prost::encoding::{WireType, decode_key, decode_varint};

/// The memory of an element of a list of messages or strings, with what a call makes of it.
const ENTRY: usize = 512;

/// The memory of a number, whose encoding may have one byte.
const NUMBER: usize = 8;

/// The number of the field `push_pull` of a request, the only verb with messages that have lists.
const PUSH_PULL: u32 = 30;

/// Returns an upper bound of the bytes that a decoded request needs. Anything else that the bytes
/// may be is rejected when it is decoded.
pub(super) fn decoded_bytes(request: &[u8]) -> usize {
    let mut num_entries = 0_usize;
    for (number, verb) in Fields(request) {
        num_entries += 1;
        for (_, list) in Fields(verb) {
            num_entries += 1;
            if number == PUSH_PULL {
                num_entries += Fields(list).count();
            }
        }
    }
    let of_entries = num_entries.saturating_mul(ENTRY);
    request.len().saturating_mul(NUMBER).saturating_add(of_entries)
}

/// The numbers and contents of the fields of a message that have a length. Ends at a damaged field.
struct Fields<'a>(&'a [u8]);

impl<'a> Iterator for Fields<'a> {
    type Item = (u32, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let (number, kind) = decode_key(&mut self.0).ok()?;
            let skipped = match kind {
                WireType::LengthDelimited => {
                    let len = usize::try_from(decode_varint(&mut self.0).ok()?).ok()?;
                    let (contents, rest) = self.0.split_at_checked(len)?;
                    self.0 = rest;
                    return Some((number, contents));
                }
                WireType::Varint => {
                    decode_varint(&mut self.0).ok()?;
                    0
                }
                WireType::ThirtyTwoBit => 4,
                WireType::SixtyFourBit => 8,
                WireType::StartGroup | WireType::EndGroup => return None,
            };
            self.0 = self.0.get(skipped..)?;
        }
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_macros, reason = "a test may abort without memory")]
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
    fn damaged_messages_have_a_size() {
        for bytes in [&[][..], &[0xFF; 20], &[0x52, 0x7F], &[0x0B, 1], &[0x0D, 1, 2]] {
            assert!(decoded_bytes(bytes) >= bytes.len());
        }
    }
}
