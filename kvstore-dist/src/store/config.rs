//! [`Config`]: the settings of a store that determine the effect of a push, and whether the ranks
//! agree on them.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use kvstore_core::{Compression, Error, Optimizer, Result, StepUnit};

/// The settings of this rank, and the settings on which all ranks agreed last.
#[derive(Debug, Default)]
pub(crate) struct Config {
    terms: Terms,
    /// Computed on demand and cleared by a change. The ranks compare it at each call.
    fingerprint: OnceLock<u64>,
    /// The settings on which all ranks agreed last, with their fingerprint. The same on all ranks.
    agreed: (u64, Terms),
}

impl Deref for Config {
    type Target = Terms;

    fn deref(&self) -> &Terms {
        &self.terms
    }
}

impl Config {
    /// Returns the settings for modification.
    pub(crate) fn change(&mut self) -> &mut Terms {
        self.fingerprint = OnceLock::new();
        &mut self.terms
    }

    /// Returns the fingerprint of the settings. Ranks with equal settings have equal fingerprints.
    pub(crate) fn fingerprint(&self) -> Result<u64> {
        if let Some(known) = self.fingerprint.get() {
            return Ok(*known);
        }
        let mut hasher = DefaultHasher::new();
        self.to_text()?.hash(&mut hasher);
        Ok(*self.fingerprint.get_or_init(|| hasher.finish()))
    }

    /// Records that all ranks have these settings.
    pub(crate) fn agree(&mut self) -> Result<()> {
        let fingerprint = self.fingerprint()?;
        if self.agreed.0 != fingerprint {
            self.agreed = (fingerprint, self.terms.clone());
        }
        Ok(())
    }

    /// Returns the settings on which all ranks agreed last, with their fingerprint.
    pub(crate) fn agreed(&self) -> &(u64, Terms) {
        &self.agreed
    }
}

/// How a rank changes from the agreed settings to the new settings of rank 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transition {
    /// The same run of the optimizer continues, or both ranks have an updater.
    GoOn,
    /// The rank starts again: with the optimizer of rank 0, or without one.
    Begin,
}

/// The settings that determine the effect of a push.
#[derive(Clone, Debug, Default)]
pub(crate) struct Terms {
    /// The number of the collective call with which the run of the optimizer began: its first push,
    /// or a rollback. It is 0 before that, when there are no states to lose.
    pub(crate) generation: u64,
    /// The fingerprint of the loaded states, or 0 if no states were loaded.
    pub(crate) loaded: u64,
    pub(crate) policy: Policy,
    pub(crate) compression: Option<Compression>,
    pub(crate) clip_global_norm: Option<f64>,
}

/// How a push changes the stored value. The same on every rank.
#[derive(Clone, Debug, Default)]
pub(crate) enum Policy {
    #[default]
    Assign,
    /// A function of this process. It cannot be sent to other processes.
    Updater,
    Optimizer(Arc<Optimizer>),
}

impl Policy {
    /// Returns the unit that must not be split between ranks.
    pub(crate) fn unit(&self) -> StepUnit {
        match self {
            Self::Assign | Self::Updater => StepUnit::Element,
            Self::Optimizer(optimizer) => optimizer.unit(),
        }
    }

    /// Returns whether each rank steps only its parts. Otherwise every rank steps the complete
    /// values.
    pub(crate) fn steps_parts(&self) -> bool {
        matches!(self, Self::Optimizer(optimizer) if optimizer.unit() != StepUnit::Weight)
    }

    /// Returns whether row-sparse sums stay row-sparse: as the stored value, or as the gradient of
    /// a lazy step.
    pub(crate) fn keeps_rows(&self) -> bool {
        match self {
            Self::Assign => true,
            Self::Updater => false,
            Self::Optimizer(optimizer) => optimizer.is_lazy(),
        }
    }

    /// Returns whether this is an optimizer that differs from another one in hyper-parameters only.
    fn is_like(&self, other: &Optimizer) -> bool {
        let Self::Optimizer(own) = self else { return false };
        let mut changed = Optimizer::clone(own);
        changed.set_all(&other.hyper_parameters()).is_ok() && changed == *other
    }
}

