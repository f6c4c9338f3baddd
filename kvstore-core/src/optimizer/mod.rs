//! Optimizers as data: hyper-parameters and bookkeeping here, one pass over memory in a backend.
//!
//! An [`Optimizer`] holds hyper-parameters. For a key and its update count it yields an
//! [`UpdateRule`]: a plain value with every scalar folded in, which a backend applies to the sum of
//! the pushed values, the weight and the state in one pass.
//!
//! To add one: a file beside `sgd.rs` with the method's own hyper-parameters, its rule and the
//! formula for one element ([`Step`]); a variant of the method and of [`UpdateRule`] here; one arm
//! in each backend's `update`. The compiler names every place.

mod sgd;

use std::fmt::Debug;
use std::ops::{Add, Mul, Neg, Sub};

pub use sgd::{Sgd, SgdMomentum, SgdMomentumStep, SgdStep};

use crate::dtype::{DType, Element, Scalar};
use crate::error::{Error, Result};
use crate::tensor::Tensor;

/// A float that optimizer arithmetic runs in: `f32` or `f64`.
pub trait Real:
    Element + Add<Output = Self> + Sub<Output = Self> + Mul<Output = Self> + Neg<Output = Self>
{
    /// Returns the number moved into `[-bound, bound]`; NaN stays. A bound of 0 means none.
    #[inline]
    #[must_use]
    fn clip(self, bound: Self) -> Self {
        if bound == Self::default() {
            self
        } else if self > bound {
            bound
        } else if self < -bound {
            -bound
        } else {
            self
        }
    }
}

impl Real for f32 {}
impl Real for f64 {}

/// The formula of an optimizer for one element with `N` numbers of state.
///
/// Backends evaluate it in exactly this order of operations, without fused multiply-adds.
pub trait Step<A: Real, const N: usize>: Copy + Send + Sync {
    /// Returns the new weight and state.
    fn apply(self, weight: A, state: [A; N], gradient: A) -> (A, [A; N]);
}

/// One optimizer step with the scalars of one key and one update folded in, as `f64`.
#[derive(Clone, Debug, PartialEq)]
pub enum UpdateRule {
    /// Gradient descent without state.
    Sgd(Sgd),
    /// Gradient descent with momentum: one state, the momentum.
    SgdMomentum(SgdMomentum),
}

impl UpdateRule {
    /// Returns how many numbers of state an element has, a master copy not counted.
    pub fn num_states(&self) -> usize {
        match self {
            Self::Sgd(_) => 0,
            Self::SgdMomentum(_) => 1,
        }
    }

    /// Returns whether both run the same formula, with whatever scalars.
    pub fn same_kernel(&self, other: &Self) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
    }
}

/// What the formulas of most optimizers share.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Common {
    /// Step size.
    pub learning_rate: f64,
    /// Weight decay.
    pub weight_decay: f64,
    /// Factor on the gradient before everything else.
    pub rescale_grad: f64,
    /// Bound on the absolute value of the rescaled gradient; 0 means none.
    pub clip_gradient: f64,
}

impl Default for Common {
    fn default() -> Self {
        Self { learning_rate: 0.01, weight_decay: 0.0, rescale_grad: 1.0, clip_gradient: 0.0 }
    }
}

#[derive(Clone, Debug, PartialEq)]
enum Method {
    Sgd { momentum: f64 },
}

/// Hyper-parameters of an optimizer that runs on the store.
///
/// ```
/// use kvstore_core::Optimizer;
/// let optimizer = Optimizer::sgd().with("learning_rate", 0.1)?.with("momentum", 0.9)?;
/// assert_eq!(optimizer.get("momentum")?, 0.9);
/// # Ok::<(), kvstore_core::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Optimizer {
    common: Common,
    method: Method,
}

impl Optimizer {
    /// Returns stochastic gradient descent: learning rate 0.01, `momentum` 0, no weight decay.
    pub fn sgd() -> Self {
        Self { common: Common::default(), method: Method::Sgd { momentum: 0.0 } }
    }

