//! [`OptimizerState`]: the state of one key. [`Pending`]: a prepared step.

use std::sync::Arc;

use super::Optimizer;
use crate::backend::registry::Backends;
use crate::backend::{
    InOut, MeasureJob, Measured, RowUpdateJob, Span, SpanMut, Storage, UpdateJob,
};
use crate::fallible;
use crate::norm::{add_blocks, num_blocks};
use crate::rows::{RowPlan, row_len};
use crate::rule::{Initial, MAX_STATES, UpdateRule};
use crate::tensor::Tensor;
use crate::types::{Device, Error, Key, Result, Scalar, TensorSpec};

/// The state that an optimizer keeps for one key between updates.
#[derive(Clone, Debug)]
pub struct OptimizerState {
    /// The rule of the last update. Its formula determines `tensors`.
    rule: Option<UpdateRule>,
    tensors: Vec<Tensor>,
    /// Tensors that only another formula of the optimizer uses, such as the momentum while it is
    /// switched off. They are used again when that formula is.
    parked: Vec<(Initial, Tensor)>,
    num_updates: u64,
    momentum_product: f64,
    /// The name of the optimizer and the spec of the weight.
    made_for: Option<(&'static str, TensorSpec)>,
}

/// A state without its tensors.
#[derive(Clone, Debug)]
pub(crate) struct Outline {
    /// The formula of the last update. Its scalars are not used.
    pub(crate) formula: UpdateRule,
    /// The initial values of the parked tensors.
    pub(crate) parked: Vec<Initial>,
    pub(crate) num_updates: u64,
    pub(crate) momentum_product: f64,
}

impl Initial {
    /// Returns the spec of a state tensor with this initial value, in the dtype of the weight.
    fn spec(self, weight: &TensorSpec) -> TensorSpec {
        match self {
            Self::Zero | Self::Weight => weight.clone(),
            Self::RowZero => TensorSpec::new([weight.shape().num_rows(), 1], weight.dtype()),
        }
    }
}

impl Outline {
    /// Returns the spec of each state tensor. Returns none for weights with an integer dtype.
    pub(crate) fn specs(&self, weight: &TensorSpec) -> impl Iterator<Item = TensorSpec> {
        let arithmetic = weight.dtype().arithmetic();
        let master = arithmetic.filter(|arithmetic| *arithmetic != weight.dtype());
        let others = self.formula.initial().iter().chain(&self.parked);
        let others = others.map(|initial| initial.spec(weight));
        let all = master.map(|_| weight.clone()).into_iter().chain(others);
        all.filter_map(move |spec| Some(spec.with_dtype(arithmetic?)))
    }
}

impl PartialEq for Outline {
    fn eq(&self, other: &Self) -> bool {
        self.formula.same_formula(&other.formula)
            && self.parked == other.parked
            && self.num_updates == other.num_updates
            && self.momentum_product == other.momentum_product
    }
}

impl Default for OptimizerState {
    fn default() -> Self {
        Self {
            rule: None,
            tensors: Vec::new(),
            parked: Vec::new(),
            num_updates: 0,
            momentum_product: 1.0,
            made_for: None,
        }
    }
}

impl OptimizerState {
    pub(super) fn new(name: &'static str, rule: &UpdateRule, weight: &Tensor) -> Result<Self> {
        let made_for = Some((name, weight.spec().clone()));
        Self { made_for, ..Self::default() }.with_formula(rule, weight)
    }

    /// Returns the state tensors in the order of [`UpdateRule::initial`]. The `f32` master copy of
    /// a half-precision weight comes first.
    ///
    /// Each tensor has the shape of the weight, or `[rows, 1]` for a state with one number per row.
    pub fn tensors(&self) -> &[Tensor] {
        &self.tensors
    }

    /// Returns the `f32` master copy of a half-precision weight, and the other tensors. Returns
    /// `None` instead of a copy for other weights.
    pub fn split_master(&self) -> (Option<&Tensor>, &[Tensor]) {
        let has_master =
            self.weight().is_some_and(|weight| weight.dtype().arithmetic() != Some(weight.dtype()));
        match self.tensors.split_first() {
            Some((master, rest)) if has_master => (Some(master), rest),
            _ => (None, &self.tensors),
        }
    }

