//! The process of the server: the real service on the simulated network.

use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kvstore_core::{Device, Key, KvStore, LocalStore, Tensor};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use turmoil::net::TcpStream;

use super::history::NUM_ELEMENTS;
use super::schedule::LEASE;
use super::{Running, Simulation, backends, key, network};
use crate::server::access::Access;
use crate::server::contents::Contents;
use crate::server::group::Group;
use crate::server::methods::Methods;
use crate::server::peers::lead::Led;
use crate::server::recovery::PointStore;
use crate::server::runs::{Parts, Runs};
use crate::server::service::Service;
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
    let served = Arc::clone(&store);
    let started = |group: &Arc<Group>| {
        *simulation.server.lock().unwrap() = Some(Running { group: Arc::clone(group), store });
        let (draining, shared) = (Arc::clone(group), Arc::clone(&simulation));
        tokio::spawn(async move {
            shared.drain.notified().await;
            draining.drain(Instant::now() + DRAIN).await;
        });
    };
    let group = Group::new(LEASE, number);
    serve_store(served, group, (number, Vec::new()), incoming, started).await;
    Ok(())
}

/// Serves a store until the host crashes. The incarnations and layouts of the server are above
/// `number`. It leads `followers`.
pub(super) async fn serve_store(
    store: Arc<LocalStore>,
    group: Group,
    (number, followers): (u64, Vec<Led>),
    incoming: ReceiverStream<io::Result<Accepted<TcpStream>>>,
    started: impl FnOnce(&Arc<Group>),
) {
    let runs = runs(store, (group, number), (None, followers), Box::new(|_| {}));
    started(&runs.service().group);
    serve_runs(runs, incoming).await;
}

/// Where a server keeps its recovery points, and how often it makes them.
pub(super) type Points = (PointStore, Duration);

/// Returns the runs of a server, which continues from recovery points, if it has a place for them.
pub(super) fn runs(
    store: Arc<LocalStore>,
    (group, number): (Group, u64),
    (points, followers): (Option<Points>, Vec<Led>),
    on_begin: Box<dyn Fn(&Service) + Send + Sync>,
) -> Arc<Runs> {
    let parts = Parts {
        contents: Arc::new(Contents::new(store, backends().clone(), usize::MAX)),
        checkpoints: None,
        lease: LEASE,
        points,
        end: CancellationToken::new(),
        followers: Mutex::new(followers),
        next_run: |run| run + 10_000,
        on_begin,
    };
    let begin = |group: &_, holder: &_, ending: &_| {
        Service::new(group, holder, (number, LEASE), ending, Access::unknown(false))
    };
    Runs::new(parts, (group, number), begin).unwrap()
}

/// Serves until the host crashes.
pub(super) async fn serve_runs(
    runs: Arc<Runs>,
    incoming: ReceiverStream<io::Result<Accepted<TcpStream>>>,
) {
    // The server ends when the sender is dropped.
    let (_end, ending) = watch::channel(false);
    serve(None, Methods::new(runs).unwrap(), incoming, ending).await;
}
