#!/bin/sh
# Prints the oldest and the newest Python of this machine that the wheel supports and that can
# create virtual environments, one per line. PYTHONS names others, separated by spaces.
set -eu

candidates() {
    if [ -n "${PYTHONS:-}" ]; then
        printf '%s\n' $PYTHONS
        return
    fi
    for minor in 10 11 12 13 14 15; do
        echo "python3.$minor"
    done
    echo python3
    for python in "$HOME"/.pyenv/versions/*/bin/python3; do
        echo "$python"
    done
}

# Prints the minor version and the path of each Python that can create environments.
numbered() {
    candidates | while read -r python; do
        "$python" -c '
import sys, venv, ensurepip
if sys.version_info >= (3, 10) and sys.implementation.name == "cpython":
    print(sys.version_info[1], sys.executable)' </dev/null 2>/dev/null || true
    done
}

numbered | sort -n -s -k1,1 | sed -n '1p;$p' | uniq | cut -d' ' -f2-
