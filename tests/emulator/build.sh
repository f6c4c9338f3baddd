#!/bin/sh
# build.sh [FOLDER]   builds the emulated driver with all kernels as FOLDER/libcuda.so, and prints
#                     FOLDER.
#
# Programs find the driver with LD_LIBRARY_PATH=FOLDER, or load it by its path before they look for
# one.
set -eu
driver=$(cd "$(dirname "$0")/driver" && pwd)
root=$(cd "$driver/../../.." && pwd)
folder=${1:-${CARGO_TARGET_DIR:-$root/target}/emulator}
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
library=$folder/libcuda.so

newer() { find "$driver" "$root/kvstore-cuda/kernels" "$1" -newer "$library" | head -n 1; }

if [ ! -f "$library" ] || [ -n "$(newer "$0")" ]; then
    # Several builds may run at once. The last one replaces the others.
    work=$(mktemp -d "$folder/build.XXXXXX")
    trap 'rm -rf "$work"' EXIT
    # Silences a warning: the compiler cannot know that every sum has an addend.
    compile() {
        # shellcheck disable=SC2086 # options
        ${CXX:-c++} -std=c++17 -O2 -fPIC -ffp-contract=off -DKV_EMULATED \
            -Wall -Wextra -Wno-unknown-pragmas -Wno-uninitialized ${CXXFLAGS:-} \
            -I "$driver" -x c++ -c "$1" -o "$work/$(basename "$1").o"
    }
    jobs=
    for source in "$root"/kvstore-cuda/kernels/*.cu "$driver"/*.cpp; do
        compile "$source" &
        jobs="$jobs $!"
    done
    for job in $jobs; do wait "$job"; done
    # nodelete: a program that only looks for a driver unloads it, which would lose queued work.
    # shellcheck disable=SC2086 # options
    ${CXX:-c++} -shared ${CXXFLAGS:-} -Wl,-soname,libcuda.so -Wl,-Bsymbolic -Wl,-z,nodelete \
        "$work"/*.o -ldl -pthread -o "$work/libcuda.so"
    mv "$work/libcuda.so" "$library"
fi
echo "$folder"
