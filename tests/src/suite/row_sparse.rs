//! Checks of row-sparse values: pushes and pulls have the bits of dense values, and lazy steps
//! change only their rows.

use std::sync::Arc;

use kvstore_core::{
    Backends, BoxError, DType, ErrorCode, Key, KvStore, NDArray, Optimizer, OptimizerState,
    RowSparse, Tensor, TensorSpec, Value,
};

use super::{assert_code, assign};
use crate::arithmetic::sum;
use crate::arrays::{from_tensor, key, to_array};
use crate::compare::{assert_same_bits, difference};
use crate::format::float_dtypes;
use crate::naive_rows::{NaiveRows, rows_spec};
use crate::place::device;
use crate::reduced;
use crate::samples::{nasty, tame, words};
use crate::value::{Number, Spec, Value as NaiveValue};

/// Creates a new store.
pub type Create<'a> = &'a dyn Fn() -> Box<dyn KvStore>;

fn tensor(value: &NaiveValue) -> Tensor {
    to_array(value).tensor()
}

fn stored(store: &dyn KvStore, key: &Key) -> NaiveValue {
    from_tensor(&store.pull(std::slice::from_ref(key), 0).unwrap()[0])
}

/// Returns shapes with short and long rows, few and many rows, and rows that several threads share.
fn shapes() -> impl Iterator<Item = Vec<usize>> {
    let shapes: [&[usize]; 6] = [&[5, 3], &[40], &[7, 2, 3], &[1, 300], &[3000, 67], &[3, 70_001]];
    let count = if cfg!(miri) { 4 } else { shapes.len() };
    shapes.into_iter().take(count).map(<[usize]>::to_vec)
}

/// Returns whether several threads process a value of this shape.
fn is_large(shape: &[usize]) -> bool {
    shape.iter().product::<usize>() > 10_000
}

/// Returns the dtypes to test a shape with. Large values are split in the same way for every dtype,
/// so one of each kind is enough for them.
fn dtypes_of(shape: &[usize]) -> impl Iterator<Item = DType> {
    let is_large = is_large(shape);
    let some = [DType::F32, DType::F16, DType::I8];
    DType::ALL.into_iter().filter(move |dtype| !is_large || some.contains(dtype))
}

/// Without an optimizer, the stored value is the sum of the dense values, for row-sparse values, a
/// mix of row-sparse and dense values, and values without rows.
pub fn row_sparse_sums_equal_dense_sums(create: Create<'_>) {
    for (seed, shape) in (0..).zip(shapes()) {
        for dtype in dtypes_of(&shape) {
            let store = create();
            let spec = Spec::new(&shape, dtype);
            let start = NaiveRows::sample(spec.clone(), seed, 3);
            store.init(&[key("w")], &[start.to_rows().into()]).unwrap();
            assert_same_bits(&start.to_dense(), &stored(&*store, &key("w")), &"init");
            let rounds = if is_large(&shape) { 2 } else { reduced::times(8).into() };
            for round in 0..rounds {
                let seed = seed * 1000 + round * 10;
                let count = 1 + seed % 8;
                let (mut values, mut expected) = (Vec::new(), Vec::new());
                for position in 0..count {
                    let in_8 = [0, 1, 5, 8][usize::try_from((round + position) % 4).unwrap()];
                    let rows = NaiveRows::sample(spec.clone(), seed + position, in_8);
                    // Every third round mixes both kinds.
                    let is_dense = round % 3 == 2 && position % 2 == 1;
                    expected.push(rows.to_dense());
                    values.push(if is_dense {
                        tensor(&rows.to_dense()).into()
                    } else {
                        rows.to_rows().into()
                    });
                }
                store.push(&vec![key("w"); values.len()], &values, 0).unwrap();
                let what = (&spec, round);
                assert_same_bits(&sum(&expected), &stored(&*store, &key("w")), &what);
            }
        }
    }
}

