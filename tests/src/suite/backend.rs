//! Checks of backends: the same bits as the model for any length, number of addends, position of a
//! range in its storage, and number of threads.

use std::iter::{empty, once};
use std::sync::Arc;

use kvstore_core::backend::{DequantizeJob, Operand, QuantizeJob, SumJob, UpdateJob};
use kvstore_core::optimizer::UpdateRule;
use kvstore_core::storage::{InOut, Span, SpanMut, Storage};
use kvstore_core::{Backend, BinaryOp, DType, Device, Error, ErrorCode, Key, Result, Scalar};

use super::assert_code;
use crate::arithmetic::{Operator, is_half, sum};
use crate::compare::assert_same_bits;
use crate::compression::{Compression, no_residual};
use crate::format::{Format, HalfFormat, float_dtypes};
use crate::policy::{Sgd, SgdState};
use crate::reduced;
use crate::replay::optimizer;
use crate::samples::{nasty, tame};
use crate::value::{Number, Spec, Value};

/// Lengths around a cache line and around the blocks of kernels, and one beyond all blocks.
const LENGTHS: [usize; 17] =
    [0, 1, 2, 7, 15, 16, 17, 63, 64, 65, 1024, 2047, 2048, 2049, 4096, 4097, (1 << 16) + 1];

/// A length that is split between threads.
const LONG: usize = reduced::length((1 << 20) + 1);

/// A value in the memory of a backend, between margins that no operation may change.
pub(super) struct Buffer {
    storage: Arc<dyn Storage>,
    spec: Spec,
}

impl Buffer {
    /// The number of bytes of each margin.
    const MARGIN: usize = 24;
    const MARK: u8 = 0xa5;

    pub(super) fn new(backend: &dyn Backend, value: &Value) -> Self {
        let own = value.to_bytes();
        let margin = [Self::MARK; Self::MARGIN];
        let bytes = [&margin[..], &own, &margin[..]].concat();
        let device = Device::new(backend.kind(), 0);
        let mut storage = backend.allocate(device, bytes.len()).expect("enough memory");
        let dense = Arc::get_mut(&mut storage).expect("the only reference");
        backend
            .write(SpanMut { storage: dense, start: 0, num_bytes: bytes.len() }, &bytes)
            .unwrap();
        Self { storage, spec: value.spec.clone() }
    }

    fn num_bytes(&self) -> usize {
        self.spec.num_elements() * self.spec.dtype.size()
    }

    pub(super) fn span(&self) -> Span<'_> {
        Span { storage: &*self.storage, start: Self::MARGIN, num_bytes: self.num_bytes() }
    }

    fn span_mut(&mut self) -> SpanMut<'_> {
        let num_bytes = self.num_bytes();
        let storage = Arc::get_mut(&mut self.storage).expect("the only reference");
        SpanMut { storage, start: Self::MARGIN, num_bytes }
    }

    /// Reads the value and checks that the margins are unchanged.
    fn value(&self, backend: &dyn Backend) -> Value {
        let num_bytes = self.num_bytes() + 2 * Self::MARGIN;
        let mut bytes = vec![0; num_bytes];
        backend.read(Span { storage: &*self.storage, start: 0, num_bytes }, &mut bytes).unwrap();
        let own = Self::MARGIN..num_bytes - Self::MARGIN;
        let (before, behind) = (&bytes[..own.start], &bytes[own.end..]);
        assert!(
            before.iter().chain(behind).all(|byte| *byte == Self::MARK),
            "wrote beside its range"
        );
        Value::from_bytes(self.spec.clone(), &bytes[own])
    }
}

pub(super) fn spec(length: usize, dtype: DType) -> Spec {
    Spec::new(&[length], dtype)
}

