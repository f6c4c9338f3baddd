//! The optimizer `test`: `w = w + rescale * gradient`, and the state is the new weight. For programs
//! that try out a store.

use super::parameter::{Definition, Factory};
use super::step::{Real, Step, scalars};

/// `w = w + rescale * gradient`, and the state is the new weight. It exists to test programs.
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
    /// The scalar of a step; the state is the weight after it.
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