/// Optimizers that are not lazy, and updaters, receive the dense sum.
pub fn updates_that_are_not_lazy_receive_the_dense_sum(create: Create<'_>) {
    let optimizers = ["sgd", "adam", "adagrad", "ftrl"].map(|name| {
        let lazy = Optimizer::new(name).unwrap().with("wd", 0.1).unwrap();
        lazy.with("lazy_update", 0.0).unwrap()
    });
    let others = ["rmsprop", "nag"].map(|name| Optimizer::new(name).unwrap());
    let spec = Spec::new(&[6, 5], DType::F32);
    for optimizer in optimizers.into_iter().chain(others).map(Some).chain([None]) {
        let stores = [create(), create()];
        for store in &stores {
            let start = tensor(&tame(spec.clone(), 1)).into();
            store.init(&[key("a"), key("w")], &[Value::clone(&start), start]).unwrap();
            match &optimizer {
                Some(optimizer) => store.set_optimizer(optimizer.clone()).unwrap(),
                None => store.set_updater(Some(Arc::new(Halve))).unwrap(),
            }
        }
        for round in 0..4 {
            let rows = [1, 2].map(|n| NaiveRows::sample_of(spec.clone(), round * 10 + n, 3, tame));
            let keys = [key("w"), key("a"), key("w")];
            let other = Value::from(tensor(&tame(spec.clone(), round)));
            let [one, two] = rows.each_ref().map(|rows| Value::from(rows.to_rows()));
            stores[0].push(&keys, &[one, other.clone(), two], 0).unwrap();
            let [one, two] = rows.map(|rows| Value::from(tensor(&rows.to_dense())));
            stores[1].push(&keys, &[one, other, two], 0).unwrap();
            for text in ["a", "w"] {
                let [found, expected] = stores.each_ref().map(|store| stored(&**store, &key(text)));
                assert_same_bits(&expected, &found, &(text, round, &optimizer));
            }
        }
        assert_eq!(stores[0].stats().unwrap(), stores[1].stats().unwrap());
    }
}

/// Returns numbers between -1 and 1 whose squares need every bit of an `f64`.
#[expect(clippy::cast_precision_loss, reason = "the other bits do not matter")]
fn fractions(spec: Spec, seed: u64) -> NaiveValue {
    let numbers = words(seed).take(spec.num_elements());
    let numbers: Vec<_> =
        numbers.map(|word| Number::Float(word.cast_signed() as f64 / 2.0_f64.powi(63))).collect();
    NaiveValue::new(spec, &numbers)
}

/// Clipping by the global norm scales rows to the bits of the clipped dense values, although the
/// norm of rows skips the zeros.
pub fn clipped_rows_equal_clipped_dense_values(create: Create<'_>) {
    let shapes = [[300, 3], [40, 130], [4500, 1]];
    // A wrong order of additions changes the last bit of an `f64` in every sixth case.
    for (seed, dims) in (1..=24).zip(shapes.into_iter().cycle()) {
        for dtype in [DType::F64, DType::F16] {
            let stores = [create(), create()];
            let spec = Spec::new(&dims, dtype);
            for store in &stores {
                store.set_clip_global_norm(Some(0.01)).unwrap();
                let zero = tensor(&NaiveValue::zeros(spec.clone()));
                store.init(&[key("a"), key("w")], &[zero.clone().into(), zero.into()]).unwrap();
            }
            let rows =
                [1, 2, 3].map(|n| NaiveRows::sample_of(spec.clone(), 10 * seed + n, 3, fractions));
            let keys = [key("w"), key("a"), key("w")];
            let pushed = rows.each_ref().map(|rows| Value::from(rows.to_rows()));
            stores[0].push(&keys, &pushed, 0).unwrap();
            let dense = rows.map(|rows| Value::from(tensor(&rows.to_dense())));
            stores[1].push(&keys, &dense, 0).unwrap();
            for name in ["a", "w"] {
                let [found, expected] = stores.each_ref().map(|store| stored(&**store, &key(name)));
                assert_same_bits(&expected, &found, &(&spec, name));
            }
        }
    }
}

