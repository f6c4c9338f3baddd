#!/bin/sh
# run.sh   runs all tests and measurements on a machine with a GPU, in at most ten minutes: the
#          tests, a sanitizer, the bench beside the GPU's copy rate, the same cases in PyTorch, and
#          the wheel's tests with PyTorch and CuPy.
# Writes its results to $OUT, or to `results` in its folder, as they come: `report.txt`, which ends
# with a table, `results.json`, if there is a Python, and the output of the steps. If a step fails,
# takes too long or cannot run, the script reports it and continues.
# SMALL=1 is for an emulated driver: small values, whose times mean nothing.
set -u
here=$(cd "$(dirname "$0")" && pwd)
out=${OUT:-$here/results}
mkdir -p "$out"
out=$(cd "$out" && pwd)
work=$(mktemp -d "${TMPDIR:-/tmp}/kvstore-gpu.XXXXXX")
trap 'rm -rf "$work"' EXIT
# A new cache for compiled modules, so that the first calls really compile.
export CUDA_CACHE_PATH="$work/cache" RUST_BACKTRACE=1
python=${PYTHON:-python3}
report=$out/report.txt steps=$work/steps junit=$work/junit.xml
: >"$report"
: >"$steps"
rm -f "$out/bench.jsonl" "$out/peers.json" "$out/results.json" "$out/tests.txt" \
    "$out/sanitizer.txt" "$out/python.txt"
started=$(date +%s)

say() { echo "$*" | tee -a "$report"; }

elapsed() { echo $(($(date +%s) - started)); }

# note NAME STATUS SECONDS NOTE   records the result of a step.
note() {
    printf '%s\t%s\t%s\t%s\n' "$1" "$2" "$3" "$4" >>"$steps"
    say "$(printf '%-28s %-8s %4s s  %s' "$1" "$2" "$3" "$4")"
}

# Prints how many tests of the last step have passed. A program with Rust tests has no format for
# machines in stable releases, so this reads its line `test result: ..`.
summary() {
    if [ -f "$junit" ]; then
        "$python" "$here/results.py" summary "$junit"
    else
        grep '^test result:' "$work/output" | tail -n 1
    fi
}

# Begins a group of steps. It may take this many seconds, plus the seconds that earlier groups have
# left.
until=0
group() { until=$((until + $1)); }

# step NAME SECONDS FILE COMMAND..   runs a command and appends its output to a file.
step() {
    name=$1 seconds=$2 file=$3
    shift 3
    left=$((until - $(elapsed)))
    [ "$seconds" -le "$left" ] || seconds=$left
    if [ "$seconds" -le 0 ]; then
        note "$name" skipped 0 "no time left"
        return 1
    fi
    echo "== $name: $*" >>"$file"
    rm -f "$junit"
    before=$(elapsed)
    $limit "$seconds" "$@" >"$work/output" 2>&1
    status=$?
    cat "$work/output" >>"$file"
    took=$(($(elapsed) - before))
    passed=$(summary)
    case $status in
        0) note "$name" ok "$took" "$passed" ;;
        124 | 137) note "$name" TIMEOUT "$took" "after $seconds s" ;;
        126 | 127) note "$name" missing "$took" "$(tail -n 1 "$work/output")" ;;
        *) if grep -q 'Device not supported' "$work/output"; then
               # Some machines do not let tools use the device. This is no failure of the store.
               note "$name" missing "$took" "the tool cannot use this device"
               return $status
           fi
           note "$name" FAILED "$took" "status $status; ${passed:-$(tail -n 1 "$work/output")}" ;;
    esac
    return $status
}

# Without `timeout`, nothing stops a step that hangs.
unlimited() { shift; "$@"; }
if timeout -k 5 1 true 2>/dev/null; then limit="timeout -k 5"; else limit=unlimited; fi

