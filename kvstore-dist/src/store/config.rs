//! [`Config`]: what pushes of a store do, and whether ranks agree about it.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use kvstore_core::{Compression, Error, Optimizer, Result, StepUnit};

/// What pushes do, and what ranks know of it.
#[derive(Debug, Default)]
pub(crate) struct Config {
    terms: Terms,
    /// Made when it is asked for after a change: ranks compare it at each call.
    fingerprint: OnceLock<u64>,
    /// What ranks agreed on last, with its fingerprint: the same on all of them.
    agreed: (u64, Terms),
}

impl Deref for Config {
    type Target = Terms;

    fn deref(&self) -> &Terms {
        &self.terms
    }
}

impl Config {
    /// Returns what pushes do, to be changed.
    pub(crate) fn change(&mut self) -> &mut Terms {
        self.fingerprint = OnceLock::new();
        &mut self.terms
    }

    /// Returns a number that ranks have in common which agree.
    pub(crate) fn fingerprint(&self) -> Result<u64> {
        if let Some(known) = self.fingerprint.get() {
            return Ok(*known);
        }
        let mut hasher = DefaultHasher::new();
        self.to_text()?.hash(&mut hasher);
        Ok(*self.fingerprint.get_or_init(|| hasher.finish()))
    }

    /// Notes that all ranks have this configuration.
    pub(crate) fn agree(&mut self) -> Result<()> {
        let fingerprint = self.fingerprint()?;
        if self.agreed.0 != fingerprint {
            self.agreed = (fingerprint, self.terms.clone());
        }
        Ok(())
    }

    /// Returns the fingerprint of what ranks agreed on last, and what it was.
    pub(crate) fn agreed(&self) -> &(u64, Terms) {
        &self.agreed
    }
}

/// How a rank gets from what all have agreed on to what rank 0 has set since.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transition {
    /// The same run of an optimizer goes on, or the same updater.
    GoOn,
    /// It begins anew.
    Begin,
}

/// What pushes do.
#[derive(Clone, Debug, Default)]
pub(crate) struct Terms {
    /// In which call of all ranks the run of the optimizer began: the first push since it was set, or a rollback. 0
    /// until then, when nothing has been stepped that could be lost.
    pub(crate) generation: u64,
    /// Tells states that were loaded; 0 for an optimizer that begins anew.
    pub(crate) loaded: u64,
    pub(crate) policy: Policy,
    pub(crate) compression: Option<Compression>,
    pub(crate) clip_global_norm: Option<f64>,
}

/// What a push does with a sum, the same on every rank.
#[derive(Clone, Debug, Default)]
pub(crate) enum Policy {
    #[default]
    Assign,
    /// Of this process: it cannot be sent to another one.
    Updater,
    Optimizer(Arc<Optimizer>),
}

impl Policy {
    /// Returns where values are divided between ranks.
    pub(crate) fn unit(&self) -> StepUnit {
        match self {
            Self::Assign | Self::Updater => StepUnit::Element,
            Self::Optimizer(optimizer) => optimizer.unit(),
        }
    }

    /// Returns whether each rank steps its part. Otherwise every rank steps the complete values.
    pub(crate) fn steps_parts(&self) -> bool {
        matches!(self, Self::Optimizer(optimizer) if optimizer.unit() != StepUnit::Weight)
    }

    /// Returns whether rows stay rows: as the stored value, or as the gradient of a lazy step.
    pub(crate) fn keeps_rows(&self) -> bool {
        match self {
            Self::Assign => true,
            Self::Updater => false,
            Self::Optimizer(optimizer) => optimizer.is_lazy(),
        }
    }
}