struct Halve;

impl kvstore_core::Updater for Halve {
    fn update(&self, _key: &Key, pushed: &Tensor, stored: &mut Tensor) -> Result<(), BoxError> {
        let cell = NDArray::new(stored.clone());
        cell.binary_scalar_assign(kvstore_core::BinaryOp::Mul, 0.5.into())?;
        cell.binary_assign(kvstore_core::BinaryOp::Add, &NDArray::new(pushed.clone()))?;
        *stored = cell.tensor();
        Ok(())
    }
}

/// The model of a lazy optimizer. Every row has its own weight and state.
struct NaiveLazy {
    optimizer: Optimizer,
    rows: Vec<(Tensor, OptimizerState)>,
    num_updates: u64,
}

impl NaiveLazy {
    fn new(optimizer: &Optimizer, start: &NaiveValue) -> Self {
        let num_rows = start.spec.shape[0];
        let spec = rows_spec(&start.spec, 1);
        let rows = start.numbers.chunks(spec.num_elements()).map(|numbers| {
            let weight = tensor(&NaiveValue { spec: spec.clone(), numbers: numbers.to_vec() });
            let state = optimizer.create_state(&weight).unwrap();
            (weight, state)
        });
        let rows: Vec<_> = rows.collect();
        assert_eq!(rows.len(), num_rows);
        Self { optimizer: optimizer.clone(), rows, num_updates: 0 }
    }

    /// Steps the rows of the values, with the update count of the key. A missing row of a value is
    /// 0.
    fn push(&mut self, values: &[NaiveRows]) {
        for (index, (weight, state)) in self.rows.iter_mut().enumerate() {
            let index = i64::try_from(index).unwrap();
            if values.iter().all(|value| value.row(index).is_none()) {
                continue;
            }
            let spec = rows_spec(&values[0].spec, 1);
            let row = |value: &NaiveRows| {
                value.row(index).unwrap_or_else(|| NaiveValue::zeros(spec.clone()))
            };
            let gradients: Vec<_> = values.iter().map(|value| tensor(&row(value))).collect();
            #[expect(clippy::cast_precision_loss, reason = "a few updates")]
            let skipped = (self.num_updates - state.num_updates()) as f64;
            let optimizer = self.optimizer.clone().with("begin_num_update", skipped).unwrap();
            optimizer.update(&key("w"), weight, &gradients, state).unwrap();
        }
        self.num_updates += 1;
    }

    fn to_bytes(&self) -> Vec<u8> {
        self.rows.iter().flat_map(|(weight, _)| weight.to_bytes().unwrap()).collect()
    }
}

/// Returns the optimizers with lazy updates, with every form of states.
fn lazy_optimizers() -> Vec<Optimizer> {
    let of = |name: &str, options: &[(&str, f64)]| {
        let with = |optimizer: Optimizer, (name, value): &(&str, f64)| {
            optimizer.with(name, *value).unwrap()
        };
        options.iter().fold(Optimizer::new(name).unwrap().with("wd", 0.01).unwrap(), with)
    };
    vec![
        of("sgd", &[]),
        of("sgd", &[("momentum", 0.9), ("clip_gradient", 0.5)]),
        of("adam", &[("rescale_grad", 0.5)]),
        of("adagrad", &[]),
        of("ftrl", &[]),
    ]
}

/// A lazy step changes only its rows and their states.
pub fn lazy_steps_change_only_their_rows(create: Create<'_>) {
    let shapes: [&[usize]; 4] = [&[5, 3], &[40], &[300, 150], &[2, 70_001]];
    let optimizers = lazy_optimizers();
    for (number, shape) in shapes.into_iter().enumerate().take(if cfg!(miri) { 2 } else { 4 }) {
        // Very long rows are tested with one optimizer only.
        let optimizers = optimizers.iter().skip(if number > 2 { 2 } else { 0 });
        for optimizer in optimizers.take(if number > 2 { 1 } else { 5 }) {
            for dtype in float_dtypes() {
                check_lazy(&*create(), optimizer, &Spec::new(shape, dtype));
            }
        }
    }
}

