//! The processes of the servers.

use std::sync::Arc;

use kvstore_core::{Device, Key, KvStore, LocalStore, Tensor};

use super::Simulation;
use super::history::{self, PART};
use crate::server::group::Group;
use crate::simulation::schedule::LEASE;
use crate::simulation::server::serve_store;
use crate::simulation::{backends, network};

/// Serves an empty store until the host crashes.
pub(super) async fn run(simulation: Arc<Simulation>, server: usize) -> turmoil::Result {
    let incoming = network::listen().await?;
    let run = simulation.history().begin_run(server);
    let store = Arc::new(LocalStore::new("local", backends().clone()).unwrap());
    let weak = Arc::downgrade(&simulation);
    drop(simulation);
    let add = move |key: &Key, pushed: &Tensor, stored: &mut Tensor| {
        let (pushed, mut sum) = (pushed.to_vec::<f32>()?, stored.to_vec::<f32>()?);
        let before = sum.clone();
        for (sum, pushed) in sum.iter_mut().zip(&pushed) {
            *sum += pushed;
        }
        *stored = Tensor::from_slice(backends(), Device::cpu(0), [PART], &sum)?;
        if let Some(simulation) = weak.upgrade() {
            let part = (server, history::index(key));
            simulation.history().take_effect(part, &before, &pushed);
        }
        Ok(())
    };
    store.set_updater(Some(Arc::new(add)))?;
    let number = run * 1_000_000;
    serve_store(store, Group::new(LEASE, number), (number, Vec::new()), incoming, |_| {}).await;
    Ok(())
}