fn sum_on(backend: &dyn Backend, addends: &[Value]) -> Value {
    let buffers: Vec<_> = addends.iter().map(|addend| Buffer::new(backend, addend)).collect();
    let mut dst = Buffer::new(backend, &nasty(addends[0].spec.clone(), 99));
    let spans: Vec<_> = buffers.iter().map(Buffer::span).collect();
    let (device, dtype) = (Device::new(backend.kind(), 0), dst.spec.dtype);
    backend
        .sum(&mut once(Ok(SumJob { device, dtype, dst: dst.span_mut(), addends: &spans })))
        .unwrap();
    dst.value(backend)
}

pub(super) fn addends(count: usize, length: usize, dtype: DType) -> Vec<Value> {
    (0..count as u64).map(|seed| nasty(spec(length, dtype), seed)).collect()
}

/// Checks sums of 1 to 17 addends of every dtype and length.
pub fn sums_are_left_folds(backend: &dyn Backend) {
    for dtype in reduced::few(DType::ALL) {
        for count in reduced::few(1..=17) {
            for length in reduced::few([0, 1, 63, 64, 65]) {
                check_sum(backend, &addends(count, length, dtype));
            }
        }
        for length in reduced::lengths(&LENGTHS) {
            check_sum(backend, &addends(3, length, dtype));
        }
    }
}

fn check_sum(backend: &dyn Backend, addends: &[Value]) {
    let what = (addends.len(), &addends[0].spec);
    assert_same_bits(&sum(addends), &sum_on(backend, addends), &what);
}

fn halves() -> impl Iterator<Item = (DType, HalfFormat)> {
    DType::ALL.into_iter().filter_map(|dtype| Some((dtype, Format::of(dtype).half()?)))
}

/// Half precision is rounded once, after the last addend. Rounding more often changes these sums.
pub fn half_floats_are_rounded_once(backend: &dyn Backend) {
    for (dtype, half) in halves() {
        let one = |x: f64| Value::new(spec(1, dtype), &[Number::Float(x)]);
        // From here on, the distance between numbers is 2.
        let large = 1.0 / half.rounding();
        let found = sum_on(backend, &[one(large), one(1.0), one(1.0)]);
        assert_same_bits(&one(large + 2.0), &found, &dtype);
        let most = half.largest();
        if 2.0 * most <= f32::MAX.into() {
            let found = sum_on(backend, &[one(most), one(most), one(-most)]);
            assert_same_bits(
                &one(most),
                &found,
                &(dtype, "a sum that leaves the range and returns"),
            );
        }
    }
}

/// Integers wrap.
pub fn integers_wrap(backend: &dyn Backend) {
    for dtype in DType::ALL {
        let Some((_, largest)) = Format::of(dtype).integers() else { continue };
        let one = |i: i64| Value::new(spec(1, dtype), &[Number::Int(i)]);
        let found = sum_on(backend, &[one(largest), one(1), one(5)]);
        assert_same_bits(&one(largest.wrapping_add(6)), &found, &dtype);
    }
}

/// A batch gives the same sums as separate calls.
pub fn a_batch_of_sums_equals_separate_sums(backend: &dyn Backend) {
    let sums: Vec<Vec<Value>> = (0..usize::from(reduced::times(50)))
        .map(|number| addends(1 + number % 5, number * 37, DType::ALL[number % DType::ALL.len()]))
        .collect();
    let sources: Vec<Vec<Buffer>> = sums
        .iter()
        .map(|sum| sum.iter().map(|addend| Buffer::new(backend, addend)).collect())
        .collect();
    let mut targets: Vec<_> = sums.iter().map(|sum| Buffer::new(backend, &sum[0])).collect();
    let spans: Vec<Vec<_>> =
        sources.iter().map(|sources| sources.iter().map(Buffer::span).collect()).collect();
    let device = Device::new(backend.kind(), 0);
    let jobs = targets.iter_mut().zip(&spans).map(|(target, addends)| {
        let dtype = target.spec.dtype;
        SumJob { device, dtype, dst: target.span_mut(), addends }
    });
    backend.sum(&mut jobs.map(Ok)).unwrap();
    for (target, addends) in targets.iter().zip(&sums) {
        assert_same_bits(&sum(addends), &target.value(backend), &target.spec);
    }
    backend.sum(&mut empty()).unwrap();
}

