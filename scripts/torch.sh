#!/bin/sh
# torch.sh VENV WHEEL        makes a virtual environment with our wheel and PyTorch: Debian's or Ubuntu's, which is installed with
#                            apt when we are root, with the system's Python. Where it is not to be had, prints why and fails.
# torch.sh --any VENV WHEEL  takes PyPI's there, which on Linux comes with gigabytes for GPUs
set -eu
. "$(dirname "$0")/apt.sh"

PYTHON=/usr/bin/python3
PACKAGES="python3-torch python3-venv"

install() { "$venv/bin/pip" install --quiet --disable-pip-version-check "$@"; }

system_has_torch() {
    "$PYTHON" -c '
import importlib.util, sys, ensurepip
sys.exit(sys.version_info < (3, 10) or importlib.util.find_spec("torch") is None)' 2>/dev/null
}

any=
[ "$1" != --any ] || { any=yes; shift; }
venv=$1 wheel=$2
# shellcheck disable=SC2086 # a list of packages
if system_has_torch || { apt_install $PACKAGES >/dev/null 2>&1 && system_has_torch; }; then
    [ -x "$venv/bin/python" ] || "$PYTHON" -m venv --system-site-packages "$venv"
elif [ -n "$any" ]; then
    [ -x "$venv/bin/python" ] || python3 -m venv "$venv"
    install torch
else
    echo "no PyTorch for $PYTHON, and it cannot be installed here ($PACKAGES)"
    exit 1
fi
install "$wheel"
# It may be another one of the same version.
install --force-reinstall --no-deps "$wheel"
