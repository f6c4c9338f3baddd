#!/bin/sh
# portable.sh [PLATFORM..]   builds the native library for other machines than this one, as
#                            target/portable/<platform>/libkvstore_jni.so
# Without arguments it builds for the platforms in PLATFORMS, or for this machine's: linux-x86_64 and
# linux-aarch64 on any Linux, others on such a machine with its own linker.
set -eu
cd "$(dirname "$0")/.."
. scripts/zig.sh

# build PLATFORM FOLDER OPTION..   builds the library and copies it from the folder where cargo leaves it
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
