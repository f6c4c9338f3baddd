//! [`UpdateRule`]: one optimizer step as data. Each formula has its own file.
//!
//! A rule contains the scalars for one update of one key. A backend applies it to the sum of the
//! pushed values, the weight and the state, in one pass. Backends are generic over [`Step`], so
//! they contain no formula.
//!
//! To add an optimizer:
//!
//! 1. Write a file like `adagrad.rs`, with documentation, [`Definition`], `scalars!` and [`Step`].
//! 2. Add the file here, after `mod` and as a line of `optimizers!`. The line has the number of
//!    state tensors of each formula. It also has `lazy` if the optimizer has `LAZY_UPDATE`,
//!    `[norms]` if the formula implements [`LayerFormula`], and `{rows}` if it implements
//!    [`RowFormula`].
//! 3. Run `make kernels`, which generates everything else.

mod adabelief;
mod adadelta;
mod adagrad;
mod adam;
mod adamax;
mod dcasgd;
mod ftml;
mod ftrl;
mod groupadagrad;
mod lamb;
mod lars;
mod layerwise;
mod lion;
mod nadam;
mod nag;
mod parameter;
mod rmsprop;
mod rowwise;
mod sgd;
mod sgld;
mod signum;
mod step;
mod test;

pub use layerwise::{LayerFormula, LayerVisitor};
pub use rowwise::{RowFormula, RowVisitor};
pub use step::{Formula, Initial, MAX_SCALARS, MAX_STATES, Real, Step};

pub use parameter::{COMMON, Definition, Domain, Factory, Parameter};

pub(crate) use parameter::{KeyUpdate, LAZY_UPDATE};

/// A formula that is a variant of [`UpdateRule`].
pub trait Rule<const N: usize>: Formula<N> + Copy + Into<UpdateRule> {
    /// Returns the scalars if the rule has this formula.
    fn of(rule: &UpdateRule) -> Option<&Self>;
}

/// A generic function over the types of rules. See [`UpdateRule::visit`].
pub trait RuleVisitor {
    /// The result of the visit.
    type Output;

    /// Runs with the type of the rule.
    fn visit<R: Rule<N>, const N: usize>(self) -> Self::Output;
}

/// Declares every optimizer and every formula, by file.
macro_rules! optimizers {
    ($(
        $file:ident: $($definition:ident)+ =>
        $($Name:ident<$N:literal> $($lazy:ident)? $([$norms:ident])? $({$rows:ident})?),+;
    )+) => {
        /// The structs with the scalars of each formula.
        pub(crate) mod formulas {
            $(pub use super::$file::{$($Name),+};)+
        }
        use formulas::*;

        /// The definition of every optimizer.
        pub static DEFINITIONS: &[Definition<UpdateRule>] = &[$($($file::$definition(),)+)+];

        rules! { $($($Name<$N> $($lazy)? $([$norms])? $({$rows})?,)+)+ }
    };
}

