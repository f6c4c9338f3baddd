#!/bin/sh
# portable.sh [PLATFORM..]   builds the native library for other machines than this one, as
#                            target/portable/<platform>/libkvstore_jni.so
# Without arguments it builds for the platforms in PLATFORMS, or for this machine's: linux-x86_64 and
# linux-aarch64 on any Linux, others on such a machine with its own linker.
#
# For these two the linker is zig, which knows the symbols of every release of glibc: a package in a
# folder of its own, where a container with an old system would have to be kept. `setup.sh portable`
# checks for Python.
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

# As the JVM side names it.
this_platform() {
    uname -sm | tr '[:upper:] ' '[:lower:]-' | sed 's/^darwin/macos/; s/arm64$/aarch64/'
}

# Builds the library with a cargo command and copies it from the folder where that leaves it.
build() {
    platform=$1 folder=$2
    shift 2
    cargo "$@" --release --locked --package=kvstore-jni --target-dir=target
    mkdir -p "target/portable/$platform"
    for file in "target/$folder"/libkvstore_jni.so "target/$folder"/libkvstore_jni.dylib; do
        [ ! -f "$file" ] || cp "$file" "target/portable/$platform/"
    done
}

build_with_zig() {
    target=${1#linux-}-unknown-linux-gnu
    # A toolchain knows its own machine from the start.
    [ "$1" = "$(this_platform)" ] || rustup target add "$target"
    export PATH="$venv/bin:$PATH" CARGO_ZIGBUILD_PYTHON_PATH="$venv/bin/python"
    export CARGO_ZIGBUILD_CACHE_DIR="$PWD/target/zigbuild" ZIG_GLOBAL_CACHE_DIR="$PWD/target/zigbuild/zig"
    build "$1" "$target/release" zigbuild --target="$target.$GLIBC"
}

[ $# -gt 0 ] || eval "set -- ${PLATFORMS:-$(this_platform)}"
rm -rf target/portable
install_tools
for name in "$@"; do
    case $name in
        linux-x86_64 | linux-aarch64) build_with_zig "$name" ;;
        "$(this_platform)") build "$name" release build ;;
        *) echo "portable.sh: \`$name\` can only be built on such a machine" >&2; exit 1 ;;
    esac
done
