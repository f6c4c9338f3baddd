//! Memory, transfers, several devices, and driver errors. The suites test the computations.

#![allow(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    reason = "a test may abort without memory"
)]
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a check fails by panicking")]

mod cards;

use std::sync::Arc;

use cards::{alone, is_real};
use kvstore_core::{
    Backend, Backends, BinaryOp, DType, Device, Distribution, Error, ErrorCode, Generator, Key,
    KvStore, LocalStore, Optimizer, Reduction, Scalar, Tensor, TensorSpec, Value,
};
use kvstore_emulator as emulator;
use proptest::prelude::*;

/// The number of devices: more than there are GPUs, so that some devices share a GPU.
const NUM_DEVICES: u32 = 4;

/// Returns new backends.
fn backends() -> Backends {
    cards::backends(NUM_DEVICES as usize)
}

fn gpus(backends: &Backends) -> &Arc<dyn Backend> {
    backends.of(Device::gpu(0)).unwrap()
}

fn zeros(backends: &Backends, device: Device, num_bytes: usize) -> Result<Tensor, Error> {
    Tensor::allocate(backends, device, TensorSpec::new([num_bytes], DType::U8))
}

#[test]
fn memory_is_counted_by_device_and_kept_for_reuse() {
    let _alone = alone();
    let backends = backends();
    let gpus = gpus(&backends);
    let first = zeros(&backends, Device::gpu(1), 100_000).unwrap();
    let live = gpus.live_bytes();
    assert!((100_000..120_000).contains(&live), "{live}");
    assert_eq!(gpus.memory()[1].live, live);
    assert_eq!(gpus.memory()[0].live, 0);
    assert!(gpus.memory().iter().all(|memory| memory.total > Some(0)));
    drop(first);
    assert_eq!((gpus.live_bytes(), gpus.pooled_bytes()), (0, live));
    let again = zeros(&backends, Device::gpu(1), 100_001).unwrap();
    assert_eq!((gpus.live_bytes(), gpus.pooled_bytes()), (live, 0));
    let other = zeros(&backends, Device::gpu(2), 100_000).unwrap();
    assert_eq!(gpus.live_bytes(), 2 * live);
    drop((again, other));
    gpus.trim();
    assert_eq!((gpus.live_bytes(), gpus.pooled_bytes()), (0, 0));
    let empty = zeros(&backends, Device::gpu(0), 0).unwrap();
    assert_eq!((empty.to_bytes().unwrap(), gpus.live_bytes()), (Vec::new(), 0));
}

#[test]
fn kept_blocks_are_freed_if_memory_is_short() {
    let _alone = alone();
    let backends = backends();
    let total = gpus(&backends).memory()[0].total.unwrap();
    let most = zeros(&backends, Device::gpu(0), total / 10 * 6).unwrap();
    drop(most);
    // This length does not fit beside the kept block.
    let other = zeros(&backends, Device::gpu(0), total / 10 * 8).unwrap();
    let error = zeros(&backends, Device::gpu(0), total / 10 * 4).unwrap_err();
    assert_eq!(error.code(), ErrorCode::OutOfMemory, "{error}");
    assert!(error.to_string().contains("gpu(0)"), "{error}");
    drop(other);
    gpus(&backends).set_memory_limit(Some(1 << 20));
    let error = zeros(&backends, Device::gpu(0), 1 << 21).unwrap_err();
    assert!(error.to_string().ends_with("the limit is 1048576"), "{error}");
    assert_eq!(gpus(&backends).live_bytes(), 0);
}

#[test]
fn the_message_names_a_missing_device() {
    let _alone = alone();
    let error = zeros(&backends(), Device::gpu(NUM_DEVICES), 1).unwrap_err();
    assert_eq!(error.to_string(), "device gpu(4) is not available: there are 4 of them");
}

