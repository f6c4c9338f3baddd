#!/bin/sh
# dist-tests.sh   the tests of stores that span processes. Those of real jobs need Open MPI and MPICH, which are installed
# with apt when we are root; where they are not to be had, these tests are counted as not run.
set -eu
cd "$(dirname "$0")/.."

scripts/mpi.sh install >/dev/null 2>&1 || true
output=$(mktemp)
trap 'rm -f "$output"' EXIT
status=0
cargo test -p kvstore-dist -- --show-output >"$output" 2>&1 || status=$?
cat "$output"
count=$(grep -c '^skipped: ' "$output" || true)
[ "$count" -eq 0 ] || echo "not run: $count tests of jobs, for Open MPI or MPICH is not installed ($(scripts/mpi.sh packages))"
exit "$status"
