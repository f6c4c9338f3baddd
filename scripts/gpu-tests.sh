#!/bin/sh
# gpu-tests.sh   runs the suites of every implementation with their values on GPUs: real ones if
#                this machine has any, otherwise emulated ones. KVSTORE_GPUS is the number of
#                devices; several devices can share a card.
set -eu
cd "$(dirname "$0")/.."

SUITES=$(cat tests/gpu/suites)

case $(uname -s) in
    Linux) ;;
    *) echo "not run: GPUs, real or emulated, are there on Linux only"; exit 0 ;;
esac
# This file exists if a driver has a card.
if [ -e /proc/driver/nvidia/version ]; then
    echo "on which GPUs: those of this machine"
else
    echo "on which GPUs: emulated ones, because there is no card or no driver"
    LD_LIBRARY_PATH=$(tests/emulator/build.sh)
    export LD_LIBRARY_PATH
fi
# With --workspace, cargo uses the test programs of scripts/rust-tests.sh. A build of one crate
# would compile its dependencies a second time, with other features.
# shellcheck disable=SC2046 # a list of options
KVSTORE_TEST_DEVICE=gpu KVSTORE_GPUS=${KVSTORE_GPUS:-4} \
    cargo test --workspace $(printf -- '--test %s ' $SUITES)
