//! Runs an optimizer over some keys: the results of the formulas after every push, and the
//! tolerances for a store.

use kvstore::{DType, Key, Optimizer};

use crate::approximate::Approximate;
use crate::arithmetic::sum;
use crate::format::{Format, HalfFormat};
use crate::optimizer::{Naive, State, UpdateScalars};
use crate::schedule::Stateful;
use crate::value::{Number, Value};

/// An optimizer with its schedule and multipliers.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The optimizer.
    pub naive: Naive,
    /// The schedule, before its first update. Its base rate is the optimizer's learning rate.
    pub schedule: Option<Stateful>,
    /// The multipliers of learning rate and weight decay, by key.
    pub multipliers: Vec<(String, f64, f64)>,
}

impl Setup {
    /// Returns the setup of an optimizer without schedule and multipliers.
    pub fn new(naive: Naive) -> Self {
        Self { naive, schedule: None, multipliers: Vec::new() }
    }

    /// Returns the same optimizer for a store.
    pub fn optimizer(&self) -> kvstore::Result<Optimizer> {
        let options: Vec<_> = self.naive.parameters.iter().map(own).collect();
        let mut optimizer = Optimizer::from_options(self.naive.name, &options)?;
        if let Some(schedule) = &self.schedule {
            optimizer = optimizer.with_scheduler(schedule.scheduler()?);
        }
        for (key, lr, wd) in &self.multipliers {
            let key = Key::new(key.as_str())?;
            optimizer =
                optimizer.with_lr_multiplier(key.clone(), *lr)?.with_wd_multiplier(key, *wd)?;
        }
        Ok(optimizer)
    }

    fn multipliers_of(&self, key: &str) -> (f64, f64) {
        let found = self.multipliers.iter().find(|(other, ..)| other == key);
        found.map_or((1.0, 1.0), |(_, lr, wd)| (*lr, *wd))
    }
}

