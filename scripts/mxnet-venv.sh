#!/bin/sh
# mxnet-venv.sh   creates a virtual environment with MXNet 1.9.1, once, and prints its Python. If
#                 that is impossible, prints the reason and ends with status 1.
set -eu
cd "$(dirname "$0")/.."

# MXNet's wheels work with these versions of Python. The newest comes first.
is_good() {
    "$1" -c 'import sys, venv, ensurepip
sys.exit(not (3, 8) <= sys.version_info[:2] <= (3, 11))' 2>/dev/null
}

find_python() {
    for release in 3.11 3.10 3.9 3.8; do
        for python in "python$release" \
            "${PYENV_ROOT:-$HOME/.pyenv}/versions/$release".*/bin/python3; do
            is_good "$python" && { echo "$python"; return; }
        done
    done
    is_good python3 && echo python3
}

refuse() {
    echo "no MXNet: $1" >&2
    exit 1
}

venv=target/peers-venv
python=$(find_python) ||
    refuse "MXNet 1.9.1 needs Python 3.8 to 3.11 with venv (apt-get install python3-venv)"
scripts/venv.py --python "$python" --import mxnet "$venv" 'mxnet==1.9.1' 'numpy<1.24' ||
    refuse "mxnet==1.9.1 cannot be installed, or not imported"
echo "$venv/bin/python"
