#!/bin/sh
# rust-tests.sh   runs the tests of all crates in one build. A build of selected crates would
# compile their dependencies a second time, with other features.
#
# The jobs of kvstore-dist need Open MPI and MPICH, its tests of two hosts need network namespaces,
# the status page needs Chromium, and groups with a coordinator need etcd. As root, this script
# prints these packages and installs them with apt. With KVSTORE_SETUP=print, it only prints them. A
# check that cannot run prints `skipped: REASON`; without etcd, its tests fail.
set -eu
cd "$(dirname "$0")/.."
. scripts/apt.sh

# If one of them is missing, the tests print what is missing.
scripts/mpi.sh install >/dev/null || true
[ -x "$(command -v chromium)" ] || apt_install chromium >/dev/null || true
[ -x "$(command -v etcd)" ] || apt_install etcd-server >/dev/null || true
! newer=$(scripts/mpi.sh newer 2>/dev/null) || export PATH="$PATH:$newer"
# The other tests also run after a failure, so that one run shows every failure.
exec cargo test --workspace --no-fail-fast -- --show-output
