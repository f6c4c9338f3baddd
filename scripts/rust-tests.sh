#!/bin/sh
# rust-tests.sh   runs the tests of all crates, in one build: a selection of crates would build their
# dependencies a second time, with other features.
#
# The jobs of kvstore-dist need Open MPI and MPICH, its tests of two hosts network namespaces. As root
# the script installs them with apt. A check that cannot run is counted as not run, with the reason.
set -eu
cd "$(dirname "$0")/.."

scripts/mpi.sh install >/dev/null 2>&1 || true
! newer=$(scripts/mpi.sh newer 2>/dev/null) || export PATH="$PATH:$newer"
output=$(mktemp)
trap 'rm -f "$output" "$output.status"' EXIT
# A pipe into tee would hide the command's status.
{ cargo test --workspace -- --show-output 2>&1 && echo 0 >"$output.status" || echo $? >"$output.status"; } | tee "$output"
count=$(grep -c '^skipped: ' "$output" || true)
reasons=$(sed -n 's/^skipped: //p' "$output" | sort -u | paste -sd ';' -)
[ "$count" -eq 0 ] || echo "not run: $count checks: $reasons ($(scripts/mpi.sh packages))"
exit "$(cat "$output.status")"
