#!/bin/sh
# wheel.sh [PLATFORM..]   builds wheels for other machines than this one, for any Python from 3.10 on: target/wheels/*.whl
# wheel.sh --here FOLDER  builds a wheel for this machine in a moment, into another folder
# Without arguments it builds for the platforms in PLATFORMS, or for this machine's, as portable.sh does. What both
# need of Python's packages is installed into target/portable-venv; no Python is linked.
set -eu
cd "$(dirname "$0")/.."
. scripts/zig.sh

MATURIN="maturin==1.16.0"

install_maturin() {
    install_tools
    [ "$(cat "$venv/maturin" 2>/dev/null)" != "$MATURIN" ] || return 0
    "$venv/bin/pip" install --quiet --disable-pip-version-check "$MATURIN"
    echo "$MATURIN" >"$venv/maturin"
}

# The licence goes into the wheel; a link would not.
build() {
    cp LICENSE NOTICE kvstore-python/
    "$venv/bin/maturin" build --quiet --locked --manifest-path=kvstore-python/Cargo.toml "$@"
}

install_maturin
if [ "${1:-}" = --here ]; then
    build --profile=dev --out="$2"
    exit
fi
[ $# -gt 0 ] || eval "set -- ${PLATFORMS:-$(this_platform)}"
rm -rf target/wheels
for name in "$@"; do
    case $name in
        linux-x86_64 | linux-aarch64)
            use_zig "$name"
            build --release --zig --target="$target" --compatibility="manylinux_$(echo $GLIBC | tr . _)" --out=target/wheels
            ;;
        "$(this_platform)") build --release --out=target/wheels ;;
        *) echo "wheel.sh: \`$name\` can only be built on such a machine" >&2; exit 1 ;;
    esac
done
ls -l target/wheels/*.whl
