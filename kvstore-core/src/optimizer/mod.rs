//! Optimizers: their hyper-parameters and the state of each key.
//!
//! An [`Optimizer`] holds hyper-parameters. For a key and the number of its update it returns an
//! [`UpdateRule`], which a backend applies. The formulas are in `rule/`.

mod lr_scheduler;
mod state;
mod without_store;

use std::collections::BTreeMap;
use std::fmt;
use std::iter::once;

pub use crate::rule::formulas::*;
pub use crate::rule::{
    COMMON, DEFINITIONS, Definition, Domain, Factory, Formula, Initial, LayerFormula, LayerVisitor,
    MAX_SCALARS, MAX_STATES, Parameter, Real, RowFormula, RowVisitor, Rule, RuleVisitor, Step,
    UpdateRule,
};
pub use lr_scheduler::{LrScheduler, Warmup};
pub use state::OptimizerState;

pub(crate) use state::{Outline, Pending};

use crate::fallible;
use crate::rows::RowPlan;
use crate::rule::{KeyUpdate, LAZY_UPDATE};
use crate::staleness::push_staleness;
use crate::tensor::Tensor;
use crate::types::{DType, Error, Key, Result};

/// Aliases of optimizers and hyper-parameters.
pub const ALIASES: [(&str, &str); 7] = [
    ("ccsgd", "sgd"),
    ("lr", "learning_rate"),
    ("weight_decay", "wd"),
    ("eps", "epsilon"),
    ("lambda", "lamda"),
    ("lambda1", "lamda1"),
    ("num_update", "begin_num_update"),
];

/// Where a weight may be divided into parts that are stepped separately. The result has the same
/// bits as a step of the complete weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepUnit {
    /// Between any two elements.
    Element,
    /// Between blocks of [`norm::BLOCK`](crate::norm::BLOCK) elements. The step needs norms of the
    /// complete weight; see [`LocalStore::push_parts`](crate::LocalStore::push_parts).
    Block,
    /// Between rows.
    Row,
    /// Nowhere.
    Weight,
}

/// An optimizer that runs on the store: a name, and hyper-parameters as `f64`.
///
/// Every optimizer has these hyper-parameters:
///
/// - `learning_rate`
/// - `wd`: weight decay
/// - `rescale_grad`: a factor on the gradient
/// - `clip_gradient`: a bound on each element of the rescaled gradient, or 0 for none
/// - `begin_num_update`: the update count that keys start with
/// - `staleness_power`: in a store on servers, a push that is `staleness` pushes behind has the
///   learning rate divided by `(1 + staleness)^staleness_power`
///
/// `sgd`, `adam`, `adagrad`, `ftrl` and `groupadagrad` also have `lazy_update`, 1 by default. With
/// 1, a row-sparse gradient changes only its own rows of weight and state. With 0, and with every
/// other optimizer, missing rows of the gradient count as 0.
///
/// The manual (`docs/reference/optimizers.md`) has all formulas, hyper-parameters and sources.
///
/// ```
/// use kvstore_core::Optimizer;
/// let optimizer = Optimizer::sgd().with("learning_rate", 0.1)?.with("momentum", 0.9)?;
/// assert_eq!(optimizer.get("momentum")?, 0.9);
/// let adam = Optimizer::new("adam")?;
/// assert_eq!(adam.hyper_parameters()[0], ("learning_rate", 0.001));
/// # Ok::<(), kvstore_core::Error>(())
/// ```
#[derive(Clone)]
pub struct Optimizer {
    definition: &'static Definition<UpdateRule>,
    /// Whether the formula needs norms.
    is_layerwise: bool,
    /// Whether the state belongs to rows.
    is_rowwise: bool,
    common: [f64; COMMON.len()],
    own: Vec<f64>,
    scheduler: Option<LrScheduler>,
    lr_multipliers: BTreeMap<Key, f64>,
    wd_multipliers: BTreeMap<Key, f64>,
}

impl Optimizer {
    /// Returns the optimizer with this name or alias, with default hyper-parameters.
    ///
    /// # Errors
    /// - [`Error::InvalidArgument`] if the name is unknown. The message lists the known names.
    pub fn new(name: &str) -> Result<Self> {
        let known = DEFINITIONS.iter().find(|definition| definition.name == resolve(name));
        let definition = known.ok_or_else(|| {
            let names = Self::names().collect::<Vec<_>>().join(", ");
            Error::invalid(format!("unknown optimizer `{name}`: expected one of {names}"))
        })?;
        Ok(Self::of(definition))
    }

