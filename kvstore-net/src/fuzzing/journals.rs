//! The checks of the fuzz target `journal`: any bytes as the journal of a server.

use kvstore_core::{Backends, CpuBackend, ErrorCode};

use crate::journal::samples::{repaired, samples};
use crate::replay::replay_bytes;

/// The memory of the replay.
const MEMORY: usize = 8 << 20;

/// The errors of damaged journals, and of those that need more memory than the replay has.
const EXPECTED: [ErrorCode; 4] = [
    ErrorCode::Corrupt,
    ErrorCode::Unsupported,
    ErrorCode::InvalidArgument,
    ErrorCode::OutOfMemory,
];

/// Replays the bytes as they are, and with the right checksums.
///
/// # Panics
/// - If a check fails.
pub fn journal(bytes: &[u8]) {
    for bytes in [bytes, &repaired(bytes)] {
        let host = CpuBackend::with_threads(1);
        host.set_memory_limit(Some(MEMORY));
        let backends = Backends::new(Vec::from([host]));
        match replay_bytes(&backends, bytes) {
            Ok(report) => assert!(report.num_bytes <= bytes.len() as u64),
            Err(error) => assert!(EXPECTED.contains(&error.code()), "{error:?}"),
        }
        assert_eq!(live_bytes(&backends), 0, "the values of a replay are dropped");
    }
}

fn live_bytes(backends: &Backends) -> usize {
    backends.initialised().map(|backend| backend.live_bytes()).sum()
}

/// Returns valid journals, with which the fuzzer begins.
pub fn journals() -> Vec<Vec<u8>> {
    samples().into()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a check fails by panicking")]
mod tests {
    use kvstore_tests::fuzz::changed;

    use super::*;

    #[test]
    fn samples_are_valid() {
        let backends = Backends::new(Vec::from([CpuBackend::with_threads(1)]));
        let reports = samples().map(|sample| {
            assert!(repaired(&sample) == sample);
            replay_bytes(&backends, &sample).unwrap()
        });
        assert!(reports.iter().all(|report| report.difference.is_none()));
        assert_eq!(reports.map(|report| report.num_steps), [0, 1, 2, 1]);
    }

    #[test]
    fn changed_journals_never_panic() {
        let journals = journals();
        for seed in 0..20_000 {
            journal(&changed(&journals, seed));
        }
    }
}
