//! An allocator that fails on request, and a harness that fails each long allocation of a call.
//!
//! A test passes its cases to [`run_cases`]. With [`without_memory`], only the allocations of the
//! calling thread fail, so other tests may run meanwhile.

use std::alloc::{GlobalAlloc, Layout, System};
use std::backtrace::Backtrace;
use std::cell::Cell;
use std::fmt::{self, Display};
use std::num::NonZero;
use std::panic::resume_unwind;
use std::process::Command;
use std::ptr::null_mut;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};
use std::thread;

/// The size in bytes from which an allocation may fail, by default. Shorter allocations do not
/// depend on the size of the data; the largest of these, the list of free blocks by size class, has
/// 20,800 bytes.
pub const LONG: usize = 21 << 10;

/// The environment variable that names the case of a child process.
const CASE: &str = "KVSTORE_TEST_CASE";

/// The environment variable with the distance between the allocations that fail: 1 for each.
const STEP: &str = "KVSTORE_TEST_ALLOCATIONS";

/// The environment variable that prints the stack of each failed allocation.
const STACKS: &str = "KVSTORE_TEST_STACKS";

/// The size in bytes from which an allocation may fail.
static SHORTEST: AtomicUsize = AtomicUsize::new(LONG);
/// The number of long allocations that still succeed. With [`ALL`], all of them do.
static LEFT: AtomicI64 = AtomicI64::new(ALL);
static HAS_FAILED: AtomicBool = AtomicBool::new(false);
/// Whether exactly one allocation fails.
static ONCE: AtomicBool = AtomicBool::new(false);
const ALL: i64 = i64::MAX;

thread_local! {
    static IS_WITHOUT_MEMORY: Cell<bool> = const { Cell::new(false) };
}

const ORDER: Ordering = Ordering::SeqCst;
/// Whether [`STACKS`] is set. Cached, because reading the environment allocates.
static STACKS_ARE_WANTED: AtomicBool = AtomicBool::new(false);

/// The system's allocator. Its long allocations fail while a case runs.
#[derive(Clone, Copy, Debug)]
pub struct FailingAllocator;

impl FailingAllocator {
    fn fails(num_bytes: usize) -> bool {
        if num_bytes < SHORTEST.load(ORDER) {
            return false;
        }
        if IS_WITHOUT_MEMORY.get() {
            return true;
        }
        // One atomic step, because the threads of a call count down together.
        let next = |left: i64| match left {
            ALL => None,
            0 if ONCE.load(ORDER) => Some(ALL),
            0 => Some(0),
            left => Some(left - 1),
        };
        if LEFT.fetch_update(ORDER, ORDER, next) != Ok(0) {
            return false;
        }
        HAS_FAILED.store(true, ORDER);
        if STACKS_ARE_WANTED.load(ORDER) {
            // Printing allocates, and must not fail.
            let left = LEFT.swap(ALL, ORDER);
            eprintln!("{num_bytes} bytes:\n{}", Backtrace::force_capture());
            LEFT.store(left, ORDER);
        }
        true
    }
}

// SAFETY: forwards to the system's allocator, or returns null.
unsafe impl GlobalAlloc for FailingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if Self::fails(layout.size()) {
            return null_mut();
        }
        // SAFETY: the caller upholds the same contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if Self::fails(layout.size()) {
            return null_mut();
        }
        // SAFETY: the caller upholds the same contract.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if Self::fails(size) {
            return null_mut();
        }
        // SAFETY: the caller upholds the same contract.
        unsafe { System.realloc(block, layout, size) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller upholds the same contract.
        unsafe { System.dealloc(block, layout) }
    }
}

/// Sets the size in bytes from which an allocation may fail, in place of [`LONG`].
pub fn fail_from(num_bytes: usize) {
    SHORTEST.store(num_bytes, ORDER);
}

/// Runs a part of a case, such as a check, whose allocations succeed.
pub fn without_failures<R>(run: impl FnOnce() -> R) -> R {
    let left = LEFT.swap(ALL, ORDER);
    let result = run();
    LEFT.store(left, ORDER);
    result
}

/// Runs a call while every long allocation of this thread fails.
pub fn without_memory<R>(run: impl FnOnce() -> R) -> R {
    let before = IS_WITHOUT_MEMORY.replace(true);
    let result = run();
    IS_WITHOUT_MEMORY.set(before);
    result
}

/// A call whose long allocations fail.
pub type Call<E> = Box<dyn FnOnce() -> Result<(), E> + Send>;

