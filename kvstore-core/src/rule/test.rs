//! The optimizer `test`, for programs that test a store.

use super::parameter::{Definition, Factory};
use super::step::{Real, Step, scalars};

/// Adds the rescaled gradient to the weight. Exists to test programs.
///
/// - `w = w + rescale * gradient`
///
/// The state is the new weight.
pub(super) const fn test<R: From<Test>>() -> Definition<R> {
    Definition {
        name: "test",
        class: "Test",
        factory: Factory { name: "test", defaults: &[] },
        learning_rate: 0.01,
        weight_decay: 0.0,
        own: &[],
        rule: |update| Test { rescale: update.rescale }.into(),
    }
}

scalars! {
    /// The scalar of a step; the state is the new weight.
    Test<1> [Zero] {
        /// Factor on the gradient.
        rescale,
    }
}

impl<A: Real> Step<A, 1> for Test<A> {
    #[inline]
    fn apply(&self, _index: u64, weight: A, _state: [A; 1], gradient: A) -> (A, [A; 1]) {
        let weight = weight + self.rescale * gradient;
        (weight, [weight])
    }
}
