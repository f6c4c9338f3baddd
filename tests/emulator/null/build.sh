#!/bin/sh
# build.sh [FOLDER]   builds the null driver as FOLDER/libcuda.so, and prints FOLDER.
#
# With LD_LIBRARY_PATH=FOLDER, a program finds it as it finds the emulated driver.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
folder=${1:-${CARGO_TARGET_DIR:-$here/../../../target}/null-driver}
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
library=$folder/libcuda.so
if [ ! -f "$library" ] || [ -n "$(find "$here" -newer "$library" | head -n 1)" ]; then
    # Several builds may run at once. The last one replaces the others.
    work=$(mktemp -d "$folder/build.XXXXXX")
    trap 'rm -rf "$work"' EXIT
    # shellcheck disable=SC2086 # options
    ${CXX:-c++} -std=c++17 -O2 -fPIC -shared -Wall -Wextra ${CXXFLAGS:-} \
        -Wl,-soname,libcuda.so -Wl,-z,nodelete "$here/driver.cpp" -o "$work/libcuda.so"
    mv "$work/libcuda.so" "$library"
fi
echo "$folder"
