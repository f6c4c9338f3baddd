//! Checks that stored values and arrays outside the store are independent.

use std::sync::{Arc, Mutex};

use kvstore::{NDArray, Scalar, Store};

use super::{array, floats, stored};

/// Returns all ways to write to an array of four elements, including through views.
fn writes() -> Vec<fn(&NDArray) -> kvstore::Result<()>> {
    vec![
        |array| array.fill(Scalar::Int(99)),
        |array| array.assign_slice(&[99_f32; 4]),
        |array| array.assign(&super::array(&[99.0; 4]).tensor()),
        |array| array.add_assign(&super::array(&[99.0; 4])),
        |array| array.slice(1, 3)?.fill(Scalar::Int(99)),
        |array| array.at(3)?.fill(Scalar::Int(99)),
        |array| array.reshape(&[2, 2])?.at(0)?.assign_slice(&[99_f32, 99.0]),
        |array| super::array(&[99.0; 4]).copy_to(array),
    ]
}

/// A write after `init` does not reach the store.
pub fn writes_after_init_do_not_change_the_store(store: &Store) {
    for (number, write) in writes().into_iter().enumerate() {
        let value = array(&[1.0, 2.0, 3.0, 4.0]);
        let name = number.to_string();
        store.init(&name, &value).unwrap();
        write(&value).unwrap();
        assert_eq!(stored(store, &name), [1.0, 2.0, 3.0, 4.0], "write {number}");
    }
}

/// A write after `push` does not reach the store, although a single value may be stored by sharing.
pub fn writes_after_a_push_do_not_change_the_store(store: &Store) {
    store.init("w", &array(&[0.0; 4])).unwrap();
    for (number, write) in writes().into_iter().enumerate() {
        let value = array(&[1.0, 2.0, 3.0, 4.0]);
        store.push("w", &value).unwrap();
        write(&value).unwrap();
        assert_eq!(stored(store, "w"), [1.0, 2.0, 3.0, 4.0], "write {number}");
    }
}

/// A write to a pulled array does not reach the store.
pub fn writes_to_pulled_arrays_do_not_change_the_store(store: &Store) {
    store.init("w", &array(&[1.0, 2.0, 3.0, 4.0])).unwrap();
    for (number, write) in writes().into_iter().enumerate() {
        let out = array(&[0.0; 4]);
        store.pull("w", &out).unwrap();
        write(&out).unwrap();
        write(&store.pull_new("w").unwrap()[0]).unwrap();
        assert_eq!(stored(store, "w"), [1.0, 2.0, 3.0, 4.0], "write {number}");
    }
}

/// A push does not change arrays that were pulled before.
pub fn a_push_does_not_change_pulled_arrays(store: &Store) {
    store.init("w", &array(&[1.0, 2.0])).unwrap();
    store.set_updater(|_, pushed, stored| Ok(stored.add_assign(pushed)?)).unwrap();
    let out = array(&[0.0, 0.0]);
    store.pull("w", &out).unwrap();
    let new = store.pull_new("w").unwrap();
    store.push("w", &array(&[10.0, 10.0])).unwrap();
    assert_eq!((floats(&out), floats(&new[0])), (vec![1.0, 2.0], vec![1.0, 2.0]));
    assert_eq!(stored(store, "w"), [11.0, 12.0]);
}

/// Two arrays that one call pulled are independent.
pub fn pulled_arrays_are_independent(store: &Store) {
    store.init("w", &array(&[1.0, 2.0])).unwrap();
    let outs = [array(&[0.0, 0.0]), array(&[0.0, 0.0])];
    store.pull("w", outs.to_vec()).unwrap();
    outs[0].fill(Scalar::Int(9)).unwrap();
    assert_eq!(floats(&outs[1]), [1.0, 2.0]);
}

/// Views are valid values of `init` and `push`. Later writes to their parent do not reach the
/// store.
pub fn writes_after_a_push_of_a_view_do_not_change_the_store(store: &Store) {
    let parent = array(&[1.0, 2.0, 3.0, 4.0]);
    store.init("w", &parent.slice(1, 3).unwrap()).unwrap();
    parent.fill(Scalar::Int(9)).unwrap();
    assert_eq!(stored(store, "w"), [2.0, 3.0]);
    parent.assign_slice(&[5_f32, 6.0, 7.0, 8.0]).unwrap();
    store.push("w", &parent.slice(2, 4).unwrap()).unwrap();
    parent.fill(Scalar::Int(9)).unwrap();
    assert_eq!(stored(store, "w"), [7.0, 8.0]);
}

