#!/bin/sh
# python-tests.sh [WHEEL]   installs a wheel in an empty environment and runs the tests of
# kvstore-python on the oldest and the newest Python of pythons.sh: beside MXNet 1.9.1 on the newest
# if it can be installed, with PyTorch and JAX, and on emulated GPUs. PYTHON_PACKAGES are further
# packages, such as `torch jax`; tests of missing packages are skipped. Without WHEEL, builds an
# unoptimized wheel for this machine.
set -eu
cd "$(dirname "$0")/.."

PACKAGES="pytest mypy"
pythons=$(scripts/pythons.sh)
if [ -z "$pythons" ]; then
    echo "$0: there is no Python 3.10 or later that has venv: run scripts/setup.sh test" >&2
    exit 1
fi
PATH="$(dirname "$(echo "$pythons" | tail -n 1)"):$PATH"
export PATH
wheel=${1:-}
if [ -z "$wheel" ]; then
    rm -rf target/python-wheel
    scripts/wheel.sh --here "$PWD/target/python-wheel"
    wheel=$(ls target/python-wheel/*.whl)
fi
[ -f "$wheel" ] || { echo "$0: no such wheel: $wheel" >&2; exit 1; }
echo "python: $(basename "$wheel")"

# install VENV PACKAGE..
install() {
    environment=$1
    shift
    "$environment/bin/pip" install --quiet --disable-pip-version-check "$@"
}

mxnet=$(tests/peers/mxnet-venv) || mxnet=
newest_python=$(echo "$pythons" | tail -n 1)
echo "$pythons" | while read -r python; do
    version=$("$python" -c 'import platform; print(platform.python_version())')
    echo "python: $version, $python"
    tests=target/python-venv/$version
    scripts/try-wheel.sh "$wheel" "$python"
    [ -x "$tests/bin/python" ] || "$python" -m venv "$tests"
    # The oldest NumPy that the wheel works with has no builds for later Pythons.
    case $version in 3.10.*) numpy="numpy==1.22.4" ;; *) numpy=numpy ;; esac
    # shellcheck disable=SC2086 # lists of packages
    install "$tests" "$numpy" $PACKAGES ${PYTHON_PACKAGES:-}
    install "$tests" --force-reinstall --no-deps "$wheel"
    beside=
    [ "$python" != "$newest_python" ] || beside=$mxnet
    KVSTORE_MXNET_PYTHON=$beside "$tests/bin/python" -m pytest -q -rs -p no:cacheprovider kvstore-python/tests
done

# PyPI's PyTorch takes gigabytes, the system's does not. JAX is beside it, in the newest release that takes NumPy as
# PyTorch was built for it.
with_torch() {
    set -- target/torch-venv kvstore-python/tests
    reason=$(scripts/torch.sh "$1" "$wheel") || { echo "not run: the tests of PyTorch${reason:+, for there is $reason}"; return 0; }
    numpy=$("$1/bin/python" -c 'import numpy; print(int(numpy.__version__.split(".")[0]) + 1)')
    install "$1" pytest
    install "$1" --no-compile "numpy<$numpy" jax || echo "python: JAX cannot be installed"
    "$1/bin/python" -c 'import platform, torch; print("python: " + platform.python_version() + ", PyTorch " + torch.__version__)'
    "$1/bin/python" -m pytest -q -rs -p no:cacheprovider "$2"/test_foreign.py "$2"/test_interrupts.py "$2"/test_torch.py "$2"/test_torch_examples.py "$2"/test_jax.py
}
case " ${PYTHON_PACKAGES:-} " in *" torch "*) ;; *) with_torch ;; esac

# What GPUs do is the same on every Python. A driver that has a card has this file, and then they have been tested above.
if [ "$(uname -s)" = Linux ] && [ ! -e /proc/driver/nvidia/version ]; then
    echo "python: GPUs, emulated ones"
    # shellcheck disable=SC2012 # versions, in environments that are ours
    newest=$(ls -td target/python-venv/*/bin/pytest | head -n 1)
    LD_LIBRARY_PATH=$(tests/emulator/build.sh)
    export LD_LIBRARY_PATH
    KVSTORE_GPUS=${KVSTORE_GPUS:-4} "$newest" -q -rs -p no:cacheprovider kvstore-python/tests/test_gpus.py \
        kvstore-python/tests/test_documents.py kvstore-python/tests/test_foreign.py
    # More devices than cards, as many, and fewer.
    for numbers in "1 1" "4 2" "4 4" "2 3"; do
        echo "python: arrays of other libraries, devices and cards: $numbers"
        KVSTORE_GPUS=${numbers% *} KV_EMULATED_DEVICES=${numbers#* } \
            "$newest" -q -rs -p no:cacheprovider kvstore-python/tests/test_gpu_interop.py \
                kvstore-python/tests/test_gpu_exports.py
    done
fi
