//! [`LayerFormula`]: a formula that needs norms over all elements of a key.

use super::step::Real;
use super::{Rule, UpdateRule};

/// A formula that needs two norms over all elements of a key before its step.
///
/// A backend first calls [`LayerFormula::measure`] for every element and sums the squares, as
/// [`norm`](crate::norm) describes. [`LayerFormula::with_norms`] then folds the norms into the
/// scalars, and the step runs as for any other formula. The first pass only reads, so its
/// failure changes nothing. The price is that the new state is computed twice.
pub trait LayerFormula<const N: usize>: Rule<N> {
    /// Returns the two numbers of an element that the two norms are computed from.
    fn measure<A: Real>(
        step: &Self::RoundedStep<A>,
        weight: A,
        state: [A; N],
        gradient: A,
    ) -> [A; 2];

    /// Returns the formula with these norms folded into its scalars.
    #[must_use]
    fn with_norms(self, norms: [f64; 2]) -> Self;
}

/// A generic function over the types of layer-wise rules. See [`UpdateRule::visit_layerwise`].
pub trait LayerVisitor {
    /// The result of the visit.
    type Output;

    /// Runs with the type of the rule.
    fn visit<R: LayerFormula<N>, const N: usize>(self) -> Self::Output;
}

impl UpdateRule {
    /// Returns the rule with these norms folded into its scalars. Returns other rules unchanged.
    #[must_use]
    pub fn with_norms(&self, norms: [f64; 2]) -> Self {
        struct Fold<'a>(&'a UpdateRule, [f64; 2]);
        impl LayerVisitor for Fold<'_> {
            type Output = UpdateRule;

            fn visit<R: LayerFormula<N>, const N: usize>(self) -> UpdateRule {
                R::of(self.0).map_or(*self.0, |rule| rule.with_norms(self.1).into())
            }
        }
        self.visit_layerwise(Fold(self, norms)).unwrap_or(*self)
    }
}