fn check_lazy(store: &dyn KvStore, optimizer: &Optimizer, spec: &Spec) {
    let start = tame(spec.clone(), 5);
    let mut naive = NaiveLazy::new(optimizer, &start);
    let dense = [key("a"), key("w"), key("z")];
    let other = Value::from(tensor(&start));
    store.init(&dense, &[other.clone(), tensor(&start).into(), other.clone()]).unwrap();
    store.set_optimizer(optimizer.clone()).unwrap();
    let mut held = Vec::new();
    for round in 0..u64::from(reduced::times(6)) {
        let count = 1 + round % 3;
        let sample = |n: u64| {
            NaiveRows::sample_of(
                spec.clone(),
                round * 10 + n,
                [0, 2, 8, 1][(round % 4) as usize],
                tame,
            )
        };
        let rows: Vec<NaiveRows> = (0..count).map(sample).collect();
        let mut values: Vec<Value> = rows.iter().map(|rows| rows.to_rows().into()).collect();
        let mut keys = vec![key("w"); values.len()];
        // The same call also steps keys with dense gradients.
        values.extend([other.clone(), other.clone()]);
        keys.extend([key("a"), key("z")]);
        if round == 2 {
            // Hold the dense value. The step must not change it.
            held.push((stored(store, &key("w")), store.pull(&[key("w")], 0).unwrap()));
        }
        store.push(&keys, &values, 0).unwrap();
        naive.push(&rows);
        let found = store.pull(&[key("w")], 0).unwrap()[0].to_bytes().unwrap();
        let expected = naive.to_bytes();
        // Values with different bytes may be equal, because any NaN equals any NaN.
        if found != expected {
            let [expected, found] =
                [expected, found].map(|bytes| NaiveValue::from_bytes(spec.clone(), &bytes));
            assert_same_bits(&expected, &found, &(spec, optimizer, round));
        }
    }
    for (expected, held) in held {
        assert_same_bits(&expected, &from_tensor(&held[0]), &"a held value");
    }
    let stats = store.stats().unwrap();
    assert_eq!(stats[0].state_bytes, stats[1].state_bytes);
    assert_eq!(stats[0].num_pushes, stats[1].num_pushes);
}

/// Pulled rows equal the rows of the dense value. Indices are unique and ascending, and rows that
/// the value lacks are zeros.
pub fn pulled_rows_equal_the_rows_of_the_dense_value(create: Create<'_>) {
    for (seed, shape) in (0..).zip(shapes()) {
        for dtype in dtypes_of(&shape) {
            let store = create();
            let spec = Spec::new(&shape, dtype);
            let rows = NaiveRows::sample(spec.clone(), seed, 4);
            let dense = nasty(spec.clone(), seed);
            store
                .init(&[key("r"), key("w")], &[rows.to_rows().into(), tensor(&dense).into()])
                .unwrap();
            let num_rows = i64::try_from(shape[0]).unwrap();
            let ids: Vec<i64> = words(seed)
                .take(20)
                .map(|word| i64::try_from(word % 1_000_000).unwrap() % num_rows)
                .collect();
            let mut expected = ids.clone();
            expected.sort_unstable();
            expected.dedup();
            let keys = [key("w"), key("r"), key("w")];
            let pulled = store.pull_rows(&keys, &[&ids, &ids, &[]], 0).unwrap();
            for (found, value) in pulled.iter().zip([dense, rows.to_dense()]) {
                assert_eq!(found.indices(), expected);
                let naive = NaiveRows::from_rows(found);
                assert_eq!(naive.spec, spec);
                let spec = rows_spec(&spec, expected.len());
                let picked = expected.iter().flat_map(|index| row_of(&value, *index)).collect();
                let picked = NaiveValue { spec: spec.clone(), numbers: picked };
                let found = NaiveValue { spec: spec.clone(), numbers: naive.numbers };
                assert_same_bits(&picked, &found, &(&spec, seed));
            }
            assert_eq!((pulled[2].num_rows(), pulled[2].shape().dims()), (0, &*shape));
        }
    }
}