/// Transfers more bytes than all pinned memory has, from several threads at once.
#[test]
fn long_transfers_arrive_complete() {
    let _alone = alone();
    let backends = backends();
    let transfer = |seed: u32| {
        let len = (12 << 20) + 3 * seed as usize;
        let words = (0_u32..).map(|index| index.wrapping_mul(seed + 7));
        let bytes: Vec<u8> = words.map(|word| word.to_le_bytes()[2]).take(len).collect();
        let spec = TensorSpec::new([len], DType::U8);
        let tensor = Tensor::from_bytes(&backends, Device::gpu(seed), spec, &bytes).unwrap();
        assert!(tensor.to_bytes().unwrap() == bytes, "bytes of thread {seed}");
    };
    std::thread::scope(|scope| {
        for seed in 0..NUM_DEVICES {
            scope.spawn(move || transfer(seed));
        }
    });
}

/// A step of a random program with some tensors.
#[derive(Clone, Copy, Debug)]
enum Action {
    /// Moves a tensor to a device.
    Move(usize, u32),
    /// Adds the second tensor to the first one. They may be on different devices.
    Add(usize, usize),
    /// Fills a tensor with a number.
    Fill(usize, i32),
    /// Replaces the first tensor with a clone of the second one.
    Clone(usize, usize),
    /// Reads a tensor.
    Read(usize),
}

const NUM_TENSORS: usize = 6;

fn step() -> impl Strategy<Value = Action> {
    let tensor = || 0..NUM_TENSORS;
    prop_oneof![
        4 => (tensor(), 0..NUM_DEVICES).prop_map(|(tensor, device)| Action::Move(tensor, device)),
        4 => (tensor(), tensor()).prop_map(|(target, source)| Action::Add(target, source)),
        2 => (tensor(), any::<i32>()).prop_map(|(tensor, number)| Action::Fill(tensor, number)),
        1 => (tensor(), tensor()).prop_map(|(target, source)| Action::Clone(target, source)),
        1 => tensor().prop_map(Action::Read),
    ]
}

fn run(backends: &Backends, steps: &[Action], len: usize) {
    let mut expected: Vec<i32> = (0..).take(NUM_TENSORS).collect();
    let new = |number: &i32| {
        let device = Device::gpu(number.unsigned_abs() % NUM_DEVICES);
        Tensor::full(backends, device, TensorSpec::new([len], DType::I32), (*number).into())
            .unwrap()
    };
    let mut tensors: Vec<Tensor> = expected.iter().map(new).collect();
    let add = |left: &Tensor, right: &Tensor| {
        let right = right.to_device(backends, left.device()).unwrap();
        left.binary(kvstore_core::BinaryOp::Add, &right).unwrap()
    };
    for step in steps {
        match *step {
            Action::Move(tensor, device) => {
                tensors[tensor] = tensors[tensor].to_device(backends, Device::gpu(device)).unwrap();
            }
            Action::Add(target, source) => {
                tensors[target] = add(&tensors[target], &tensors[source]);
                expected[target] = expected[target].wrapping_add(expected[source]);
            }
            Action::Fill(tensor, number) => {
                tensors[tensor].fill(Scalar::from(i64::from(number))).unwrap();
                expected[tensor] = number;
            }
            Action::Clone(target, source) => {
                tensors[target] = tensors[source].clone();
                expected[target] = expected[source];
            }
            Action::Read(tensor) => {
                assert_eq!(tensors[tensor].to_vec::<i32>().unwrap(), vec![expected[tensor]; len]);
            }
        }
    }
    for (tensor, expected) in tensors.iter().zip(expected) {
        assert_eq!(tensor.to_vec::<i32>().unwrap(), vec![expected; len]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(200)
    })]

    /// The emulated driver executes queued work as late as possible, and in a random order.
    #[test]
    fn devices_wait_for_each_other(
        steps in prop::collection::vec(step(), 1..60),
        len in 1_usize..3000,
        seed in any::<u64>(),
    ) {
        let _alone = alone();
        let backends = backends();
        if !is_real() {
            emulator::seed(seed).unwrap();
        }
        run(&backends, &steps, len);
    }
}

