//! [`RowFormula`]: a formula whose state is one list of numbers for each row.

use super::Rule;
use super::step::Real;

/// A formula whose `N` numbers of state belong to a row of the weight, along its first axis.
///
/// For each row that has a gradient, a backend squares what [`RowFormula::measure`] returns and adds the
/// squares up, as [`norm`](crate::norm) describes, with the row as the complete value. It divides by the
/// length of the row, and the state becomes that of [`RowFormula::row_state`]. Then it steps each element;
/// [`Step::apply`](super::Step::apply) receives the new state and returns it unchanged.
pub trait RowFormula<const N: usize>: Rule<N> {
    /// Returns the number of an element whose mean square over the row is needed.
    fn measure<A: Real>(step: &Self::RoundedStep<A>, gradient: A) -> A;

    /// Returns the new state of a row, given the mean square.
    fn row_state<A: Real>(step: &Self::RoundedStep<A>, state: [A; N], mean: A) -> [A; N];
}

/// Code that is generic over the type of a row-wise rule; see
/// [`UpdateRule::visit_rowwise`](super::UpdateRule::visit_rowwise).
pub trait RowVisitor {
    /// What the visit returns.
    type Output;

    /// Is called with the type of the rule.
    fn visit<R: RowFormula<N>, const N: usize>(self) -> Self::Output;
}
