//! [`Policy`]: how a push changes the stored value.

use kvstore::DType;

use crate::arithmetic::{Operator, is_half};
use crate::value::{Number, Value};

/// What a push does with the sum of its values.
#[derive(Clone, Debug, PartialEq)]
pub enum Policy {
    /// The sum replaces the stored value.
    Assign,
    /// An updater receives the sum and the stored value.
    Updater(NamedUpdater),
    /// The sum is a gradient for SGD.
    Sgd(Sgd),
}

/// Updaters that the model and every store can run. `s` is the stored value, `i` the sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamedUpdater {
    /// `s = i`
    Assign,
    /// `s = s + i`
    Add,
    /// `s = s - i`
    Sub,
    /// `s = s + i * 2`
    AddTwice,
    /// `s = s / 2 + i`
    DecayAdd,
    /// `s` is unchanged.
    Nothing,
    /// `s = s + i`. For the keys `b` and `e` it overwrites `s` and then fails.
    Picky,
}

impl NamedUpdater {
    /// Every updater.
    pub const ALL: [Self; 7] = [
        Self::Assign,
        Self::Add,
        Self::Sub,
        Self::AddTwice,
        Self::DecayAdd,
        Self::Nothing,
        Self::Picky,
    ];

    /// Returns the updater with this name in the recorded programs.
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "assign" => Some(Self::Assign),
            "add" => Some(Self::Add),
            "sub" => Some(Self::Sub),
            "add2x" => Some(Self::AddTwice),
            "decay_add" => Some(Self::DecayAdd),
            "noop" => Some(Self::Nothing),
            _ => None,
        }
    }

    /// Returns whether the updater fails for this key.
    pub fn fails_for(self, key: &str) -> bool {
        self == Self::Picky && matches!(key, "b" | "e")
    }

    /// Returns the new stored value.
    pub fn apply(self, stored: &Value, pushed: &Value) -> Value {
        let two = Number::Int(2);
        match self {
            Self::Assign => pushed.clone(),
            Self::Add | Self::Picky => stored.operate(Operator::Add, pushed),
            Self::Sub => stored.operate(Operator::Sub, pushed),
            Self::AddTwice => {
                stored.operate(Operator::Add, &pushed.operate_scalar(Operator::Mul, two))
            }
            Self::DecayAdd => {
                stored.operate_scalar(Operator::Div, two).operate(Operator::Add, pushed)
            }
            Self::Nothing => stored.clone(),
        }
    }
}

/// The hyper-parameters of stochastic gradient descent.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs, reason = "their names are the optimizer's own")]
pub struct Sgd {
    pub learning_rate: f64,
    pub momentum: f64,
    pub weight_decay: f64,
    pub rescale_grad: f64,
    pub clip_gradient: f64,
}

/// The state of SGD for a key.
#[derive(Clone, Debug)]
pub struct SgdState {
    momentum: Value,
    master: Value,
}

impl SgdState {
    /// Returns the state of a key before its first step. Half precision gets a master copy in f32.
    pub fn new(weight: &Value) -> Self {
        let dtype = if is_half(weight.spec.dtype) { DType::F32 } else { weight.spec.dtype };
        let master = weight.cast(dtype);
        Self { momentum: Value::zeros(master.spec.clone()), master }
    }
}

impl Sgd {
    /// Runs one step and returns the new weight.
    pub fn apply(&self, state: &mut SgdState, gradient: &Value) -> Value {
        self.apply_where(state, gradient, |_| true)
    }

    /// Runs one step on the selected elements and returns the new weight.
    pub fn apply_where(
        &self,
        state: &mut SgdState,
        gradient: &Value,
        is_touched: impl Fn(usize) -> bool,
    ) -> Value {
        let gradients = gradient.cast(state.master.spec.dtype).numbers;
        let touched = |(index, _): &(usize, Number)| is_touched(*index);
        for (index, gradient) in gradients.into_iter().enumerate().filter(touched) {
            let (weight, momentum) = (state.master.numbers[index], state.momentum.numbers[index]);
            let (weight, momentum) = self.step(weight, momentum, gradient, state.master.spec.dtype);
            (state.master.numbers[index], state.momentum.numbers[index]) = (weight, momentum);
        }
        state.master.cast(gradient.spec.dtype)
    }

    /// Returns the new weight and momentum of one element, rounded after every operation:
    /// `m = momentum * m - lr * wd * w - lr * q; w = w + m`, or without momentum
    /// `w = (1 - lr * wd) * w - lr * q`, where `q = clip(rescale * g)`.
    fn step(&self, w: Number, m: Number, g: Number, dtype: DType) -> (Number, Number) {
        let parameter = |value: f64| Number::Float(value).cast(dtype);
        let mul = |a: Number, b| a.operate(Operator::Mul, b, dtype);
        let sub = |a: Number, b| a.operate(Operator::Sub, b, dtype);
        let lr = parameter(self.learning_rate);
        let decay = self.learning_rate * self.weight_decay;
        let q = self.clip(mul(parameter(self.rescale_grad), g), dtype);
        if self.momentum == 0.0 {
            return (sub(mul(parameter(1.0 - decay), w), mul(lr, q)), m);
        }
        let m = sub(sub(mul(parameter(self.momentum), m), mul(parameter(decay), w)), mul(lr, q));
        (w.operate(Operator::Add, m, dtype), m)
    }

    /// Clips the gradient. A bound of 0 turns clipping off. NaN stays NaN.
    fn clip(&self, gradient: Number, dtype: DType) -> Number {
        let bound = Number::Float(self.clip_gradient).cast(dtype).to_f64();
        let is_off = bound == 0.0 || gradient.to_f64().is_nan();
        if is_off { gradient } else { Number::Float(gradient.to_f64().clamp(-bound, bound)) }
    }
}