#[test]
fn a_driver_error_names_its_function() {
    let _alone = alone();
    if is_real() {
        println!("not run: only the emulated driver can be made to fail");
        return;
    }
    let backends = backends();
    let ones = || Tensor::from_slice(&backends, Device::gpu(0), [1000], &[1; 1000]);
    let work = || -> Result<Vec<i32>, Error> {
        let (left, right) = (ones()?, ones()?.to_device(&backends, Device::gpu(1))?);
        let right = right.to_device(&backends, Device::gpu(0))?;
        let sum = left.binary(kvstore_core::BinaryOp::Add, &right)?;
        sum.cast(DType::F32)?.cast(DType::I32)?.to_vec()
    };
    assert_eq!(work().unwrap(), [2; 1000]);
    for function in [
        "cuCtxGetCurrent",
        "cuMemcpyHtoDAsync_v2",
        "cuMemcpyDtoHAsync_v2",
        "cuMemcpyPeerAsync",
        "cuEventCreate",
        "cuEventRecord",
        "cuEventSynchronize",
        "cuStreamWaitEvent",
        "cuLaunchKernel",
    ] {
        for number in 0..4 {
            emulator::fail(&format!("{function}:{number}")).unwrap();
            let result = work();
            emulator::fail("").unwrap();
            // Some functions are called less than four times.
            match result {
                Ok(found) => assert!(number > 0 && found == [2; 1000], "{function} {number}"),
                Err(error) => {
                    assert_eq!(error.code(), ErrorCode::Backend, "{error}");
                    assert!(error.to_string().contains(function), "{error}");
                    assert!(error.chain().contains("CUDA_ERROR_UNKNOWN"), "{}", error.chain());
                }
            }
            assert_eq!(work().unwrap(), [2; 1000], "after {function}");
        }
    }
}

/// Returns the results of operations that give new tensors. Checks that they leave their operand
/// unchanged.
fn check_shapes(backends: &Backends, device: Device) -> Result<Vec<Vec<u8>>, Error> {
    let numbers: Vec<f32> = (0_u16..600 * 40).map(|n| f32::from(n % 1013) - 400.5).collect();
    let matrix = Tensor::from_slice(backends, device, [40, 600], &numbers)?;
    let row = Tensor::from_slice(backends, device, [1, 3], &numbers[..3])?;
    let column = Tensor::from_slice(backends, device, [5, 1], &numbers[..5])?;
    let before = matrix.to_bytes()?;
    let mut generator = Generator::new(5);
    let normal = Distribution::Normal { mean: 1.0, deviation: 2.0 };
    let mut made = || {
        Ok([
            matrix.reduce(Reduction::Sum)?,
            matrix.reduce(Reduction::Max)?,
            matrix.transpose()?,
            matrix.argmax_channel()?,
            row.binary(BinaryOp::Greater, &column)?,
            generator.tensor(backends, device, matrix.spec().clone(), normal)?,
        ])
    };
    let made: Result<_, Error> = made();
    emulator_is_well();
    assert_eq!(matrix.to_bytes()?, before, "the operand has changed");
    made?.iter().map(Tensor::to_bytes).collect()
}

/// Ends the failures of the emulated driver.
fn emulator_is_well() {
    if !is_real() {
        emulator::fail("").unwrap();
    }
}

/// The launches of [`check_shapes`]: two for each reduction and for `argmax`, and three for the
/// comparison, because both operands are repeated.
const NUM_LAUNCHES: u32 = 2 + 2 + 1 + 2 + 3 + 1;

#[test]
fn failed_launches_change_no_operand() {
    let _alone = alone();
    let backends = backends();
    let expected = check_shapes(&backends, Device::cpu(0)).unwrap();
    assert_eq!(check_shapes(&backends, Device::gpu(0)).unwrap(), expected);
    if is_real() {
        println!("not run: only the emulated driver can be made to fail");
        return;
    }
    for number in 0..=NUM_LAUNCHES {
        emulator::fail(&format!("cuLaunchKernel:{number}")).unwrap();
        let found = check_shapes(&backends, Device::gpu(0));
        if number < NUM_LAUNCHES {
            let error = found.unwrap_err();
            assert_eq!(error.code(), ErrorCode::Backend, "{number}: {error}");
            assert!(error.to_string().contains("cuLaunchKernel"), "{error}");
        } else {
            assert_eq!(found.unwrap(), expected);
        }
    }
}

