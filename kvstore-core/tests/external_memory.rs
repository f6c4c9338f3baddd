//! Tests of tensors in external memory. A store copies the elements that it keeps.

#![allow(clippy::unwrap_used, reason = "a check fails by panicking")]
#![allow(clippy::disallowed_macros, reason = "a test may abort without memory")]

use std::sync::Arc;

use kvstore_core::storage::{Storage, open};
use kvstore_core::{
    Backends, BoxError, Compression, CpuBackend, DType, Device, Key, KvStore, LocalStore, NDArray,
    Optimizer, RowSparse, Shape, Tensor, TensorSpec, Updater, Value,
};

/// External memory: floats that the program owns.
#[derive(Debug)]
struct Floats(Arc<[f32]>);

impl Storage for Floats {
    fn num_bytes(&self) -> usize {
        size_of_val(&*self.0)
    }

    fn external_bytes(&self) -> Option<&[u8]> {
        Some(bytemuck::cast_slice(&self.0))
    }
}

const LEN: usize = if cfg!(miri) { 40 } else { 1000 };

fn backends() -> Backends {
    Backends::new(vec![CpuBackend::with_threads(1)])
}

fn spec() -> TensorSpec {
    TensorSpec::new([LEN], DType::F32)
}

fn external(backends: &Backends, floats: &Arc<[f32]>) -> Tensor {
    Tensor::from_external(backends, spec(), Arc::new(Floats(Arc::clone(floats)))).unwrap()
}

#[derive(Debug)]
struct Keep(std::sync::Mutex<Vec<Tensor>>);

impl Updater for Keep {
    fn update(&self, _: &Key, pushed: &Tensor, stored: &mut Tensor) -> Result<(), BoxError> {
        self.0.lock().unwrap().push(pushed.clone());
        *stored = pushed.clone();
        Ok(())
    }
}

/// Runs every kind of push with external values and with copied ones. The results must have the
/// same bits, and no external memory may stay referenced.
#[test]
fn a_store_keeps_copies_of_external_memory() {
    let rule = |number: usize, store: &LocalStore| match number {
        0 => {}
        1 => store.set_optimizer(Optimizer::sgd().with("momentum", 0.9).unwrap()).unwrap(),
        2 => store.set_compression(Some(Compression::new("2bit", 0.5).unwrap())).unwrap(),
        _ => store.set_updater(Some(Arc::new(Keep(std::sync::Mutex::default())))).unwrap(),
    };
    let all = backends();
    let floats: Vec<Arc<[f32]>> = (1..4)
        .map(|step| (0_u16..1000).take(LEN).map(|index| f32::from(index * step) * 0.37).collect())
        .collect();
    for name in ["local", "device"] {
        for number in 0..4 {
            // Pushes one value, several values, and the first one again, so that stored values,
            // states and residuals exist before the last push.
            let run = |value: &dyn Fn(&Arc<[f32]>) -> Tensor| {
                let store = LocalStore::new(name, all.clone()).unwrap();
                rule(number, &store);
                let key = Key::new("w").unwrap();
                let values: Vec<Value> = floats.iter().map(|part| value(part).into()).collect();
                store.init(std::slice::from_ref(&key), &values[..1]).unwrap();
                let mut found = Vec::new();
                for values in [&values[1..2], &values[..], &values[..1]] {
                    store.push(&vec![key.clone(); values.len()], values, 0).unwrap();
                    let pulled = store.pull(std::slice::from_ref(&key), 0).unwrap();
                    found.push(pulled[0].to_vec::<f32>().unwrap());
                }
                (store, found)
            };
            let expected =
                run(&|part| Tensor::from_slice(&all, Device::default(), [LEN], part).unwrap());
            let (store, found) = run(&|part| external(&all, part));
            assert_eq!(found, expected.1, "{name} {number}");
            assert!(floats.iter().all(|part| Arc::strong_count(part) == 1), "{name} {number}");
            drop(store);
        }
    }
}

