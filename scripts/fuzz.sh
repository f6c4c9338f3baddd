#!/bin/sh
# Fuzzes what reads files of arrays and checkpoints: `fuzz.sh [SECONDS] [TARGET..]`, each target so long, with the recorded
# files to begin with. What it finds is written to fuzz/artifacts and ends it with an error.
set -eu
cd "$(dirname "$0")/.."
. scripts/apt.sh
PATH="${CARGO_HOME:-$HOME/.cargo}/bin:$PATH"

seconds=${1:-60}
[ $# -eq 0 ] || shift
[ $# -ne 0 ] || set -- load deserialize checkpoint

# The nightly toolchain of scripts/miri.sh: libFuzzer asks the compiler for what is unstable.
toolchain=$(sed -n 's/^PINNED=//p' scripts/miri.sh)
cargo fuzz --version >/dev/null 2>&1 || {
    echo "$0: there is no cargo-fuzz (cargo install cargo-fuzz --locked)" >&2
    exit 1
}
cargo "+$toolchain" --version >/dev/null 2>&1 ||
    run_or_print rustup toolchain install "$toolchain" --no-self-update --profile minimal

cargo run --quiet --locked -p kvstore-tests --example fuzz_corpus
for target in "$@"; do
    # A file of 4 KiB may ask for 4 MiB of zeros.
    cargo "+$toolchain" fuzz run "$target" -- -max_total_time="$seconds" -max_len=4096 \
        -malloc_limit_mb=64 -timeout=10 -print_final_stats=1
done