/// An error among the jobs ends a batch before it has changed anything.
pub fn an_error_among_the_jobs_changes_nothing(backend: &dyn Backend) {
    fn failure<J>() -> std::iter::Once<Result<J>> {
        once(Err(Error::InvalidArgument("a job that cannot be made".to_owned())))
    }

    let addends = addends(2, 1000, DType::F32);
    let sources: Vec<Buffer> = addends.iter().map(|value| Buffer::new(backend, value)).collect();
    let spans: Vec<_> = sources.iter().map(Buffer::span).collect();
    let mut target = Buffer::new(backend, &addends[0]);
    let (device, dtype) = (Device::new(backend.kind(), 0), DType::F32);
    let job = SumJob { device, dtype, dst: target.span_mut(), addends: &spans };
    assert_code(backend.sum(&mut once(Ok(job)).chain(failure())), ErrorCode::InvalidArgument);
    assert_same_bits(&addends[0], &target.value(backend), &"the sum");

    let step = UpdateCase::new(SGD, dtype, 1000, 2);
    let values: Vec<Value> = once(step.weight.clone()).chain(step.states()).collect();
    let mut slots: Vec<Buffer> = values.iter().map(|value| Buffer::new(backend, value)).collect();
    let upload = |gradient| Buffer::new(backend, gradient);
    let gradients: Vec<Buffer> = step.gradients.iter().map(upload).collect();
    let (rule, spans) = (step.rule(), gradients.iter().map(Buffer::span).collect::<Vec<_>>());
    let in_place = slots.iter_mut().map(|slot| InOut::InPlace(slot.span_mut()));
    let job = step.job(backend, &rule, in_place, &spans);
    let jobs = &mut once(Ok(job)).chain(failure());
    assert_code(backend.update(jobs), ErrorCode::InvalidArgument);
    for (value, slot) in values.iter().zip(&slots) {
        assert_same_bits(value, &slot.value(backend), &"the weight or a state");
    }
}

/// Checks sums and steps of values that are split between threads.
pub fn long_values_agree_with_the_model(backend: &dyn Backend) {
    for dtype in [DType::F32, DType::Bf16, DType::I8] {
        check_sum(backend, &addends(3, LONG, dtype));
    }
    let steps = UpdateCase::new(SGD, DType::F32, LONG, 2);
    assert_same_bits(&steps.expected(), &steps.found(backend, true), &"a long step");
}

/// Casts between all dtypes agree with the model.
pub fn casts_agree_with_the_model(backend: &dyn Backend) {
    for from in reduced::few(DType::ALL) {
        for to in reduced::few(DType::ALL) {
            for length in reduced::lengths(&[0, 1, 65, 4097, (1 << 16) + 1]) {
                let value = nasty(spec(length, from), length as u64);
                let source = Buffer::new(backend, &value);
                let mut target = Buffer::new(backend, &nasty(spec(length, to), 99));
                backend.cast(from, source.span(), to, target.span_mut()).unwrap();
                assert_same_bits(&value.cast(to), &target.value(backend), &(from, to, length));
            }
        }
    }
}

/// Repeated compression leaves the residuals of the model, and the decoded sum equals the sum of
/// the model's decoded values.
pub fn codes_agree_with_the_model(backend: &dyn Backend) {
    for dtype in float_dtypes() {
        for has_two_bits in [true, false] {
            let compression = Compression { has_two_bits, threshold: 0.3 };
            let is_few_bytes = |length| length <= 4097 || (dtype == DType::F16 && has_two_bits);
            let lengths = LENGTHS.into_iter().chain([LONG]).filter(|length| is_few_bytes(*length));
            for length in reduced::few(lengths) {
                let mut residuals = [0; 3].map(|_| no_residual(&spec(length, dtype)));
                for push in 0..if length == LONG { 1 } else { 3 } {
                    let make = if push == 1 { nasty } else { tame };
                    let values = [0, 1, 2].map(|n| make(spec(length, dtype), push * 3 + n));
                    let what = (dtype, compression, length, push);
                    let (found, left) = compressed_on(backend, compression, &values, &residuals);
                    let pairs = values.iter().zip(&mut residuals);
                    let sent: Vec<_> = pairs.map(|(v, r)| compression.send(v, r)).collect();
                    assert_same_bits(&sum(&sent), &found, &what);
                    for (residual, left) in residuals.iter().zip(&left) {
                        assert_same_bits(residual, left, &what);
                    }
                }
            }
        }
    }
}

