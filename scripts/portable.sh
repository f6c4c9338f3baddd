#!/bin/sh
# portable.sh [PLATFORM..]   builds the native library for other machines than this one, as
#                            target/portable/<platform>/libkvstore_jni.so
# Platforms are linux-x86_64 and linux-aarch64; without arguments those in PLATFORMS, or this machine's.
#
# On Linux the linker is zig, which knows the symbols of every release of glibc: two packages in a folder
# of their own, where a container with an old system would have to be kept. `setup.sh portable` checks for Python.
set -eu
cd "$(dirname "$0")/.."
PATH="${CARGO_HOME:-$HOME/.cargo}/bin:$PATH"

GLIBC=2.28
PACKAGES="cargo-zigbuild==0.24.0 ziglang==0.17.1 pyelftools==0.33"
venv=$PWD/target/portable-venv

install_tools() {
    [ "$(cat "$venv/packages" 2>/dev/null)" != "$PACKAGES" ] || return 0
    rm -rf "$venv"
    python3 -m venv "$venv"
    # shellcheck disable=SC2086 # a list of packages
    "$venv/bin/pip" install --quiet --disable-pip-version-check $PACKAGES
    echo "$PACKAGES" >"$venv/packages"
}

this_platform() {
    case $(uname -s)-$(uname -m) in
        Darwin-arm64) echo macos-aarch64 ;;
        *) echo "$(uname -s | tr '[:upper:]' '[:lower:]')-$(uname -m)" ;;
    esac
}

# Builds the library for one platform with a cargo command and copies it.
build() {
    platform=$1 folder=$2 file=$3
    shift 3
    cargo "$@" --release --locked --package=kvstore-jni --target-dir=target
    mkdir -p "target/portable/$platform"
    cp "target/$folder/$file" "target/portable/$platform/"
}

build_for_linux() {
    target=${1#linux-}-unknown-linux-gnu
    # A toolchain knows its own machine from the start.
    [ "$1" = "$(this_platform)" ] || rustup target add "$target"
    build "$1" "$target/release" libkvstore_jni.so zigbuild --target="$target.$GLIBC"
}

[ $# -gt 0 ] || eval "set -- ${PLATFORMS:-$(this_platform)}"
rm -rf target/portable
install_tools
export PATH="$venv/bin:$PATH" CARGO_ZIGBUILD_PYTHON_PATH="$venv/bin/python"
export CARGO_ZIGBUILD_CACHE_DIR="$PWD/target/zigbuild" ZIG_GLOBAL_CACHE_DIR="$PWD/target/zigbuild/zig"
for name in "$@"; do
    case $name in
        linux-x86_64 | linux-aarch64) build_for_linux "$name" ;;
        macos-aarch64) build "$name" release libkvstore_jni.dylib build ;;
        *) echo "portable.sh: no platform \`$name\`: linux-x86_64, linux-aarch64, and macos-aarch64 on such a machine" >&2; exit 1 ;;
    esac
done
