//! Random optimizers with random hyper-parameters and gradients, compared with the formulas.

use kvstore::{DType, Key, OptimizerState, Store, Tensor, create};
use kvstore_tests::arithmetic::{Operator, is_half};
use kvstore_tests::arrays::{from_array, from_tensor, to_array, to_arrays};
use kvstore_tests::compare;
use kvstore_tests::format::float_dtypes;
use kvstore_tests::optimizer::Naive;
use kvstore_tests::optimizer_run::{NaiveKey, Rounding, Setup, difference};
use kvstore_tests::samples::tame;
use kvstore_tests::schedule::{Kind, Stateful, WarmingUp};
use kvstore_tests::value::{Number, Spec, Value};
use proptest::prelude::*;
use proptest::sample::select;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

/// The shapes of the keys' values: some elements, one, and rows longer than a cache line.
const SHAPES: [&[usize]; 3] = [&[5], &[1], &[4, 17]];

/// A setup, and the seed of weights and gradients.
#[derive(Clone, Debug)]
struct Program {
    setup: Setup,
    dtype: DType,
    num_keys: usize,
    num_steps: u64,
    seed: u64,
}

/// A push: the indices of the keys, with their gradients.
type Push = Vec<(usize, Vec<Value>)>;

impl Program {
    fn spec(&self, key: usize) -> Spec {
        Spec::new(SHAPES[key], self.dtype)
    }

    fn weight(&self, key: usize) -> Value {
        tame(self.spec(key), self.seed ^ (key as u64 + 1))
    }

    /// Returns one to four gradients for most of the keys in each step, so that counts differ. The
    /// numbers are between -1 and 1.
    fn pushes(&self) -> Vec<Push> {
        let gradients = |key: usize, step: u64| {
            let seed = self.seed.wrapping_add(step * 1000 + key as u64 * 100);
            let count = (self.seed % 5 + step * 7 + key as u64 * 3) % 5;
            let gradient = |index: u64| {
                tame(self.spec(key), !seed ^ (index << 40))
                    .operate_scalar(Operator::Mul, Number::Float(0.125))
            };
            (key, (0..count).map(gradient).collect::<Vec<_>>())
        };
        let push = |step| {
            let all = (0..self.num_keys).map(|key| gradients(key, step));
            all.filter(|(_, gradients)| !gradients.is_empty()).collect()
        };
        (0..self.num_steps).map(push).collect()
    }
}

fn name_of(key: usize) -> String {
    format!("w{key}")
}

fn naive() -> impl Strategy<Value = Naive> {
    let names: Vec<_> = Naive::names().filter(|name| *name != "sgld").collect();
    let naive = |name: &'static str| {
        let common = [
            ("learning_rate", vec![0.001, 0.01, 0.1]),
            ("wd", vec![0.0, 0.0, 0.01, 0.1]),
            ("rescale_grad", vec![1.0, 0.5, 0.1]),
            ("clip_gradient", vec![0.0, 0.0, 0.3]),
            ("begin_num_update", vec![0.0, 0.0, 7.0]),
        ];
        let own = Naive::own_values(name).map(|(name, values)| (name, values.to_vec()));
        let values = common.into_iter().chain(own);
        let chosen: Vec<_> = values.map(|(name, all)| (Just(name), select(all))).collect();
        chosen.prop_map(move |chosen| {
            chosen
                .into_iter()
                .fold(Naive::new(name), |naive, (name, value)| naive.with(name, value))
        })
    };
    select(names).prop_flat_map(naive)
}

