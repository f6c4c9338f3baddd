#!/bin/sh
# build.sh [FOLDER]   builds the library below FOLDER, and prints the folder that contains
#                     libkvstore_failing_malloc.so.
#
# A test preloads it into a program with LD_PRELOAD, on Linux with glibc. It has its own target
# folder, so that a running build of the workspace does not delay it.
set -eu
crate=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$crate/../.." && pwd)
folder=${1:-${CARGO_TARGET_DIR:-$root/target}/failing-malloc}
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
cargo build --quiet --locked --manifest-path "$crate/Cargo.toml" --target-dir "$folder" >&2
echo "$folder/debug"
