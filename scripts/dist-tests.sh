#!/bin/sh
# dist-tests.sh   the tests of stores that span processes. Those of real jobs need Open MPI and MPICH, those of two hosts
# network namespaces too. What they need is installed with apt when we are root; what is not to be had, or not allowed, is
# counted as not run, with the reasons.
set -eu
cd "$(dirname "$0")/.."

PACKAGES="openmpi-bin libopenmpi3 mpich libmpich12 iproute2"

is_there() { command -v mpirun.openmpi && command -v mpirun.mpich && command -v ip; }

install() {
    command -v apt-get && [ "$(id -u)" -eq 0 ] || return 1
    # shellcheck disable=SC2086 # a list of packages
    DEBIAN_FRONTEND=noninteractive apt-get -q install -y --no-install-recommends $PACKAGES </dev/null ||
        { apt-get -q update && DEBIAN_FRONTEND=noninteractive apt-get -q install -y --no-install-recommends $PACKAGES </dev/null; }
}

is_there >/dev/null 2>&1 || install >/dev/null 2>&1 || true
output=$(mktemp)
trap 'rm -f "$output"' EXIT
status=0
cargo test -p kvstore-dist -- --show-output >"$output" 2>&1 || status=$?
cat "$output"
count=$(grep -c '^skipped: ' "$output" || true)
reasons=$(sed -n 's/^skipped: //p' "$output" | sort -u | paste -sd ';' -)
[ "$count" -eq 0 ] || echo "not run: $count checks of jobs: $reasons ($PACKAGES)"
exit "$status"
