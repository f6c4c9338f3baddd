#!/bin/sh
# Licences, bans and sources of the dependencies. cargo-deny is not needed to build or to test, so
# a machine without it passes; the layering test reads the most important bans from Cargo.lock.
set -eu
if cargo deny --version >/dev/null 2>&1; then
    # The licences of all platforms are read, so the crates of all platforms have to be there.
    cargo fetch --locked --quiet
    exec cargo deny --offline check bans licenses sources
fi
echo "cargo-deny is not installed: licences, bans and sources were not checked (cargo install cargo-deny --locked)"