    fn of(definition: &'static Definition<UpdateRule>) -> Self {
        let mut defaults = definition.parameters().map(|parameter| parameter.default);
        let mut optimizer = Self {
            definition,
            is_layerwise: false,
            is_rowwise: false,
            common: COMMON.map(|parameter| defaults.next().unwrap_or(parameter.default)),
            own: defaults.collect(),
            scheduler: None,
            lr_multipliers: BTreeMap::new(),
            wd_multipliers: BTreeMap::new(),
        };
        let rule = optimizer.rule(&Key::default(), 1, &mut 1.0);
        optimizer.is_layerwise = rule.is_layerwise();
        optimizer.is_rowwise = rule.is_rowwise();
        optimizer
    }

    /// Returns stochastic gradient descent with learning rate 0.01, `momentum` 0 and no weight
    /// decay.
    pub fn sgd() -> Self {
        Self::of(&DEFINITIONS[0])
    }

    /// Returns the optimizer with this name or alias and these hyper-parameters. Others have their
    /// defaults.
    ///
    /// # Errors
    /// - [`Error::InvalidArgument`] if the name is unknown.
    /// - The errors of [`Optimizer::set_all`].
    pub fn from_options(name: &str, options: &[(String, f64)]) -> Result<Self> {
        let mut optimizer = Self::new(name)?;
        optimizer.set_all(options)?;
        Ok(optimizer)
    }

