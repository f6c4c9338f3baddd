//! Limits of the strings, numbers and nesting in a JSON document.
//!
//! The JSON parser copies strings with escapes, digits of numbers, and the open brackets of values
//! that it skips into a buffer. The buffer doubles as it grows, up to twice the size of the file.
//! The limits keep it short.

use super::format::METADATA;

/// The maximum length of a string or number in the file: without quotes, but with escapes. It is
/// lower under Miri, which would take minutes.
const MAX_TEXT_BYTES: usize = if cfg!(miri) { 1 << 8 } else { 1 << 16 };
/// The maximum depth of nesting. This library writes a depth of seven.
const MAX_DEPTH: usize = 64;
/// The number of characters of a too long string that an error quotes.
const NUM_QUOTED: usize = 32;

/// Checks the limits of a header. Only the library's entry in the metadata may be longer, because
/// [`unescape`](super::unescape) decodes it in pieces.
///
/// # Errors
/// - A description of the first string or number that is too long, or of too deep nesting.
pub(super) fn check_header(json: &[u8]) -> Result<(), String> {
    check(json, true)
}

/// Checks the limits of the library's entry in the metadata, without the exception of
/// [`check_header`].
///
/// # Errors
/// - The errors of [`check_header`].
pub(super) fn check_manifest(json: &str) -> Result<(), String> {
    check(json.as_bytes(), false)
}

/// Scans text that may be JSON, without allocating. Up to the first syntax error, where the parser
/// stops, it sees the same strings as the parser.
fn check(json: &[u8], is_header: bool) -> Result<(), String> {
    let mut rest = json;
    let mut depth = 0_usize;
    // The last string, and whether only a colon has followed it.
    let (mut last, mut is_after_colon): (&[u8], bool) = (&[], false);
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        match first {
            b' ' | b'\t' | b'\n' | b'\r' => continue,
            b':' => {
                is_after_colon = true;
                continue;
            }
            b'"' => {
                let (text, after) = split_text(after);
                // Metadata is at depth 2. So are the fields of tensors, but the parser stops at a
                // field named `kvstore`, before it reads the value.
                let is_value = is_header && depth == 2 && is_after_colon;
                let is_ours = is_value && last == METADATA.as_bytes();
                if text.len() > MAX_TEXT_BYTES && !is_ours {
                    return Err(too_long("the text", text));
                }
                (last, is_after_colon, rest) = (text, false, after);
                continue;
            }
            b'[' | b'{' if depth == MAX_DEPTH => {
                return Err(format!("it is nested deeper than {MAX_DEPTH} times"));
            }
            b'[' | b'{' => depth += 1,
            b']' | b'}' => depth = depth.saturating_sub(1),
            b',' => {}
            _ => {
                let word = json.get(json.len() - after.len() - 1..).unwrap_or_default();
                let length = word.iter().position(|byte| b" \t\n\r:\"[]{},".contains(byte));
                let (word, after) = word.split_at(length.unwrap_or(word.len()));
                if word.len() > MAX_TEXT_BYTES {
                    return Err(too_long("the number", word));
                }
                rest = after;
            }
        }
        (last, is_after_colon) = (&[], false);
    }
    Ok(())
}

/// Splits the text after a quote into the string up to the closing quote, and the rest.
fn split_text(rest: &[u8]) -> (&[u8], &[u8]) {
    let mut length = 0;
    while let Some(byte) = rest.get(length) {
        match byte {
            b'"' => break,
            // Skips the escaped character, which may be a quote.
            b'\\' => length += 2,
            _ => length += 1,
        }
    }
    let (text, after) = rest.split_at(length.min(rest.len()));
    (text, after.get(1..).unwrap_or_default())
}