/// A pull into a view writes only those rows of its parent.
pub fn a_pull_into_a_view_writes_only_its_rows(store: &Store) {
    store.init("w", &array(&[1.0, 2.0])).unwrap();
    let parent = array(&[0.0; 4]);
    store.pull("w", &parent.slice(1, 3).unwrap()).unwrap();
    assert_eq!(floats(&parent), [0.0, 1.0, 2.0, 0.0]);
}

/// Outputs may overlap: a parent and its view in one call are written in the order of
/// initialisation.
pub fn overlapping_outputs_are_written_in_init_order(store: &Store) {
    store.init(["all", "part"], vec![array(&[1.0; 4]), array(&[2.0; 2])]).unwrap();
    let parent = array(&[0.0; 4]);
    let outs = vec![parent.slice(1, 3).unwrap(), parent.clone()];
    store.pull(["part", "all"], outs).unwrap();
    assert_eq!(floats(&parent), [1.0, 2.0, 2.0, 1.0]);
}

/// One array may be the output of one key three times, or of three keys. Then the key that was
/// initialised last wins.
pub fn one_array_may_be_every_output(store: &Store) {
    let names = || ["9", "7", "5"];
    let out = array(&[0.0]);
    let three_times = || vec![out.clone(), out.clone(), out.clone()];
    store.init(names(), vec![array(&[1.0]), array(&[2.0]), array(&[3.0])]).unwrap();
    store.pull("7", three_times()).unwrap();
    assert_eq!(floats(&out), [2.0]);
    store.pull(["5", "9", "7"], three_times()).unwrap();
    assert_eq!(floats(&out), [3.0]);
    store.pull(["9", "9", "9"], three_times()).unwrap();
    assert_eq!(floats(&out), [1.0]);
}

/// One array may be every value of a push, and its output.
pub fn one_array_may_be_every_value(store: &Store) {
    let value = array(&[1.0, 2.0]);
    store.init("w", &value).unwrap();
    store.push("w", vec![value.clone(), value.clone(), value.clone()]).unwrap();
    assert_eq!(stored(store, "w"), [3.0, 6.0]);
    let both = || vec![value.clone(), value.clone()];
    store.pushpull("w", both(), both()).unwrap();
    assert_eq!(floats(&value), [2.0, 4.0]);
}

/// An updater that writes to the sum does not change the caller's array.
pub fn an_updater_cannot_change_the_array_of_the_caller(store: &Store) {
    store.set_updater(|_, pushed, _| Ok(pushed.fill(Scalar::Int(99))?)).unwrap();
    let value = array(&[1.0, 2.0]);
    store.init("w", &value).unwrap();
    store.push("w", &value).unwrap();
    assert_eq!((floats(&value), stored(store, "w")), (vec![1.0, 2.0], vec![1.0, 2.0]));
}

/// Arrays that an updater keeps are private: writes to them have no effect elsewhere, and later
/// pushes do not change them.
pub fn arrays_of_an_updater_are_private(store: &Store) {
    let kept: Arc<Mutex<Vec<NDArray>>> = Arc::default();
    let keeper = Arc::clone(&kept);
    store
        .set_updater(move |_, pushed, stored| {
            stored.add_assign(pushed)?;
            keeper.lock().unwrap().extend([pushed.clone(), stored.clone()]);
            Ok(())
        })
        .unwrap();
    let value = array(&[1.0]);
    store.init("w", &value).unwrap();
    store.push("w", &value).unwrap();
    for array in kept.lock().unwrap().iter() {
        array.fill(Scalar::Int(99)).unwrap();
    }
    assert_eq!((floats(&value), stored(store, "w")), (vec![1.0], vec![2.0]));
    // The second push must not change the arrays of the first one.
    store.push("w", &value).unwrap();
    let kept = kept.lock().unwrap();
    assert_eq!(
        (floats(&kept[0]), floats(&kept[1]), floats(&kept[3])),
        (vec![99.0], vec![99.0], vec![3.0])
    );
}

/// The stored values of `broadcast` are independent of its values and outputs.
pub fn writes_after_a_broadcast_do_not_change_the_store(store: &Store) {
    let (value, out) = (array(&[1.0, 2.0]), array(&[0.0, 0.0]));
    store.broadcast("w", &value, &out).unwrap();
    value.fill(Scalar::Int(8)).unwrap();
    assert_eq!(floats(&out), [1.0, 2.0]);
    out.fill(Scalar::Int(9)).unwrap();
    assert_eq!((stored(store, "w"), floats(&value)), (vec![1.0, 2.0], vec![8.0, 8.0]));
}
