//! Checks of racing verbs: a reader sees only states that existed, a failed call has changed
//! nothing, and an update uses one rule throughout.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;

use kvstore::{ErrorCode, NDArray, Optimizer, Store};

use super::concurrency::{LONG, adding, code, on_threads};
use super::{array, assert_code, floats, stored};
use crate::arrays::key;

type Count = Arc<AtomicUsize>;

/// More than the number of operations of any check. As a state it is still exact in f32.
const MANY: usize = 8000;

const KEYS: [&str; 3] = ["a", "b", "c"];

/// A short length, one that is cut between threads, and one that ends inside a block.
const LENGTHS: [usize; 3] = [5, LONG, 3001];

/// Returns the state after `count` pushes of [`ones`]. Neighbouring elements differ, so a mix of
/// two states is not a state.
#[expect(clippy::cast_precision_loss, reason = "states are small whole numbers")]
fn state(count: usize, length: usize) -> NDArray {
    array(&(0..length).map(|index| (count * (1 + index % 7)) as f32).collect::<Vec<_>>())
}

/// Returns the number of pushes that give this value. Panics if none does.
#[expect(clippy::cast_possible_truncation, reason = "states are small whole numbers")]
#[expect(clippy::cast_sign_loss, reason = "and not negative")]
fn count_of(value: &NDArray) -> usize {
    let elements = floats(value);
    let count = elements[0] as usize;
    let expected = floats(&state(count, elements.len()));
    assert!(elements == expected, "a mix of states: {:?} ..", &elements[..elements.len().min(9)]);
    count
}

fn init_states(store: &Store) {
    let values = LENGTHS.map(|length| state(0, length));
    store.init(KEYS, values.to_vec()).unwrap();
}

fn optimizer(name: &str, options: &[(&str, f64)]) -> Optimizer {
    let mut optimizer = Optimizer::new(name).expect("an optimizer of this name");
    for (name, value) in options {
        optimizer.set(name, *value).expect("a hyper-parameter that it has");
    }
    optimizer
}

/// Several threads push all keys while others pull them in one call, and hold the pulled arrays.
/// Each value is the state after some number of pushes, and no older than the value before it.
fn readers_never_see_older_states(store: &Store, num_pushers: usize, push: fn(&Store, usize)) {
    const ROUNDS: usize = 12;
    init_states(store);
    let shared = store.clone();
    on_threads(num_pushers + 2, move |number| {
        let mut before = [0; 3];
        for round in 1..=ROUNDS {
            if number < num_pushers {
                push(&shared, round);
                continue;
            }
            // The arrays stay alive in this round, so a concurrent push needs new memory.
            let pulled = shared.pull_new(KEYS).unwrap();
            for (value, before) in pulled.iter().zip(&mut before) {
                let count = count_of(value);
                assert!((*before..=num_pushers * ROUNDS).contains(&count), "{before}, {count}");
                *before = count;
            }
        }
    });
    for value in store.pull_new(KEYS).unwrap() {
        assert_eq!(count_of(&value), num_pushers * ROUNDS);
    }
}

/// Pushes several values to each key. Every call names the keys in another order.
fn push_one_state(store: &Store, round: usize) {
    let mut keys = [KEYS[2], KEYS[0], KEYS[1], KEYS[2], KEYS[1], KEYS[0]];
    let [a, b, c] = LENGTHS;
    let mut values = [(1, c), (1, a), (1, b), (0, c), (0, b), (0, a)];
    keys.rotate_left(round % 6);
    values.rotate_left(round % 6);
    store.push(keys, values.map(|(count, length)| state(count, length)).to_vec()).unwrap();
}

/// The updater adds.
pub fn readers_never_see_older_states_with_an_updater(store: &Store) {
    adding(store);
    readers_never_see_older_states(store, 3, push_one_state);
}

/// The optimizer adds, in one batch for all keys.
pub fn readers_never_see_older_states_with_an_optimizer(store: &Store) {
    store.set_optimizer(optimizer("test", &[])).unwrap();
    readers_never_see_older_states(store, 3, push_one_state);
}

/// Sums replace the stored values. Only one thread pushes, because it must know the next state.
pub fn readers_never_see_older_states_with_sums(store: &Store) {
    readers_never_see_older_states(store, 1, |store, round| {
        let keys = KEYS.map(|key| [key, key]).concat();
        let values = LENGTHS.map(|length| [state(round - 1, length), state(1, length)]).concat();
        store.push(&keys[..], values).unwrap();
    });
}