/// Returns schedules that end within a run or after it.
pub(crate) fn schedule(base: f64) -> impl Strategy<Value = Stateful> {
    let factor = (1..9_u64, select(vec![0.5, 0.9, 1.0]), select(vec![1e-8, 0.02]));
    let steps = proptest::collection::btree_set(1..30_u64, 1..5);
    let end = (15..40_u64, select(vec![0.0, 0.001]));
    let kind = prop_oneof![
        factor.prop_map(|(step, factor, stop_factor_lr)| Kind::Factor {
            step,
            factor,
            stop_factor_lr
        }),
        (steps, select(vec![0.5, 0.9])).prop_map(|(steps, factor)| Kind::MultiFactor {
            steps: steps.into_iter().collect(),
            factor
        }),
        (end.clone(), select(vec![1.0, 2.0, 0.5])).prop_map(|((max_update, final_lr), power)| {
            Kind::Poly { max_update, power, final_lr }
        }),
        end.prop_map(|(max_update, final_lr)| Kind::Cosine { max_update, final_lr }),
    ];
    let warmup = (1..12_u64, any::<bool>()).prop_map(|(steps, is_linear)| WarmingUp {
        steps,
        begin_lr: 0.0005,
        is_linear,
    });
    (kind, proptest::option::of(warmup))
        .prop_map(move |(kind, warmup)| Stateful::new(kind, warmup, base))
}

fn setup() -> impl Strategy<Value = Setup> {
    let (lr_factor, wd_factor) = (vec![1.0, 0.5, 2.0, 0.0], vec![1.0, 0.5, 2.0]);
    let factors = (select(lr_factor), select(wd_factor));
    naive().prop_flat_map(move |naive| {
        let schedule = proptest::option::of(schedule(naive.get("learning_rate")));
        (schedule, factors.clone()).prop_map(move |(schedule, (lr, wd))| Setup {
            naive: naive.clone(),
            schedule,
            multipliers: vec![(name_of(1), lr, wd)],
        })
    })
}

fn program() -> impl Strategy<Value = Program> {
    let dtype = prop_oneof![
        4 => Just(DType::F32),
        2 => Just(DType::F64),
        2 => select(float_dtypes().filter(|dtype| is_half(*dtype)).collect::<Vec<_>>()),
    ];
    (setup(), dtype, 1..=SHAPES.len(), 5..=20_u64, any::<u64>()).prop_map(
        |(setup, dtype, num_keys, num_steps, seed)| Program {
            setup,
            dtype,
            num_keys,
            num_steps,
            seed,
        },
    )
}

/// The weight and state of a key without a store.
struct Direct {
    key: Key,
    weight: Tensor,
    state: OptimizerState,
}

/// The formulas, two stores, and steps without a store.
struct Run {
    setup: Setup,
    stores: Vec<Store>,
    direct: Vec<Direct>,
    naive: Vec<NaiveKey>,
}

impl Run {
    fn new(program: &Program) -> Self {
        let setup = program.setup.clone();
        let optimizer = setup.optimizer().expect("a valid optimizer");
        let stores = ["local", "device"].map(|name| create(name).expect("a store of this machine"));
        let mut run = Self { setup, stores: stores.into(), direct: Vec::new(), naive: Vec::new() };
        for store in &run.stores {
            store.set_optimizer(optimizer.clone()).expect("any can be set");
        }
        for index in 0..program.num_keys {
            let (value, name) = (program.weight(index), name_of(index));
            for store in &run.stores {
                store.init(&*name, &to_array(&value)).expect("a new key");
            }
            let weight = to_array(&value).tensor();
            let state = optimizer.create_state(&weight).expect("a weight of floats");
            run.naive.push(NaiveKey::new(&run.setup, &name, &value));
            run.direct.push(Direct { key: Key::new(&name).expect("a key"), weight, state });
        }
        run
    }

    fn push(&mut self, push: &Push) -> Result<(), String> {
        let keys: Vec<_> = push.iter().map(|(index, _)| name_of(*index)).collect();
        let arrays: Vec<_> = push.iter().map(|(_, gradients)| to_arrays(gradients)).collect();
        for store in &self.stores {
            store.push(&*keys, &*arrays).map_err(|error| error.chain())?;
        }
        let optimizer = self.setup.optimizer().expect("a valid optimizer");
        for (index, gradients) in push {
            self.naive[*index].push(&self.setup, gradients);
            let tensors: Vec<_> =
                to_arrays(gradients).iter().map(kvstore::NDArray::tensor).collect();
            let Direct { key, weight, state } = &mut self.direct[*index];
            optimizer.update(key, weight, &tensors, state).map_err(|error| error.chain())?;
        }
        push.iter().try_for_each(|(index, _)| self.check(*index))
    }