impl Terms {
    /// Returns it in lines, for other ranks.
    pub(crate) fn to_text(&self) -> Result<String> {
        let compression = match self.compression {
            None => String::new(),
            Some(it) => format!("{} {:?}", it.name(), it.threshold()),
        };
        let clip = self.clip_global_norm.map_or_else(String::new, |bound| format!("{bound:?}"));
        let policy = match &self.policy {
            Policy::Assign => "assign".to_owned(),
            Policy::Updater => "updater".to_owned(),
            Policy::Optimizer(optimizer) => optimizer.to_json()?,
        };
        // Nothing but an optimizer has states that could begin anew.
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
            (Some(it), _) => {
                format!("{policy}, compression {} with threshold {}", it.name(), it.threshold())
            }
            (None, Some(bound)) => format!("{policy}, clip_global_norm {bound}"),
            (None, None) => policy,
        }
    }

    /// Returns what another rank's text says.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for what is none.
    pub(crate) fn from_text(text: &str) -> Result<Self> {
        let strange = || Error::Internal(format!("a configuration of another version: {text}"));
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

    /// Returns how ranks that have these terms get to others, which rank 0 has.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for an updater and for states that were loaded: both have to be there on every rank.
    pub(crate) fn transition_to(&self, other: &Self) -> Result<Transition> {
        let only_there = |what| Err(Error::InvalidArgument(format!("rank 0 has {what}")));
        match (&self.policy, &other.policy) {
            (Policy::Updater, Policy::Updater) => Ok(Transition::GoOn),
            (_, Policy::Updater) => only_there("an updater, which has to be set on every rank"),
            (_, Policy::Optimizer(_)) if other.loaded != 0 && other.loaded != self.loaded => {
                only_there("loaded states, which have to be loaded on every rank")
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

    /// Returns whether there may be states that another optimizer would lose.
    fn has_run(&self) -> bool {
        self.run() != (0, 0)
    }

    /// Returns whether the next push is the first of a run.
    pub(crate) fn begins_run(&self) -> bool {
        matches!(self.policy, Policy::Optimizer(_)) && self.generation == 0
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a check fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_travels_as_text() {
        let optimizer = Optimizer::new("adam").unwrap().with("learning_rate", 0.1).unwrap();
        let compression = Some(Compression::new("2bit", 0.1).unwrap());
        let policy = Policy::Optimizer(Arc::new(optimizer));
        let terms = Terms { generation: 7, policy, compression, ..Terms::default() };
        let found = Terms::from_text(&terms.to_text().unwrap()).unwrap();
        assert_eq!(found.to_text().unwrap(), terms.to_text().unwrap());
        assert_eq!((found.generation, found.compression), (7, compression));
        assert!(
            matches!(found.policy, Policy::Optimizer(it) if it.get("learning_rate").unwrap() == 0.1)
        );
        let found = Terms::from_text(&Terms::default().to_text().unwrap()).unwrap();
        assert!(matches!(found.policy, Policy::Assign) && found.compression.is_none());
        let clipped = Terms { clip_global_norm: Some(0.1), ..Terms::default() };
        let found = Terms::from_text(&clipped.to_text().unwrap()).unwrap();
        assert_eq!(found.clip_global_norm, Some(0.1));
        assert!(Terms::from_text("other words").is_err());
    }

    #[test]
    fn only_what_can_travel_is_taken_from_rank_0() {
        let sgd = |generation, loaded| {
            let policy = Policy::Optimizer(Arc::new(Optimizer::sgd()));
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
            (sgd(5, 0), updater(), None),
            (updater(), updater(), Some(Transition::GoOn)),
            (updater(), Terms::default(), Some(Transition::Begin)),
        ] {
            assert_eq!(own.transition_to(&other).ok(), expected, "{own:?} to {other:?}");
        }
    }

    #[test]
    fn a_change_has_another_fingerprint() {
        let mut config = Config::default();
        let before = config.fingerprint().unwrap();
        assert_eq!(config.fingerprint().unwrap(), before);
        config.change().compression = Some(Compression::new("2bit", 0.1).unwrap());
        assert_ne!(config.fingerprint().unwrap(), before);
        config.change().compression = None;
        assert_eq!(config.fingerprint().unwrap(), before);
    }
}