/// A key is removed and initialised again, with another shape each time, during pushes and pulls. A
/// call fails if the key is missing or has another shape, and then changes nothing. A push that
/// began before a removal does not reach a key that was initialised after it.
pub fn a_key_may_be_initialised_again_with_another_shape(store: &Store) {
    const GENERATIONS: usize = 250;
    let length_of = |generation: usize| 8 * (1 + generation % 2);
    store.set_optimizer(optimizer("test", &[])).unwrap();
    store.init("stays", &state(0, 16)).unwrap();
    let (shared, pushed, failed) = (store.clone(), Count::default(), Count::default());
    let (successes, failures) = (Arc::clone(&pushed), Arc::clone(&failed));
    let (is_done, start) = (AtomicBool::new(false), Barrier::new(4));
    on_threads(4, move |number| {
        start.wait();
        if number == 0 {
            for generation in 0..GENERATIONS {
                // No generation receives this many pushes.
                let value = state(MANY * generation, length_of(generation));
                shared.init("comes", &value).unwrap();
                thread::yield_now();
                shared.remove("comes").unwrap();
                thread::yield_now();
            }
            is_done.store(true, Ordering::Relaxed);
        }
        for round in (0..MANY / 2).take_while(|_| !is_done.load(Ordering::Relaxed)) {
            if number == 1 {
                match shared.pull_new(["stays", "comes"]) {
                    Ok(pulled) => {
                        count_of(&pulled[0]);
                        let generation = count_of(&pulled[1]) / MANY;
                        assert_eq!(floats(&pulled[1]).len(), length_of(generation));
                    }
                    Err(error) => assert_eq!(error.code(), ErrorCode::KeyNotFound),
                }
            } else {
                let values = vec![state(1, 16), state(1, length_of(round))];
                let result = shared.push(["stays", "comes"], values);
                let allowed = [ErrorCode::KeyNotFound, ErrorCode::SpecMismatch];
                assert!(code(&result).is_none_or(|code| allowed.contains(&code)), "{result:?}");
                let count = if result.is_ok() { &successes } else { &failures };
                count.fetch_add(1, Ordering::Relaxed);
            }
            thread::yield_now();
        }
    });
    let (pushed, failed) = (pushed.load(Ordering::Relaxed), failed.load(Ordering::Relaxed));
    println!("{pushed} pushes found both keys, {failed} did not");
    assert_eq!(count_of(&store.pull_new("stays").unwrap()[0]), pushed);
    assert!(!store.contains(&key("comes")).unwrap());
}

/// Checks that the value is the result of `num_steps` steps of 1 or 1024.
fn assert_steps(value: &[f32], num_steps: usize) {
    assert!(value.iter().all(|x| x.to_bits() == value[0].to_bits()), "a mix of rules");
    let total = f64::from(value[0]);
    let (small, large) = (total % 1024.0, (total / 1024.0).floor());
    println!("{small} small and {large} large steps");
    #[expect(clippy::cast_precision_loss, reason = "a few hundred")]
    let num_steps = num_steps as f64;
    assert!((small + large).to_bits() == num_steps.to_bits(), "{total} after {num_steps} steps");
}

/// Two threads push two keys while another thread changes the rule. Every step adds 1 or 1024. A
/// step that mixes two rules adds something else.
fn pushes_have_one_rule(store: &Store, change: impl Fn(&Store, bool) + Send + Sync + 'static) {
    const ROUNDS: usize = 150;
    let zeros = || vec![array(&vec![0.0; 70_000]), array(&[0.0; 3])];
    store.init(["a", "b"], zeros()).unwrap();
    change(store, false);
    let shared = store.clone();
    // One value that several threads step, and a short one.
    let gradients = vec![array(&vec![-1.0; 70_000]), array(&[-1.0; 3])];
    on_threads(3, move |number| {
        for round in 0..ROUNDS {
            match number {
                0 => change(&shared, round % 2 == 0),
                _ => shared.push(["a", "b"], gradients.clone()).unwrap(),
            }
            thread::yield_now();
        }
    });
    let (a, b) = (stored(store, "a"), stored(store, "b"));
    assert_steps(&a, 2 * ROUNDS);
    assert!(a[0].to_bits() == b[0].to_bits(), "the keys of one call had different rules");
    assert!(b.iter().all(|x| x.to_bits() == b[0].to_bits()));
}

/// If one call changes two hyper-parameters, a step uses both or neither: a mix would be a step of
/// 4 or 256.
pub fn hyper_parameters_change_between_pushes(store: &Store) {
    store.set_optimizer(optimizer("sgd", &[("lr", 1.0)])).unwrap();
    pushes_have_one_rule(store, |store, is_large| {
        let (rate, rescale) = if is_large { (4.0, 256.0) } else { (1.0, 1.0) };
        store.set_hyper_parameters(&[("lr", rate), ("rescale_grad", rescale)]).unwrap();
    });
}

