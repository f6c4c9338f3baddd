//! Compression: the recorded codes, and cases that random programs do not cover by name.

#![allow(clippy::unwrap_used, reason = "a call that fails ends the test")]

use std::fmt::Write as _;
use std::sync::Arc;

use kvstore::{Device, Error, ErrorCode, NDArray, Optimizer, Store, array, create};
use kvstore_core::backend::{DequantizeJob, QuantizeJob};
use kvstore_core::storage::{InOut, Span, SpanMut, Storage};
use kvstore_core::{Backend, Compression, CpuBackend, DType};
use kvstore_tests::arithmetic::sum;
use kvstore_tests::compare::assert_same_bits;
use kvstore_tests::compression::{Compression as Model, no_residual};
use kvstore_tests::format::float_dtypes;
use kvstore_tests::json::{list, text};
use kvstore_tests::value::{Number, Spec, Value};
use kvstore_tests::{STORE_NAMES, recorded};

fn vector(numbers: &[f32]) -> NDArray {
    array(numbers, [numbers.len()], Device::cpu(0)).unwrap()
}

fn compressing(name: &str, kind: &str) -> Store {
    let store = create(name).unwrap();
    store.init("w", &vector(&[0.0, 0.0])).unwrap();
    store.set_gradient_compression(kind, 0.5).unwrap();
    store
}

fn pulled(store: &Store) -> Vec<f32> {
    store.pull_new("w").unwrap()[0].to_vec().unwrap()
}

fn code_of(result: kvstore::Result<()>) -> ErrorCode {
    result.map_err(|error: Error| error.code()).unwrap_err()
}

#[test]
fn codes_equal_the_recorded_codes_bit_for_bit() {
    let recorded = &recorded::load_file()["gradient_compression_bytes"];
    let numbers = |name: &str| -> Vec<f32> {
        #[expect(clippy::cast_possible_truncation, reason = "they are f32, written as f64")]
        list(&recorded[name]).iter().map(|number| number.as_f64().unwrap() as f32).collect()
    };
    let backend = CpuBackend::with_threads(1);
    let storage = |bytes: &[u8]| stored(&*backend, bytes);
    let threshold = recorded["threshold"].as_f64().unwrap();
    let quantizer = Compression::new("2bit", threshold).unwrap().of(DType::F32).unwrap();
    let input = numbers("input");
    let bytes: Vec<u8> = input.iter().flat_map(|number| number.to_ne_bytes()).collect();
    let gradient = storage(&bytes);
    let mut residual = storage(&vec![0; 4 * input.len()]);
    let mut codes = storage(&vec![0xff; quantizer.code.num_bytes(input.len())]);
    for expected in list(&recorded["bytes_hex_per_push"]) {
        let job = QuantizeJob {
            quantizer,
            device: Device::cpu(0),
            dtype: DType::F32,
            gradient: span(&gradient),
            residual: InOut::InPlace(span_mut(&mut residual)),
            codes: span_mut(&mut codes),
        };
        backend.quantize(&mut [job]).unwrap();
        let mut hex = String::new();
        for byte in read(&*backend, &codes) {
            write!(hex, "{byte:02x}").unwrap();
        }
        assert_eq!(hex, text(expected));
    }
    let left = read(&*backend, &residual);
    let left: Vec<_> = left.as_chunks().0.iter().map(|bytes| f32::from_ne_bytes(*bytes)).collect();
    assert_eq!(left, numbers("final_residual"));
}

/// Codes, residuals and sums agree with the model, for complete words, parts of one, several blocks
/// and several pieces.
#[test]
fn kernels_agree_with_the_model() {
    let lengths = [0, 1, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 100, 2047, 2048, 2049, 4113, 150_001];
    for dtype in float_dtypes() {
        for model in [true, false].map(|has_two_bits| Model { has_two_bits, threshold: 0.3 }) {
            for len in lengths {
                check_kernels(&model, dtype, len);
            }
        }
    }
}

