#!/bin/sh
# fuzz.sh [SECONDS] [TARGET..]   fuzzes the readers of array files, checkpoints and journals and the
#                                protocol of servers, each target for SECONDS, starting with the
#                                recorded files and with valid requests. Writes failing inputs to
#                                fuzz/artifacts, and ends with an error if there are any.
set -eu
cd "$(dirname "$0")/.."
. scripts/apt.sh
PATH="${CARGO_HOME:-$HOME/.cargo}/bin:$PATH"

seconds=${1:-60}
[ $# -eq 0 ] || shift
[ $# -ne 0 ] || set -- load deserialize checkpoint journal protocol

# The nightly toolchain of scripts/miri.sh, because libFuzzer needs unstable compiler options.
toolchain=$(sed -n 's/^PINNED=//p' scripts/miri.sh)
cargo fuzz --version >/dev/null 2>&1 || {
    echo "$0: there is no cargo-fuzz (cargo install cargo-fuzz --locked)" >&2
    exit 1
}
cargo "+$toolchain" --version >/dev/null 2>&1 ||
    run_or_print rustup toolchain install "$toolchain" --no-self-update --profile minimal

cargo run --quiet --locked -p kvstore-tests --example fuzz_corpus
cargo run --quiet --locked -p kvstore-net --features fuzzing --example protocol_corpus
for target in "$@"; do
    # A file of 4 KiB may request 4 MiB of zeros.
    cargo "+$toolchain" fuzz run "$target" -- -max_total_time="$seconds" -max_len=4096 \
        -malloc_limit_mb=64 -timeout=10 -print_final_stats=1
done