/// A named call, and the function that prepares it.
pub struct Case<E> {
    name: &'static str,
    prepare: Box<dyn Fn() -> Call<E>>,
}

impl<E> Case<E> {
    /// Returns a case. `prepare` runs once for each call, and its allocations succeed. The call
    /// runs in a thread of its own, whose thread-local buffers are empty.
    pub fn new(name: &'static str, prepare: impl Fn() -> Call<E> + 'static) -> Self {
        Self { name, prepare: Box::new(prepare) }
    }
}

impl<E> fmt::Debug for Case<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Case").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Returns a case that prepares a value and passes it to `call`.
pub fn case<T: Send + 'static, R, E>(
    name: &'static str,
    prepare: impl Fn() -> T + 'static,
    call: impl Fn(T) -> Result<R, E> + Clone + Send + 'static,
) -> Case<E> {
    Case::new(name, move || {
        let (given, call) = (prepare(), call.clone());
        Box::new(move || call(given).map(drop))
    })
}

/// Runs each case in a child process. There, each long allocation fails in turn, once alone and
/// once with all that follow. `test` is the name of the calling test.
///
/// # Panics
/// - The errors of [`run_cases_by`].
pub fn run_cases<E: Display + Send>(
    test: &str,
    cases: Vec<Case<E>>,
    is_out_of_memory: impl Fn(&E) -> bool,
) {
    run_cases_by(1, test, cases, is_out_of_memory);
}

/// Works like [`run_cases`], but fails only every `step`-th long allocation, for slow cases. The
/// environment variable `KVSTORE_TEST_ALLOCATIONS` overrides the step.
///
/// # Panics
/// - A child process aborts or panics.
/// - A call fails with an error for which `is_out_of_memory` returns `false`.
/// - A call fails although no allocation does.
pub fn run_cases_by<E: Display + Send>(
    step: usize,
    test: &str,
    cases: Vec<Case<E>>,
    is_out_of_memory: impl Fn(&E) -> bool,
) {
    let step = std::env::var(STEP).map_or(step, |step| step.parse().unwrap());
    if let Ok(wanted) = std::env::var(CASE) {
        let case = cases.into_iter().find(|case| case.name == wanted).unwrap();
        STACKS_ARE_WANTED.store(std::env::var_os(STACKS).is_some(), ORDER);
        let counts = [true, false].map(|once| fail_each(&case, step, once, &is_out_of_memory));
        println!("allocations: {counts:?}");
        return;
    }
    // A child process per case, because an allocation that aborts would end all cases.
    let names: Vec<&str> = cases.iter().map(|case| case.name).collect();
    let (next, faults) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, NonZero::get) {
            scope.spawn(|| {
                while let Some(name) = names.get(next.fetch_add(1, Ordering::Relaxed)) {
                    faults.lock().unwrap().extend(run_child(test, name));
                }
            });
        }
    });
    let faults = faults.into_inner().unwrap();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// Runs a case in a child process. Returns the reason if it failed.
fn run_child(test: &str, name: &str) -> Option<String> {
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", test, "--nocapture"]);
    let output = child.env(CASE, name).output().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    let count = printed.lines().find(|line| line.contains("allocations"));
    println!("{name}: {}, {}", output.status, count.unwrap_or_default());
    let reason = String::from_utf8_lossy(&output.stderr);
    let failed = !output.status.success() || count.is_none();
    failed.then(|| format!("{name}: {}: {reason}", output.status))
}

/// Runs the call once for each long allocation, which then fails. Returns the number of
/// allocations, which is up to `step` - 1 too large.
fn fail_each<E: Display + Send>(
    case: &Case<E>,
    step: usize,
    once: bool,
    is_out_of_memory: &impl Fn(&E) -> bool,
) -> usize {
    for count in (0..1000).step_by(step) {
        let call = (case.prepare)();
        let call = move || {
            ONCE.store(once, ORDER);
            HAS_FAILED.store(false, ORDER);
            LEFT.store(count, ORDER);
            let done = call();
            LEFT.store(ALL, ORDER);
            (HAS_FAILED.load(ORDER), done)
        };
        let result = thread::scope(|scope| scope.spawn(call).join());
        match result.unwrap_or_else(|panic| resume_unwind(panic)) {
            (false, Ok(())) => return usize::try_from(count).unwrap(),
            // Emptying the pool may have freed enough memory.
            (true, Ok(())) => {}
            (true, Err(error)) => assert!(is_out_of_memory(&error), "{error}"),
            (false, Err(error)) => panic!("without a failure: {error}"),
        }
    }
    panic!("too many long allocations");
}
