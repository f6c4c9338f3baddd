//! Selects the transport between the processes that a launcher has started.

use std::sync::Arc;

use kvstore_core::Result;

use crate::mpi::{MpiCollective, MpiOptions};
use crate::transport::{Collective, Wait};

/// Opens the transport between the processes of this job. Today this is always MPI.
///
/// # Errors
/// - The errors of [`MpiCollective::open`].
pub fn open_collective(wait: &Wait<'_>) -> Result<Arc<dyn Collective>> {
    Ok(Arc::new(MpiCollective::open(&MpiOptions::default(), wait)?))
}
