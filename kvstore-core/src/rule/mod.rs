//! The rules of optimizers: [`UpdateRule`], one step as data, and a file for each formula.
//!
//! A rule is plain data with every scalar of one key and one update folded in. A backend applies it
//! to the sum of the pushed values, the weight and the state, in one pass. It is generic over
//! [`Step`], so it contains no formula.
//!
//! To add an optimizer, write a file like `adagrad.rs`: its source, its `Definition`, its `scalars!`
//! and its [`Step`]. Then add a line to `rules!`, with the word `lazy` if it has `LAZY_UPDATE`, and a
//! line to `DEFINITIONS` here.

mod adadelta;
mod adagrad;
mod adam;
mod adamax;
mod dcasgd;
mod ftml;
mod ftrl;
mod nadam;
mod nag;
mod parameter;
mod rmsprop;
mod sgd;
mod sgld;
mod signum;
mod step;
mod test;

pub use adadelta::AdaDelta;
pub use adagrad::AdaGrad;
pub use adam::Adam;
pub use adamax::Adamax;
pub use dcasgd::{Dcasgd, DcasgdMomentum};
pub use ftml::Ftml;
pub use ftrl::Ftrl;
pub use nadam::Nadam;
pub use nag::{Nag, Nesterov};
pub use rmsprop::{RmsProp, RmsPropCentered};
pub use sgd::{Sgd, SgdMomentum};
pub use sgld::Sgld;
pub use signum::{SignSgd, Signum};
pub use step::{Formula, Initial, MAX_SCALARS, MAX_STATES, Real, Step};
pub use test::Test;

pub(crate) use parameter::{Definition, Domain, KeyUpdate, LAZY_UPDATE, Parameter};

/// The definition of every optimizer.
pub(crate) static DEFINITIONS: [Definition<UpdateRule>; 16] = [
    sgd::sgd(),
    nag::nag(),
    nag::nesterov(),
    dcasgd::dcasgd(),
    sgld::sgld(),
    adam::adam(),
    adam::adamw(),
    adagrad::adagrad(),
    adadelta::adadelta(),
    rmsprop::rmsprop(),
    ftrl::ftrl(),
    adamax::adamax(),
    nadam::nadam(),
    signum::signum(),
    ftml::ftml(),
    test::test(),
];

/// A formula that is a variant of [`UpdateRule`].
pub trait Rule<const N: usize>: Formula<N> {
    /// Returns the scalars if the rule has this formula.
    fn of(rule: &UpdateRule) -> Option<&Self>;
}

/// Code that is generic over the type of a rule; see [`UpdateRule::visit`].
pub trait RuleVisitor {
    /// What the visit returns.
    type Output;

    /// Is called with the type of the rule.
    fn visit<R: Rule<N>, const N: usize>(self) -> Self::Output;
}

/// Declares every rule once: the variants and the dispatch over them.
macro_rules! rules {
    ($($(#[$doc:meta])* $Name:ident<$N:literal> $($lazy:ident)?,)+) => {
        /// One optimizer step with the scalars of one key and one update folded in, as `f64`.
        #[derive(Clone, Copy, Debug, PartialEq)]
        pub enum UpdateRule {
            $($(#[$doc])* $Name($Name),)+
        }

        impl UpdateRule {
            /// Calls the visitor with the type of the rule: the only `match` over all of them.
            pub fn visit<V: RuleVisitor>(&self, visitor: V) -> V::Output {
                match self {
                    $(Self::$Name(_) => visitor.visit::<$Name, $N>(),)+
                }
            }

            /// Calls the visitor with the type of the rule if its optimizer may be lazy; see
            /// `Optimizer::is_lazy`.
            pub fn visit_lazy<V: RuleVisitor>(&self, visitor: V) -> Option<V::Output> {
                match self {
                    $($(Self::$Name($lazy) => {
                        let _ = $lazy;
                        Some(visitor.visit::<$Name, $N>())
                    })?)+
                    _ => None,
                }
            }

            /// Returns what each number of state is before the first update, a master copy of the
            /// weight not counted.
            pub fn initial(&self) -> &'static [Initial] {
                match self {
                    $(Self::$Name(_) => &<$Name as Formula<$N>>::INITIAL,)+
                }
            }

            /// Returns the scalars of the formula in the order of its fields, and zeros behind them: for a
            /// backend whose formulas are not those of [`Step`].
            pub fn scalars(&self) -> [f64; MAX_SCALARS] {
                match self {
                    $(Self::$Name(rule) => rule.scalars(),)+
                }
            }

            /// Returns the name of the formula, which stands in files.
            pub fn formula(&self) -> &'static str {
                match self {
                    $(Self::$Name(_) => stringify!($Name),)+
                }
            }

            /// Returns the formula with this name, with every scalar 0.
            pub(crate) fn of_formula(name: &str) -> Option<Self> {
                $(if name == stringify!($Name) {
                    return Some(Self::$Name($Name::default()));
                })+
                None
            }
        }

        $(impl Rule<$N> for $Name {
            fn of(rule: &UpdateRule) -> Option<&Self> {
                match rule {
                    UpdateRule::$Name(rule) => Some(rule),
                    _ => None,
                }
            }
        }

        impl From<$Name> for UpdateRule {
            fn from(rule: $Name) -> Self {
                Self::$Name(rule)
            }
        })+
    };
}

rules! {
    /// Gradient descent.
    Sgd<0> lazy,
    /// Gradient descent with momentum.
    SgdMomentum<1> lazy,
    /// Nesterov's accelerated gradient as `MXNet`'s operator computes it.
    Nag<1>,
    /// Nesterov's accelerated gradient in the form of Sutskever and others.
    Nesterov<1>,
    /// Gradient descent that compensates for delay.
    Dcasgd<1>,
    /// The same with momentum.
    DcasgdMomentum<2>,
    /// Stochastic gradient Langevin dynamics.
    Sgld<0>,
    /// Adam and its variants.
    Adam<2> lazy,
    /// `AdaGrad`.
    AdaGrad<1> lazy,
    /// `AdaDelta`.
    AdaDelta<2>,
    /// `RMSProp` of Tieleman and Hinton.
    RmsProp<1>,
    /// `RMSProp` of Graves.
    RmsPropCentered<3>,
    /// Follow the regularized leader.
    Ftrl<2> lazy,
    /// Adam with the infinity norm.
    Adamax<2>,
    /// Adam with Nesterov momentum.
    Nadam<2>,
    /// The sign of the momentum.
    Signum<1>,
    /// The sign of the gradient.
    SignSgd<0>,
    /// Follow the moving leader.
    Ftml<3>,
    /// Adds the gradient.
    Test<1>,
}

impl UpdateRule {
    /// Returns whether the update is skipped: its formula divides by the learning rate, which is 0.
    /// Weight and state do not change, and backends do not receive the rule.
    pub fn is_skipped(&self) -> bool {
        match self {
            Self::Ftrl(rule) => rule.learning_rate == 0.0,
            Self::Ftml(rule) => rule.strength.is_infinite(),
            _ => false,
        }
    }

    /// Returns whether both run the same formula, with whatever scalars.
    pub fn same_formula(&self, other: &Self) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
    }
}
