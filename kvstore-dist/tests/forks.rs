//! Local and distributed stores in a forked child process.

#![cfg(unix)]
#![allow(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    reason = "a test may abort without memory"
)]
#![expect(unsafe_code, reason = "declares functions of the system")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a check fails by panicking")]

use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::slice::from_ref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use kvstore::{
    DType, Device, ErrorCode, Key, NDArray, OnExisting, Optimizer, Result, Store, create, ones,
};

unsafe extern "C" {
    safe fn fork() -> c_int;
    safe fn _exit(code: c_int) -> !;
    safe fn alarm(seconds: u32) -> u32;
    unsafe fn waitpid(child: c_int, status: *mut c_int, options: c_int) -> c_int;
}

/// Runs checks in a forked child with a deadline. Panics if they fail.
fn in_child(checks: impl FnOnce()) {
    let child = fork();
    if child == 0 {
        // SIGALRM kills a child that hangs.
        alarm(60);
        let passed = catch_unwind(AssertUnwindSafe(checks)).is_ok();
        _exit(c_int::from(!passed));
    }
    let mut status = 0;
    // SAFETY: `status` is a valid, writable `c_int`.
    let ended = unsafe { waitpid(child, &raw mut status, 0) };
    assert_eq!((ended, status), (child, 0), "the child failed or timed out");
}

const LEN: usize = 300_000;

fn array(len: usize) -> NDArray {
    ones([len], DType::F32, Device::cpu(0)).expect("an array of ones")
}

fn check_verbs(store: &Store, value: &NDArray) {
    let key = Key::new("w").expect("a key");
    let results: [(&str, Result<()>); 26] = [
        ("init", store.init("v", value)),
        ("init_with", store.init_with("w", value, OnExisting::Replace)),
        ("push", store.push("w", value)),
        ("push_values", store.push_values(from_ref(&key), &[value.into()], 0)),
        ("pull", store.pull("w", value)),
        ("pull_arrays", store.pull_arrays(from_ref(&key), from_ref(value), 0)),
        ("pull_new", store.pull_new("w").map(drop)),
        ("pull_rows", store.pull_rows("w", &[[0]]).map(drop)),
        ("pushpull", store.pushpull("w", value, value)),
        ("broadcast", store.broadcast("v", value, value)),
        ("remove", store.remove("w")),
        ("set_optimizer", store.set_optimizer(Optimizer::sgd())),
        ("hyper_parameters", store.hyper_parameters().map(drop)),
        ("snapshot", store.snapshot().map(drop)),
        ("checkpoint", store.checkpoint("/nowhere/file").map(drop)),
        ("keys", store.keys().map(drop)),
        ("stats", store.stats().map(drop)),
        ("contains", store.contains(&key).map(drop)),
        ("optimizer", store.optimizer().map(drop)),
        ("gradient_compression", store.gradient_compression().map(drop)),
        ("rank", store.rank().map(drop)),
        ("num_workers", store.num_workers().map(drop)),
        ("barrier", store.barrier()),
        ("set_barrier_before_exit", store.set_barrier_before_exit(false)),
        ("num_dead_node", store.num_dead_node(0).map(drop)),
        ("send_command_to_servers", store.send_command_to_servers(0, "")),
    ];
    for (verb, result) in results {
        let error = result.expect_err(verb);
        assert_eq!(error.code(), ErrorCode::Unsupported, "{verb}: {error}");
        let text = "the store was created before this process was forked: \
                    create a new store in the child process";
        assert_eq!(error.to_string(), text, "{verb}");
    }
    assert_eq!(store.name(), "local");
}

fn use_new_store() {
    let (store, value) = (create("local").expect("a store"), array(LEN));
    store.init("w", &value).expect("init");
    store.push("w", vec![value.clone(); 5]).expect("push");
    let pulled = store.pull_new("w").expect("pull").remove(0);
    let elements = pulled.to_vec::<f32>().expect("elements");
    assert!(elements.iter().all(|element| *element == 5.0));
}

#[test]
fn children_forked_during_pushes_create_their_own_stores() {
    let (store, value) = (create("local").expect("a store"), array(LEN));
    store.init(["w", "x"], vec![value.clone(), value.clone()]).expect("init");
    let is_over = AtomicBool::new(false);
    let clone = store.clone();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let values = vec![vec![array(LEN); 2], vec![array(LEN)]];
                let out = array(LEN);
                while !is_over.load(Ordering::Relaxed) {
                    store.push(["w", "x"], values.clone()).expect("push");
                    store.pull("w", &out).expect("pull");
                }
            });
        }
        let children = catch_unwind(AssertUnwindSafe(|| {
            for _ in 0..20 {
                let (clone, value) = (clone.clone(), value.copy().expect("a copy"));
                in_child(move || {
                    check_verbs(&clone, &value);
                    use_new_store();
                    drop((clone, value));
                    in_child(use_new_store);
                });
            }
        }));
        is_over.store(true, Ordering::Relaxed);
        children.expect("every child passes");
    });
    store.push("w", &value).expect("the parent continues");
}

/// The names of the MPI libraries that the crate tries to load.
#[cfg(target_os = "linux")]
const LIBRARIES: [&str; 8] = [
    "libmpi.so.40",
    "libmpi_abi.so.1",
    "libmpi_abi.so.0",
    "libmpi_abi.so",
    "libmpich.so.12",
    "libmpi.so.12",
    "libmpi.so",
    "libmpich.so",
];

/// Runs in another process, in which the loader finds no MPI even if one is installed.
#[test]
#[cfg(target_os = "linux")]
fn a_child_reports_a_missing_library_like_its_parent() {
    use std::env;
    use std::fs::File;
    use std::process::Command;

    const HAS_NO_MPI: &str = "KVSTORE_TEST_HAS_NO_MPI";
    if env::var_os(HAS_NO_MPI).is_none() {
        // The loader rejects these empty files and does not search other folders.
        let folder = tempfile::tempdir().unwrap();
        for library in LIBRARIES {
            File::create(folder.path().join(library)).unwrap();
        }
        let mut test = Command::new(env::current_exe().unwrap());
        test.args(["--exact", "a_child_reports_a_missing_library_like_its_parent", "--nocapture"]);
        let output = test.env(HAS_NO_MPI, "1").env("LD_LIBRARY_PATH", folder.path()).output();
        let output = output.unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        return;
    }
    let error = create("dist_sync").expect_err("no library");
    assert_eq!(error.code(), ErrorCode::Unsupported, "{error}");
    assert!(error.to_string().contains("no MPI is installed"), "{error}");
    let check = || {
        let found = create("dist_sync").expect_err("no library in a child");
        assert_eq!(found.to_string(), error.to_string());
        use_new_store();
    };
    in_child(|| {
        check();
        in_child(check);
    });
    in_child(|| in_child(check));
}

/// Skipped without MPI.
#[test]
fn a_child_cannot_use_or_create_distributed_stores_of_its_parent() {
    if let Err(error) = create("dist_sync") {
        println!("skipped: no MPI: {error}");
        return;
    }
    let store = create("dist_sync").expect("a second store of the group");
    store.set_barrier_before_exit(false).expect("no barrier");
    in_child(move || {
        let error = store.push("w", &array(2)).expect_err("a push");
        assert!(error.to_string().contains("forked"), "{error}");
        drop(store);
        let error = create("dist_sync").expect_err("a second group");
        assert_eq!(error.code(), ErrorCode::Unsupported);
        let text = "the group of processes was created before this process was forked: create \
                    stores that span processes in one process only";
        assert_eq!(error.to_string(), text);
        use_new_store();
    });
}
