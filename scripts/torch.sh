#!/bin/sh
# torch.sh VENV WHEEL [PACKAGE..]        creates a virtual environment with the wheel, these
#                                        packages and the PyTorch of Debian or Ubuntu, with the
#                                        system's Python. apt installs PyTorch if the user is root.
#                                        If it is not available, prints the reason and fails.
# torch.sh --any VENV WHEEL [PACKAGE..]  then uses PyPI's PyTorch, which on Linux includes gigabytes
#                                        for GPUs
# With KVSTORE_SETUP=print, prints what it would install, and fails.
set -eu
. "$(dirname "$0")/apt.sh"

PYTHON=/usr/bin/python3
PACKAGES="python3-torch python3-venv"

# The output of apt is long, and a release without PyTorch is not an error.
# shellcheck disable=SC2086 # a list of packages
install_torch() { apt_install $PACKAGES >/dev/null; }

# make_venv OPTION.. PACKAGE..
make_venv() { "$(dirname "$0")/venv.py" --wheel "$wheel" "$@"; }

system_has_torch() {
    "$PYTHON" -c '
import importlib.util, sys, ensurepip
sys.exit(sys.version_info < (3, 10) or importlib.util.find_spec("torch") is None)' 2>/dev/null
}

any=
[ "$1" != --any ] || { any=yes; shift; }
venv=$1 wheel=$2
shift 2
# Install the wheel without its dependencies. NumPy, its only one, is already there.
if system_has_torch || { install_torch && system_has_torch; }; then
    make_venv --python "$PYTHON" --system-site-packages "$venv" numpy "$@"
elif [ -n "$any" ]; then
    make_venv "$venv" torch numpy "$@"
else
    echo "no PyTorch for $PYTHON, and it cannot be installed here ($PACKAGES)"
    exit 1
fi
