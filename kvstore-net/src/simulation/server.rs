//! The process of the server: the real service on the simulated network.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use kvstore_core::{Device, Key, KvStore, LocalStore, Tensor};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use turmoil::net::TcpStream;

use super::history::NUM_ELEMENTS;
use super::schedule::LEASE;
use super::{Running, Simulation, backends, key, network};
use crate::server::access::Access;
use crate::server::checkpoints::Checkpoints;
use crate::server::contents::Contents;
use crate::server::group::Group;
use crate::server::holder::Holder;
use crate::server::peers::lead::lead;
use crate::server::recovery::{PointStore, Recovery};
use crate::server::service::{Methods, Service};
use crate::server::serving::{Accepted, serve};

/// How long a server that ends waits for its calls.
const DRAIN: Duration = Duration::from_secs(1);

/// Serves an empty store until the host crashes.
pub(super) async fn run(simulation: Arc<Simulation>) -> turmoil::Result {
    let incoming = network::listen().await?;
    let run = simulation.history().begin_run();
    let store = Arc::new(LocalStore::new("local", backends().clone()).unwrap());
    let mut initial = [0.0_f32; NUM_ELEMENTS];
    #[expect(clippy::cast_precision_loss, reason = "there are few runs")]
    {
        initial[0] = run as f32;
    }
    let initial = Tensor::from_slice(backends(), Device::cpu(0), [NUM_ELEMENTS], &initial)?;
    store.init(&[key()], &[initial.into()])?;
    let history = Arc::downgrade(&simulation);
    let add = move |_: &Key, pushed: &Tensor, stored: &mut Tensor| {
        let (pushed, mut sum) = (pushed.to_vec::<f32>()?, stored.to_vec::<f32>()?);
        let elements = pushed.iter().enumerate().skip(1).filter(|(_, value)| **value != 0.0);
        let elements: Vec<usize> = elements.map(|(element, _)| element).collect();
        for element in &elements {
            sum[*element] += pushed[*element];
            if let Some(simulation) = history.upgrade() {
                simulation.history().took_effect(*element);
            }
        }
        if let Some(simulation) = history.upgrade()
            && let Some(round) = &simulation.schedule.rounds
        {
            simulation.history().took_effect_together(&elements, pushed[0], round);
        }
        *stored = Tensor::from_slice(backends(), Device::cpu(0), [NUM_ELEMENTS], &sum)?;
        Ok(())
    };
    store.set_updater(Some(Arc::new(add)))?;
    // Incarnations of a later run are larger.
    let number = run as u64 * 1_000_000;
    let group = Arc::new(Group::new(LEASE, number));
    let running = Running { group: Arc::clone(&group), store: Arc::clone(&store) };
    *simulation.server.lock().unwrap() = Some(running);
    let (draining, shared) = (Arc::clone(&group), Arc::clone(&simulation));
    tokio::spawn(async move {
        shared.drain.notified().await;
        draining.drain(Instant::now() + DRAIN).await;
    });
    serve_store(store, group, (number, Vec::new()), incoming).await;
    Ok(())
}

/// Serves a store until the host crashes. The incarnations and layouts of the server are above
/// `number`. It leads the rounds of the servers at the other ends of the channels.
pub(super) async fn serve_store(
    store: Arc<LocalStore>,
    group: Arc<Group>,
    (number, followers): (u64, Vec<Channel>),
    incoming: ReceiverStream<io::Result<Accepted<TcpStream>>>,
) {
    serve_from_point(store, group, (number, followers), (None, || {}), incoming).await;
}

/// Serves a store that continues from the last recovery point, if it has a place for them, and then
/// calls `begin`. Otherwise, it is as [`serve_store`].
pub(super) async fn serve_from_point(
    store: Arc<LocalStore>,
    group: Arc<Group>,
    (number, followers): (u64, Vec<Channel>),
    (recovery, begin): (Option<(PointStore, Duration)>, impl FnOnce()),
    incoming: ReceiverStream<io::Result<Accepted<TcpStream>>>,
) {
    // The server ends when the sender is dropped.
    let (_end, ending) = watch::channel(false);
    let contents = Contents::new(store, backends().clone(), usize::MAX);
    let checkpoints = Checkpoints::new(None);
    let holder = Arc::new(Holder::new(contents, checkpoints, Arc::clone(&group), number));
    let access = Access::unknown(false);
    let service = Service::new(&group, &holder, (number, LEASE), &ending, access);
    let recovery = match recovery {
        None => None,
        Some((points, every)) => {
            let parts = (&group, &holder, &service.effects);
            let recovery = Arc::new(Recovery::open(points, (every, number), parts).unwrap());
            begin();
            recovery.save().await;
            Some(recovery)
        }
    };
    let service = service.with_recovery(recovery);
    let num_servers = u32::try_from(followers.len() + 1).unwrap();
    for (follower, channel) in (1..).zip(followers) {
        tokio::spawn(lead(service.clone(), (follower, num_servers), channel));
    }
    let methods = Methods::new(service).unwrap();
    serve(None, methods, incoming, ending).await;
}
