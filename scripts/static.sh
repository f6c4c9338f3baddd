#!/bin/sh
# Builds the command `kvstore` without shared libraries, for this machine's processor and any Linux,
# into target/container, the build context of Containerfile.
#
# It has glibc's allocator, and cannot load a GPU driver: on GPUs, use `python -m mxkv serve`.
set -eu
cd "$(dirname "$0")/.."
PATH="${CARGO_HOME:-$HOME/.cargo}/bin:$PATH"

target=$(uname -m)-unknown-linux-gnu
# A target folder of its own, because with other flags, cargo would compile the jar's library again.
# With --target, the flags do not apply to programs that the build runs.
RUSTFLAGS="${RUSTFLAGS:-} -Ctarget-feature=+crt-static" cargo build --release --locked \
    --package=kvstore-cli --target="$target" --target-dir=target/static
mkdir -p target/container
cp "target/static/$target/release/kvstore" LICENSE NOTICE target/container/
target/container/kvstore --version