    /// Returns the name of every optimizer except `test`, which exists to test programs.
    pub fn names() -> impl Iterator<Item = &'static str> {
        DEFINITIONS.iter().map(|definition| definition.name).filter(|name| *name != "test")
    }

    /// Returns the name.
    pub fn name(&self) -> &'static str {
        self.definition.name
    }

    /// Returns the optimizer with one hyper-parameter changed.
    ///
    /// # Errors
    /// - [`Error::InvalidArgument`] if the optimizer has no hyper-parameter of this name.
    /// - [`Error::InvalidArgument`] if the value is not valid for the hyper-parameter.
    pub fn with(mut self, name: &str, value: f64) -> Result<Self> {
        self.set(name, value)?;
        Ok(self)
    }

    /// Changes one hyper-parameter.
    ///
    /// # Errors
    /// - The errors of [`Optimizer::with`].
    pub fn set(&mut self, name: &str, value: f64) -> Result<()> {
        let index = self.index_of(name)?;
        if let Some(parameter) = self.parameters().nth(index)
            && !parameter.domain.holds(value)
        {
            return Err(Error::invalid(format!(
                "hyper-parameter `{name}` of optimizer `{}` cannot be {value}: expected {}",
                self.name(),
                parameter.domain.description()
            )));
        }
        if let Some(place) = self.common.iter_mut().chain(&mut self.own).nth(index) {
            *place = value;
        }
        Ok(())
    }

    /// Changes several hyper-parameters, or none if one is invalid.
    ///
    /// # Errors
    /// - The errors of [`Optimizer::with`].
    /// - [`Error::InvalidArgument`] if two names, such as `lr` and `learning_rate`, mean the same
    ///   hyper-parameter.
    pub fn set_all<N: AsRef<str>>(&mut self, options: &[(N, f64)]) -> Result<()> {
        // Two names of one hyper-parameter would make the result depend on their order.
        for (index, (name, _)) in options.iter().enumerate() {
            let is_same =
                |other: &str| other != name.as_ref() && resolve(other) == resolve(name.as_ref());
            let mut others = options.iter().take(index).map(|(other, _)| other.as_ref());
            if let Some(other) = others.find(|other| is_same(other)) {
                let name = name.as_ref();
                return Err(Error::invalid(format!(
                    "`{other}` and `{name}` name the same hyper-parameter: expected one of them, \
                     found both"
                )));
            }
        }
        // Change a copy, so that an invalid value changes nothing.
        let mut changed = self.clone();
        for (name, value) in options {
            changed.set(name.as_ref(), *value)?;
        }
        *self = changed;
        Ok(())
    }

    /// Returns whether a hyper-parameter of this name is 0 or 1, so that a binding can use a
    /// boolean.
    pub fn is_flag(name: &str) -> bool {
        let mut own = DEFINITIONS.iter().flat_map(|definition| definition.own);
        own.any(|parameter| parameter.name == resolve(name) && parameter.domain == Domain::Flag)
    }

    /// Returns the value of a hyper-parameter.
    ///
    /// # Errors
    /// - [`Error::InvalidArgument`] if the optimizer has no hyper-parameter of this name.
    pub fn get(&self, name: &str) -> Result<f64> {
        let index = self.index_of(name)?;
        Ok(self.values().nth(index).unwrap_or_default())
    }

    /// Returns the name and value of every hyper-parameter.
    pub fn hyper_parameters(&self) -> Vec<(&'static str, f64)> {
        self.parameters().map(|parameter| parameter.name).zip(self.values()).collect()
    }

    /// Returns the optimizer with a schedule. `learning_rate` becomes the base of the schedule.
    #[must_use]
    pub fn with_scheduler(mut self, scheduler: LrScheduler) -> Self {
        self.scheduler = Some(scheduler);
        self
    }

    /// Returns the schedule of the learning rate, or `None` if there is none.
    pub fn scheduler(&self) -> Option<&LrScheduler> {
        self.scheduler.as_ref()
    }

    /// Returns the optimizer with a factor on the learning rate of one key.
    ///
    /// # Errors
    /// - [`Error::InvalidArgument`] if the factor is not finite.
    pub fn with_lr_multiplier(mut self, key: Key, factor: f64) -> Result<Self> {
        check_multiplier(&key, factor)?;
        self.lr_multipliers.insert(key, factor);
        Ok(self)
    }

    /// Returns the factors on learning rates and on weight decays, by key.
    pub(crate) fn multipliers(&self) -> [&BTreeMap<Key, f64>; 2] {
        [&self.lr_multipliers, &self.wd_multipliers]
    }

    /// Returns the optimizer with a factor on the weight decay of one key.
    ///
    /// # Errors
    /// - [`Error::InvalidArgument`] if the factor is not finite.
    pub fn with_wd_multiplier(mut self, key: Key, factor: f64) -> Result<Self> {
        check_multiplier(&key, factor)?;
        self.wd_multipliers.insert(key, factor);
        Ok(self)
    }

    /// Returns the state before the first update of a weight.
    ///
    /// # Errors
    /// - [`Error::InvalidArgument`] if the weight has an integer dtype.
    pub fn create_state(&self, weight: &Tensor) -> Result<OptimizerState> {
        Self::arithmetic_of(weight.dtype())?;
        OptimizerState::new(self.name(), &self.rule(&Key::default(), 1, &mut 1.0), weight)
    }

    /// Updates a weight with the sum of the gradients, outside any store. Gradients and state may
    /// be on other devices. The state moves to the weight's device.
    ///
    /// # Errors
    /// - [`Error::SpecMismatch`] if the shape or dtype of a gradient differs from the weight's.
    /// - [`Error::SpecMismatch`] if the state belongs to a weight of another shape or dtype.
    /// - [`Error::InvalidArgument`] if the state belongs to another optimizer.
    /// - [`Error::InvalidArgument`] if there are no gradients.
    /// - [`Error::InvalidArgument`] if the weight has an integer dtype.
    pub fn update(
        &self,
        key: &Key,
        weight: &mut Tensor,
        gradients: &[Tensor],
        state: &mut OptimizerState,
    ) -> Result<()> {
        Self::check_dtype(key, weight.dtype())?;
        state.check(self.name(), key, weight.spec())?;
        if gradients.is_empty() {
            return Err(Error::invalid(format!(
                "key `{key}`: an update needs at least one gradient"
            )));
        }
        for gradient in gradients {
            if gradient.spec() != weight.spec() {
                return Err(Error::spec_mismatch(key, weight.spec(), gradient.spec()));
            }
        }
        let gathered = gradients.iter().map(|gradient| gradient.to_device_of(weight));
        let gathered: Vec<Tensor> = fallible::try_collect(gathered)?;
        let spans: Vec<_> = fallible::collect(gathered.iter().map(Tensor::span))?;
        let backend = weight.backend()?.clone();
        state.move_beside(weight)?;
        // Everything that can fail, except the backend, happens before the step changes the weight.
        let mut pending = Pending::new(self, key, weight, Some(state))?;
        let mut sums = pending.norm_sums(weight)?;
        if !sums.is_empty() {
            backend.measure(&mut [pending.measure_job(weight, state, &spans, &mut sums)])?;
            pending.set_norms(&sums)?;
        }
        if self.is_rowwise() {
            let plan = RowPlan::of_all_rows(weight.shape().num_rows(), gradients.len())?;
            if let Some(job) = pending.row_job(weight, state, &plan, &spans)? {
                backend.update_rows(&mut [job])?;
            }
        } else if !pending.is_skipped() {
            backend.update(&mut once(pending.job(weight, state, &spans)))?;
        }
        pending.settle(weight, state);
        Ok(())
    }

    /// Returns the dtype of the computations for weights of `dtype`.
    ///
    /// # Errors
    /// - [`Error::InvalidArgument`] if `dtype` is an integer dtype.
    pub fn arithmetic_of(dtype: DType) -> Result<DType> {
        dtype.arithmetic().ok_or_else(|| {
            Error::invalid(format!("an optimizer needs floating-point weights, not {dtype}"))
        })
    }

    /// Checks that an optimizer can update the weight of a key.
    ///
    /// # Errors
    /// - [`Error::InvalidArgument`] if `dtype` is an integer dtype. The message names the key.
    pub fn check_dtype(key: &Key, dtype: DType) -> Result<()> {
        Self::arithmetic_of(dtype)
            .map(drop)
            .map_err(|error| Error::invalid(format!("key `{key}`: {error}")))
    }

    /// Returns whether the steps of most keys need norms before.
    pub(crate) fn is_layerwise(&self) -> bool {
        self.is_layerwise
    }

    /// Returns where a weight may be divided into parts that are stepped separately.
    pub fn unit(&self) -> StepUnit {
        if self.is_layerwise {
            StepUnit::Block
        } else if self.is_rowwise {
            StepUnit::Row
        } else if self.name() == "sgld" {
            // The noise of an element depends on its index in the weight.
            StepUnit::Weight
        } else {
            StepUnit::Element
        }
    }

    /// Returns whether the state belongs to rows; see [`RowFormula`].
    pub fn is_rowwise(&self) -> bool {
        self.is_rowwise
    }

    /// Returns whether a row-sparse gradient changes only its own rows of weight and state: whether
    /// the optimizer has `lazy_update`, and it is 1.
    pub fn is_lazy(&self) -> bool {
        let values = self.definition.own.iter().zip(&self.own);
        values.into_iter().any(|(parameter, value)| *parameter == LAZY_UPDATE && *value != 0.0)
    }

    /// Returns the rule for update number `num_updates` of a key, counted from 1.
    ///
    /// `momentum_product` is a number that belongs to the key. Pass 1 for the first update. Some
    /// optimizers change it. Inside a push on a server, the rule depends on
    /// [`push_staleness`] of the key.
    #[allow(clippy::cast_possible_truncation, reason = "an integer of at most 53 bits")]
    #[allow(clippy::cast_sign_loss, reason = "and at least 0")]
    #[allow(clippy::cast_precision_loss, reason = "a staleness is far below 2^53")]
    pub fn rule(&self, key: &Key, num_updates: u64, momentum_product: &mut f64) -> UpdateRule {
        let [learning_rate, weight_decay, rescale, clip, begin, staleness_power] = self.common;
        let count = begin as u64 + num_updates;
        let scheduled = match &self.scheduler {
            Some(scheduler) => scheduler.learning_rate(learning_rate, count),
            None => learning_rate,
        };
        let factor = |factors: &BTreeMap<Key, f64>| factors.get(key).copied().unwrap_or(1.0);
        let mut learning_rate = scheduled * factor(&self.lr_multipliers);
        if staleness_power > 0.0
            && let Some(staleness) = push_staleness(key)
        {
            // Zhang et al., "Staleness-aware async-SGD for distributed deep learning", 2016.
            learning_rate /= libm::pow(1.0 + staleness as f64, staleness_power);
        }
        (self.definition.rule)(&mut KeyUpdate {
            key,
            count,
            learning_rate,
            weight_decay: weight_decay * factor(&self.wd_multipliers),
            rescale,
            clip: if clip == 0.0 { f64::INFINITY } else { clip },
            momentum_product,
            own: &self.own,
        })
    }

    fn parameters(&self) -> impl Iterator<Item = &'static Parameter> + use<> {
        COMMON.iter().chain(self.definition.own)
    }

    fn values(&self) -> impl Iterator<Item = f64> {
        self.common.iter().chain(&self.own).copied()
    }

    fn index_of(&self, name: &str) -> Result<usize> {
        let known = self.parameters().position(|parameter| parameter.name == resolve(name));
        known.ok_or_else(|| {
            let names: Vec<_> = self.parameters().map(|parameter| parameter.name).collect();
            Error::invalid(format!(
                "optimizer `{}` has no hyper-parameter `{name}`: expected one of {}",
                self.name(),
                names.join(", ")
            ))
        })
    }
}

fn resolve(name: &str) -> &str {
    ALIASES.iter().find(|(alias, _)| *alias == name).map_or(name, |(_, canonical)| canonical)
}

impl PartialEq for Optimizer {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
            && self.values().eq(other.values())
            && self.scheduler == other.scheduler
            && self.lr_multipliers == other.lr_multipliers
            && self.wd_multipliers == other.wd_multipliers
    }
}

impl fmt::Debug for Optimizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct(self.name())
            .field("hyper_parameters", &self.hyper_parameters())
            .field("scheduler", &self.scheduler)
            .field("lr_multipliers", &self.lr_multipliers)
            .field("wd_multipliers", &self.wd_multipliers)
            .finish_non_exhaustive()
    }
}

fn check_multiplier(key: &Key, factor: f64) -> Result<()> {
    if factor.is_finite() {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "the multiplier of key `{key}`: expected a finite number, found {factor}"
    )))
}