/// Returns the decoded sum of the values and the new residuals. Changes the first residual in
/// place, and writes the others to new memory.
fn compressed_on(
    backend: &dyn Backend,
    compression: Compression,
    values: &[Value],
    residuals: &[Value],
) -> (Value, Vec<Value>) {
    let (device, spec) = (Device::new(backend.kind(), 0), values[0].spec.clone());
    let quantizer = kvstore_core::Compression::new(compression.name(), compression.threshold);
    let quantizer =
        quantizer.and_then(|quantizer| quantizer.of(spec.dtype)).expect("a dtype of floats");
    let bytes = Spec::new(&[quantizer.code.num_bytes(spec.num_elements())], DType::U8);
    let gradients: Vec<_> = values.iter().map(|value| Buffer::new(backend, value)).collect();
    let mut old: Vec<_> = residuals.iter().map(|value| Buffer::new(backend, value)).collect();
    // Outputs start with arbitrary bits, to detect elements that the backend does not write.
    let fresh = |value: &Value| Buffer::new(backend, &nasty(value.spec.clone(), 7));
    let mut new: Vec<_> = residuals.iter().map(fresh).collect();
    let mut codes: Vec<_> =
        values.iter().map(|_| Buffer::new(backend, &nasty(bytes.clone(), 8))).collect();
    let mut jobs = Vec::new();
    let targets = old.iter_mut().zip(&mut new).zip(&mut codes);
    for (n, (gradient, ((old, new), codes))) in gradients.iter().zip(targets).enumerate() {
        let residual = match n {
            0 => InOut::InPlace(old.span_mut()),
            _ => InOut::Into { src: old.span(), dst: new.span_mut() },
        };
        let (gradient, codes) = (gradient.span(), codes.span_mut());
        jobs.push(QuantizeJob { quantizer, device, dtype: spec.dtype, gradient, residual, codes });
    }
    backend.quantize(&mut jobs).unwrap();
    let spans: Vec<_> = codes.iter().map(Buffer::span).collect();
    let mut dst = Buffer::new(backend, &nasty(spec.clone(), 9));
    let dtype = spec.dtype;
    let mut job = [DequantizeJob { quantizer, device, dtype, codes: &spans, dst: dst.span_mut() }];
    backend.dequantize(&mut job).unwrap();
    let left = old.iter().zip(&new).enumerate();
    let left = left.map(|(n, (old, new))| if n == 0 { old } else { new }.value(backend));
    (dst.value(backend), left.collect())
}

/// A fill writes the number that a cast gives.
pub fn fills_agree_with_the_model(backend: &dyn Backend) {
    for dtype in DType::ALL {
        for number in reduced::few(crate::operations::nasty_numbers()) {
            let scalar = match number {
                Number::Float(x) => Scalar::Float(x),
                Number::Int(i) => Scalar::Int(i),
            };
            for length in [0, 1, 65] {
                let mut target = Buffer::new(backend, &nasty(spec(length, dtype), 99));
                backend.fill(dtype, target.span_mut(), scalar).unwrap();
                let expected = Value::new(spec(length, dtype), &vec![number; length]);
                assert_same_bits(&expected, &target.value(backend), &(dtype, number));
            }
        }
    }
}

/// Copies within the backend's memory keep every bit.
pub fn copies_keep_every_bit(backend: &dyn Backend) {
    for length in reduced::lengths(&LENGTHS) {
        let value = nasty(spec(length, DType::F32), 5);
        let source = Buffer::new(backend, &value);
        let mut target = Buffer::new(backend, &nasty(spec(length, DType::F32), 6));
        backend.copy(target.span_mut(), source.span()).unwrap();
        assert_eq!(value.to_bytes(), target.value(backend).to_bytes(), "{length}");
    }
}

