//! The settings of a store as messages.

use kvstore_core::{Compression, KvStore, Result};

use crate::proto;

pub(crate) fn compression_of(compression: Option<Compression>) -> proto::Compression {
    let name = compression.map_or_else(String::new, |compression| compression.name().to_owned());
    let threshold = compression.map_or(0.0, |compression| compression.threshold());
    proto::Compression { name, threshold }
}

pub(crate) fn to_compression(message: &proto::Compression) -> Result<Option<Compression>> {
    if message.name.is_empty() {
        return Ok(None);
    }
    Compression::new(&message.name, message.threshold).map(Some)
}

pub(crate) fn hyper_parameters_of(parameters: &[(&str, f64)]) -> proto::HyperParameters {
    let parameters = parameters
        .iter()
        .map(|(name, value)| proto::HyperParameter { name: (*name).to_owned(), value: *value });
    proto::HyperParameters { parameters: parameters.collect() }
}

/// Returns the settings of a store whose members compress their values.
pub(crate) fn settings_of(
    store: &dyn KvStore,
    compression: Option<Compression>,
) -> Result<proto::Settings> {
    let optimizer = store.optimizer()?.map(|optimizer| optimizer.to_json()).transpose()?;
    Ok(proto::Settings {
        optimizer,
        compression: Some(compression_of(compression)),
        clip_global_norm: Some(proto::Clip { bound: store.clip_global_norm()? }),
    })
}
