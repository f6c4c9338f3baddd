//! [`Config`]: what pushes of a store do, and whether ranks agree about it.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use kvstore_core::{Compression, Error, Optimizer, Result};

/// What pushes do, and what ranks know of it.
#[derive(Debug, Default)]
pub(crate) struct Config {
    terms: Terms,
    /// Made when it is asked for after a change: ranks compare it at each call.
    fingerprint: OnceLock<u64>,
    /// The fingerprint of the one that ranks agreed on last.
    pub(crate) agreed: u64,
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
}

/// What pushes do.
#[derive(Clone, Debug, Default)]
pub(crate) struct Terms {
    /// After how many calls of all ranks the rule was set: one that is set again begins anew.
    pub(crate) generation: u64,
    /// Tells states that were loaded; 0 for an optimizer that begins anew.
    pub(crate) loaded: u64,
    pub(crate) rule: Rule,
    pub(crate) compression: Option<Compression>,
}

/// What becomes of a sum.
#[derive(Clone, Debug, Default)]
pub(crate) enum Rule {
    #[default]
    Assign,
    /// Of this process: it cannot be sent to another one.
    Updater,
    Optimizer(Arc<Optimizer>),
}

impl Rule {
    /// Returns whether each rank steps its part. `sgld` draws a number for each element by its place in the whole.
    pub(crate) fn steps_parts(&self) -> bool {
        matches!(self, Self::Optimizer(optimizer) if optimizer.name() != "sgld")
    }

    /// Returns whether rows stay rows: as the stored value, or as the gradient of a lazy step.
    pub(crate) fn keeps_rows(&self) -> bool {
        match self {
            Self::Assign => true,
            Self::Updater => false,
            Self::Optimizer(optimizer) => self.steps_parts() && optimizer.is_lazy(),
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
        let rule = match &self.rule {
            Rule::Assign => "assign".to_owned(),
            Rule::Updater => "updater".to_owned(),
            Rule::Optimizer(optimizer) => optimizer.to_json()?,
        };
        // Nothing but an optimizer has states that could begin anew.
        let [generation, loaded] = match self.rule {
            Rule::Optimizer(_) => [self.generation, self.loaded],
            Rule::Assign | Rule::Updater => [0, 0],
        };
        Ok(format!("{generation} {loaded}\n{compression}\n{rule}"))
    }

    /// Returns what another rank's text says.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for an updater and for states that were loaded, which is done on every rank.
    pub(crate) fn from_text(text: &str) -> Result<Self> {
        let strange = || Error::Internal(format!("a configuration of another version: {text}"));
        let [generation, compression, rule] = *text.splitn(3, '\n').collect::<Vec<_>>().as_slice()
        else {
            return Err(strange());
        };
        let compression = match compression.split_once(' ') {
            None => None,
            Some((name, threshold)) => {
                Some(Compression::new(name, threshold.parse().map_err(|_| strange())?)?)
            }
        };
        let rule = match rule {
            "assign" => Rule::Assign,
            "updater" => {
                return Err(Error::InvalidArgument(
                    "rank 0 has an updater, which has to be set on every rank".to_owned(),
                ));
            }
            json => Rule::Optimizer(Arc::new(Optimizer::from_json(json)?)),
        };
        let (generation, loaded) = generation.split_once(' ').ok_or_else(strange)?;
        if loaded != "0" {
            return Err(Error::InvalidArgument(
                "rank 0 has loaded states, which have to be loaded on every rank".to_owned(),
            ));
        }
        let generation = generation.parse().map_err(|_| strange())?;
        Ok(Self { generation, loaded: 0, rule, compression })
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
        let rule = Rule::Optimizer(Arc::new(optimizer));
        let terms = Terms { generation: 7, rule, compression, ..Terms::default() };
        let found = Terms::from_text(&terms.to_text().unwrap()).unwrap();
        assert_eq!(found.to_text().unwrap(), terms.to_text().unwrap());
        assert_eq!((found.generation, found.compression), (7, compression));
        assert!(
            matches!(found.rule, Rule::Optimizer(it) if it.get("learning_rate").unwrap() == 0.1)
        );
        let found = Terms::from_text(&Terms::default().to_text().unwrap()).unwrap();
        assert!(matches!(found.rule, Rule::Assign) && found.compression.is_none());
        let loaded = Terms { loaded: 3, ..terms.clone() };
        assert!(Terms::from_text(&loaded.to_text().unwrap()).is_err());
        let updater = Terms { rule: Rule::Updater, ..terms };
        assert!(Terms::from_text(&updater.to_text().unwrap()).is_err());
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