fn check_kernels(model: &Model, dtype: DType, len: usize) {
    let backend = CpuBackend::with_threads(2);
    let storage = |bytes: &[u8]| stored(&*backend, bytes);
    let quantizer = Compression::new(model.name(), model.threshold).unwrap().of(dtype).unwrap();
    let (device, num_bytes) = (Device::cpu(0), quantizer.code.num_bytes(len));
    let spec = Spec::new(&[len], dtype);
    let zeros = no_residual(&spec);
    let mut left = [zeros.clone(), zeros.clone()];
    let mut residuals = [storage(&zeros.to_bytes()), storage(&zeros.to_bytes())];
    let (mut arrived, mut sent) = (Vec::new(), Vec::new());
    for (n, in_place) in [(0, true), (1, false), (0, false), (1, true)] {
        let gradient = edges(&spec, n + arrived.len());
        let expected = model.send(&gradient, &mut left[n]);
        let source = storage(&gradient.to_bytes());
        let mut fresh = storage(&vec![0xff; zeros.to_bytes().len()]);
        let mut codes = storage(&vec![0xff; num_bytes]);
        let residual = if in_place {
            InOut::InPlace(span_mut(&mut residuals[n]))
        } else {
            InOut::Into { src: span(&residuals[n]), dst: span_mut(&mut fresh) }
        };
        let (gradient, target) = (span(&source), span_mut(&mut codes));
        let job = QuantizeJob { quantizer, device, dtype, gradient, residual, codes: target };
        backend.quantize(&mut [job]).unwrap();
        if !in_place {
            residuals[n] = fresh;
        }
        let found = Value::from_bytes(left[n].spec.clone(), &read(&*backend, &residuals[n]));
        assert_same_bits(&left[n], &found, &("residuals", model, dtype));
        assert_eq!(read(&*backend, &codes), model.codes(&expected), "{model:?}, {len} {dtype}");
        sent.push(codes);
        arrived.push(expected);

        // Sums over all codes so far, so that one to four lists of codes are tested.
        let codes: Vec<_> = sent.iter().map(span).collect();
        let mut target = storage(&vec![0xff; len * dtype.size()]);
        let dst = span_mut(&mut target);
        let job = DequantizeJob { quantizer, device, dtype, codes: &codes, dst };
        backend.dequantize(&mut [job]).unwrap();
        let found = Value::from_bytes(spec.clone(), &read(&*backend, &target));
        assert_same_bits(&sum(&arrived), &found, &("sums", model, dtype));
    }
}

/// Returns a value with numbers at the threshold and beside it, and NaN and infinities.
fn edges(spec: &Spec, first: usize) -> Value {
    let edges = [0.3, 0.0, -0.3, 0.299, -0.0, 0.301, f64::NAN, -0.7, 1.0, f64::INFINITY, -1.3];
    let numbers: Vec<_> = (0..spec.num_elements())
        // Numbers that stay in the residual are rare.
        .map(|index| match edges[(index + first) % edges.len()] {
            edge if !edge.is_finite() && index % 5 > 0 => 0.15,
            edge => edge,
        })
        .map(Number::Float)
        .collect();
    Value::new(spec.clone(), &numbers)
}

fn stored(backend: &dyn Backend, bytes: &[u8]) -> Arc<dyn Storage> {
    let mut storage = backend.allocate(Device::cpu(0), bytes.len()).unwrap();
    backend.write(span_mut(&mut storage), bytes).unwrap();
    storage
}

fn span(storage: &Arc<dyn Storage>) -> Span<'_> {
    Span { storage: &**storage, start: 0, num_bytes: storage.num_bytes() }
}

fn span_mut(storage: &mut Arc<dyn Storage>) -> SpanMut<'_> {
    let num_bytes = storage.num_bytes();
    SpanMut { storage: Arc::get_mut(storage).unwrap(), start: 0, num_bytes }
}

fn read(backend: &dyn Backend, storage: &Arc<dyn Storage>) -> Vec<u8> {
    let mut bytes = vec![0; storage.num_bytes()];
    backend.read(span(storage), &mut bytes).unwrap();
    bytes
}