    fn check(&self, index: usize) -> Result<(), String> {
        let (direct, naive) = (&self.direct[index], &self.naive[index]);
        let weight = from_tensor(&direct.weight);
        let wrong =
            |what: String| format!("key {index}, update {}: {what}", direct.state.num_updates());
        for store in &self.stores {
            let pulled = store.pull_new(&*name_of(index)).map_err(|error| error.chain())?;
            if let Some(what) = compare::difference(&weight, &from_array(&pulled[0])) {
                return Err(wrong(format!("store {}: {what}", store.name())));
            }
        }
        naive.difference(&weight).map_or(Ok(()), |what| Err(wrong(what)))?;
        self.check_state(direct, naive, &weight).map_err(wrong)
    }

    fn check_state(&self, direct: &Direct, naive: &NaiveKey, weight: &Value) -> Result<(), String> {
        let mut found: Vec<_> = direct.state.tensors().iter().map(from_tensor).collect();
        if is_half(weight.spec.dtype) {
            let master = found.remove(0);
            if let Some(what) = compare::difference(&master.cast(weight.spec.dtype), weight) {
                return Err(format!("not the rounded master copy: {what}"));
            }
            difference(&naive.weights, &master, Rounding::AsComputed).map_or(Ok(()), Err)?;
        }
        let expected: Vec<_> =
            naive.states.iter().map(|state| state.kept(&self.setup.naive)).collect();
        if expected[0].len() != found.len() {
            return Err(format!("{} arrays of state, found {}", expected[0].len(), found.len()));
        }
        for (slot, found) in found.iter().enumerate() {
            // If there is one number for each row, this is the length of a row.
            let step = expected.len() / found.numbers.len();
            let expected: Vec<_> = expected.iter().step_by(step).map(|kept| kept[slot]).collect();
            if let Some(what) = difference(&expected, found, Rounding::AsComputed) {
                return Err(format!("state {slot}: {what}"));
            }
        }
        Ok(())
    }
}

fn agrees(program: &Program) -> Result<Run, String> {
    let mut run = Run::new(program);
    program.pushes().iter().try_for_each(|push| run.push(push))?;
    Ok(run)
}

/// `PROPTEST_CASES` increases the number of programs.
fn config() -> ProptestConfig {
    let default = ProptestConfig::default();
    ProptestConfig { cases: default.cases.max(500), ..default }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn stores_agree_with_the_formulas(program in program()) {
        agrees(&program).map_err(TestCaseError::fail)?;
    }
}

/// Loose tolerances would accept any store, so most tolerances must be tight.
#[test]
fn tolerances_are_tight() {
    let mut runner = TestRunner::deterministic();
    let (mut tight, mut all) = (0, 0);
    let mut counts = std::collections::BTreeMap::<_, (u32, u32)>::new();
    for _ in 0..1000 {
        let program = program().new_tree(&mut runner).expect("nothing is rejected").current();
        let run = agrees(&program).expect("the store agrees with the formulas");
        let digits = if program.dtype == DType::F64 { 1e-9 } else { 1e-4 };
        for weight in run.naive.iter().flat_map(|key| &key.weights) {
            let is_tight = weight.error <= digits * (weight.value.abs() + 0.1);
            let (tight_of, all_of) = counts.entry(program.setup.naive.name).or_default();
            *tight_of += u32::from(is_tight);
            *all_of += 1;
            (tight, all) = (tight + u32::from(is_tight), all + 1);
        }
    }
    println!("{tight} of {all} weights are compared to four digits: {counts:?}");
    assert!(tight * 100 > all * 97, "{tight} of {all}");
    // FTML computes the weight as a difference of much larger numbers, so 10 to 30 % of its weights
    // have a looser bound.
    for (name, (tight, all)) in counts {
        let tenths = if name == "ftml" { 5 } else { 9 };
        assert!(tight * 10 > all * tenths, "{name}: {tight} of {all}");
    }
}