# 1. The machine.
say "$(date -u '+%Y-%m-%d %H:%M UTC')  $(uname -srm)  $(getconf GNU_LIBC_VERSION 2>/dev/null)"
group 80
step nvidia-smi 15 "$report" nvidia-smi
for file in "$here"/bin/*.gz; do
    gzip -dc "$file" >"$work/$(basename "$file" .gz)" && chmod +x "$work/$(basename "$file" .gz)"
done
bench=$work/kvstore-gpu-bench
small=
[ -z "${SMALL:-}" ] || small=--small
# shellcheck disable=SC2086 # an option or nothing
{
    step first-calls-cold 60 "$report" "$bench" $small --first-calls
    step first-calls-warm 10 "$report" "$bench" $small --first-calls
}

# 2. The shortest test of bits and copies comes first, so that a long step cannot use up its time.
group 40
step test-card 45 "$out/tests.txt" "$work/test-card"

# 3. The store beside the GPU's copy rate.
group 145
# shellcheck disable=SC2086 # an option or nothing
step bench 145 "$work/bench.txt" "$bench" $small --seconds 130 --json "$out/bench.jsonl"

# 4. The same cases in PyTorch.
group 105
step peers 105 "$work/peers.txt" "$python" "$here/peers.py" $small --seconds 95 \
    --bench "$out/bench.jsonl" --json "$out/peers.json"

# 5. The released wheel, with the PyTorch and CuPy of this machine.
group 75
wheel=$(echo "$here"/*.whl)
if ! "$python" -c 'import numpy, pytest' 2>/dev/null; then
    note python missing 0 "no Python with NumPy and pytest"
elif "$python" -m zipfile -e "$wheel" "$work/site"; then
    cp -R "$here/python-tests" "$work/"
    cd "$work/python-tests" || exit
    step python 120 "$out/python.txt" env PYTHONPATH="$work/site" KVSTORE_GPUS=4 \
        "$python" -m pytest -q -rs -p no:cacheprovider --junitxml="$junit" \
        test_real_gpus.py test_gpus.py test_gpu_interop.py test_gpu_exports.py \
        test_foreign.py test_torch.py test_jax.py
    cd "$here" || exit
fi

# 6. The suites of every backend, on four devices.
group 90
export KVSTORE_TEST_DEVICE=gpu KVSTORE_GPUS=4
for test in "$work"/test-*; do
    [ "$(basename "$test")" = test-card ] || step "$(basename "$test")" 90 "$out/tests.txt" "$test"
done
unset KVSTORE_TEST_DEVICE KVSTORE_GPUS

# 7. The sanitizer, on few small values. Only a test that frees all its memory can show leaks. Each
# tensor has its own block of memory, so that the sanitizer sees accesses behind its end.
group 65
export KVSTORE_CUDA_EXACT=1
find_sanitizer() {
    command -v compute-sanitizer && return
    for folder in /usr/local/cuda*/bin /usr/local/cuda*/compute-sanitizer \
        /opt/nvidia/*/compute-sanitizer; do
        [ ! -x "$folder/compute-sanitizer" ] || { echo "$folder/compute-sanitizer"; return; }
    done
}
sanitizer=$(find_sanitizer | head -n 1)
# sanitized NAME SECONDS OPTION.. -- COMMAND..
sanitized() {
    name=$1 seconds=$2
    shift 2
    if [ -z "$sanitizer" ]; then
        note "$name" missing 0 "no compute-sanitizer"
        return
    fi
    step "$name" "$seconds" "$out/sanitizer.txt" "$sanitizer" --error-exitcode 99 "$@"
}
sanitized memcheck 60 --tool memcheck --leak-check full "$work/test-card"
sanitized initcheck 40 --tool initcheck "$work/test-card"
if [ -n "$sanitizer" ] && "$sanitizer" --help 2>/dev/null | grep -q track-stream-ordered-races; then
    sanitized stream-ordered-races 40 --tool memcheck --track-stream-ordered-races all \
        "$work/test-card"
else
    note stream-ordered-races missing 0 "no sanitizer that has it"
fi
export KVSTORE_TEST_DEVICE=gpu KVSTORE_GPUS=4
sanitized memcheck-suite 60 --tool memcheck "$work/test-backends" casts fills copies half sums_are
unset KVSTORE_TEST_DEVICE KVSTORE_GPUS KVSTORE_CUDA_EXACT

# The tables for people, and the same data for programs.
for table in bench peers; do
    [ ! -f "$work/$table.txt" ] || tee -a "$report" <"$work/$table.txt"
done
if command -v "$python" >/dev/null 2>&1; then
    "$python" "$here/results.py" write "$out" "$steps"
else
    say "no results.json, because there is no Python ($python)"
fi
say "== what ran, in $(elapsed) s"
awk -F '\t' '{ printf "%-28s %-8s %4s s  %s\n", $1, $2, $3, $4 }' "$steps" | tee -a "$report"
say "in $out: $(cd "$out" && echo *)"
! cut -f 2 "$steps" | grep -qE 'FAILED|TIMEOUT|skipped'
