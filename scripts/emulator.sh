#!/bin/sh
# emulator.sh [FOLDER]   builds the emulated driver of kvstore-cuda/emulator with all kernels, as FOLDER/libcuda.so, and
# prints the folder. Programs find it by LD_LIBRARY_PATH=FOLDER, or load it by its path before they look for a driver.
set -eu
crate=$(cd "$(dirname "$0")/../kvstore-cuda" && pwd)
folder=${1:-${CARGO_TARGET_DIR:-$crate/../target}/emulator}
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
library=$folder/libcuda.so

if [ ! -f "$library" ] || [ -n "$(find "$crate/emulator" "$crate/kernels" "$0" -newer "$library" | head -n 1)" ]; then
    # Several may build at once: the last one stays.
    work=$(mktemp -d "$folder/build.XXXXXX")
    trap 'rm -rf "$work"' EXIT
    # A compiler cannot know that every sum has an addend.
    compile() {
        # shellcheck disable=SC2086 # options
        ${CXX:-c++} -std=c++17 -O2 -fPIC -ffp-contract=off -DKV_EMULATED -Wall -Wextra -Wno-unknown-pragmas \
            -Wno-uninitialized ${CXXFLAGS:-} -x c++ -c "$1" -o "$work/$(basename "$1").o"
    }
    jobs=
    for source in "$crate"/kernels/*.cu "$crate"/emulator/*.cpp; do
        compile "$source" &
        jobs="$jobs $!"
    done
    for job in $jobs; do wait "$job"; done
    # A program that looks whether there is a driver unloads it: the work of one that does not would be lost.
    # shellcheck disable=SC2086 # options
    ${CXX:-c++} -shared ${CXXFLAGS:-} -Wl,-soname,libcuda.so -Wl,-Bsymbolic -Wl,-z,nodelete "$work"/*.o -ldl -pthread \
        -o "$work/libcuda.so"
    mv "$work/libcuda.so" "$library"
fi
echo "$folder"