#[test]
fn a_change_moves_a_tensor_out_of_external_memory() {
    let all = backends();
    let floats: Arc<[f32]> = vec![1.0; LEN].into();
    let mut tensor = external(&all, &floats);
    let rows = RowSparse::new([5, LEN], vec![2], tensor.view(0, Shape::from([1, LEN])).unwrap());
    let rows: Value = rows.unwrap().into();
    let store = LocalStore::new("local", all.clone()).unwrap();
    store.init(&[Key::new("r").unwrap()], &[rows]).unwrap();
    let array =
        NDArray::new(Tensor::from_slice(&all, Device::default(), [LEN], &[0_f32; LEN]).unwrap());
    array.assign(&tensor).unwrap();
    tensor.fill(2.0.into()).unwrap();
    assert_eq!(array.to_vec::<f32>().unwrap(), [1.0; LEN]);
    assert_eq!(tensor.to_vec::<f32>().unwrap(), [2.0; LEN]);
    assert!(floats.iter().all(|float| *float == 1.0));
    assert_eq!(Arc::strong_count(&floats), 1);
}

/// External memory: a range of the bytes of some floats.
#[derive(Debug)]
struct Part(Floats, std::ops::Range<usize>);

impl Storage for Part {
    fn num_bytes(&self) -> usize {
        self.1.len()
    }

    fn external_bytes(&self) -> Option<&[u8]> {
        self.0.external_bytes()?.get(self.1.clone())
    }
}

#[test]
fn unaligned_memory_and_wrong_lengths_are_rejected() {
    let all = backends();
    let external = |bytes, spec| {
        let part = Arc::new(Part(Floats(vec![1.0; 9].into()), bytes));
        Tensor::from_external(&all, spec, part).map_err(|error| error.to_string())
    };
    let read = external(4..16, TensorSpec::new([3], DType::F32)).unwrap();
    assert_eq!(read.to_vec::<f32>().unwrap(), [1.0; 3]);
    let text = external(4..16, TensorSpec::new([4], DType::F32)).unwrap_err();
    assert!(text.contains("expected 16, found 12"), "{text}");
    let text = external(2..14, TensorSpec::new([3], DType::F32)).unwrap_err();
    assert!(text.contains("unaligned external memory"), "{text}");
    assert!(external(2..14, TensorSpec::new([6], DType::F16)).is_ok());
    let storage = all.of(Device::default()).unwrap().allocate(Device::default(), 4).unwrap();
    assert!(Tensor::from_external(&all, TensorSpec::new([1], DType::F32), storage).is_err());
}

#[derive(Debug)]
struct Bytes([u8; 4]);

impl Storage for Bytes {
    fn num_bytes(&self) -> usize {
        self.0.len()
    }

    fn external_bytes(&self) -> Option<&[u8]> {
        Some(&self.0)
    }
}

#[test]
fn tensors_keep_a_backend_alive_and_pooled_blocks_do_not() {
    let backend = CpuBackend::with_threads(1);
    let watched = Arc::downgrade(&backend);
    let backends = Backends::new(vec![backend]);
    let tensor =
        |element| Tensor::from_slice(&backends, Device::default(), [1], &[element]).unwrap();
    let (first, second) = (tensor(1_u8), tensor(2));
    drop(second);
    // The pool now has a block. It must not keep the backend alive.
    assert!(backends.of(Device::default()).unwrap().pooled_bytes() > 0);
    let spec = TensorSpec::new([4], DType::U8);
    let external = Tensor::from_external(&backends, spec, Arc::new(Bytes([1, 2, 3, 4]))).unwrap();
    let copy = first.clone();
    drop(backends);
    drop(first);
    assert_eq!(copy.to_vec::<u8>().unwrap(), [1]);
    drop(copy);
    assert!(watched.upgrade().is_some(), "a tensor in external memory still uses the backend");
    assert_eq!(external.clone().to_vec::<u8>().unwrap(), [1, 2, 3, 4]);
    assert!(open::<Bytes>(external.span().storage).is_ok());
    drop(external);
    assert!(watched.upgrade().is_none());
}
