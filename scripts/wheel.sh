#!/bin/sh
# wheel.sh [PLATFORM..]             builds wheels for other machines and for any Python from 3.10
#                                   on: target/wheels/*.whl
# wheel.sh --here FOLDER [PROFILE]  builds a wheel for this machine into another folder, unoptimized
#                                   by default
# Without arguments, builds for the platforms in PLATFORMS, or for this machine's, as portable.sh
# does. The wheel links no Python. maturin, which packs it, needs a Python with venv.
set -eu
cd "$(dirname "$0")/.."
. scripts/zig.sh

MATURIN="maturin==1.16.0"

# build OPTION..
build() {
    scripts/venv.py target/maturin-venv "$MATURIN"
    target/maturin-venv/bin/maturin build --quiet --locked \
        --manifest-path=kvstore-python/Cargo.toml "$@"
}

if [ "${1:-}" = --here ]; then
    build --profile="${3:-dev}" --out="$2"
    exit
fi
[ $# -gt 0 ] || eval "set -- ${PLATFORMS:-$(this_platform)}"
rm -rf target/wheels
install_tools
for name in "$@"; do
    case $name in
        linux-x86_64 | linux-aarch64)
            use_zig "$name"
            build --release --target="$target" --out=target/wheels \
                --compatibility="manylinux_$(echo $GLIBC | tr . _)"
            ;;
        "$(this_platform)") build --release --out=target/wheels ;;
        *) echo "wheel.sh: \`$name\` can only be built on such a machine" >&2; exit 1 ;;
    esac
done
ls -l target/wheels/*.whl
