#!/bin/sh
# dist-tests.sh   the tests of stores that span processes. Those of real jobs need Open MPI and MPICH, those of two hosts
# network namespaces too. What they need is installed with apt when we are root; what is not to be had, or not allowed, is
# counted as not run, with the reasons.
set -eu
cd "$(dirname "$0")/.."

scripts/mpi.sh install >/dev/null 2>&1 || true
! newer=$(scripts/mpi.sh newer 2>/dev/null) || export PATH="$PATH:$newer"
output=$(mktemp)
trap 'rm -f "$output"' EXIT
status=0
cargo test -p kvstore-dist -- --show-output >"$output" 2>&1 || status=$?
cat "$output"
count=$(grep -c '^skipped: ' "$output" || true)
reasons=$(sed -n 's/^skipped: //p' "$output" | sort -u | paste -sd ';' -)
[ "$count" -eq 0 ] || echo "not run: $count checks of jobs: $reasons ($(scripts/mpi.sh packages))"
exit "$status"
