#!/bin/sh
# rust-tests.sh   runs the tests of all crates in one build. A build of selected crates would
# compile their dependencies a second time, with other features.
#
# The jobs of kvstore-dist need Open MPI and MPICH, and its tests of two hosts need network
# namespaces. As root, the script prints and installs them with apt. With KVSTORE_SETUP=print, it
# only prints them. A check that cannot run prints `skipped: REASON`.
set -eu
cd "$(dirname "$0")/.."

# If one of them is missing, the tests print what is missing.
scripts/mpi.sh install >/dev/null || true
! newer=$(scripts/mpi.sh newer 2>/dev/null) || export PATH="$PATH:$newer"
# The other tests also run after a failure, so that one run shows every failure.
exec cargo test --workspace --no-fail-fast -- --show-output
