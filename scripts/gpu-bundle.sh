#!/bin/sh
# gpu-bundle.sh [PLATFORM]   builds target/gpu-bundle, a folder for a machine with a GPU and without Rust: the suites that
#                            run on GPUs, the bench, what is measured beside it, and `run.sh`, which runs all that.
# The platform is linux-x86_64, or linux-aarch64.
set -eu
cd "$(dirname "$0")/.."
. scripts/zig.sh
bundle=target/gpu-bundle
SUITES="backends elementwise values calls updaters snapshots concurrency races bits rows whole_store"

# executables OPTION..   builds, and prints the name and the path of each program.
executables() {
    cargo zigbuild --target="$target.$GLIBC" --target-dir=target --locked --message-format=json-render-diagnostics "$@" |
        "$venv/bin/python" -c '
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    if message.get("executable") and message["package_id"] and message["target"]["kind"] in (["test"], ["bin"]):
        print(message["target"]["kind"][0], message["target"]["name"], message["executable"])'
}

# Packed, for tests are large: run.sh unpacks them into a folder that goes away.
pack() {
    while read -r kind name path; do
        case $kind-$name in
            test-*) gzip -9 -n <"$path" >"$bundle/bin/test-$name.gz" ;;
            bin-kvstore-gpu-bench) gzip -9 -n <"$path" >"$bundle/bin/$name.gz" ;;
        esac
    done
}

install_tools
use_zig "${1:-linux-x86_64}"
rm -rf "$bundle"
mkdir -p "$bundle/bin"
# As `make test` has them: with the checks of overflows and invariants, but without symbols.
export CARGO_PROFILE_TEST_DEBUG=0 CARGO_PROFILE_TEST_STRIP=symbols
# shellcheck disable=SC2046 # a list of options
executables --profile=test --package=kvstore-tests --package=kvstore-cuda --test=card \
    $(printf -- '--test=%s ' $SUITES) | pack
executables --release --package=kvstore-gpu-bench | pack
cp tests/gpu/run.sh tests/gpu/peers.py "$bundle/"
git describe --always --dirty >"$bundle/version" 2>/dev/null || true

mebibytes=$(du -sk "$bundle" | awk '{ print int($1 / 1024) + 1 }')
echo "$PWD/$bundle: $mebibytes MiB (of 60), for Linux with glibc $GLIBC or newer"
echo "Copy the folder to a machine with a GPU and run: sh gpu-bundle/run.sh"
echo "It takes ten minutes at most, and writes into \$OUT or gpu-bundle/results; report.txt ends with a table."
[ "$mebibytes" -le 60 ]