/// Declares [`UpdateRule`] with a variant for each formula, and the dispatch over them.
macro_rules! rules {
    ($($Name:ident<$N:literal> $($lazy:ident)? $([$norms:ident])? $({$rows:ident})?,)+) => {
        /// One optimizer step: a formula, and its `f64` scalars for one update of one key.
        #[derive(Clone, Copy, Debug, PartialEq)]
        pub enum UpdateRule {
            $(#[doc = concat!("The formula [`", stringify!($Name), "`].")] $Name($Name),)+
        }

        impl UpdateRule {
            /// Calls the visitor with the type of the rule.
            pub fn visit<V: RuleVisitor>(&self, visitor: V) -> V::Output {
                match self {
                    $(Self::$Name(_) => visitor.visit::<$Name, $N>(),)+
                }
            }

            visit_some! {
                /// Calls the visitor with the type of the rule if its optimizer may be lazy; see
                /// `Optimizer::is_lazy`.
                visit_lazy<RuleVisitor>: $($($lazy $Name<$N>,)?)+
            }

            visit_some! {
                /// Calls the visitor with the type of the rule if it needs norms before its step.
                visit_layerwise<LayerVisitor>: $($($norms $Name<$N>,)?)+
            }

            visit_some! {
                /// Calls the visitor with the type of the rule if its state belongs to rows.
                visit_rowwise<RowVisitor>: $($($rows $Name<$N>,)?)+
            }

            is_one_of! {
                /// Returns whether the rule needs norms before its step.
                is_layerwise: $($($norms $Name,)?)+
            }

            is_one_of! {
                /// Returns whether the rule has one state per row. Such a rule always steps by
                /// rows: with a dense gradient, it steps all rows.
                is_rowwise: $($($rows $Name,)?)+
            }

            /// Returns the initial value of each number of state, without a master copy of the
            /// weight.
            pub fn initial(&self) -> &'static [Initial] {
                match self {
                    $(Self::$Name(_) => &<$Name as Formula<$N>>::INITIAL,)+
                }
            }

            /// Returns the scalars in the order of the fields, padded with zeros, for backends that
            /// do not use [`Step`].
            pub fn scalars(&self) -> [f64; MAX_SCALARS] {
                match self {
                    $(Self::$Name(rule) => rule.scalars(),)+
                }
            }

            /// Returns the name of the formula, as in checkpoints.
            pub fn formula(&self) -> &'static str {
                match self {
                    $(Self::$Name(_) => stringify!($Name),)+
                }
            }

            /// Returns the formula with this name. All scalars are 0.
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

/// Declares a method of [`UpdateRule`] that visits only these formulas. The word before a formula
/// is the optional word of its line in `optimizers!`. A caller selects the formulas that have the
/// word by repeating over it.
macro_rules! visit_some {
    (
        $(#[$doc:meta])*
        $visit:ident<$Visitor:ident>: $($word:ident $Name:ident<$N:literal>,)+
    ) => {
        $(#[$doc])*
        pub fn $visit<V: $Visitor>(&self, visitor: V) -> Option<V::Output> {
            match self {
                $(Self::$Name(_) => Some(visitor.visit::<$Name, $N>()),)+
                _ => None,
            }
        }
    };
}

/// Declares a method of [`UpdateRule`] that returns whether the rule has one of these formulas.
/// They are selected as for `visit_some!`.
macro_rules! is_one_of {
    ($(#[$doc:meta])* $is:ident: $($word:ident $Name:ident,)+) => {
        $(#[$doc])*
        pub fn $is(&self) -> bool {
            matches!(self, $(Self::$Name(_))|+)
        }
    };
}

optimizers! {
    sgd: sgd => Sgd<0> lazy, SgdMomentum<1> lazy;
    nag: nag nesterov => Nag<1>, Nesterov<1>;
    dcasgd: dcasgd => Dcasgd<1>, DcasgdMomentum<2>;
    sgld: sgld => Sgld<0>;
    adam: adam adamw => Adam<2> lazy;
    adagrad: adagrad => AdaGrad<1> lazy;
    adadelta: adadelta => AdaDelta<2>;
    rmsprop: rmsprop => RmsProp<1>, RmsPropCentered<3>;
    ftrl: ftrl => Ftrl<2> lazy;
    adamax: adamax => Adamax<2>;
    nadam: nadam => Nadam<2>;
    signum: signum => Signum<1>, SignSgd<0>;
    ftml: ftml => Ftml<3>;
    lion: lion => Lion<1>;
    adabelief: adabelief => AdaBelief<2>;
    lars: lars => Lars<0> [norms], LarsMomentum<1> [norms];
    lamb: lamb => Lamb<2> [norms];
    groupadagrad: groupadagrad => GroupAdaGrad<1> {rows};
    test: test => Test<1>;
}

impl UpdateRule {
    /// Returns whether the update is skipped, because the formula divides by a learning rate of 0.
    /// A skipped update changes neither weight nor state, and no backend receives the rule.
    pub fn is_skipped(&self) -> bool {
        match self {
            Self::Ftrl(rule) => rule.learning_rate == 0.0,
            Self::Ftml(rule) => rule.strength.is_infinite(),
            _ => false,
        }
    }

    /// Returns whether both rules have the same formula. Ignores the scalars.
    pub fn same_formula(&self, other: &Self) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
    }
}
