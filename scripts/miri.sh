#!/bin/sh
# miri.sh [SUITE..]   runs these suites under Miri, or all of them. `.ci/run` runs `lib` and `external_memory`, `make nightly` all.
#
# The tests that go over the core, interpreted by Miri: it sees reads and writes that no reference
# allows, data races, memory of the wrong type or lost, in the core and in the crates below it.
# Needs a nightly toolchain, which rustup installs; without one it says so and passes.
set -eu
cd "$(dirname "$0")/.."
. scripts/apt.sh
PATH="${CARGO_HOME:-$HOME/.cargo}/bin:$PATH"

# Miri and the standard library that it interprets belong together, so the day is fixed.
PINNED=nightly-2026-05-20

# Run on one thread, with every check that Miri has.
ALONE="calls snapshots updaters"
# Run on the threads of the backend, which are not rayon's here (kvstore-core/src/cpu/threads/pool.rs says
# why). `lib` is what stands in the files of the core, `external_memory` a file of its tests.
THREADS="concurrency external_memory lib values store_snapshots"
# Not run, with the reason.
left_out() {
    case $1 in
        elementwise | row_arithmetic) echo "every operation of every dtype; lib and values run some of them" ;;
        backends) echo "takes a quarter of an hour; stores run the same kernels in the other suites" ;;
        optimizers) echo "thousands of steps; a store steps with SGD in the other suites" ;;
        compression) echo "reads 800 KB of JSON, and the rest is in the programs of other suites" ;;
        allocations | checkpoint_allocations) echo "counts allocations, with an allocator of its own" ;;
        generated) echo "reads the sources, none of the core" ;;
        layering) echo "runs cargo and reads the sources, none of the core" ;;
        local_store) echo "making random programs takes minutes; the same verbs stand in the other suites" ;;
        rows) echo "takes more than ten minutes; store_snapshots and lib run the threads and the memory under it" ;;
        failed_pushes) echo "sets values of many megabytes; what it checks is no memory of its own" ;;
        races) echo "threads meet thousands of times; the same locks are taken in concurrency" ;;
        bits) echo "each program runs in 72 ways, hours under Miri; lib runs the kernels on short inputs" ;;
        array_files) echo "reads files, which Miri keeps from a program, and changes every byte of them" ;;
        abandoned_checkpoint | checkpoints | crash | damaged_checkpoints | pending_checkpoints) echo "read and write files, or start processes that do" ;;
        recorded_arrays) echo "reads 800 KB of JSON; lib and values run operations of arrays" ;;
        recorded_rows) echo "reads 800 KB of JSON" ;;
        recorded_cases) echo "reads 800 KB of JSON; the same calls stand in the other suites" ;;
        *) echo "not listed in scripts/miri.sh" ;;
    esac
}

# Two processors, or the backend has no threads beside the caller's.
THREAD_FLAGS="-Zmiri-num-cpus=2"

# This suite calls the store from a thread pool of its own. The queues of rayon (crossbeam-epoch) find
# a record by the address of its first field, which the older rules, stacked borrows, forbid (so: tree
# borrows), and keep flags in the low bits of pointers, as integers (so: permissive provenance). The
# threads of a pool outlive `main`, and what they own lives as long (so: leaks ignored).
CALLER_S_POOL="concurrency"
POOL_FLAGS="$THREAD_FLAGS -Zmiri-tree-borrows -Zmiri-permissive-provenance -Zmiri-ignore-leaks"

# Leaks ignored: some updaters hold the very store that they are set on, and so keep it alive.
UPDATER_FLAGS="-Zmiri-ignore-leaks"

not_run() {
    echo "not run: $*"
    exit 0
}

is_there() { cargo "+$1" miri --version >/dev/null 2>&1; }

install() { run_or_print rustup toolchain install "$1" --no-self-update --profile minimal --component miri,rust-src; }

# Prints the name of a toolchain with Miri: the pinned one, or else the newest that is to be had.
toolchain() {
    for name in "$PINNED" nightly; do
        if is_there "$name" || { install "$name" >&2 && is_there "$name"; }; then
            echo "$name"
            return
        fi
    done
    return 1
}

# Runs one suite: a file of tests/tests, or the tests within the files.
run_suite() {
    target="--test $1"
    [ "$1" != lib ] || target=--lib
    flags=
    case " $THREADS " in *" $1 "*) flags=$THREAD_FLAGS ;; esac
    [ "$1" != "$CALLER_S_POOL" ] || flags=$POOL_FLAGS
    [ "$1" != updaters ] || flags=$UPDATER_FLAGS
    # shellcheck disable=SC2086 # an option and its value
    MIRIFLAGS="$flags" cargo "+$MIRI_TOOLCHAIN" miri test --locked --quiet -p kvstore-core -p kvstore-tests $target
}

# Runs one suite and prints its name, its output and the seconds that it took, in one piece.
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
MIRI_TOOLCHAIN=$(toolchain) || not_run "rustup could not install $PINNED with Miri, nor any other nightly"
export MIRI_TOOLCHAIN

echo "miri: $MIRI_TOOLCHAIN; left out:"
echo "    rayon: threads of the standard library take its place under the kernels"
for file in tests/tests/*.rs tests/tests/*/main.rs; do
    name=${file#tests/tests/}
    name=${name%.rs}
    name=${name%/main}
    case " $ALONE $THREADS " in *" $name "*) ;; *) echo "    $name: $(left_out "$name")" ;; esac
done

# The longest first.
# shellcheck disable=SC2086 # lists of names
[ $# -gt 0 ] || set -- $THREADS $ALONE
echo "miri: runs $*"

# Everything is built before the first suite runs, for the suites share one folder of outputs.
cargo "+$MIRI_TOOLCHAIN" miri setup
targets=--lib
for name in "$@"; do
    [ "$name" = lib ] || targets="$targets --test $name"
done
# shellcheck disable=SC2086 # options and their values
cargo "+$MIRI_TOOLCHAIN" miri test --locked --quiet --no-run -p kvstore-core -p kvstore-tests $targets

# Two at a time. xargs fails when any of them does.
printf '%s\n' "$@" | xargs -P 2 -n 1 scripts/miri.sh --suite
