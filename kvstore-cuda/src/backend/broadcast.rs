//! Copies of one range to several places, and expansion of axes as such copies. A batch is one
//! launch.

#![expect(unsafe_code, reason = "queues work on memory of a GPU")]

use std::sync::Arc;

use kvstore_core::storage::{Span, SpanMut};
use kvstore_core::{Backend, DType, Error, Result, fallible};

use super::CudaBackend;
use super::host;
use super::launch::Launches;
use super::transpose;
use crate::args::batch::Address;
use crate::args::fan::FanJob;
use crate::driver::card::Card;
use crate::driver::memory::{address_of, locate, reading};

/// `Backend::broadcast`.
pub(crate) fn broadcast(
    backend: &CudaBackend,
    dst: &mut SpanMut<'_>,
    places: &[usize],
    src: Span<'_>,
) -> Result<()> {
    let num_bytes = src.num_bytes;
    if places.iter().any(|place| place.checked_add(num_bytes).is_none_or(|end| end > dst.num_bytes))
    {
        return Err(Error::Internal("a copy to a place beyond its range".to_owned()));
    }
    let (from, from_address) = locate(src)?;
    if from.device() != locate(reading(dst))?.0.device() {
        // Between GPUs, use one copy per place. On one GPU, a kernel reads the source only once.
        return places.iter().try_for_each(|place| {
            let (storage, start) = (&mut *dst.storage, dst.start + place);
            backend.copy(SpanMut { storage, start, num_bytes }, src)
        });
    }
    let base = address_of(from, dst)?;
    let places = fallible::collect(places.iter().map(|place| base + *place as u64))?;
    copy_each(backend, from, num_bytes, &[(from_address, places)])
}

/// `Backend::expand`. If the copies would be short, copies each element. With too many axes for
/// that, the host expands the value.
pub(crate) fn expand(
    backend: &CudaBackend,
    dtype: DType,
    dst: SpanMut<'_>,
    (from, to): (&[usize], &[usize]),
    src: Span<'_>,
) -> Result<()> {
    let Some(copies) = Copies::expanding(from, to, dtype.size())? else {
        if transpose::expand(dtype, &dst, (from, to), src)? {
            return Ok(());
        }
        return host::make_of(backend, dst, &[src], |host, dst, src| {
            host.expand(dtype, dst, to, src[0], from)
        });
    };
    let Copies { num_bytes, places } = copies;
    let num_copies = places.iter().map(Vec::len).sum::<usize>();
    if num_bytes * places.len() != src.num_bytes || num_bytes * num_copies != dst.num_bytes {
        return Err(Error::Internal("a value of another shape than its own".to_owned()));
    }
    let (card, first_source) = locate(src)?;
    let base = address_of(card, &dst)?;
    let sources = (first_source..).step_by(num_bytes);
    let mut copies = fallible::with_capacity(places.len())?;
    for (source, places) in sources.zip(places) {
        copies.push((source, fallible::collect(places.iter().map(|place| base + *place as u64))?));
    }
    copy_each(backend, card, num_bytes, &copies)
}

/// Queues copies of ranges on a GPU, each to its destinations. The caller guarantees that all of
/// them are within its memory.
fn copy_each(
    backend: &CudaBackend,
    card: &Arc<Card>,
    num_bytes: usize,
    copies: &[(Address, Vec<Address>)],
) -> Result<()> {
    let num_bytes = num_bytes as u64;
    let all = copies.iter().flat_map(|(from, places)| places.iter().chain([from])).copied();
    let (kernel, size) = kernel(num_bytes, all);
    let mut launches = Launches::<_, FanJob>::new();
    for (from, places) in copies.iter().filter(|(_, places)| !places.is_empty()) {
        let batch = launches.batch(card, kernel, || Ok(kernel.to_owned()))?;
        batch.push(*from, places, num_bytes, size)?;
    }
    // SAFETY: the ranges are memory of the GPU and have the same length. The destination is
    // exclusive, so it does not overlap a source.
    unsafe { launches.run(backend) }
}

/// Copies of ranges of the same length, from offsets in a value to offsets in another value.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Copies {
    pub(crate) num_bytes: usize,
    /// The destinations of each source, in the order of the sources. Offsets in bytes.
    pub(crate) places: Vec<Vec<usize>>,
}

/// The shortest range in bytes. A shorter range is not worth a tile.
const SHORTEST: usize = 256;
/// The largest number of copies. Sending the addresses of more copies is not worth it.
const MOST: usize = 1 << 18;

