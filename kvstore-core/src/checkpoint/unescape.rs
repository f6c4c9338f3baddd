//! Decodes a long JSON string in pieces. The parser alone would double a buffer until the entire
//! string fits.

use serde_json::Result;
use serde_json::value::RawValue;

/// The approximate length of a piece in bytes.
const PIECE: usize = if cfg!(miri) { 1 << 5 } else { 1 << 12 };

/// Decodes a JSON string into `text` and returns it. `text` must be empty, with capacity for the
/// encoded length.
///
/// # Errors
/// - The error of the parser, if `json` is not a string.
pub(super) fn unescape(json: &RawValue, mut text: String) -> Result<String> {
    let json = json.get();
    let Some(inner) = json.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) else {
        return serde_json::from_str(json);
    };
    let mut rest = inner;
    while !rest.is_empty() {
        let (piece, after) = rest.split_at(end_of_piece(rest));
        text.push_str(&serde_json::from_str::<String>(&format!("\"{piece}\""))?);
        rest = after;
    }
    Ok(text)
}

/// Returns the length of the next piece. It ends after a complete character, so it does not split
/// an escape or a surrogate pair, which is two escapes.
fn end_of_piece(text: &str) -> usize {
    let mut letters = text.char_indices();
    while let Some((at, letter)) = letters.next() {
        let mut is_half = false;
        if letter == '\\' && matches!(letters.next(), Some((_, 'u'))) {
            let digits = letters.as_str().get(..4).unwrap_or_default();
            let number = u16::from_str_radix(digits, 16).unwrap_or_default();
            is_half = (0xd800..0xdc00).contains(&number);
            let _digits = letters.nth(3);
        }
        // A long run of high surrogates is invalid. The piece may end there, because the parser
        // rejects it anyway.
        if at >= PIECE && (!is_half || at >= 2 * PIECE) {
            return letters.offset();
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::disallowed_methods, reason = "a test may abort without memory")]
    #![allow(clippy::unwrap_used, reason = "a check fails by panicking")]

    use super::*;

    #[test]
    fn pieces_decode_to_the_complete_string() {
        // UTF-8 characters of one to four bytes, with and without escapes.
        let letters =
            ["a", "\\\"", "\\\\", "\\n", "\u{e9}", "\\u20ac", "\\ud83d\\ude00", "\u{1f600}"];
        let mut random = 1_u32;
        let long = if cfg!(miri) { 2 * PIECE } else { 30 * PIECE };
        for length in [0, 1, PIECE / 2, PIECE, long] {
            let mut json = String::from("\"");
            while json.len() <= length {
                random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                json += letters[random as usize >> 29];
            }
            json += &"\\ud83d\\ude00".repeat(length);
            json += "\"";
            let complete: String = serde_json::from_str(&json).unwrap();
            let raw: Box<RawValue> = serde_json::from_str(&json).unwrap();
            assert_eq!(unescape(&raw, String::new()).unwrap(), complete);
        }
    }

    #[test]
    fn non_strings_are_rejected() {
        for json in ["1", "null", "{\"a\": \"b\"}", "[\"\"]"] {
            let raw: Box<RawValue> = serde_json::from_str(json).unwrap();
            assert!(unescape(&raw, String::new()).is_err(), "{json}");
        }
        let [letters, halves] = ["a", "\\ud83d"].map(|text| text.repeat(2 * PIECE));
        for halves in [format!("\"{letters}\\ud83d\""), format!("\"{halves}\"")] {
            let raw: Box<RawValue> = serde_json::from_str(&halves).unwrap();
            assert!(unescape(&raw, String::new()).is_err());
        }
        assert!(end_of_piece(&halves) < 3 * PIECE);
    }
}