    /// Returns the name of the optimizer. Returns `None` for an empty state, such as the state
    /// before the first update of a key.
    pub fn optimizer_name(&self) -> Option<&'static str> {
        self.made_for.as_ref().map(|(name, _)| *name)
    }

    /// Returns the spec of the weight. Returns `None` for an empty state.
    pub(crate) fn weight(&self) -> Option<&TensorSpec> {
        self.made_for.as_ref().map(|(_, weight)| weight)
    }

    /// Returns the number of bytes of all tensors, including those that only another formula of the
    /// optimizer uses.
    pub fn num_bytes(&self) -> usize {
        self.all_tensors().map(Tensor::num_bytes).sum()
    }

    /// Checks that the state belongs to the optimizer with this name and to a weight of this spec.
    /// An empty state fits every optimizer and weight.
    ///
    /// # Errors
    /// - [`Error::InvalidArgument`] if the state belongs to another optimizer.
    /// - [`Error::SpecMismatch`] if the state belongs to a weight of another shape or dtype.
    pub fn check(&self, name: &str, key: &Key, weight: &TensorSpec) -> Result<()> {
        match &self.made_for {
            Some((other, _)) if *other != name => Err(Error::invalid(format!(
                "key `{key}`: expected a state of optimizer `{name}`, found one of `{other}`"
            ))),
            Some((_, spec)) if spec != weight => Err(Error::spec_mismatch(key, weight, spec)),
            _ => Ok(()),
        }
    }

    /// Returns [`OptimizerState::tensors`], then the parked tensors.
    pub(crate) fn all_tensors(&self) -> impl Iterator<Item = &Tensor> {
        self.tensors.iter().chain(self.parked.iter().map(|(_, tensor)| tensor))
    }

    /// Returns the state without its tensors. Returns `None` for an empty state.
    pub(crate) fn outline(&self) -> Option<Outline> {
        Some(Outline {
            formula: self.rule?,
            parked: self.parked.iter().map(|(initial, _)| *initial).collect(),
            num_updates: self.num_updates,
            momentum_product: self.momentum_product,
        })
    }

    /// Returns the state with this outline and these tensors, in the order of
    /// [`OptimizerState::all_tensors`].
    pub(crate) fn restored(
        optimizer: &Optimizer,
        weight: &TensorSpec,
        outline: Outline,
        mut tensors: Vec<Tensor>,
    ) -> Self {
        let parked = tensors.split_off(tensors.len().saturating_sub(outline.parked.len()));
        Self {
            rule: Some(outline.formula),
            tensors,
            parked: outline.parked.into_iter().zip(parked).collect(),
            num_updates: outline.num_updates,
            momentum_product: outline.momentum_product,
            made_for: Some((optimizer.name(), weight.clone())),
        }
    }