    /// Returns the optimizer with this name and these hyper-parameters, the others at their
    /// defaults.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] naming an unknown optimizer or hyper-parameter, or a value that
    /// it cannot have.
    pub fn from_options(name: &str, options: &[(String, f64)]) -> Result<Self> {
        let optimizer = match name {
            "sgd" => Self::sgd(),
            _ => return Err(Error::invalid(format!("unknown optimizer `{name}`: expected `sgd`"))),
        };
        options.iter().try_fold(optimizer, |optimizer, (name, value)| optimizer.with(name, *value))
    }

    /// Returns the name that [`Optimizer::from_options`] knows.
    pub fn name(&self) -> &'static str {
        match self.method {
            Method::Sgd { .. } => "sgd",
        }
    }

    /// Returns the optimizer with one hyper-parameter changed.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] when it has none of this name, or cannot have this value.
    pub fn with(mut self, name: &str, value: f64) -> Result<Self> {
        let optimizer = self.name();
        let names: Vec<_> = self.hyper_parameters().iter().map(|(name, _)| *name).collect();
        let Some(parameter) = self.parameter_mut(name) else {
            return Err(Error::invalid(format!(
                "optimizer `{optimizer}` has no hyper-parameter `{name}`: expected one of {}",
                names.join(", ")
            )));
        };
        if !value.is_finite() || (name == "clip_gradient" && value < 0.0) {
            return Err(Error::invalid(format!("hyper-parameter `{name}` cannot be {value}")));
        }
        *parameter = value;
        Ok(self)
    }

    /// Returns a hyper-parameter.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] when there is none of this name.
    pub fn get(&self, name: &str) -> Result<f64> {
        let found = self.hyper_parameters().into_iter().find(|(known, _)| *known == name);
        found.map(|(_, value)| value).ok_or_else(|| {
            Error::invalid(format!("optimizer `{}` has no hyper-parameter `{name}`", self.name()))
        })
    }

    /// Returns every hyper-parameter by name.
    pub fn hyper_parameters(&self) -> Vec<(&'static str, f64)> {
        let Common { learning_rate, weight_decay, rescale_grad, clip_gradient } = self.common;
        let mut all = vec![
            ("learning_rate", learning_rate),
            ("wd", weight_decay),
            ("rescale_grad", rescale_grad),
            ("clip_gradient", clip_gradient),
        ];
        match self.method {
            Method::Sgd { momentum } => all.push(("momentum", momentum)),
        }
        all
    }

    fn parameter_mut(&mut self, name: &str) -> Option<&mut f64> {
        match name {
            "learning_rate" => Some(&mut self.common.learning_rate),
            "wd" => Some(&mut self.common.weight_decay),
            "rescale_grad" => Some(&mut self.common.rescale_grad),
            "clip_gradient" => Some(&mut self.common.clip_gradient),
            _ => match &mut self.method {
                Method::Sgd { momentum } => (name == "momentum").then_some(momentum),
            },
        }
    }

    /// Returns the step of a key's next update.
    pub fn rule(&self) -> UpdateRule {
        match self.method {
            Method::Sgd { momentum } => sgd::rule(self.common, momentum),
        }
    }

    /// Returns the state of a key that has not been updated yet, in the order that
    /// [`UpdateJob::states`](crate::backend::UpdateJob::states) asks for.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] when weights of this dtype cannot be optimized.
    pub fn create_states(&self, weight: &Tensor) -> Result<Vec<Tensor>> {
        let dtype = weight.dtype();
        let arithmetic = Self::arithmetic_of(dtype)?;
        let spec = weight.spec().with_dtype(arithmetic);
        let mut states = Vec::new();
        if arithmetic != dtype {
            states.push(weight.cast(arithmetic)?);
        }
        for _ in 0..self.rule().num_states() {
            let mut state = weight.allocate_like(spec.clone())?;
            state.fill(Scalar::Float(0.0))?;
            states.push(state);
        }
        Ok(states)
    }

    /// Returns the type that steps on weights of `dtype` are computed in.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for integers.
    pub fn arithmetic_of(dtype: DType) -> Result<DType> {
        dtype.arithmetic().ok_or_else(|| {
            Error::invalid(format!("an optimizer needs floating-point weights, not {dtype}"))
        })
    }
}