fn own((name, value): (&&'static str, &f64)) -> (String, f64) {
    ((*name).to_owned(), *value)
}

/// One key under the formulas.
#[derive(Clone, Debug)]
pub struct NaiveKey {
    key: String,
    dtype: DType,
    row_len: usize,
    schedule: Option<Stateful>,
    num_updates: u32,
    /// The weight. For half precision, its copy in f32.
    pub weights: Vec<Approximate>,
    /// The state of each element.
    pub states: Vec<State>,
}

impl NaiveKey {
    /// Returns a key with this initial weight.
    pub fn new(setup: &Setup, key: &str, weight: &Value) -> Self {
        let unit = unit_of(weight.spec.dtype);
        let weights = weight.numbers.iter().map(|number| number.to_f64());
        Self {
            key: key.to_owned(),
            dtype: weight.spec.dtype,
            row_len: weight.spec.shape.iter().skip(1).product(),
            schedule: setup.schedule.clone(),
            num_updates: 0,
            weights: weights.clone().map(|weight| Approximate::exact(weight, unit)).collect(),
            states: weights.map(|weight| setup.naive.state(weight, unit)).collect(),
        }
    }

    /// Runs one update with the sum of the gradients.
    pub fn push(&mut self, setup: &Setup, gradients: &[Value]) {
        self.num_updates += 1;
        let mut due = self.due(setup);
        let merged = sum(gradients).numbers;
        let norms = self.norms(setup, due, &merged);
        for (index, gradient) in merged.into_iter().enumerate() {
            due.norms = norms.as_ref().map(|norms| norms[index / self.stretch(setup)]);
            let (weight, state) = (&mut self.weights[index], &mut self.states[index]);
            *weight = setup.naive.step(due, *weight, gradient.to_f64(), state);
        }
    }

    #[expect(clippy::cast_possible_truncation, reason = "counts are small")]
    #[expect(clippy::cast_sign_loss, reason = "counts are not negative")]
    fn due(&mut self, setup: &Setup) -> UpdateScalars {
        let count = setup.naive.get("begin_num_update") as u32 + self.num_updates;
        let base = setup.naive.get("learning_rate");
        let schedule = self.schedule.as_mut();
        let learning_rate = schedule.map_or(base, |schedule| schedule.learning_rate(count.into()));
        let (lr, wd) = setup.multipliers_of(&self.key);
        UpdateScalars {
            count,
            learning_rate: learning_rate * lr,
            weight_decay: setup.naive.get("wd") * wd,
            norms: None,
        }
    }

    /// Returns the number of elements that share norms: a row, or all elements.
    fn stretch(&self, setup: &Setup) -> usize {
        if setup.naive.name == "groupadagrad" { self.row_len } else { self.weights.len() }
    }

    /// Returns the norms of each stretch of elements that share them, or `None` for most
    /// optimizers.
    fn norms(
        &self,
        setup: &Setup,
        due: UpdateScalars,
        gradients: &[Number],
    ) -> Option<Vec<[Approximate; 2]>> {
        let zero = Approximate::exact(0.0, unit_of(self.dtype));
        let elements = self.weights.iter().zip(&self.states).zip(gradients);
        let measured = elements.map(|((weight, state), gradient)| {
            setup.naive.measured(due, *weight, gradient.to_f64(), state)
        });
        let measured: Vec<_> = measured.collect::<Option<_>>()?;
        let norms = measured.chunks(self.stretch(setup)).map(|stretch| {
            let sums = stretch.iter().fold([zero; 2], |sums, numbers| {
                std::array::from_fn(|n| sums[n] + numbers[n] * numbers[n])
            });
            sums.map(Approximate::sqrt)
        });
        Some(norms.collect())
    }

    /// Returns a description of the first stored weight outside its tolerance, or `None`. The
    /// tolerance of half-precision weights includes one more rounding.
    pub fn difference(&self, stored: &Value) -> Option<String> {
        assert_eq!(stored.spec.dtype, self.dtype);
        difference(&self.weights, stored, Rounding::In(self.dtype))
    }
}

/// The rounding of a stored number after the formulas.
#[derive(Clone, Copy, Debug)]
pub enum Rounding {
    /// None: the number has the type that it was computed in.
    AsComputed,
    /// The number was rounded to this dtype, if it is a half-precision one.
    In(DType),
}

impl Rounding {
    /// Returns the error of storing a number. It is not relative for the smallest half-precision
    /// numbers.
    fn rounding(self, value: f64) -> f64 {
        let rounding = |half: HalfFormat| (value.abs() * half.rounding()).max(half.step(0.0) / 2.0);
        self.half().map_or(0.0, rounding)
    }

    fn half(self) -> Option<HalfFormat> {
        if let Self::In(dtype) = self { Format::of(dtype).half() } else { None }
    }
}

/// Returns a description of the first number outside its tolerance, or `None`.
pub fn difference(expected: &[Approximate], found: &Value, stored: Rounding) -> Option<String> {
    let pairs = expected.iter().zip(&found.numbers).enumerate();
    let mut wrong = pairs.filter(|(_, (expected, found))| !is_near(expected, **found, stored));
    let (index, (expected, found)) = wrong.next()?;
    Some(format!("element {index}: expected {expected:?}, found {found:?}"))
}

fn is_near(expected: &Approximate, found: Number, stored: Rounding) -> bool {
    let tolerance = expected.error + stored.rounding(expected.value);
    // Beyond these limits, the formula gives no tolerance, or half precision overflows.
    let most = stored.half().map_or(6e4, |half| (0.95 * half.largest()).min(6e4));
    if !tolerance.is_finite() || expected.value.abs() > most {
        return true;
    }
    (found.to_f64() - expected.value).abs() <= 1.01 * tolerance
}

/// Returns the error of one rounding in the arithmetic on weights of this dtype.
pub fn unit_of(dtype: DType) -> f64 {
    if dtype == DType::F64 { f64::EPSILON / 2.0 } else { f64::from(f32::EPSILON) / 2.0 }
}
