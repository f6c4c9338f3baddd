//! Copies of a range to several destinations, with any lengths and alignments.
#![expect(unsafe_code, reason = "launches kernels on memory of this process")]

use kvstore_cuda::batch::Batch;
use kvstore_cuda::broadcast::kernel;
use kvstore_cuda::fan::FanJob;
use proptest::prelude::*;

use crate::device::{Memory, launch};
use crate::host::bytes;

/// The copies of one range.
#[derive(Clone, Debug)]
struct Case {
    len: usize,
    /// The offset of each range from an aligned address, in elements: of the source, then of the
    /// destinations.
    beyond: Vec<usize>,
    seed: u64,
}

fn cases() -> impl Strategy<Value = Vec<Case>> {
    let len = prop_oneof![0_usize..40, 4000_usize..4200, 16_000_usize..20_000];
    let same =
        (0_usize..16).prop_flat_map(|beyond| (2_usize..10).prop_map(move |n| vec![beyond; n]));
    let beyond = prop_oneof![3 => same, 1 => prop::collection::vec(0_usize..16, 2..10)];
    let case = (len, beyond, any::<u64>());
    let case = case.prop_map(|(len, beyond, seed)| Case { len, beyond, seed });
    prop::collection::vec(case, 1..4)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Tests elements of 1, 2, 4 and 8 bytes.
    #[test]
    fn every_destination_receives_the_range(
        log_size in 0_usize..4,
        cases in cases(),
        num_blocks in 1_u32..6,
        order in 0_u32..1000,
    ) {
        let size = 1 << log_size;
        let (kernel, found) = kernel(size, []);
        prop_assert_eq!(found, size);
        let mut plan = Batch::<FanJob>::default();
        let mut memory = Vec::new();
        for case in cases {
            let content = bytes(case.len * usize::try_from(size)?, case.seed);
            let place = |content: &[u8], beyond: usize| {
                Memory::new(content, (beyond << log_size) % 16)
            };
            let mut one = place(&content, case.beyond[0]);
            let blank = vec![0; content.len()];
            let mut others: Vec<_> =
                case.beyond[1..].iter().map(|&beyond| place(&blank, beyond)).collect();
            let addresses: Vec<u64> = others.iter_mut().map(Memory::address).collect();
            plan.push(one.address(), &addresses, content.len() as u64, size).unwrap();
            memory.push((content, one, others));
        }
        let args = plan.args(plan.jobs().as_ptr() as u64, plan.addends().as_ptr() as u64);
        // SAFETY: the batch was built from memory and lists that exist.
        unsafe { launch(kernel, &args, num_blocks, order) };
        for (content, mut one, mut others) in memory {
            prop_assert!(one.content() == content);
            for other in &mut others {
                prop_assert!(other.content() == content);
            }
        }
    }
}
