//! The error messages for ranks that differ. The message is the same on all ranks and contains the
//! call or configuration of each rank.

use kvstore_core::{Result, fallible};

use super::call::Call;
use super::wire::{Wire, lost, read_u64};
use crate::transport::Ranks;

/// A message lists all keys of a call with at most this many keys.
const MAX_SHOWN: usize = 3;
/// Separates the parts of a call. Keys contain no NUL.
const SEPARATOR: &str = "\0";

/// Describes the call of every rank. All ranks must call this.
///
/// Rank 0 broadcasts its complete call. The other ranks send only the part that differs, to limit
/// the traffic.
pub(super) fn describe(wire: &Wire<'_>, call: &Call) -> Result<String> {
    let own = call.parts()?;
    let first = wire.bytes_of(0, joined(&own)?.as_bytes())?;
    let first = std::str::from_utf8(&first).map_err(|_| lost())?;
    let difference = first_difference(&own, &fallible::gather(first.split(SEPARATOR))?);
    let size = wire.collective.size();
    let all = wire.gather_bytes(&difference.to_le_bytes())?;
    let earliest = (0..size).filter_map(|rank| read_u64(all.slice(rank))).min();
    let earliest = usize::try_from(earliest.unwrap_or_default()).unwrap_or(0);
    let calls = by_rank(wire, &describe_part(&own, earliest))?;
    Ok(format!(
        "the ranks make different calls ({calls}): every rank must make the same calls in the same \
         order, with the same keys, shapes and dtypes"
    ))
}

/// Describes the configuration of every rank. All ranks must call this, with what
/// [`Terms::describe`](super::config::Terms::describe) returns.
pub(super) fn describe_terms(wire: &Wire<'_>, own: &str) -> Result<String> {
    let terms = by_rank(wire, own)?;
    Ok(format!(
        "the ranks have different optimizers, updaters, compressions or bounds of norms ({terms})"
    ))
}

/// Joins the parts of a call with the separator.
fn joined(parts: &[String]) -> Result<String> {
    let len: usize = parts.iter().map(|part| part.len() + SEPARATOR.len()).sum();
    let mut text = fallible::string(len)?;
    for (index, part) in parts.iter().enumerate() {
        if index > 0 {
            text.push_str(SEPARATOR);
        }
        text.push_str(part);
    }
    Ok(text)
}

/// Gathers the text of each rank. Ranks with the same text are listed together.
fn by_rank(wire: &Wire<'_>, own: &str) -> Result<String> {
    let all = wire.gather_bytes(own.as_bytes())?;
    let mut texts: Vec<(String, Vec<usize>)> = Vec::new();
    for rank in 0..wire.collective.size() {
        let text = String::from_utf8_lossy(all.slice(rank)).into_owned();
        match texts.iter_mut().find(|(known, _)| *known == text) {
            Some((_, ranks)) => ranks.push(rank),
            None => texts.push((text, Vec::from([rank]))),
        }
    }
    let texts: Vec<String> =
        texts.iter().map(|(text, ranks)| format!("{}: {text}", Ranks(ranks))).collect();
    Ok(texts.join("; "))
}

/// Returns the first index at which the lists differ, or `u64::MAX` if they are equal.
fn first_difference(left: &[String], right: &[&str]) -> u64 {
    let len = left.len().max(right.len());
    let differs =
        |index: &usize| left.get(*index).map(String::as_str) != right.get(*index).copied();
    (0..len).find(differs).map_or(u64::MAX, |index| index as u64)
}

/// Describes a call. A call with many keys is described by the key at `index`.
fn describe_part(parts: &[String], index: usize) -> String {
    let Some((head, keys)) = parts.split_first() else { return String::new() };
    if keys.is_empty() {
        return head.clone();
    }
    if keys.len() <= MAX_SHOWN {
        return format!("{head} of {}", keys.join(", "));
    }
    // The first part is the head.
    let number = index.max(1);
    match parts.get(number) {
        Some(key) => format!("{head} of {key}, number {number} of {}", keys.len()),
        None => format!("{head} of {} keys", keys.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(parts: &[&str]) -> Vec<String> {
        parts.iter().map(|part| (*part).to_owned()).collect()
    }

    #[test]
    fn the_description_contains_the_part_that_differs() {
        let many = parts(&["push", "`a` [1] f32", "`b` [2] f32", "`c` [3] f32", "`d` [4] f32"]);
        assert_eq!(describe_part(&many, 3), "push of `c` [3] f32, number 3 of 4");
        assert_eq!(describe_part(&many, 9), "push of 4 keys");
        assert_eq!(describe_part(&many, 0), "push of `a` [1] f32, number 1 of 4");
        assert_eq!(describe_part(&many[..3], 2), "push of `a` [1] f32, `b` [2] f32");
        assert_eq!(describe_part(&many[..1], 0), "push");
    }

    #[test]
    fn first_difference_returns_the_first_differing_index() {
        let own = parts(&["push", "`a`", "`b`"]);
        assert_eq!(first_difference(&own, &["push", "`a`", "`b`"]), u64::MAX);
        assert_eq!(first_difference(&own, &["push", "`a`", "`c`"]), 2);
        assert_eq!(first_difference(&own, &["push", "`a`"]), 2);
        assert_eq!(first_difference(&own, &["init", "`a`"]), 0);
    }
}