/// Some errors make the GPU unusable for the rest of the process. Their messages say what to do.
#[test]
fn errors_that_last_name_the_way_out() {
    let _alone = alone();
    if is_real() {
        println!("not run: only the emulated driver can be made to fail");
        return;
    }
    let backends = backends();
    for (number, name, advice) in [
        (700, "CUDA_ERROR_ILLEGAL_ADDRESS", "can no longer use the GPU"),
        (3, "CUDA_ERROR_NOT_INITIALIZED", "start the process with `spawn`"),
    ] {
        emulator::fail(&format!("cuMemAlloc_v2:0={number}")).unwrap();
        let error = zeros(&backends, Device::gpu(0), 1 << 20).unwrap_err();
        emulator::fail("").unwrap();
        let text = error.chain();
        assert!(text.contains(name) && text.ends_with(advice), "{text}");
    }
}

/// A system may have little memory that can be pinned. Copies then wait for each other.
#[test]
fn copies_wait_for_pinned_memory() {
    let _alone = alone();
    if is_real() {
        println!("not run: only the emulated driver can be made to fail");
        return;
    }
    let bytes: Vec<u8> = (0_u32..20 << 20).map(|index| (index >> 9).to_le_bytes()[0]).collect();
    let spec = || TensorSpec::new([bytes.len()], DType::U8);
    for available in [1, 2] {
        let backends = backends();
        emulator::fail(&format!("cuMemHostAlloc:{available}+=2")).unwrap();
        let tensor = Tensor::from_bytes(&backends, Device::gpu(0), spec(), &bytes).unwrap();
        assert!(tensor.to_bytes().unwrap() == bytes, "{available} pieces");
        emulator::fail("").unwrap();
    }
    let backends = backends();
    emulator::fail("cuMemHostAlloc:0+=2").unwrap();
    let error = Tensor::from_bytes(&backends, Device::gpu(0), spec(), &bytes).unwrap_err();
    emulator::fail("").unwrap();
    assert_eq!(error.code(), ErrorCode::OutOfMemory, "{error}");
    let tensor = Tensor::from_bytes(&backends, Device::gpu(0), spec(), &bytes).unwrap();
    assert!(tensor.to_bytes().unwrap() == bytes);
}

/// Keys of several dtypes need several launches. No kernel is queued if copying the list of any
/// launch fails.
#[test]
fn a_failed_push_updates_no_key() {
    let _alone = alone();
    if is_real() {
        println!("not run: only the emulated driver can be made to fail");
        return;
    }
    let backends = backends();
    let store = LocalStore::new("device", backends.clone()).unwrap();
    let keys = ["a", "b", "c"].map(|text| Key::new(text).unwrap());
    let dtypes = [DType::F32, DType::F64, DType::F16];
    let values = |number: f64| -> Vec<Value> {
        let of = |dtype| {
            let spec = TensorSpec::new([100], dtype);
            Tensor::full(&backends, Device::gpu(1), spec, number.into()).unwrap().into()
        };
        dtypes.map(of).to_vec()
    };
    store.init(&keys, &values(1.0)).unwrap();
    store.set_optimizer(Optimizer::sgd()).unwrap();
    store.push(&keys, &values(0.5), 0).unwrap();
    let stored = || -> Vec<Vec<u8>> {
        store.pull(&keys, 0).unwrap().iter().map(|value| value.to_bytes().unwrap()).collect()
    };
    let mut num_failures = 0;
    for number in 0.. {
        let (before, values) = (stored(), values(0.5));
        emulator::fail(&format!("cuMemcpyHtoDAsync_v2:{number}")).unwrap();
        let result = store.push(&keys, &values, 0);
        emulator::fail("").unwrap();
        if result.is_ok() {
            assert_ne!(stored(), before);
            break;
        }
        assert_eq!(stored(), before, "after {number} lists");
        num_failures += 1;
    }
    assert_eq!(num_failures, 3);
}