    /// Returns whether both states have the same bits.
    pub(crate) fn is_identical(&self, other: &Self) -> Result<bool> {
        if self.outline() != other.outline() {
            return Ok(false);
        }
        for (left, right) in self.all_tensors().zip(other.all_tensors()) {
            if !left.is_identical(right)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Returns the number of updates.
    pub fn num_updates(&self) -> u64 {
        self.num_updates
    }

    /// Moves the state to a device.
    pub(crate) fn move_to(&mut self, backends: &Backends, device: Device) -> Result<()> {
        let parked = self.parked.iter_mut().map(|(_, tensor)| tensor);
        self.tensors
            .iter_mut()
            .chain(parked)
            .try_for_each(|tensor| tensor.move_to(backends, device))
    }

    /// Moves the state to the device of this weight, which may belong to other backends.
    pub(super) fn move_beside(&mut self, weight: &Tensor) -> Result<()> {
        let parked = self.parked.iter_mut().map(|(_, tensor)| tensor);
        for tensor in self.tensors.iter_mut().chain(parked) {
            if !tensor.is_at(weight.device()) {
                *tensor = tensor.to_device_of(weight)?;
            }
        }
        Ok(())
    }

    /// Returns whether the last update used the same formula.
    fn has_formula(&self, rule: &UpdateRule) -> bool {
        self.rule.is_some_and(|last| last.same_formula(rule))
    }

    /// Returns the state with the tensors that the rule needs. Parks the tensors that it does not
    /// need.
    fn with_formula(&self, rule: &UpdateRule, weight: &Tensor) -> Result<Self> {
        let arithmetic = Optimizer::arithmetic_of(weight.dtype())?;
        let mut tensors = fallible::with_capacity(MAX_STATES)?;
        let has_master = arithmetic != weight.dtype();
        if has_master {
            // A changed hyper-parameter may change the formula. The master copy stays the weight.
            let master = self.tensors.first().filter(|_| self.rule.is_some());
            tensors
                .push(master.map_or_else(|| weight.cast(arithmetic), |master| Ok(master.clone()))?);
        }
        // The formulas of an optimizer have their common tensors in the same order.
        let old = self.rule.iter().flat_map(UpdateRule::initial).copied();
        let old = old.zip(self.tensors.iter().skip(usize::from(has_master)).cloned());
        let mut old: Vec<_> = old.chain(self.parked.iter().cloned()).collect();
        for initial in rule.initial() {
            if let Some(index) = old.iter().position(|(other, _)| other == initial) {
                tensors.push(old.remove(index).1);
                continue;
            }
            tensors.push(match initial {
                Initial::Weight if has_master => tensors.first().unwrap_or(weight).duplicate()?,
                Initial::Weight => weight.duplicate()?,
                Initial::Zero | Initial::RowZero => {
                    let spec = initial.spec(weight.spec()).with_dtype(arithmetic);
                    let mut zeros = weight.allocate_like(spec)?;
                    zeros.fill(Scalar::Float(0.0))?;
                    zeros
                }
            });
        }
        let made_for = self.made_for.clone();
        Ok(Self { rule: Some(*rule), tensors, parked: old, made_for, ..*self })
    }
}

/// A prepared step. It has all memory that the step needs, so only the backend can fail.
#[derive(Debug)]
pub(crate) struct Pending {
    rule: UpdateRule,
    num_updates: u64,
    momentum_product: f64,
    /// The new state, if this is the first step or the formula has changed.
    next_state: Option<Box<OptimizerState>>,
    fresh_weight: Option<Arc<dyn Storage>>,
    fresh_states: [Option<Arc<dyn Storage>>; MAX_STATES],
}

impl Pending {
    /// Prepares the next step of a key, or the first step if `state` is `None`. Changes the
    /// contents of neither the weight nor the state.
    pub(crate) fn new(
        optimizer: &Optimizer,
        key: &Key,
        weight: &mut Tensor,
        state: Option<&mut OptimizerState>,
    ) -> Result<Self> {
        let (num_updates, mut momentum_product) = match &state {
            Some(state) => (state.num_updates + 1, state.momentum_product),
            None => (1, 1.0),
        };
        let rule = optimizer.rule(key, num_updates, &mut momentum_product);
        let mut next_state = match &state {
            Some(state) if state.has_formula(&rule) => None,
            Some(state) => Some(Box::new(state.with_formula(&rule, weight)?)),
            None => Some(Box::new(OptimizerState::new(optimizer.name(), &rule, weight)?)),
        };
        let mut fresh_states = [const { None }; MAX_STATES];
        let mut fresh_weight = None;
        // A skipped update writes nothing, so shared memory may stay shared.
        if !rule.is_skipped() {
            if let Some(state) = next_state.as_deref_mut().or(state) {
                for (fresh, tensor) in fresh_states.iter_mut().zip(&mut state.tensors) {
                    *fresh = tensor.fresh_if_shared()?;
                }
            }
            fresh_weight = weight.fresh_if_shared()?;
        }
        Ok(Self { rule, num_updates, momentum_product, next_state, fresh_weight, fresh_states })
    }

    /// Returns memory for the sums of a measurement. It is empty if the rule needs no norms.
    pub(crate) fn norm_sums(&self, weight: &Tensor) -> Result<Vec<[f64; 2]>> {
        let is_measured = self.rule.is_layerwise() && !self.rule.is_skipped();
        fallible::filled([0.0; 2], if is_measured { num_blocks(weight.num_elements()) } else { 0 })
    }

    /// Returns the job that measures the norms of the rule. Run it before [`Pending::job`].
    pub(crate) fn measure_job<'a>(
        &'a self,
        weight: &'a Tensor,
        state: &'a OptimizerState,
        addends: &'a [Span<'a>],
        sums: &'a mut [[f64; 2]],
    ) -> MeasureJob<'a> {
        let tensors = &self.next_state.as_deref().unwrap_or(state).tensors;
        let mut states = [const { None }; MAX_STATES];
        for (slot, tensor) in states.iter_mut().zip(tensors) {
            *slot = Some(tensor.span());
        }
        let measured = Measured::Step { rule: self.rule, weight: weight.span(), states };
        let (device, dtype) = (weight.device(), weight.dtype());
        MeasureJob { measured, device, dtype, addends, sums }
    }

    /// Folds the sums of that job into the rule.
    pub(crate) fn set_norms(&mut self, sums: &[[f64; 2]]) -> Result<()> {
        self.rule = self.rule.with_norms(add_blocks(sums)?.map(f64::sqrt));
        Ok(())
    }

    /// Returns whether the update is skipped: see [`UpdateRule::is_skipped`].
    pub(crate) fn is_skipped(&self) -> bool {
        self.rule.is_skipped()
    }

    /// Returns whether the step makes a new state.
    pub(crate) fn has_new_state(&self) -> bool {
        self.next_state.is_some()
    }

    /// Returns the step as a job of the weight's backend. The update must not be skipped.
    pub(crate) fn job<'a>(
        &'a mut self,
        weight: &'a mut Tensor,
        state: &'a mut OptimizerState,
        addends: &'a [Span<'a>],
    ) -> Result<UpdateJob<'a>> {
        let mut states = [const { None }; MAX_STATES];
        let state = self.next_state.as_deref_mut().unwrap_or(state);
        let tensors = state.tensors.iter_mut().zip(&mut self.fresh_states);
        for (slot, (tensor, fresh)) in states.iter_mut().zip(tensors) {
            *slot = Some(tensor.in_out(fresh)?);
        }
        let (device, dtype) = (weight.device(), weight.dtype());
        let weight = weight.in_out(&mut self.fresh_weight)?;
        Ok(UpdateJob { rule: &self.rule, device, dtype, weight, states, addends })
    }

    /// Returns the step as a job that changes only the planned rows, or `None` if the update is
    /// skipped. Copies weight and state first if they are shared.
    pub(crate) fn row_job<'a>(
        &'a mut self,
        weight: &'a mut Tensor,
        state: &'a mut OptimizerState,
        plan: &'a RowPlan,
        addends: &'a [Span<'a>],
    ) -> Result<Option<RowUpdateJob<'a>>> {
        if self.rule.is_skipped() {
            return Ok(None);
        }
        let mut states = [const { None }; MAX_STATES];
        let state = self.next_state.as_deref_mut().unwrap_or(state);
        let tensors = state.tensors.iter_mut().zip(&mut self.fresh_states);
        for (slot, (tensor, fresh)) in states.iter_mut().zip(tensors) {
            *slot = Some(in_place(tensor, fresh)?);
        }
        Ok(Some(RowUpdateJob {
            rule: self.rule,
            device: weight.device(),
            dtype: weight.dtype(),
            addends: plan.addends(row_len(weight.shape()), addends),
            ids: plan.ids(),
            weight: in_place(weight, &mut self.fresh_weight)?,
            states,
        }))
    }

    /// Commits the step, after the job has run.
    pub(crate) fn settle(&mut self, weight: &mut Tensor, state: &mut OptimizerState) {
        weight.settle(self.fresh_weight.take());
        if let Some(next) = self.next_state.take() {
            *state = *next;
        }
        for (tensor, fresh) in state.tensors.iter_mut().zip(&mut self.fresh_states) {
            tensor.settle(fresh.take());
        }
        state.rule = Some(self.rule);
        state.num_updates = self.num_updates;
        state.momentum_product = self.momentum_product;
    }
}

/// Returns the elements for a change in place. Copies them to `fresh` first if they are shared.
fn in_place<'a>(
    tensor: &'a mut Tensor,
    fresh: &'a mut Option<Arc<dyn Storage>>,
) -> Result<SpanMut<'a>> {
    let backend = Arc::clone(tensor.backend()?);
    match tensor.in_out(fresh)? {
        InOut::InPlace(span) => Ok(span),
        InOut::Into { src, mut dst } => {
            backend.copy(dst.reborrow(), src)?;
            Ok(dst)
        }
    }
}