#[test]
fn residuals_belong_to_a_key_and_a_position() {
    for name in STORE_NAMES {
        let store = compressing(name, "2bit");
        let (a, b) = (vector(&[0.3, 0.0]), vector(&[0.0, 0.4]));
        store.push("w", &a).unwrap();
        assert_eq!(pulled(&store), [0.0, 0.0]);
        // The second position starts with a zero residual.
        store.push("w", &[a, b.clone()]).unwrap();
        assert_eq!(pulled(&store), [0.5, 0.0]);
        store.push("w", &[b.clone(), b.clone()]).unwrap();
        assert_eq!(pulled(&store), [0.0, 0.5]);
        store.init("v", &vector(&[0.0, 0.0])).unwrap();
        store.push("v", &b).unwrap();
        assert_eq!(store.pull_new("v").unwrap()[0].to_vec::<f32>().unwrap(), [0.0, 0.0]);
        assert_eq!(store.stats().unwrap()[0].state_bytes, 2 * 8, "two residuals");
    }
}

#[test]
fn residuals_survive_turning_compression_off() {
    let store = compressing("local", "2bit");
    store.push("w", &vector(&[0.3, 0.0])).unwrap();
    store.clear_gradient_compression().unwrap();
    assert_eq!(store.gradient_compression().unwrap(), None);
    store.push("w", &vector(&[0.3, 0.0])).unwrap();
    assert_eq!(pulled(&store), [0.3, 0.0]);
    store.set_gradient_compression("2bit", 0.5).unwrap();
    store.push("w", &vector(&[0.3, 0.0])).unwrap();
    assert_eq!(pulled(&store), [0.5, 0.0]);
    store.remove("w").unwrap();
    store.init("w", &vector(&[0.0, 0.0])).unwrap();
    store.push("w", &vector(&[0.3, 0.0])).unwrap();
    assert_eq!(pulled(&store), [0.0, 0.0], "removed with its residual");
}

#[test]
fn a_failed_push_keeps_the_residuals() {
    let store = compressing("local", "2bit");
    store.set_updater(|_, pushed, _| Err(format!("{:?}", pushed.to_vec::<f32>()).into())).unwrap();
    for _ in 0..3 {
        let error = store.push("w", &vector(&[0.3, 0.7])).unwrap_err();
        assert_eq!(error.chain().split(": ").last(), Some("Ok([0.0, 0.5])"));
    }
    store.init("n", &array(&[1i32], [1], Device::cpu(0)).unwrap()).unwrap();
    let both = [vector(&[0.3, 0.0]), array(&[1i32], [1], Device::cpu(0)).unwrap()];
    assert_eq!(code_of(store.push(["w", "n"], &both)), ErrorCode::InvalidArgument);
    store.clear_updater().unwrap();
    store.push("w", &vector(&[0.3, 0.0])).unwrap();
    assert_eq!(pulled(&store), [0.0, 0.0]);
}

#[test]
fn an_optimizer_receives_the_decoded_values() {
    let store = compressing("device", "1bit");
    store.set_optimizer(Optimizer::sgd().with("learning_rate", 1.0).unwrap()).unwrap();
    store.push("w", &vector(&[0.7, 0.1])).unwrap();
    assert_eq!(pulled(&store), [-1.0, 1.0]);
    // The residuals: 0.7 - 1 and 0.1 + 1.
    store.push("w", &vector(&[0.0, 0.0])).unwrap();
    assert_eq!(pulled(&store), [0.0, 0.0]);
}

#[test]
fn errors_name_the_mistake() {
    let store = create("local").unwrap();
    for (kind, threshold) in [("2Bit", 0.5), ("none", 0.5), ("2bit", 0.0), ("1bit", f64::NAN)] {
        let result = store.set_gradient_compression(kind, threshold);
        assert_eq!(code_of(result), ErrorCode::InvalidArgument);
    }
    // In half precision, the threshold would be zero.
    store.set_gradient_compression("2bit", 1e-30).unwrap();
    let half = vector(&[1.0]).as_type(DType::F16).unwrap();
    store.init("h", &half).unwrap();
    assert_eq!(code_of(store.push("h", &half)), ErrorCode::InvalidArgument);
}