fn row_of(value: &NaiveValue, index: i64) -> Vec<Number> {
    let row_len: usize = value.spec.shape[1..].iter().product();
    value.numbers[usize::try_from(index).unwrap() * row_len..][..row_len].to_vec()
}

/// Rows with equal indices are summed in call order, for any order of indices.
pub fn rows_with_equal_indices_are_summed_in_call_order() {
    for dtype in DType::ALL {
        let ids = [7, 2, 7, 0, 7, 2];
        let rows = nasty(Spec::new(&[6, 3], dtype), 3);
        let value = RowSparse::from_ids([9, 3], &ids, tensor(&rows)).unwrap();
        assert_eq!(value.indices(), [0, 2, 7]);
        let found = from_tensor(value.rows());
        for (row, positions) in [&[3][..], &[1, 5], &[0, 2, 4]].into_iter().enumerate() {
            let spec = Spec::new(&[3], dtype);
            let addend = |position: &i64| {
                let numbers = row_of(&rows, *position);
                NaiveValue { spec: spec.clone(), numbers }
            };
            let addends: Vec<_> = positions.iter().map(addend).collect();
            let numbers = row_of(&found, i64::try_from(row).unwrap());
            let found = NaiveValue { spec: spec.clone(), numbers };
            assert_eq!(difference(&sum(&addends), &found), None, "{dtype} row {row}");
        }
    }
}

/// Errors of invalid rows name the reason, and the calls change nothing.
pub fn invalid_rows_are_rejected(create: Create<'_>, backends: &Backends) {
    let rows = |dims: &[usize]| {
        let spec = TensorSpec::new(dims.to_vec(), DType::F32);
        Tensor::full(backends, device(0), spec, 1.0.into()).unwrap()
    };
    let text = |result: kvstore_core::Result<RowSparse>, code| {
        let error = result.unwrap_err();
        assert_eq!(error.code(), code, "{error}");
        error.to_string()
    };
    let wrong = |indices: &[i64]| {
        let rows = rows(&[indices.len(), 2]);
        text(RowSparse::new([4, 2], indices, rows), ErrorCode::InvalidArgument)
    };
    assert_eq!(
        wrong(&[1, 3, 2]),
        "row indices must be strictly ascending: 2 at position 2 follows 3"
    );
    assert_eq!(wrong(&[1, 1]), "row indices must be strictly ascending: 1 at position 1 follows 1");
    for outside in [-1, 4, i64::MAX, i64::MIN] {
        let expected = format!(
            "a row-sparse value: row index {outside} is out of range for shape [4, 2]: expected \
             0 to 3"
        );
        assert_eq!(wrong(&[outside]), expected);
    }
    let no_axes = RowSparse::new([], Vec::new(), rows(&[0]));
    assert_eq!(
        text(no_axes, ErrorCode::InvalidArgument),
        "a row-sparse value: shape [] has no rows"
    );
    for dims in [&[1, 2][..], &[2, 3], &[4], &[2, 2, 1]] {
        let mismatch = RowSparse::new([4, 2], vec![0, 3], rows(dims));
        let found = text(mismatch, ErrorCode::SpecMismatch);
        assert!(found.starts_with("2 rows of [4, 2]: expected [2, 2] f32, found "), "{found}");
    }
    let store = create();
    let dense = rows(&[4, 2]);
    store.init(&[key("w")], &[Value::from(&dense)]).unwrap();
    let value =
        |shape: [usize; 2]| Value::from(RowSparse::new(shape, vec![1], rows(&[1, 2])).unwrap());
    assert_code(store.push(&[key("w")], &[value([5, 2])], 0), ErrorCode::SpecMismatch);
    assert_code(store.push(&[key("v")], &[value([4, 2])], 0), ErrorCode::KeyNotFound);
    for (ids, wrong) in [(&[0, 4][..], 4), (&[-1], -1)] {
        let error = store.pull_rows(&[key("w")], &[ids], 0).unwrap_err();
        let expected =
            format!("key `w`: row index {wrong} is out of range for shape [4, 2]: expected 0 to 3");
        assert_eq!((error.code(), error.to_string()), (ErrorCode::InvalidArgument, expected));
    }
    assert_code(store.pull_rows(&[key("v")], &[&[]], 0), ErrorCode::KeyNotFound);
    assert_code(store.pull_rows(&[key("w")], &[], 0), ErrorCode::LengthMismatch);
    store.set_compression(Some(kvstore_core::Compression::new("2bit", 0.5).unwrap())).unwrap();
    let error = store.push(&[key("w")], &[value([4, 2])], 0).unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidArgument);
    assert!(error.to_string().starts_with("key `w`: row-sparse values cannot be compressed"));
    store.set_compression(None).unwrap();
    store.set_updater(Some(Arc::new(assign))).unwrap();
    assert_same_bits(&from_tensor(&dense), &stored(&*store, &key("w")), &"nothing has changed");
    store.init(&[key("s")], &[rows(&[]).into()]).unwrap();
    let error = store.pull_rows(&[key("s")], &[&[]], 0).unwrap_err();
    assert_eq!(error.to_string(), "key `s`: shape [] has no rows");
}

