//! The suite for collectives. It compares each operation with a simple model. Every member of a
//! group runs the checks.

#![allow(clippy::unwrap_used, reason = "a check fails by panicking")]

use std::slice::from_mut;
use std::sync::Arc;
use std::time::Duration;

use kvstore_core::{Backends, CpuBackend, DType, Device, Error, ErrorCode, Tensor, TensorSpec};
use kvstore_dist::{Buffer, Collective, SharedSlices, Slices, Wait};

/// Longer than any operation in these tests takes.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// Returns a wait with a long timeout, for calls that succeed.
pub(crate) fn wait() -> Wait<'static> {
    Wait::new(&"a check", LONG)
}

/// Runs all checks that do not end the collective.
pub(crate) fn all(member: &dyn Collective) {
    invalid_calls_are_rejected(member);
    barriers(member);
    for round in 0..60 {
        all_to_all(member, round);
        all_gather(member, round);
        broadcasts(member, round);
    }
    all_to_all_of_one_buffer(member);
    ahead(member);
    threads(member);
}

fn backends() -> Backends {
    Backends::new(vec![CpuBackend::with_threads(1)])
}

/// Returns a pseudo-random number, the same on all ranks.
fn any(numbers: [usize; 3]) -> usize {
    let mix = |hash: u64, number: usize| {
        let hash = (hash ^ number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        hash ^ (hash >> 29)
    };
    usize::try_from(numbers.into_iter().fold(1, mix) >> 16).unwrap()
}

/// Returns the number of bytes that one rank sends to another: 0, 1, few or many.
fn count(round: usize, from: usize, to: usize) -> usize {
    const LENGTHS: [usize; 10] = [0, 1, 0, 7, 8, 999, 1000, 1001, 4097, 300_001];
    LENGTHS[any([round, from, to]) % LENGTHS.len()]
}

/// Returns the bytes that one rank sends to another.
fn bytes(round: usize, from: usize, to: usize, len: usize) -> Vec<u8> {
    let seed = any([round, from, to]);
    (0..len).map(|index| u8::try_from((seed + index * index) % 251).unwrap()).collect()
}

/// Invalid arguments return errors and have no effect.
fn invalid_calls_are_rejected(member: &dyn Collective) {
    let (rank, size) = (member.rank(), member.size());
    let root = member.broadcast(size, &mut Buffer::zeroed(3), &wait());
    assert_eq!(root.unwrap_err().code(), ErrorCode::InvalidArgument);
    let (mut few, mut enough) = (Slices::zeroed(&[]), Slices::zeroed(&vec![1; size]));
    assert_eq!(
        member.all_gather(from_mut(&mut few), &wait()).unwrap_err().code(),
        ErrorCode::LengthMismatch
    );
    let share = |slices: &Slices| [SharedSlices::from(slices.clone())];
    let two = [share(&enough), share(&enough)].concat();
    for (sent, received) in [
        (&share(&few)[..], &mut enough.clone()),
        (&share(&enough), &mut few),
        (&two, &mut enough.clone()),
        (&[], &mut enough),
    ] {
        let error = member.all_to_all(sent, from_mut(received), &wait()).unwrap_err();
        assert_eq!(error.code(), ErrorCode::LengthMismatch);
    }
    let mut counts = vec![0; size];
    let sent = share(&Slices::zeroed(&counts));
    counts[rank] = 1;
    let mut received = [Slices::zeroed(&counts)];
    let error = member.all_to_all(&sent, &mut received, &wait()).unwrap_err();
    assert_eq!(error.code(), ErrorCode::LengthMismatch);
}

fn barriers(member: &dyn Collective) {
    for _ in 0..100 {
        member.barrier(&wait()).unwrap();
    }
}

/// Returns the number of lists to exchange in one call.
fn num_lists(round: usize) -> usize {
    1 + round % 3
}

fn all_to_all(member: &dyn Collective, round: usize) {
    let (rank, size) = (member.rank(), member.size());
    let counts = |count: &dyn Fn(usize) -> usize| (0..size).map(count).collect::<Vec<_>>();
    let (mut sent, mut received) = (Vec::new(), Vec::new());
    for list in 0..num_lists(round) {
        let mut slices = Slices::zeroed(&counts(&|to| count(round + list, rank, to)));
        for (to, slice) in slices.iter_mut().enumerate() {
            slice.copy_from_slice(&bytes(round + list, rank, to, slice.len()));
        }
        received.push(Slices::zeroed(&counts(&|from| count(round + list, from, rank))));
        sent.push(SharedSlices::from(slices));
    }
    let before: Vec<Vec<u8>> = sent.iter().map(|sent| sent.buffer().to_vec()).collect();
    member.all_to_all(&sent, &mut received, &wait()).unwrap();
    for (list, (before, (sent, received))) in
        before.iter().zip(sent.into_iter().zip(&received)).enumerate()
    {
        assert_eq!(sent.buffer()[..], *before);
        for from in 0..size {
            let expected = bytes(round + list, from, rank, count(round + list, from, rank));
            assert_eq!(received.slice(from), expected, "round {round}, {from} to {rank}");
        }
    }
}

/// Sends overlapping ranges of one buffer to several ranks, and receives into the memory of a
/// tensor.
fn all_to_all_of_one_buffer(member: &dyn Collective) {
    let (rank, size) = (member.rank(), member.size());
    let shared = |from: usize| bytes(3, from, 0, 100_000);
    let tensor = |spec, bytes: &[u8]| {
        Tensor::from_bytes(&backends(), Device::default(), spec, bytes).unwrap()
    };
    let spec = TensorSpec::new([25_000], DType::F32);
    let buffer = Arc::new(Buffer::of_tensor(tensor(spec.clone(), &shared(rank))).unwrap());
    let range = |from: usize, to: usize| 4 * from..90_000 + 4 * to;
    let ranges: Vec<_> = (0..size).map(|to| range(rank, to)).collect();
    let sent = SharedSlices::new(Arc::clone(&buffer), ranges).unwrap();
    let counts: Vec<usize> = (0..size).map(|from| range(from, rank).len()).collect();
    let mut received = Slices::zeroed(&counts);
    member.all_to_all(&[sent], from_mut(&mut received), &wait()).unwrap();
    for from in 0..size {
        assert_eq!(received.slice(from), &shared(from)[range(from, rank)]);
    }
    assert_eq!(Arc::into_inner(buffer).unwrap()[..], shared(rank));
    // `all_gather` receives into the memory of a tensor.
    let len = spec.num_elements();
    let ends: Vec<usize> = (0..=size).map(|rank| 4 * (len * rank / size)).collect();
    let counts: Vec<usize> = ends.windows(2).map(|ends| ends[1] - ends[0]).collect();
    let mut here = Slices::of_tensor(tensor(spec, &vec![0; 100_000]), &counts).unwrap();
    let own = here.range(rank);
    here.slice_mut(rank).copy_from_slice(&shared(9)[own]);
    member.all_gather(from_mut(&mut here), &wait()).unwrap();
    assert_eq!(here.into_tensor().unwrap().to_bytes().unwrap(), shared(9));
}

fn all_gather(member: &dyn Collective, round: usize) {
    let counts = |list: usize| -> Vec<_> {
        (0..member.size()).map(|from| count(round + list, from, from)).collect()
    };
    let mut all: Vec<_> = (0..num_lists(round)).map(|list| Slices::zeroed(&counts(list))).collect();
    for (list, slices) in all.iter_mut().enumerate() {
        let own = slices.slice_mut(member.rank());
        own.copy_from_slice(&bytes(round + list, member.rank(), 0, own.len()));
    }
    member.all_gather(&mut all, &wait()).unwrap();
    for (list, slices) in all.iter().enumerate() {
        assert_eq!(slices.len(), member.size());
        for (from, count) in counts(list).into_iter().enumerate() {
            let expected = bytes(round + list, from, 0, count);
            assert_eq!(slices.slice(from), expected, "round {round}, from {from}");
        }
    }
}

fn broadcasts(member: &dyn Collective, round: usize) {
    for root in 0..member.size() {
        let len = count(round, root, root + 1);
        let mut buffer = Buffer::zeroed(len);
        if root == member.rank() {
            buffer.copy_from_slice(&bytes(round, root, 0, len));
        }
        member.broadcast(root, &mut buffer, &wait()).unwrap();
        assert_eq!(*buffer, bytes(round, root, 0, len), "round {round}, root {root}");
    }
}

/// A rank may be many calls ahead of the others.
fn ahead(member: &dyn Collective) {
    for number in 0..200_u8 {
        let mut buffer = Buffer::from(&[number; 100][..]);
        member.broadcast(0, &mut buffer, &wait()).unwrap();
        assert_eq!(*buffer, [number; 100]);
    }
}

/// Several threads may make calls at once.
fn threads(member: &dyn Collective) {
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| barriers(member));
        }
    });
}