impl Terms {
    /// Serializes the settings as lines of text, for other ranks.
    pub(crate) fn to_text(&self) -> Result<String> {
        let compression = match self.compression {
            None => String::new(),
            Some(compression) => format!("{} {:?}", compression.name(), compression.threshold()),
        };
        let clip = self.clip_global_norm.map_or_else(String::new, |bound| format!("{bound:?}"));
        let policy = match &self.policy {
            Policy::Assign => "assign".to_owned(),
            Policy::Updater => "updater".to_owned(),
            Policy::Optimizer(optimizer) => optimizer.to_json()?,
        };
        // Only an optimizer has a run and states.
        let [generation, loaded] = match self.policy {
            Policy::Optimizer(_) => [self.generation, self.loaded],
            Policy::Assign | Policy::Updater => [0, 0],
        };
        Ok(format!("{generation} {loaded}\n{compression}\n{clip}\n{policy}"))
    }

    /// Describes the configuration for an error. The run number distinguishes optimizers with equal
    /// hyper-parameters.
    pub(crate) fn describe(&self) -> String {
        let policy = match &self.policy {
            Policy::Assign => "no optimizer".to_owned(),
            Policy::Updater => "an updater".to_owned(),
            Policy::Optimizer(optimizer) => {
                let json = optimizer.to_json().unwrap_or_else(|_| optimizer.name().to_owned());
                let (generation, loaded) = self.run();
                let states =
                    if loaded == 0 { String::new() } else { format!(", states {loaded:x}") };
                format!("optimizer {json}, run {generation}{states}")
            }
        };
        match (self.compression, self.clip_global_norm) {
            (Some(compression), _) => {
                format!(
                    "{policy}, compression {} with threshold {}",
                    compression.name(),
                    compression.threshold()
                )
            }
            (None, Some(bound)) => format!("{policy}, clip_global_norm {bound}"),
            (None, None) => policy,
        }
    }

    /// Parses the text of another rank.
    ///
    /// # Errors
    /// - [`Error::Internal`] if the text does not have the format of [`Terms::to_text`].
    /// - The errors of [`Compression::new`] and [`Optimizer::from_json`].
    pub(crate) fn from_text(text: &str) -> Result<Self> {
        let strange = || Error::Internal(format!("a configuration of another version: {text}"));
        // The policy is last, so that its JSON may contain line breaks.
        let [generation, compression, clip, policy] =
            *text.splitn(4, '\n').collect::<Vec<_>>().as_slice()
        else {
            return Err(strange());
        };
        let compression = match compression.split_once(' ') {
            None => None,
            Some((name, threshold)) => {
                Some(Compression::new(name, threshold.parse().map_err(|_| strange())?)?)
            }
        };
        let clip_global_norm = match clip {
            "" => None,
            bound => Some(bound.parse().map_err(|_| strange())?),
        };
        let policy = match policy {
            "assign" => Policy::Assign,
            "updater" => Policy::Updater,
            json => Policy::Optimizer(Arc::new(Optimizer::from_json(json)?)),
        };
        let (generation, loaded) = generation.split_once(' ').ok_or_else(strange)?;
        let generation = generation.parse().map_err(|_| strange())?;
        let loaded = loaded.parse().map_err(|_| strange())?;
        Ok(Self { generation, loaded, policy, compression, clip_global_norm })
    }

    /// Returns how a rank with these settings changes to `other`, the settings of rank 0.
    ///
    /// # Errors
    /// - [`Error::InvalidArgument`] if rank 0 has an updater and this rank has none.
    /// - [`Error::InvalidArgument`] if rank 0 has loaded states that this rank has not loaded.
    pub(crate) fn transition_to(&self, other: &Self) -> Result<Transition> {
        let only_there = |what| Err(Error::InvalidArgument(format!("rank 0 has {what}")));
        match (&self.policy, &other.policy) {
            (Policy::Updater, Policy::Updater) => Ok(Transition::GoOn),
            (_, Policy::Updater) => only_there("an updater: set an updater on every rank"),
            (own, Policy::Optimizer(optimizer))
                if other.loaded != 0 && !(self.run() == other.run() && own.is_like(optimizer)) =>
            {
                only_there("loaded optimizer states: load them on every rank")
            }
            (Policy::Optimizer(_), Policy::Optimizer(_))
                if other.has_run() && self.run() == other.run() =>
            {
                Ok(Transition::GoOn)
            }
            _ => Ok(Transition::Begin),
        }
    }

