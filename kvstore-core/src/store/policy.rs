//! [`Policy`]: what the pushes of a store do with a sum.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::updater::Updater;
use crate::optimizer::Optimizer;

/// What a push does with the sum.
#[derive(Clone, Debug)]
pub(crate) enum Policy {
    /// It becomes the stored value.
    Assign,
    Updater(Arc<dyn Updater>),
    Optimizer(ActiveOptimizer),
}

/// What a push does with the values of a key that are nothing but rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RowUse {
    /// Their sum is a value of rows.
    Sum,
    /// They stay as they are: a step sums them.
    Step,
    /// Their sum is made dense.
    Dense,
}

impl Policy {
    /// Returns what becomes of rows. If their norm is needed, they are summed before a step.
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
    /// Tells its states from those of every other one.
    pub(crate) run: RunId,
}

/// The time for which an optimizer is set, with whatever hyper-parameters. None is the default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RunId(u64);

impl ActiveOptimizer {
    /// Begins to run the optimizer: there are no states yet.
    pub(crate) fn begin(optimizer: Optimizer) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let run = RunId(NEXT.fetch_add(1, Ordering::Relaxed));
        Self { optimizer: Arc::new(optimizer), run }
    }
}

impl PartialEq for Policy {
    /// Updaters are equal when they are the same one, optimizers when they do the same.
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Assign, Self::Assign) => true,
            (Self::Updater(one), Self::Updater(other)) => Arc::ptr_eq(one, other),
            (Self::Optimizer(one), Self::Optimizer(other)) => one.optimizer == other.optimizer,
            _ => false,
        }
    }
}
