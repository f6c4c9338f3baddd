#!/bin/sh
# gpu-bundle.sh [PLATFORM]   builds target/gpu-bundle, a folder for a machine with a GPU and without
#                            Rust: the suites that run on GPUs, the bench, the wheel with its tests,
#                            and `run.sh`, which runs all of them. PLATFORM is linux-x86_64 or
#                            linux-aarch64.
set -eu
cd "$(dirname "$0")/.."
. scripts/zig.sh
bundle=target/gpu-bundle
SUITES=$(cat tests/gpu/suites)

# pack OPTION..   builds with these options of cargo, and compresses the programs, because tests are
# large. run.sh unpacks them into a temporary folder.
pack() {
    cargo build --target="$target" --target-dir=target --locked \
        --message-format=json-render-diagnostics "$@" >"$bundle/built"
    "$venv/bin/python" - "$bundle" <<'PYTHON'
import gzip, json, pathlib, sys

bundle = pathlib.Path(sys.argv[1])
for line in (bundle / "built").read_text().splitlines():
    built = json.loads(line)
    name = built.get("executable") and built["target"]["name"]
    # The build also contains programs that tests start. The bundle does not need them.
    if name and (built["target"]["kind"] == ["test"] or name == "kvstore-gpu-bench"):
        prefix = "" if name == "kvstore-gpu-bench" else "test-"
        packed = gzip.compress(pathlib.Path(built["executable"]).read_bytes(), 9, mtime=0)
        (bundle / "bin" / f"{prefix}{name}.gz").write_bytes(packed)
PYTHON
    rm "$bundle/built"
}

install_tools
use_zig "${1:-linux-x86_64}"
rm -rf "$bundle"
mkdir -p "$bundle/bin"
# The profile of `make test`, with overflow checks and assertions, but without symbols.
export CARGO_PROFILE_TEST_DEBUG=0 CARGO_PROFILE_TEST_STRIP=symbols
# shellcheck disable=SC2046 # a list of options
pack --profile=test --package=kvstore-tests --package=kvstore-cuda --test=card \
    $(printf -- '--test=%s ' $SUITES)
pack --release --package=kvstore-gpu-bench
cp tests/gpu/run.sh tests/gpu/peers.py tests/gpu/results.py "$bundle/"
# The released wheel and its tests.
scripts/wheel.sh "${1:-linux-x86_64}" >/dev/null
cp target/wheels/*.whl "$bundle/"
mkdir "$bundle/python-tests"
cp kvstore-python/tests/*.py "$bundle/python-tests/"
git describe --always --dirty >"$bundle/version" 2>/dev/null || true

mebibytes=$(du -sk "$bundle" | awk '{ print int($1 / 1024) + 1 }')
echo "$PWD/$bundle: $mebibytes MiB (of 60), for Linux with glibc $GLIBC or newer"
echo "Copy the folder to a machine with a GPU and run: sh gpu-bundle/run.sh"
echo "It takes ten minutes at most, and writes into \$OUT or gpu-bundle/results;" \
    "report.txt ends with a table."
[ "$mebibytes" -le 60 ]