/// A broadcast writes every destination and nothing between them, for destinations at distances of
/// complete elements and of parts of one.
pub fn broadcasts_write_every_destination(backend: &dyn Backend) {
    for length in reduced::lengths(&LENGTHS) {
        let value = nasty(spec(4 * length, DType::U8), 5);
        let source = Buffer::new(backend, &value);
        let (own, before) = (value.to_bytes(), nasty(spec(24 * (length + 3), DType::U8), 6));
        for (apart, first) in [(own.len() + 12, 4), (own.len(), 0), (own.len() + 5, 1)] {
            for numbers in [&[][..], &[2], &[3, 0, 1, 4]] {
                let mut target = Buffer::new(backend, &before);
                let mut expected = before.to_bytes();
                let places: Vec<usize> =
                    numbers.iter().map(|number| first + number * apart).collect();
                for &place in &places {
                    expected[place..place + own.len()].copy_from_slice(&own);
                }
                backend.broadcast(target.span_mut(), &places, source.span()).unwrap();
                let found = target.value(backend).to_bytes();
                assert!(expected == found, "{length} at {places:?}");
            }
        }
    }
}

const OPERATORS: [(BinaryOp, Operator); 4] = [
    (BinaryOp::Add, Operator::Add),
    (BinaryOp::Sub, Operator::Sub),
    (BinaryOp::Mul, Operator::Mul),
    (BinaryOp::Div, Operator::Div),
];

/// Checks the four operations between ranges, in place and into other memory, in both orders.
pub fn arithmetic_agrees_with_the_model(backend: &dyn Backend) {
    for dtype in reduced::few(DType::ALL) {
        for (op, operator) in reduced::few(OPERATORS) {
            for length in reduced::lengths(&[0, 1, 65, 4097]) {
                let (a, b) =
                    (nasty(spec(length, dtype), 1), without_zeros(nasty(spec(length, dtype), 2)));
                for in_place in [true, false] {
                    let found = binary_on(backend, op, &a, &b, false, in_place).unwrap();
                    assert_same_bits(
                        &a.operate(operator, &b),
                        &found,
                        &(dtype, op, length, in_place),
                    );
                    let found = binary_on(backend, op, &b, &a, true, in_place).unwrap();
                    assert_same_bits(
                        &a.operate(operator, &b),
                        &found,
                        &(dtype, op, length, "reversed"),
                    );
                }
            }
        }
    }
}

/// An integer division by zero is an error, and the range is unchanged.
pub fn integer_division_by_zero_is_rejected(backend: &dyn Backend) {
    for dtype in DType::ALL.into_iter().filter(|dtype| !dtype.is_float()) {
        let numbers: Vec<_> = (0..100).map(Number::Int).collect();
        let (a, b) = (tame(spec(100, dtype), 1), Value::new(spec(100, dtype), &numbers));
        assert_code(
            binary_on(backend, BinaryOp::Div, &a, &b, false, false),
            ErrorCode::InvalidArgument,
        );
        let (mut lhs, rhs) = (Buffer::new(backend, &a), Buffer::new(backend, &b));
        let in_out = InOut::InPlace(lhs.span_mut());
        let result = backend.binary(BinaryOp::Div, dtype, in_out, Operand::Span(rhs.span()), false);
        assert_code(result, ErrorCode::InvalidArgument);
        assert_same_bits(&a, &lhs.value(backend), &dtype);
    }
}

fn without_zeros(mut value: Value) -> Value {
    for number in &mut value.numbers {
        if matches!(number, Number::Int(0)) {
            *number = Number::Int(3);
        }
    }
    value
}

