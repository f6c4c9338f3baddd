//! [`RowFormula`]: a formula whose state belongs to the rows of the weight.

use super::Rule;
use super::step::Real;

/// A formula with `N` numbers of state for each row of the weight, along its first axis.
///
/// For each row that has a gradient, a backend:
/// 1. squares the results of [`RowFormula::measure`], adds them in the order of
///    [`norm`](crate::norm), with the row as the complete value, and divides by the row's length;
/// 2. computes the new state with [`RowFormula::row_state`];
/// 3. steps each element. [`Step::apply`](super::Step::apply) receives the new state and returns it
///    unchanged.
pub trait RowFormula<const N: usize>: Rule<N> {
    /// Returns the number of an element that the mean square is computed from.
    fn measure<A: Real>(step: &Self::RoundedStep<A>, gradient: A) -> A;

    /// Returns the new state of a row, from its mean square.
    fn row_state<A: Real>(step: &Self::RoundedStep<A>, state: [A; N], mean: A) -> [A; N];
}

/// Code that is generic over the type of a row-wise rule; see
/// [`UpdateRule::visit_rowwise`](super::UpdateRule::visit_rowwise).
pub trait RowVisitor {
    /// The result of the visit.
    type Output;

    /// Runs with the type of the rule.
    fn visit<R: RowFormula<N>, const N: usize>(self) -> Self::Output;
}
