//! Executes the operations that all ranks have agreed on.

use std::sync::PoisonError;

use kvstore_core::{Error, Result, fallible};

use super::call::{Call, Operation};
use super::config::Terms;
use super::difference::describe_terms;
use super::local_stores::Stores;
use super::wire::{Wire, is_common, lost};

/// Sends the configuration of rank 0 to the ranks that still have the last agreed configuration.
///
/// The inner error is the same on every rank. It rejects a rank that has changed its own
/// configuration, and a configuration that cannot be sent.
fn adopt(wire: &Wire<'_>, stores: &Stores, configs: &[u64]) -> Result<Result<()>> {
    let first = configs.first().copied().unwrap_or_default();
    let (agreed, terms) = stores.config().agreed().clone();
    // Every rank must have the configuration of rank 0 or the last agreed one.
    if configs.iter().any(|config| *config != first && *config != agreed) {
        let own = stores.config().describe();
        let difference = describe_terms(wire, &own)?;
        return Ok(Err(Error::InvalidArgument(format!(
            "barrier: {difference}: set the same on every rank, or on rank 0 only"
        ))));
    }
    let own = stores.config().to_text()?;
    let text = wire.bytes_of(0, own.as_bytes())?;
    // The transition starts from the agreed settings, which are the same on all ranks. So all ranks
    // get the same result.
    let found = Terms::from_text(&String::from_utf8_lossy(&text));
    let found = found.and_then(|found| Ok((terms.transition_to(&found)?, found)));
    let (transition, found) = match found {
        Ok(found) => found,
        Err(error) => return Ok(Err(error)),
    };
    if stores.config().fingerprint()? != first {
        stores.adopt(found, transition)?;
    }
    stores.agree(false)?;
    Ok(Ok(()))
}

/// Makes a call that all ranks have agreed on, or several pushes combined.
///
/// The outer error can leave the ranks in different states and ends the group. The inner error
/// only fails these calls.
pub(super) fn make(wire: &Wire<'_>, calls: &[Call], configs: &[u64]) -> Result<Result<()>> {
    let call = calls.first().ok_or_else(lost)?;
    let stores = &call.stores;
    let first = configs.first().copied().unwrap_or_default();
    let all_agree = configs.iter().all(|config| *config == first);
    if all_agree {
        stores.agree(matches!(call.operation, Operation::Push { .. }))?;
    }
    if let Operation::Barrier = &call.operation {
        return if all_agree { Ok(Ok(())) } else { adopt(wire, stores, configs) };
    }
    if call.needs_agreement() && !all_agree {
        let own = stores.config().describe();
        let difference = describe_terms(wire, &own)?;
        return Ok(Err(Error::InvalidArgument(format!(
            "{}: {difference}: set the same on every rank, or on rank 0, followed by a barrier",
            call.subject()
        ))));
    }
    let result = match &call.operation {
        Operation::Barrier => Ok(()),
        Operation::Init { keys, values, existing } => stores.init(wire, keys, values, *existing),
        Operation::Push { keys, sums } if calls.len() == 1 => stores.push(wire, keys, sums),
        Operation::Push { .. } => {
            let (mut all_keys, mut all_sums) = (Vec::new(), Vec::new());
            for call in calls {
                if let Operation::Push { keys, sums } = &call.operation {
                    fallible::extend(&mut all_keys, keys)?;
                    fallible::extend(&mut all_sums, sums)?;
                }
            }
            stores.push(wire, &all_keys, &all_sums)
        }
        Operation::Remove { keys } => stores.remove(keys),
        Operation::Snapshot(name, taken) => stores.snapshot(wire, name).map(|snapshot| {
            *taken.lock().unwrap_or_else(PoisonError::into_inner) = Some(snapshot);
        }),
        Operation::Share(snapshot) => stores.share_snapshot(wire, snapshot),
        Operation::Rollback(snapshot) => stores.rollback(snapshot),
    };
    match result {
        Err(error) if is_common(&error) => Ok(Err(error)),
        Err(error) => Err(error),
        Ok(()) => Ok(Ok(())),
    }
}