/// Threads that push and pull rows see complete steps only.
pub fn readers_see_complete_steps(create: Create<'_>, backends: &Backends) {
    const NUM_ROWS: usize = 50;
    let ones = |dims: [usize; 2]| {
        let spec = TensorSpec::new(dims, DType::F64);
        Tensor::full(backends, device(0), spec, 1.0.into()).unwrap()
    };
    let store = create();
    let names = ["a", "b"].map(key);
    store.init(&names, &[ones([NUM_ROWS, 4]).into(), ones([NUM_ROWS, 4]).into()]).unwrap();
    let optimizer = Optimizer::sgd().with("learning_rate", 1.0).unwrap();
    store.set_optimizer(optimizer.with("rescale_grad", -1.0).unwrap()).unwrap();
    let touched: Vec<i64> = (0..50).step_by(3).collect();
    let gradient = Value::from(
        RowSparse::new([NUM_ROWS, 4], touched.clone(), ones([touched.len(), 4])).unwrap(),
    );
    let rounds: u16 = reduced::times(200);
    std::thread::scope(|scope| {
        for order in [[0, 1], [1, 0]] {
            let (store, gradient, names) = (&*store, &gradient, &names);
            scope.spawn(move || {
                let keys = order.map(|index: usize| names[index].clone());
                for _ in 0..rounds {
                    store.push(&keys, &[gradient.clone(), gradient.clone()], 0).unwrap();
                }
            });
            let touched = &touched;
            scope.spawn(move || {
                let keys = order.map(|index: usize| names[index].clone());
                for _ in 0..rounds {
                    for pulled in store.pull_rows(&keys, &[touched, touched], 0).unwrap() {
                        let numbers = pulled.rows().to_vec::<f64>().unwrap();
                        let first = numbers[0].to_bits();
                        assert!(numbers.iter().all(|number| number.to_bits() == first));
                    }
                }
            });
        }
    });
    // No step was lost, and rows that no gradient contains are unchanged.
    for name in &names {
        let value = stored(&*store, name);
        for (index, number) in value.numbers.iter().enumerate() {
            let steps = if (index / 4).is_multiple_of(3) { 2 * rounds } else { 0 };
            assert_eq!(number.to_f64().to_bits(), (1.0 + f64::from(steps)).to_bits());
        }
    }
}
