//! [`Policy`]: what the pushes of a store do with the sum of a key's values.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::updater::Updater;
use crate::optimizer::Optimizer;

/// What a push does with the sum of a key's values.
#[derive(Clone, Debug)]
pub(crate) enum Policy {
    /// The sum replaces the stored value.
    Assign,
    Updater(Arc<dyn Updater>),
    Optimizer(ActiveOptimizer),
}

/// What a push does with the values of a key whose values are all row-sparse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RowUse {
    /// Sums them to one row-sparse value.
    Sum,
    /// Keeps them separate. The optimizer step sums them.
    Step,
    /// Sums them, and converts the sum to a dense value.
    Dense,
}

impl Policy {
    /// Returns what to do with row-sparse values. If the push is clipped, their sum is needed
    /// before the step, because the norm is computed from the sums.
    pub(crate) fn row_use(&self, is_clipped: bool) -> RowUse {
        match self {
            Self::Assign => RowUse::Sum,
            Self::Optimizer(running) if running.optimizer.is_lazy() => {
                if is_clipped {
                    RowUse::Sum
                } else {
                    RowUse::Step
                }
            }
            Self::Optimizer(_) | Self::Updater(_) => RowUse::Dense,
        }
    }
}

/// An optimizer that runs on a store.
#[derive(Clone, Debug)]
pub(crate) struct ActiveOptimizer {
    pub(crate) optimizer: Arc<Optimizer>,
    /// Identifies the states that belong to this optimizer.
    pub(crate) run: RunId,
}

/// Identifies one call that set an optimizer. Changing hyper-parameters does not change it. The
/// default value means that no optimizer is set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RunId(u64);

impl ActiveOptimizer {
    /// Starts to run the optimizer, without any states.
    pub(crate) fn begin(optimizer: Optimizer) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let run = RunId(NEXT.fetch_add(1, Ordering::Relaxed));
        Self { optimizer: Arc::new(optimizer), run }
    }
}

impl PartialEq for Policy {
    /// Updaters are equal if they are the same object. Optimizers are equal if they are configured
    /// alike.
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Assign, Self::Assign) => true,
            (Self::Updater(left), Self::Updater(right)) => Arc::ptr_eq(left, right),
            (Self::Optimizer(left), Self::Optimizer(right)) => left.optimizer == right.optimizer,
            _ => false,
        }
    }
}