fn binary_on(
    backend: &dyn Backend,
    op: BinaryOp,
    lhs: &Value,
    rhs: &Value,
    reversed: bool,
    in_place: bool,
) -> Result<Value> {
    let (mut target, rhs) = (Buffer::new(backend, lhs), Buffer::new(backend, rhs));
    let source = Buffer::new(backend, lhs);
    let in_out = in_out(&source, &mut target, in_place);
    backend.binary(op, lhs.spec.dtype, in_out, Operand::Span(rhs.span()), reversed)?;
    Ok(target.value(backend))
}

fn in_out<'a>(source: &'a Buffer, target: &'a mut Buffer, in_place: bool) -> InOut<'a> {
    if in_place {
        InOut::InPlace(target.span_mut())
    } else {
        InOut::Into { src: source.span(), dst: target.span_mut() }
    }
}

/// Two optimizer steps on one weight.
struct UpdateCase {
    sgd: Sgd,
    weight: Value,
    gradients: Vec<Value>,
}

impl UpdateCase {
    fn new(sgd: Sgd, dtype: DType, length: usize, num_gradients: u64) -> Self {
        let spec = spec(length, dtype);
        let gradients = (0..num_gradients).map(|seed| {
            if seed % 2 == 0 { tame(spec.clone(), seed) } else { nasty(spec.clone(), seed) }
        });
        Self { sgd, weight: tame(spec.clone(), 77), gradients: gradients.collect() }
    }

    fn expected(&self) -> Value {
        let mut state = SgdState::new(&self.weight);
        self.sgd.apply(&mut state, &sum(&self.gradients));
        self.sgd.apply(&mut state, &sum(&self.gradients))
    }

    /// Returns the states in a backend's order: the master copy of a half-precision weight, then
    /// the momentum.
    fn states(&self) -> Vec<Value> {
        let dtype = self.weight.spec.dtype;
        let arithmetic = if is_half(dtype) { DType::F32 } else { dtype };
        let master = is_half(dtype).then(|| self.weight.cast(arithmetic));
        let momentum = (self.sgd.momentum != 0.0)
            .then(|| Value::zeros(Spec::new(&self.weight.spec.shape, arithmetic)));
        master.into_iter().chain(momentum).collect()
    }

    fn found(&self, backend: &dyn Backend, in_place: bool) -> Value {
        let mut values: Vec<Value> =
            std::iter::once(self.weight.clone()).chain(self.states()).collect();
        for _ in 0..2 {
            values = self.step(backend, &values, in_place);
        }
        values.swap_remove(0)
    }

    fn rule(&self) -> UpdateRule {
        let optimizer = optimizer(&self.sgd).expect("hyper-parameters that are allowed");
        optimizer.rule(&Key::default(), 1, &mut 1.0)
    }

    /// Returns the job of one step on the weight and its states.
    fn job<'a>(
        &self,
        backend: &dyn Backend,
        rule: &'a UpdateRule,
        mut slots: impl Iterator<Item = InOut<'a>>,
        addends: &'a [Span<'a>],
    ) -> UpdateJob<'a> {
        UpdateJob {
            rule,
            device: Device::new(backend.kind(), 0),
            dtype: self.weight.spec.dtype,
            weight: slots.next().expect("the weight comes first"),
            states: std::array::from_fn(|_| slots.next()),
            addends,
        }
    }

    /// Runs one step on the weight and its states and returns them.
    fn step(&self, backend: &dyn Backend, values: &[Value], in_place: bool) -> Vec<Value> {
        let upload =
            |values: &[Value]| values.iter().map(|value| Buffer::new(backend, value)).collect();
        let (sources, gradients): (Vec<_>, Vec<_>) = (upload(values), upload(&self.gradients));
        let mut targets: Vec<Buffer> = if in_place {
            upload(values)
        } else {
            values.iter().map(|value| Buffer::new(backend, &nasty(value.spec.clone(), 9))).collect()
        };
        let slots = sources.iter().zip(&mut targets);
        let slots = slots.map(|(source, target)| in_out(source, target, in_place));
        let spans: Vec<_> = gradients.iter().map(Buffer::span).collect();
        backend.update(&mut once(Ok(self.job(backend, &self.rule(), slots, &spans)))).unwrap();
        for (source, value) in sources.iter().zip(values) {
            assert_same_bits(value, &source.value(backend), &"what is only read");
        }
        targets.iter().map(|target| target.value(backend)).collect()
    }
}