/// The last rank makes no call. The other ranks receive a timeout that names it, and the same error
/// from every later call.
pub(crate) fn late(member: &dyn Collective, timeout: Duration) {
    let last = member.size() - 1;
    assert_ne!(member.rank(), last);
    let wait = Wait::new(&"push of `w`, round 7", timeout);
    let error = member.barrier(&wait).unwrap_err();
    assert_eq!(error.code(), ErrorCode::Timeout);
    let text = error.to_string();
    let place = format!("push of `w`, round 7: rank {} of {}", member.rank(), member.size());
    assert!(text.contains(&place), "{text}");
    assert!(text.ends_with(&format!("waiting for data from rank {last}")), "{text}");
    ended(member, &error);
}

/// Rank 0 makes another call than the other ranks. All ranks receive an error.
pub(crate) fn different_verbs(member: &dyn Collective) {
    let result = if member.rank() == 0 {
        member.barrier(&wait())
    } else {
        member.all_gather(&mut [Slices::zeroed(&vec![9; member.size()])], &wait())
    };
    let error = result.unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidArgument, "{}", error.chain());
    let other = if member.rank() == 0 { "is in all_gather" } else { "rank 0 is in barrier" };
    assert!(error.to_string().contains(other), "{error}");
    ended(member, &error);
}