    fn run(&self) -> (u64, u64) {
        (self.generation, self.loaded)
    }

    /// Returns whether the optimizer may have states.
    fn has_run(&self) -> bool {
        self.run() != (0, 0)
    }

    /// Returns whether the next push is the first push of a run.
    pub(crate) fn begins_run(&self) -> bool {
        matches!(self.policy, Policy::Optimizer(_)) && self.generation == 0
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a check fails by panicking")]
mod tests {
    use kvstore_core::LrScheduler;

    use super::*;

    #[test]
    fn settings_survive_a_round_trip_through_text() {
        let optimizer = Optimizer::new("adam").unwrap().with("learning_rate", 0.1).unwrap();
        let compression = Some(Compression::new("2bit", 0.1).unwrap());
        let policy = Policy::Optimizer(Arc::new(optimizer));
        let terms = Terms { generation: 7, policy, compression, ..Terms::default() };
        let found = Terms::from_text(&terms.to_text().unwrap()).unwrap();
        assert_eq!(found.to_text().unwrap(), terms.to_text().unwrap());
        assert_eq!((found.generation, found.compression), (7, compression));
        let Policy::Optimizer(adam) = &found.policy else { panic!("the optimizer is lost") };
        assert_eq!(adam.get("learning_rate").unwrap(), 0.1);
        let found = Terms::from_text(&Terms::default().to_text().unwrap()).unwrap();
        assert!(matches!(found.policy, Policy::Assign) && found.compression.is_none());
        let clipped = Terms { clip_global_norm: Some(0.1), ..Terms::default() };
        let found = Terms::from_text(&clipped.to_text().unwrap()).unwrap();
        assert_eq!(found.clip_global_norm, Some(0.1));
        assert!(Terms::from_text("other words").is_err());
    }

    #[test]
    fn updaters_and_loaded_states_are_not_adopted_from_rank_0() {
        let sgd = |generation, loaded| {
            let policy = Policy::Optimizer(Arc::new(Optimizer::sgd()));
            Terms { generation, loaded, policy, ..Terms::default() }
        };
        let scheduled = |generation, loaded| {
            let factor = LrScheduler::factor(10, 0.5).unwrap();
            let policy = Policy::Optimizer(Arc::new(Optimizer::sgd().with_scheduler(factor)));
            Terms { generation, loaded, policy, ..Terms::default() }
        };
        let updater = || Terms { policy: Policy::Updater, ..Terms::default() };
        for (own, other, expected) in [
            (Terms::default(), sgd(0, 0), Some(Transition::Begin)),
            (sgd(0, 0), sgd(0, 0), Some(Transition::Begin)),
            (sgd(5, 0), sgd(5, 0), Some(Transition::GoOn)),
            (sgd(5, 0), sgd(0, 0), Some(Transition::Begin)),
            (sgd(5, 9), sgd(5, 9), Some(Transition::GoOn)),
            (sgd(0, 9), sgd(0, 9), Some(Transition::GoOn)),
            (sgd(0, 9), sgd(0, 0), Some(Transition::Begin)),
            (sgd(5, 0), sgd(0, 9), None),
            // The same states were loaded again.
            (sgd(5, 9), sgd(0, 9), None),
            (sgd(0, 9), scheduled(0, 9), None),
            (sgd(5, 0), updater(), None),
            (updater(), updater(), Some(Transition::GoOn)),
            (updater(), Terms::default(), Some(Transition::Begin)),
        ] {
            assert_eq!(own.transition_to(&other).ok(), expected, "{own:?} to {other:?}");
        }
    }

    #[test]
    fn a_change_changes_the_fingerprint() {
        let mut config = Config::default();
        let before = config.fingerprint().unwrap();
        assert_eq!(config.fingerprint().unwrap(), before);
        config.change().compression = Some(Compression::new("2bit", 0.1).unwrap());
        assert_ne!(config.fingerprint().unwrap(), before);
        config.change().compression = None;
        assert_eq!(config.fingerprint().unwrap(), before);
    }
}
