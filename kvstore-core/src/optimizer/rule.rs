//! One step as data: [`UpdateRule`], the scalars of each formula, and [`Step`], the formula itself.

use std::ops::{Add, Div, Mul, Neg, Sub};

use super::adadelta::AdaDelta;
use super::adagrad::AdaGrad;
use super::adam::Adam;
use super::adamax::Adamax;
use super::dcasgd::{Dcasgd, DcasgdMomentum};
use super::ftml::Ftml;
use super::ftrl::Ftrl;
use super::nadam::Nadam;
use super::nag::{Nag, Nesterov};
use super::rmsprop::{RmsProp, RmsPropCentered};
use super::sgd::{Sgd, SgdMomentum};
use super::sgld::Sgld;
use super::signum::{SignSgd, Signum};
use super::test::Test;
use crate::dtype::Element;

/// A float that optimizer arithmetic runs in: `f32` or `f64`.
pub trait Real:
    Element
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Neg<Output = Self>
{
    /// The number 0.
    const ZERO: Self;
    /// The number 1.
    const ONE: Self;

    /// Returns the square root, correctly rounded.
    #[must_use]
    fn sqrt(self) -> Self;
    /// Returns the absolute value.
    #[must_use]
    fn abs(self) -> Self;

    /// Returns the number moved into `[-bound, bound]`; NaN stays.
    #[inline]
    #[must_use]
    fn clip(self, bound: Self) -> Self {
        let below = if self > bound { bound } else { self };
        if below < -bound { -bound } else { below }
    }

    /// Returns -1, 0 or 1; 0 for NaN.
    #[inline]
    #[must_use]
    fn sign(self) -> Self {
        let positive = if self > Self::ZERO { Self::ONE } else { Self::ZERO };
        if self < Self::ZERO { -Self::ONE } else { positive }
    }
}

macro_rules! real {
    ($type:ty) => {
        impl Real for $type {
            const ZERO: Self = 0.0;
            const ONE: Self = 1.0;

            #[inline]
            fn sqrt(self) -> Self {
                self.sqrt()
            }
            #[inline]
            fn abs(self) -> Self {
                self.abs()
            }
        }
    };
}
real!(f32);
real!(f64);

/// The formula of an optimizer for one element with `N` numbers of state.
///
/// Backends evaluate it in exactly this order of operations, without fused multiply-adds.
pub trait Step<A: Real, const N: usize>: Copy + Send + Sync {
    /// Returns the new weight and state of the element with this index.
    fn apply(&self, index: u64, weight: A, state: [A; N], gradient: A) -> (A, [A; N]);
}

/// What a number of state is before the first update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Initial {
    /// 0.
    Zero,
    /// A copy of the weight.
    Weight,
}

/// A rule with `N` numbers of state per element: its scalars as `f64`.
pub trait Rule<const N: usize>: Sized {
    /// The formula with its scalars rounded to the arithmetic `A`.
    type Rounded<A: Real>: Step<A, N>;

    /// What each number of state is before the first update.
    const INITIAL: [Initial; N];

    /// Returns the rule if it is of this type.
    fn of(rule: &UpdateRule) -> Option<&Self>;

    /// Returns the formula in one arithmetic: every scalar is rounded once.
    fn round<A: Real>(&self) -> Self::Rounded<A>;

    /// Returns the scalars in the order of the fields, and zeros behind them.
    fn scalars(&self) -> [f64; MAX_SCALARS];
}

/// Code that is generic over the type of a rule; see [`UpdateRule::visit`].
pub trait RuleVisitor {
    /// What the visit returns.
    type Output;

    /// Is called with the type of the rule.
    fn visit<R: Rule<N>, const N: usize>(self) -> Self::Output;
}

/// Declares the scalars of a formula: the struct, and how they are rounded.
macro_rules! scalars {
    (
        $(#[$doc:meta])*
        $Name:ident<$N:literal> [$($initial:ident),*] { $($(#[$field_doc:meta])* $field:ident,)+ }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq)]
        pub struct $Name<A = f64> {
            $($(#[$field_doc])* pub $field: A,)+
        }

        impl $crate::optimizer::Rule<$N> for $Name {
            type Rounded<A: $crate::optimizer::Real> = $Name<A>;

            const INITIAL: [$crate::optimizer::Initial; $N] =
                [$($crate::optimizer::Initial::$initial),*];

            fn of(rule: &$crate::optimizer::UpdateRule) -> Option<&Self> {
                match rule {
                    $crate::optimizer::UpdateRule::$Name(rule) => Some(rule),
                    _ => None,
                }
            }

            fn round<A: $crate::optimizer::Real>(&self) -> $Name<A> {
                $Name { $($field: A::from_f64(self.$field)),+ }
            }

            fn scalars(&self) -> [f64; $crate::optimizer::MAX_SCALARS] {
                $crate::optimizer::rule::padded([$(self.$field),+])
            }
        }
    };
}
pub(super) use scalars;

/// Returns the numbers with zeros behind them.
pub(super) fn padded<const N: usize>(numbers: [f64; N]) -> [f64; MAX_SCALARS] {
    const { assert!(N <= MAX_SCALARS, "a rule has more scalars") };
    let mut all = [0.0; MAX_SCALARS];
    for (slot, number) in all.iter_mut().zip(numbers) {
        *slot = number;
    }
    all
}

/// Declares every rule once: the variants and the dispatch over them.
macro_rules! rules {
    ($($(#[$doc:meta])* $Name:ident<$N:literal>,)+) => {
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

            /// Returns what each number of state is before the first update, a master copy of the
            /// weight not counted.
            pub fn initial(&self) -> &'static [Initial] {
                match self {
                    $(Self::$Name(_) => &<$Name as Rule<$N>>::INITIAL,)+
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

        $(impl From<$Name> for UpdateRule {
            fn from(rule: $Name) -> Self {
                Self::$Name(rule)
            }
        })+
    };
}

rules! {
    /// Gradient descent.
    Sgd<0>,
    /// Gradient descent with momentum.
    SgdMomentum<1>,
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
    Adam<2>,
    /// `AdaGrad`.
    AdaGrad<1>,
    /// `AdaDelta`.
    AdaDelta<2>,
    /// `RMSProp` of Tieleman and Hinton.
    RmsProp<1>,
    /// `RMSProp` of Graves.
    RmsPropCentered<3>,
    /// Follow the regularized leader.
    Ftrl<2>,
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

/// The most numbers of state that a rule has, a master copy of the weight counted.
pub const MAX_STATES: usize = 4;

/// The most scalars that a rule has.
pub const MAX_SCALARS: usize = 12;

impl UpdateRule {
    /// Calls the visitor with the type of the rule if its optimizer may be lazy; see
    /// [`Optimizer::is_lazy`](super::Optimizer::is_lazy).
    pub fn visit_lazy<V: RuleVisitor>(&self, visitor: V) -> Option<V::Output> {
        Some(match self {
            Self::Sgd(_) => visitor.visit::<Sgd, 0>(),
            Self::SgdMomentum(_) => visitor.visit::<SgdMomentum, 1>(),
            Self::Adam(_) => visitor.visit::<Adam, 2>(),
            Self::AdaGrad(_) => visitor.visit::<AdaGrad, 1>(),
            Self::Ftrl(_) => visitor.visit::<Ftrl, 2>(),
            _ => return None,
        })
    }

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