const SGD: Sgd = Sgd {
    learning_rate: 0.1,
    momentum: 0.9,
    weight_decay: 0.01,
    rescale_grad: 0.5,
    clip_gradient: 0.3,
};

const SGD_WITHOUT_MOMENTUM: Sgd = Sgd { momentum: 0.0, clip_gradient: 0.0, ..SGD };

/// Checks steps of every float dtype, in place and into other memory, with one gradient and with
/// sums.
pub fn steps_agree_with_the_model(backend: &dyn Backend) {
    for sgd in [SGD, SGD_WITHOUT_MOMENTUM] {
        for dtype in float_dtypes() {
            for length in reduced::lengths(&LENGTHS) {
                let steps = UpdateCase::new(sgd, dtype, length, 1 + (length % 4) as u64);
                for in_place in [true, false] {
                    let what = (dtype, length, in_place, sgd.momentum);
                    assert_same_bits(&steps.expected(), &steps.found(backend, in_place), &what);
                }
            }
        }
    }
}

/// A half-precision weight accumulates steps that are too small for its dtype, because the step
/// uses the master copy.
pub fn master_copies_accumulate_small_steps(backend: &dyn Backend) {
    for (dtype, half) in halves() {
        let one = |x: f64| Value::new(spec(1, dtype), &[Number::Float(x)]);
        let way = 4.0 * half.step(1.0);
        let sgd = Sgd {
            learning_rate: way / f64::from(reduced::times(200)),
            rescale_grad: 1.0,
            weight_decay: 0.0,
            ..SGD_WITHOUT_MOMENTUM
        };
        let steps = UpdateCase { sgd, weight: one(1.0), gradients: vec![one(-1.0)] };
        let mut values: Vec<_> = std::iter::once(one(1.0)).chain(steps.states()).collect();
        for _ in 0..reduced::times(200) {
            values = steps.step(backend, &values, true);
        }
        assert_same_bits(&one(1.0 + way), &values[0], &dtype);
    }
}

/// A batch of all kinds of steps gives the same results as separate calls.
pub fn a_batch_of_steps_equals_separate_steps(backend: &dyn Backend) {
    let kinds = [
        (SGD, DType::F32),
        (SGD_WITHOUT_MOMENTUM, DType::F32),
        (SGD, DType::F64),
        (SGD, DType::Bf16),
    ];
    let steps: Vec<_> = (0..usize::from(reduced::times(12)))
        .map(|n| UpdateCase::new(kinds[n % 4].0, kinds[n % 4].1, 1 + n * 100, 2))
        .collect();
    let upload = |value: &Value| Buffer::new(backend, value);
    let mut slots: Vec<Vec<Buffer>> = steps
        .iter()
        .map(|step| std::iter::once(&step.weight).chain(&step.states()).map(upload).collect())
        .collect();
    let gradients: Vec<Vec<Buffer>> =
        steps.iter().map(|step| step.gradients.iter().map(upload).collect()).collect();
    let spans: Vec<Vec<_>> =
        gradients.iter().map(|gradients| gradients.iter().map(Buffer::span).collect()).collect();
    let rules: Vec<UpdateRule> = steps.iter().map(UpdateCase::rule).collect();
    let each = steps.iter().zip(&rules).zip(&mut slots).zip(&spans);
    let jobs = each.map(|(((step, rule), slots), addends)| {
        let slots = slots.iter_mut().map(|slot| InOut::InPlace(slot.span_mut()));
        step.job(backend, rule, slots, addends)
    });
    backend.update(&mut jobs.map(Ok)).unwrap();
    for (step, slots) in steps.iter().zip(&slots) {
        let expected = step.sgd.apply(&mut SgdState::new(&step.weight), &sum(&step.gradients));
        assert_same_bits(&expected, &slots[0].value(backend), &step.weight.spec);
    }
}