/// Rank 0 sends fewer or more bytes than the other ranks expect.
pub(crate) fn different_lengths(member: &dyn Collective, sent: usize) {
    let mut slices = Slices::zeroed(&vec![9; member.size()]);
    if member.rank() == 0 {
        let mut counts = vec![9; member.size()];
        counts[0] = sent;
        slices.recount(&counts).unwrap();
        // The lengths that rank 0 receives are correct, so its call may succeed.
        let _ = member.all_gather(from_mut(&mut slices), &wait());
        return;
    }
    let error = member.all_gather(from_mut(&mut slices), &wait()).unwrap_err();
    assert!(is_about_length(&error), "{}", error.chain());
    ended(member, &error);
}

/// Returns whether an error is about a length. MPI libraries report long messages in their own
/// words.
fn is_about_length(error: &Error) -> bool {
    error.code() == ErrorCode::LengthMismatch || error.chain().to_lowercase().contains("truncat")
}

/// Asserts that every later call fails with the same error.
fn ended(member: &dyn Collective, error: &Error) {
    let size = member.size();
    let mut slices = Slices::zeroed(&vec![1; size]);
    let later = [
        member.barrier(&wait()),
        member.broadcast(0, &mut Buffer::zeroed(1), &wait()),
        member.all_to_all(&[slices.clone().into()], &mut [slices.clone()], &wait()),
        member.all_gather(from_mut(&mut slices), &wait()),
    ];
    for later in later {
        assert_eq!(later.unwrap_err().chain(), error.chain());
    }
}
