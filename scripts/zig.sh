# shellcheck shell=sh
# Sourced by scripts that build for other Linux systems. They must be in the root of the repository.
#
# The linker is zig, a package in its own folder. It has the symbols of every release of glibc, so
# no container with an old system is needed. `setup.sh portable` checks for Python.

. scripts/apt.sh
PATH="${CARGO_HOME:-$HOME/.cargo}/bin:$PATH"

# A library that is optimized across crates calls its own functions directly. It needs a third fewer
# relocations, so it loads in four fifths of the time. The link takes a minute, which is why other
# builds do without.
export CARGO_PROFILE_RELEASE_LTO=fat

GLIBC=2.28
PACKAGES="cargo-zigbuild==0.24.0 ziglang==0.17.1 pyelftools==0.33"
venv=$PWD/target/portable-venv
callers_flags=${RUSTFLAGS:-}

# shellcheck disable=SC2086 # a list of packages
install_tools() { scripts/venv.py "$venv" $PACKAGES; }

# The name that the JVM side uses.
this_platform() {
    uname -sm | tr '[:upper:] ' '[:lower:]-' | sed 's/^darwin/macos/; s/arm64$/aarch64/'
}

# Links libgcc_s.so.1. Otherwise cargo-zigbuild links zig's LLVM unwinder statically, and the
# process crashes when a thread ends in pthread_exit, as Python's daemon threads do: glibc unwinds
# with libgcc_s, enters our frames, and these call the other unwinder. For the linker, a stub with
# the symbols of libgcc_s is enough, for any processor. Its path is absolute, because some
# dependencies are also shared libraries, which cargo links in their own folders.
use_system_unwinder() {
    unwinder=$PWD/target/zigbuild/$target/libgcc_s.so.1
    mkdir -p "$(dirname "$unwinder")"
    "$venv/bin/python" -m ziglang cc -target "${1#linux-}-linux-gnu.$GLIBC" -shared -nostdlib \
        -Wl,-soname,libgcc_s.so.1 -Wl,--version-script=scripts/libgcc_s/unwind.map \
        scripts/libgcc_s/unwind.c -o "$unwinder.$$"
    mv "$unwinder.$$" "$unwinder"
    name=CARGO_TARGET_$(echo "$target" | tr '[:lower:]-' '[:upper:]_')_RUSTFLAGS
    eval "flags=\${$name:-}"
    flag=-Clink-arg=$unwinder
    # A caller that has sourced this file exports the flag. With the flag twice, cargo would compile
    # everything again.
    case " $flags " in
        *" $flag "*) ;;
        *) export "$name=$flags $flag" ;;
    esac
    # cargo ignores the variable above if this one is set.
    case " $callers_flags " in
        "  " | *" $flag "*) ;;
        *) export RUSTFLAGS="$callers_flags $flag" ;;
    esac
}

# Makes zig the linker of cargo and the C compiler of its dependencies for a platform, and sets
# `target`. cargo and maturin must use the same linker, because cargo compiles everything again for
# another one. The jar and the wheel may be built at the same time, so each build writes files of
# its own and renames them.
use_zig() {
    target=${1#linux-}-unknown-linux-gnu
    # The toolchain always contains the target of this machine.
    [ "$1" = "$(this_platform)" ] || run_or_print rustup target add "$target"
    use_system_unwinder "$1"
    export PATH="$venv/bin:$PATH"
    tools=$PWD/target/zigbuild/$target
    write_tool "$tools/zigcc" cc -- -g -fno-sanitize=all -target "${1#linux-}-linux-gnu.$GLIBC"
    write_tool "$tools/zigar" ar
    name=$(echo "$target" | tr - _)
    export "CC_$name=$tools/zigcc" "AR_$name=$tools/zigar"
    export "CARGO_TARGET_$(echo "$name" | tr '[:lower:]' '[:upper:]')_LINKER=$tools/zigcc"
}

# write_tool FILE ARGUMENT..   writes a program that runs a tool of zig
write_tool() {
    file=$1
    shift
    cat >"$file.$$" <<EOF
#!/bin/sh
export CARGO_ZIGBUILD_PYTHON_PATH="$venv/bin/python"
export CARGO_ZIGBUILD_CACHE_DIR="$PWD/target/zigbuild"
export ZIG_GLOBAL_CACHE_DIR="$PWD/target/zigbuild/zig"
exec "$venv/bin/cargo-zigbuild" zig $* "\$@"
EOF
    chmod +x "$file.$$"
    mv "$file.$$" "$file"
}