/// An updater and an optimizer alternate.
pub fn rules_change_between_pushes(store: &Store) {
    pushes_have_one_rule(store, |store, is_large| {
        if is_large {
            store.set_optimizer(optimizer("sgd", &[("lr", 1024.0)])).unwrap();
        } else {
            store.set_updater(|_, pushed, stored| Ok(stored.sub_assign(pushed)?)).unwrap();
        }
    });
}

/// An updater panics in one of many concurrent pushes. Only that push panics, or fails with another
/// error than later ones if the updater runs in another thread. All later calls on its key report
/// the poisoned key, and other keys are not affected. Then the key is removed and initialised
/// again, also during pushes, and works as before.
pub fn a_panic_during_pushes_poisons_only_its_key(store: &Store) {
    const ROUNDS: u16 = 500;
    // In this order, a call that is not checked completely would update the first key.
    store.init(["good", "bad"], vec![array(&[0.0]), array(&[0.0])]).unwrap();
    let calls = AtomicUsize::new(0);
    store
        .set_updater(move |key, pushed, stored| {
            stored.add_assign(pushed)?;
            let is_due = key.as_str() == "bad" && calls.fetch_add(1, Ordering::Relaxed) == 450;
            assert!(!is_due, "this panic is part of the test");
            Ok(())
        })
        .unwrap();
    let (shared, num_panics) = (store.clone(), Count::default());
    let counter = Arc::clone(&num_panics);
    on_threads(4, move |_| {
        let mut is_poisoned = false;
        for _ in 0..ROUNDS {
            shared.push("good", &array(&[1.0])).unwrap();
            let push = || shared.push("bad", &array(&[1.0]));
            match catch_unwind(AssertUnwindSafe(push)) {
                Err(_) => {
                    counter.fetch_add(1, Ordering::Relaxed);
                    is_poisoned = true;
                }
                Ok(Err(error)) if error.to_string().contains("part of the test") => {
                    counter.fetch_add(1, Ordering::Relaxed);
                    is_poisoned = true;
                }
                Ok(Ok(())) => assert!(!is_poisoned, "a poisoned key was updated"),
                Ok(Err(error)) => {
                    assert_eq!(error.code(), ErrorCode::Poisoned);
                    is_poisoned = true;
                }
            }
            if is_poisoned {
                let both = vec![array(&[1.0]), array(&[1.0])];
                assert_code(shared.push(["good", "bad"], both), ErrorCode::Poisoned);
                assert_code(shared.pull_new(["good", "bad"]), ErrorCode::Poisoned);
            }
            thread::yield_now();
        }
        assert!(is_poisoned);
    });
    assert_eq!(num_panics.load(Ordering::Relaxed), 1);
    assert_eq!(stored(store, "good"), [4.0 * f32::from(ROUNDS)]);
    a_poisoned_key_is_restored_during_pushes(store, "bad");
    assert_eq!(stored(store, "good"), [4.0 * f32::from(ROUNDS)]);
}

/// One thread restores the key once the other threads have got a few errors. A thread that has seen
/// the restored key gets no more errors.
fn a_poisoned_key_is_restored_during_pushes(store: &Store, name: &'static str) {
    let (shared, num_pushed, num_rejected) = (store.clone(), Count::default(), Count::default());
    let successes = Arc::clone(&num_pushed);
    on_threads(4, move |number| {
        if number == 0 {
            // Bounded, because the other threads may not run until this one pauses.
            for _ in (0..MANY).take_while(|_| num_rejected.load(Ordering::Relaxed) < 20) {
                thread::yield_now();
            }
            shared.remove(name).unwrap();
            thread::yield_now();
            shared.init(name, &array(&[0.0])).unwrap();
        }
        let mut num_own = 0;
        while num_own < 50 {
            let pushed = shared.push(name, &array(&[1.0]));
            if let Some(code) = code(&pushed) {
                let is_restored = number == 0 || num_own > 0;
                let allowed = [ErrorCode::Poisoned, ErrorCode::KeyNotFound];
                assert!(!is_restored && allowed.contains(&code), "{pushed:?}");
                num_rejected.fetch_add(1, Ordering::Relaxed);
                thread::yield_now();
            } else {
                num_own += 1;
                successes.fetch_add(1, Ordering::Relaxed);
            }
        }
    });
    assert_eq!(num_pushed.load(Ordering::Relaxed), 200);
    assert_eq!(stored(store, name), [200.0]);
}
