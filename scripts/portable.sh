#!/bin/sh
# portable.sh [PLATFORM..]   builds the native library for other machines, as
#                            target/portable/<platform>/libkvstore_jni.so
# Without arguments, builds for the platforms in PLATFORMS, or for this machine's. Any Linux can
# build linux-x86_64 and linux-aarch64. Other platforms are built on a machine of that platform,
# with its own linker.
set -eu
cd "$(dirname "$0")/.."
. scripts/zig.sh

# build PLATFORM FOLDER OPTION..   builds the library and copies it from cargo's output folder
build() {
    platform=$1 folder=$2
    shift 2
    cargo build "$@" --release --locked --package=kvstore-jni --target-dir=target
    mkdir -p "target/portable/$platform"
    for file in "target/$folder"/libkvstore_jni.so "target/$folder"/libkvstore_jni.dylib; do
        [ ! -f "$file" ] || cp "$file" "target/portable/$platform/"
    done
}

build_with_zig() {
    use_zig "$1"
    build "$1" "$target/release" --target="$target"
}

[ $# -gt 0 ] || eval "set -- ${PLATFORMS:-$(this_platform)}"
rm -rf target/portable
install_tools
for name in "$@"; do
    case $name in
        linux-x86_64 | linux-aarch64) build_with_zig "$name" ;;
        "$(this_platform)") build "$name" release ;;
        *) echo "portable.sh: \`$name\` can only be built on such a machine" >&2; exit 1 ;;
    esac
done
