#!/bin/sh
# miri.sh [SUITE..]   runs these suites of the core under Miri, or all of them. `.ci/run` runs `lib`
#                     and `external_memory`, `make nightly` all.
#
# Miri interprets the tests, and detects invalid accesses, data races, uninitialised memory and
# leaks, in the core and in the crates below it. It needs a nightly toolchain, which rustup
# installs. Without one, the script prints the reason and passes.
set -eu
cd "$(dirname "$0")/.."
. scripts/apt.sh
PATH="${CARGO_HOME:-$HOME/.cargo}/bin:$PATH"

# Miri and the standard library that it interprets must be from the same day, so the day is fixed.
PINNED=nightly-2026-05-20

# Suites that run on one thread, with every check of Miri.
ALONE="calls snapshots updaters"
# Suites that run on the threads of the backend, which are not rayon's under Miri
# (kvstore-core/src/cpu/threads/pool.rs says why). `lib` is the tests in the files of the core,
# `external_memory` a file of its tests.
THREADS="concurrency external_memory lib values store_snapshots"
# Prints the reason why a suite does not run.
left_out() {
    case $1 in
        elementwise | row_arithmetic)
            echo "runs every operation of every dtype; lib and values run some of them" ;;
        backends)
            echo "takes a quarter of an hour; the other suites run the same kernels" ;;
        optimizers) echo "runs thousands of steps; the other suites step with SGD" ;;
        compression) echo "reads 800 KB of JSON; the other suites run the rest" ;;
        allocations | checkpoint_allocations)
            echo "counts allocations with its own allocator" ;;
        generated) echo "reads source files and runs no code of the core" ;;
        layering) echo "runs cargo and no code of the core" ;;
        random_programs)
            echo "generating random programs takes minutes; the other suites run the same verbs" ;;
        row_sparse)
            echo "takes more than ten minutes; store_snapshots and lib use the same threads" ;;
        failed_pushes)
            echo "needs values of many megabytes; it does not check memory safety" ;;
        races) echo "needs thousands of rounds; concurrency takes the same locks" ;;
        bits)
            echo "runs each program in 72 ways, which takes hours; lib runs the kernels" ;;
        array_files)
            echo "reads files, which Miri does not allow, and changes every byte" ;;
        abandoned_checkpoint | checkpoints | crash | damaged_chains | damaged_checkpoints | \
            deltas | pending_checkpoints)
            echo "reads and writes files, or starts processes that do" ;;
        recorded_arrays) echo "reads 800 KB of JSON; lib and values run array operations" ;;
        recorded_rows) echo "reads 800 KB of JSON" ;;
        recorded_cases) echo "reads 800 KB of JSON; the other suites make the same calls" ;;
        *) echo "not listed in scripts/miri.sh" ;;
    esac
}

# With one processor, the backend would have no threads except the caller's.
THREAD_FLAGS="-Zmiri-num-cpus=2"

# This suite calls the store from its own thread pool. The queues of rayon (crossbeam-epoch) find a
# record by the address of its first field, which stacked borrows forbid: use tree borrows. They
# keep flags in the low bits of pointers, as integers: use permissive provenance. The threads of a
# pool outlive `main`, and so does their memory: ignore leaks.
CALLER_S_POOL="concurrency"
POOL_FLAGS="$THREAD_FLAGS -Zmiri-tree-borrows -Zmiri-permissive-provenance -Zmiri-ignore-leaks"

# Some updaters hold the store that they are set on, and so keep it alive: ignore leaks.
UPDATER_FLAGS="-Zmiri-ignore-leaks"

not_run() {
    echo "not run: $*"
    exit 0
}

is_there() { cargo "+$1" miri --version >/dev/null 2>&1; }

install() {
    run_or_print rustup toolchain install "$1" --no-self-update --profile minimal \
        --component miri,rust-src
}

# Prints the name of a toolchain with Miri: the pinned one, or the newest one that is available.
toolchain() {
    for name in "$PINNED" nightly; do
        if is_there "$name" || { install "$name" >&2 && is_there "$name"; }; then
            echo "$name"
            return
        fi
    done
    return 1
}

# Prints the option of cargo for a suite.
target_of() { [ "$1" = lib ] && echo --lib || echo "--test $1"; }

# Prints the crate of a suite. The core alone is built in half the time of both.
package_of() {
    case $1 in lib | external_memory) echo kvstore-core ;; *) echo kvstore-tests ;; esac
}

# Runs one suite: a file of tests, or the tests inside the source files of the core.
run_suite() {
    flags=
    case " $THREADS " in *" $1 "*) flags=$THREAD_FLAGS ;; esac
    [ "$1" != "$CALLER_S_POOL" ] || flags=$POOL_FLAGS
    [ "$1" != updaters ] || flags=$UPDATER_FLAGS
    # shellcheck disable=SC2046 # an option and its value
    MIRIFLAGS="$flags" cargo "+$MIRI_TOOLCHAIN" miri test --locked --quiet \
        -p "$(package_of "$1")" $(target_of "$1")
}

# Runs one suite. Prints its name, its output and its seconds in one piece.
report_suite() {
    started=$(date +%s)
    status=0
    output=$(run_suite "$1" 2>&1) || status=$?
    printf '\nmiri: %s, %s s\n%s\n' "$1" "$(($(date +%s) - started))" "$output"
    return "$status"
}

if [ "${1:-}" = --suite ]; then
    report_suite "$2"
    exit
fi

command -v cargo >/dev/null 2>&1 && command -v rustup >/dev/null 2>&1 ||
    not_run "Miri needs a nightly toolchain, and there is no rustup to install it"
MIRI_TOOLCHAIN=$(toolchain) ||
    not_run "rustup could not install $PINNED with Miri, nor any other nightly"
export MIRI_TOOLCHAIN

echo "miri: $MIRI_TOOLCHAIN; left out:"
echo "    rayon: threads of the standard library replace it"
for file in tests/tests/*.rs tests/tests/*/main.rs; do
    name=${file#tests/tests/}
    name=${name%.rs}
    name=${name%/main}
    case " $ALONE $THREADS " in *" $name "*) ;; *) echo "    $name: $(left_out "$name")" ;; esac
done

# The slowest suites first.
# shellcheck disable=SC2086 # lists of names
[ $# -gt 0 ] || set -- $THREADS $ALONE
echo "miri: runs $*"

# Build everything before the first suite runs, because the suites share one output folder.
cargo "+$MIRI_TOOLCHAIN" miri setup
for package in kvstore-core kvstore-tests; do
    targets=
    for name in "$@"; do
        [ "$(package_of "$name")" != "$package" ] || targets="$targets $(target_of "$name")"
    done
    # shellcheck disable=SC2086 # options and their values
    [ -z "$targets" ] ||
        cargo "+$MIRI_TOOLCHAIN" miri test --locked --quiet --no-run -p "$package" $targets
done

# Two at a time. xargs fails if any of them fails.
printf '%s\n' "$@" | xargs -P 2 -n 1 scripts/miri.sh --suite
