//! Checks of sums of squares: the bits of the documented order of additions, for any length, number
//! of addends and number of threads.

use kvstore_core::backend::{MeasureJob, Measured};
use kvstore_core::norm::num_blocks;
use kvstore_core::optimizer::{LayerFormula, LayerVisitor, MAX_STATES, Real, UpdateRule};
use kvstore_core::storage::Span;
use kvstore_core::{Backend, DType, Device, Element, Key, Optimizer};

use super::backend::{Buffer, addends, spec};
use crate::arithmetic::{is_half, sum};
use crate::clip::sums_of_blocks;
use crate::reduced;
use crate::samples::tame;
use crate::value::{Number, Value};

/// Lengths around a row of columns and around a block, and one for several threads.
const LENGTHS: [usize; 9] = [1, 127, 128, 129, 4095, 4096, 4097, 12_345, LONG];

const LONG: usize = reduced::length((1 << 17) + 77);

fn floats() -> impl Iterator<Item = DType> {
    DType::ALL.into_iter().filter(|dtype| dtype.is_float())
}

/// Returns the result of `measure` of a backend.
fn measured(
    backend: &dyn Backend,
    addends: &[Value],
    step: Option<(UpdateRule, &Value, &[Value])>,
) -> Vec<[f64; 2]> {
    let (dtype, len) = (addends[0].spec.dtype, addends[0].numbers.len());
    let buffers: Vec<_> = addends.iter().map(|value| Buffer::new(backend, value)).collect();
    let spans: Vec<_> = buffers.iter().map(Buffer::span).collect();
    let kept = step.iter().flat_map(|(_, weight, states)| {
        std::iter::once(*weight).chain(states.iter()).map(|value| Buffer::new(backend, value))
    });
    let kept: Vec<Buffer> = kept.collect();
    let measured = match step {
        None => Measured::Gradient,
        Some((rule, ..)) => {
            let mut states: [Option<Span<'_>>; MAX_STATES] = [None; MAX_STATES];
            for (slot, state) in states.iter_mut().zip(&kept[1..]) {
                *slot = Some(state.span());
            }
            Measured::Step { rule, weight: kept[0].span(), states }
        }
    };
    // NaN shows a block that the backend has not written.
    let mut sums = vec![[f64::NAN; 2]; num_blocks(len)];
    let device = Device::new(backend.kind(), 0);
    let job = MeasureJob { measured, device, dtype, addends: &spans, sums: &mut sums };
    backend.measure(&mut [job]).expect("floats have norms");
    sums
}

/// Gradients are summed and rounded like every sum, then squared and added in `f64`.
pub fn norms_of_gradients_agree_with_the_model(backend: &dyn Backend) {
    for dtype in floats() {
        for length in LENGTHS {
            let counts: &[usize] = if length == LONG { &[3] } else { &[1, 3, 10] };
            for &count in counts {
                let addends = addends(count, length, dtype);
                let numbers: Vec<_> =
                    sum(&addends).numbers.iter().map(|number| number.to_f64()).collect();
                let expected = sums_of_blocks(&numbers);
                let found = measured(backend, &addends, None);
                let same = expected.iter().zip(&found).all(|(sum, [first, second])| {
                    (sum.to_bits() == first.to_bits() || sum.is_nan() && first.is_nan())
                        && *second == 0.0
                });
                assert!(same && found.len() == expected.len(), "{dtype} {length} {count}");
            }
        }
    }
}

/// The inputs of a step of a rule: gradients, weight and states.
struct Numbers<'a> {
    rule: &'a UpdateRule,
    arithmetic: DType,
    values: [&'a [Number]; 4],
}

impl LayerVisitor for Numbers<'_> {
    /// The two numbers of each element.
    type Output = Vec<[f64; 2]>;

    fn visit<R: LayerFormula<N>, const N: usize>(self) -> Vec<[f64; 2]> {
        match self.arithmetic {
            DType::F64 => self.of::<f64, R, N>(),
            _ => self.of::<f32, R, N>(),
        }
    }
}

impl Numbers<'_> {
    fn of<A: Real, R: LayerFormula<N>, const N: usize>(&self) -> Vec<[f64; 2]> {
        let step = R::of(self.rule).expect("a rule of this formula").round::<A>();
        let [gradients, weights, states @ ..] = self.values;
        let number = |of: &[Number], index: usize| A::from_f64(of[index].to_f64());
        let element = |index: usize| {
            let state = std::array::from_fn(|n| number(states[n], index));
            let (weight, gradient) = (number(weights, index), number(gradients, index));
            R::measure::<A>(&step, weight, state, gradient).map(Element::to_f64)
        };
        (0..gradients.len()).map(element).collect()
    }
}

/// Norms for layer-wise optimizers, with and without a master copy.
pub fn norms_of_steps_agree_with_the_model(backend: &dyn Backend) {
    for name in ["lars", "lamb"] {
        let optimizer = Optimizer::new(name).unwrap().with("rescale_grad", 0.5).unwrap();
        let optimizer = match name {
            "lars" => optimizer.with("momentum", 0.9).unwrap(),
            _ => optimizer.with("wd", 0.01).unwrap(),
        };
        let rule = optimizer.rule(&Key::new("w").unwrap(), 3, &mut 1.0);
        for dtype in floats() {
            for length in LENGTHS {
                check_step(backend, rule, dtype, length);
            }
        }
    }
}

fn check_step(backend: &dyn Backend, rule: UpdateRule, dtype: DType, length: usize) {
    let arithmetic = dtype.arithmetic().unwrap();
    let values = |seed: u64, dtype| tame(spec(length, dtype), seed);
    let gradients = [values(1, dtype), values(2, dtype)];
    let weight = values(3, dtype);
    // A state like a variance is not negative.
    let positive = |value: Value| Value {
        numbers: value.numbers.iter().map(|number| Number::Float(number.to_f64().abs())).collect(),
        ..value
    };
    let states: Vec<_> = (0..rule.initial().len() as u64)
        .map(|n| positive(values(4 + n, arithmetic)).cast(arithmetic))
        .collect();
    // The master copy differs from its rounded value.
    let master = values(9, arithmetic);
    let mut kept = states.clone();
    if is_half(dtype) {
        kept.insert(0, master.clone());
    }
    let found = measured(backend, &gradients, Some((rule, &weight, &kept)));
    let gradient = sum(&gradients);
    let measured_weight = if is_half(dtype) { &master } else { &weight };
    let empty: &[Number] = &[];
    let state = |n: usize| states.get(n).map_or(empty, |state| &state.numbers);
    let values = [&*gradient.numbers, &*measured_weight.numbers, state(0), state(1)];
    let numbers = rule.visit_layerwise(Numbers { rule: &rule, arithmetic, values });
    let numbers = numbers.expect("a layer-wise rule");
    for n in 0..2 {
        let expected = sums_of_blocks(&numbers.iter().map(|pair| pair[n]).collect::<Vec<_>>());
        let found: Vec<_> = found.iter().map(|pair| pair[n]).collect();
        assert_eq!(expected, found, "{} {dtype} {length}, number {n}", rule.formula());
    }
}
