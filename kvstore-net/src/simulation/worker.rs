//! The processes of the workers: random calls of the real client.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use kvstore_core::{Device, Error, ErrorCode, Tensor, Value};

use super::history::{Kind, NUM_ELEMENTS, Reply, mark};
use super::schedule::Random;
use super::{Simulation, backends, key, network};
use crate::certificates::Security;
use crate::client::connection::{Answer, Call, Connection};
use crate::client::membership::Target;
use crate::proto;
use crate::proto::request::Verb;
use crate::wire::{Elements, spec_of, value_of};

/// A process that is a member.
struct Worker {
    simulation: Arc<Simulation>,
    process: u64,
    connection: Arc<Connection>,
}

fn now() -> Duration {
    turmoil::sim_elapsed().unwrap()
}

/// Joins, makes calls and leaves.
pub(super) async fn run(simulation: Arc<Simulation>, slot: usize) -> turmoil::Result {
    let seed = simulation.schedule.seed;
    let first = simulation.history().begin_process(simulation.schedule.names[slot]);
    let mut random = Random::new(seed ^ (first << 32));
    tokio::time::sleep(random.millis(0, 200)).await;
    let num_memberships = if random.one_in(8) { 2 } else { 1 };
    for _ in 0..num_memberships {
        let Some(worker) = join(&simulation, slot, &mut random).await else { return Ok(()) };
        for _ in 0..simulation.schedule.num_calls {
            Box::pin(worker.step(&mut random)).await;
            if simulation.history().is_replaced(worker.process) {
                return Ok(());
            }
            tokio::time::sleep(random.millis(0, 60)).await;
        }
        worker.connection.left().await;
    }
    Ok(())
}

/// Joins as a new process, and tries again while another process has the name. Returns `None` if a
/// later process has it.
async fn join(simulation: &Arc<Simulation>, slot: usize, random: &mut Random) -> Option<Worker> {
    let name = simulation.schedule.names[slot];
    loop {
        let process = simulation.history().begin_process(name);
        let target = Target {
            server: network::address(0),
            route: None,
            place: (0, 1),
            name: name.to_owned(),
            process,
            is_reader: false,
            timeout: simulation.schedule.timeout,
            connections: NonZeroUsize::MIN,
            security: Security { is_insecure: true, ..Security::default() },
            operations: Arc::default(),
        };
        let channel = network::channel(&target, simulation.schedule.keep_alive);
        match Connection::join(target, vec![channel]).await {
            Ok(connection) => {
                return Some(Worker { simulation: Arc::clone(simulation), process, connection });
            }
            Err(error) => match error.code() {
                ErrorCode::InvalidArgument | ErrorCode::Timeout => {
                    tokio::time::sleep(random.millis(50, 200)).await;
                }
                _ => return None,
            },
        }
    }
}

impl Worker {
    async fn step(&self, random: &mut Random) {
        let schedule = &self.simulation.schedule;
        match random.between(0, 9) {
            0 | 1 => self.pull(None).await,
            2 | 3 if schedule.staleness.is_some() => self.pull(schedule.staleness).await,
            2 | 3 if schedule.has_barriers => self.barrier().await,
            4 if schedule.rounds.is_none() => self.versions().await,
            5 if schedule.rounds.is_none() => {
                tokio::join!(self.push(), self.push());
            }
            _ => self.push().await,
        }
    }

    /// Pushes. Every second call also pulls.
    async fn push(&self) {
        let element = self.simulation.history().begin_push();
        let mut pushed = [0.0_f32; NUM_ELEMENTS];
        pushed[element] = 1.0;
        let round = self.simulation.schedule.rounds;
        if round.is_some() {
            pushed[0] = mark(element);
        }
        let pushed = Tensor::from_slice(backends(), Device::cpu(0), [NUM_ELEMENTS], &pushed);
        let pushed = pushed.unwrap();
        let mut elements = Elements::default();
        let value = value_of(&key(), &Value::Dense(pushed.clone()), &mut elements).unwrap();
        let push = proto::Push { values: vec![value], round, ..proto::Push::default() };
        let verb = if element % 2 == 1 {
            let keys = vec![key().as_str().to_owned()];
            let pull = Some(proto::Pull { keys, ..proto::Pull::default() });
            let expected = vec![spec_of(pushed.spec())];
            Verb::PushPull(proto::PushPull { push: Some(push), pull, expected })
        } else {
            Verb::Push(push)
        };
        let Ok(answer) = self.call(Kind::Push { element }, verb, elements).await else { return };
        let Some(pulled) = answer.values.first() else { return };
        let pulled: Vec<f32> = pulled.to_dense().unwrap().to_vec().unwrap();
        if pulled[element] != 1.0 {
            let text = format!("a call that pushed element {element} pulled {}", pulled[element]);
            self.simulation.history().violate(text);
        }
    }

    async fn pull(&self, staleness: Option<u64>) {
        let keys = vec![key().as_str().to_owned()];
        let pull = Verb::Pull(proto::Pull { keys, staleness, ..proto::Pull::default() });
        let _ = self.call(Kind::Pull { staleness }, pull, Elements::default()).await;
    }

    async fn versions(&self) {
        let keys = vec![key().as_str().to_owned()];
        let versions = Verb::Versions(proto::Keys { keys, ..proto::Keys::default() });
        let _ = self.call(Kind::Versions, versions, Elements::default()).await;
    }

    async fn barrier(&self) {
        let barrier = Verb::Barrier(proto::Barrier { round: 0 });
        let _ = self.call(Kind::Barrier, barrier, Elements::default()).await;
    }

    async fn call(&self, kind: Kind, verb: Verb, elements: Elements) -> Result<Answer, Error> {
        let call = Call {
            trace: None,
            joint: None,
            verb,
            elements,
            changes: matches!(kind, Kind::Push { .. } | Kind::Barrier),
            what: format!("{kind:?}"),
        };
        let number = self.simulation.history().begin(self.process, kind, now());
        let answer = Arc::clone(&self.connection).call(backends().clone(), call).await;
        let reply = answer.as_ref().map(|answer| match kind {
            Kind::Push { .. } | Kind::Barrier => Reply::Nothing,
            Kind::Pull { .. } => {
                Reply::Value(answer.values[0].to_dense().unwrap().to_vec().unwrap())
            }
            Kind::Versions => Reply::Version(answer.reply.values[0].version.unwrap()),
        });
        self.simulation.history().end(number, now(), reply);
        answer
    }
}