impl Copies {
    /// Returns the copies that repeat a value with elements of `size` bytes along its axes of
    /// length 1, to the shape `to`. Returns `None` if the ranges would be too short or too many.
    ///
    /// # Errors
    /// - [`Error::OutOfMemory`] if there is not enough memory.
    pub(crate) fn expanding(from: &[usize], to: &[usize], size: usize) -> Result<Option<Self>> {
        let mut axes: Vec<(usize, usize)> = from.iter().copied().zip(to.iter().copied()).collect();
        let mut num_bytes = size;
        // The last axes that are not expanded form one contiguous range.
        while let Some((_, len)) = axes.pop_if(|(from, to)| from == to) {
            num_bytes *= len;
        }
        let num_copies = axes.iter().try_fold(1_usize, |count, (_, len)| count.checked_mul(*len));
        if !num_copies.is_some_and(|count| (1..=MOST).contains(&count)) || num_bytes < SHORTEST {
            return Ok(None);
        }
        let mut places = Vec::from([Vec::from([0])]);
        for (from, to) in axes {
            // Split each list along this axis: into one list per row, or, for a repeated axis, into
            // more destinations of the same list.
            let (num_lists, num_places) = if from == to { (to, 1) } else { (1, to) };
            let mut split = fallible::with_capacity(places.len() * num_lists)?;
            for before in &places {
                for list in 0..num_lists {
                    let mut places = fallible::with_capacity(before.len() * num_places)?;
                    let firsts = before.iter().map(|place| place * to + list);
                    places.extend(firsts.flat_map(|first| first..first + num_places));
                    split.push(places);
                }
            }
            places = split;
        }
        for place in places.iter_mut().flatten() {
            *place *= num_bytes;
        }
        Ok(Some(Self { num_bytes, places }))
    }
}

/// Returns the kernel for ranges of `num_bytes` bytes at these addresses, and the size of its
/// elements: the largest size that divides all of them.
pub fn kernel(num_bytes: u64, places: impl IntoIterator<Item = Address>) -> (&'static str, u64) {
    match places.into_iter().fold(num_bytes, |all, place| all | place).trailing_zeros() {
        0 => ("kv_broadcast_8", 1),
        1 => ("kv_broadcast_16", 2),
        2 => ("kv_broadcast_32", 4),
        _ => ("kv_broadcast_64", 8),
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "a test may abort without memory")]
#[allow(clippy::unwrap_used, reason = "a check fails by panicking")]
mod tests {
    use super::{Copies, MOST, kernel};

    #[test]
    fn axes_of_length_1_are_expanded() {
        let copies = |from: &[usize], to: &[usize]| Copies::expanding(from, to, 8).unwrap();
        let of = |num_bytes, places: &[&[usize]]| {
            Some(Copies { num_bytes, places: places.iter().map(|list| list.to_vec()).collect() })
        };
        assert_eq!(copies(&[1, 32], &[3, 32]), of(256, &[&[0, 256, 512]]));
        assert_eq!(copies(&[2, 1, 4, 8], &[2, 2, 4, 8]), of(256, &[&[0, 256], &[512, 768]]));
        assert_eq!(copies(&[1, 2, 32], &[2, 2, 32]), of(512, &[&[0, 512]]));
        let split: [&[usize]; 2] = [&[0, 256, 1024, 1280], &[512, 768, 1536, 1792]];
        assert_eq!(copies(&[1, 2, 1, 32], &[2, 2, 2, 32]), of(256, &split));
        // Too short, too many, or empty.
        assert_eq!(copies(&[1, 31], &[3, 31]), None);
        assert_eq!(copies(&[32, 1], &[32, 3]), None);
        assert_eq!(copies(&[1, 32], &[MOST + 1, 32]), None);
        assert_eq!(copies(&[1, 1, 32], &[usize::MAX, 2, 32]), None);
        assert_eq!(copies(&[1, 32], &[0, 32]), None);
        assert_eq!(copies(&[1, 0], &[3, 0]), None);
    }

    #[test]
    fn elements_are_as_large_as_the_alignment_allows() {
        assert_eq!(kernel(48, [16, 64]), ("kv_broadcast_64", 8));
        assert_eq!(kernel(48, [16, 20]), ("kv_broadcast_32", 4));
        assert_eq!(kernel(6, [16, 64]), ("kv_broadcast_16", 2));
        assert_eq!(kernel(48, [16, 65]), ("kv_broadcast_8", 1));
    }
}