fn too_long(what: &str, text: &[u8]) -> String {
    let start = String::from_utf8_lossy(text.get(..4 * NUM_QUOTED).unwrap_or(text));
    let start: String = start.chars().take(NUM_QUOTED).collect();
    format!(
        "{what} that begins with `{start}` has a length of {} bytes, at most {MAX_TEXT_BYTES} may \
         be",
        text.len()
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::disallowed_methods, reason = "a test may abort without memory")]
    #![allow(clippy::unwrap_used, reason = "a check fails by panicking")]

    use super::*;

    /// Replaces each `@` with a string of this length that contains an escape.
    fn filled(json: &str, length: usize) -> String {
        json.replace('@', &format!("\\\"{}", "a".repeat(length - 2)))
    }

    #[test]
    fn strings_above_the_limit_are_rejected() {
        // Strings in every position, also where only a part of the path to the manifest matches.
        for json in [
            r#""@""#,
            r#""@"#,
            r#"{"@":1}"#,
            r#"{"x":"@"}"#,
            r#"{"x\\":"@"}"#,
            r#"{"x":{"more":"@"}}"#,
            r#"{"kvstore":"@"}"#,
            r#"{"x":{"kvstore":{"x":"@"}}}"#,
            r#"{"x":{"x":{"kvstore":"@"}}}"#,
            r#"{"x":{"kvstore":["@"]}}"#,
            r#"{"x":{"@":"kvstore"}}"#,
            r#"{"x":{"kvstore":1,"x":"@"}}"#,
            r#"{"x":{"kv\u0073tore":"@"}}"#,
            r#"{"x":["kvstore","@"]}"#,
        ] {
            let at_limit = filled(json, MAX_TEXT_BYTES);
            assert_eq!(check_header(at_limit.as_bytes()), Ok(()), "{json}");
            assert_eq!(check_manifest(&at_limit), Ok(()), "{json}");
            let over = filled(json, MAX_TEXT_BYTES + 1);
            let said = check_header(over.as_bytes()).unwrap_err();
            assert!(
                said.contains(r#"with `\"aaa"#)
                    && said.contains(&format!("{} bytes", MAX_TEXT_BYTES + 1)),
                "{said}"
            );
            assert!(check_manifest(&over).is_err(), "{json}");
        }
        // The manifest may be longer, but only as part of a header.
        for json in [
            r#"{"__metadata__":{"kvstore":"@"}}"#,
            "{\"__metadata__\":{\"x\":\"\",\"kvstore\"\r\n\t : \"@\"}}",
        ] {
            let over = filled(json, 16 * MAX_TEXT_BYTES);
            assert_eq!(check_header(over.as_bytes()), Ok(()), "{json}");
            assert!(check_manifest(&over).is_err(), "{json}");
        }
    }

    #[test]
    fn long_numbers_and_deep_nesting_are_rejected() {
        let digits = "1".repeat(MAX_TEXT_BYTES);
        assert_eq!(check_manifest(&format!("[{digits}, -{}]", &digits[1..])), Ok(()));
        for json in [format!("1{digits}"), format!("{{\"x\":[0,0.{digits} ]}}")] {
            assert!(check_manifest(&json).unwrap_err().starts_with("the number"));
        }
        let lists = |depth| format!("{}\"[[\"{}", "[".repeat(depth), "]".repeat(depth));
        let many = vec![lists(MAX_DEPTH - 1); 9].join(",");
        assert_eq!(check_manifest(&format!("[{many}]")), Ok(()));
        assert!(check_manifest(&lists(MAX_DEPTH + 1)).unwrap_err().contains("nested"));
    }

    #[test]
    fn invalid_json_passes_the_check() {
        for json in [&b""[..], b"\"", b"\"\\", b"]}:,", b"\xff\xff", b"\"\xff\\\"", b"nul\0"] {
            assert_eq!(check_header(json), Ok(()));
        }
        let no_text = [vec![b'"'], vec![0xff; MAX_TEXT_BYTES + 1]].concat();
        assert!(check_header(&no_text).is_err());
    }
}
