#!/bin/sh
# python-tests.sh [WHEEL]   installs a wheel in an empty environment and runs the tests of
# kvstore-python on the oldest and the newest Python of pythons.sh. On the oldest, jobs of several
# processes run only if KVSTORE_TEST_PROCESSES is set. The newest also runs beside MXNet 1.9.1 if it
# can be installed, on emulated GPUs, and with failed allocations; PyTorch and JAX are tested with
# the system's Python. PYTHON_PACKAGES are further packages, such as `torch jax`; tests of missing
# packages are skipped. Without WHEEL, builds an unoptimized wheel for this machine.
set -eu
cd "$(dirname "$0")/.."

PACKAGES="pytest mypy"
# For a client of the network protocol without the native library.
PROTOCOL="grpcio grpcio-tools"
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

reports=${KVSTORE_REPORTS:-target/python-reports}

# check REPORT PYTHON TEST..   runs tests with pytest
check() {
    report=$reports/$1.xml python_of_tests=$2
    shift 2
    "$python_of_tests" -m pytest -q -rs -p no:cacheprovider --junitxml="$report" "$@"
}

version_of() { "$1" -c 'import platform; print(platform.python_version())'; }

mxnet=$(scripts/mxnet-venv.sh) || mxnet=
newest_python=$(echo "$pythons" | tail -n 1)
echo "$pythons" | while read -r python; do
    version=$(version_of "$python")
    echo "python: $version, $python"
    tests=target/python-venv/$version
    scripts/try-wheel.sh "$wheel" "$python"
    # The oldest NumPy that the wheel supports has no builds for later Pythons.
    case $version in 3.10.*) numpy="numpy==1.22.4" ;; *) numpy=numpy ;; esac
    protocol=
    [ "$python" != "$newest_python" ] || protocol=$PROTOCOL
    # shellcheck disable=SC2086 # lists of packages
    scripts/venv.py --python "$python" --wheel "$wheel" "$tests" "$numpy" $PACKAGES \
        $protocol ${PYTHON_PACKAGES:-}
    if [ "$python" = "$newest_python" ]; then
        KVSTORE_MXNET_PYTHON=$mxnet check "python-$version" "$tests/bin/python" kvstore-python/tests
    else
        # The code that allocates does not depend on the version of Python, and mypy checks the
        # types for the oldest one. The jobs of several processes take two minutes.
        processes=
        if [ -z "${KVSTORE_TEST_PROCESSES:-}" ]; then
            for name in processes server_processes growth against_mxnet; do
                processes="$processes --ignore=kvstore-python/tests/test_$name.py"
            done
            echo "python: $version: not run, except by make nightly:$processes"
        fi
        # shellcheck disable=SC2086 # options
        KVSTORE_MXNET_PYTHON='' check "python-$version" "$tests/bin/python" kvstore-python/tests \
            --ignore=kvstore-python/tests/test_failed_allocations.py \
            --ignore=kvstore-python/tests/test_open_protocol.py \
            --ignore=kvstore-python/tests/test_types.py $processes
    fi
done

# PyPI's PyTorch takes gigabytes, the system's does not. JAX and optax come from PyPI, in the newest
# releases that support the NumPy of that PyTorch.
with_torch() {
    set -- target/torch-venv kvstore-python/tests
    reason=$(scripts/torch.sh "$1" "$wheel" pytest) || {
        echo "not run: the tests of PyTorch${reason:+, because there is $reason}"
        return 0
    }
    numpy=$("$1/bin/python" -c 'import numpy; print(int(numpy.__version__.split(".")[0]) + 1)')
    # Not with venv.py, because the tests also run without JAX, and its NumPy depends on the
    # PyTorch.
    for package in jax optax; do
        "$1/bin/pip" install --quiet --disable-pip-version-check --no-compile \
            "numpy<$numpy" "$package" ||
            echo "python: $package cannot be installed"
    done
    "$1/bin/python" -c 'import platform, torch
print("python: " + platform.python_version() + ", PyTorch " + torch.__version__)'
    check torch "$1/bin/python" "$2"/test_foreign.py "$2"/test_interrupts.py "$2"/test_torch.py \
        "$2"/test_torch_examples.py "$2"/test_diloco.py \
        "$2"/test_manual.py "$2"/test_jax.py "$2"/test_papers.py
}
case " ${PYTHON_PACKAGES:-} " in *" torch "*) ;; *) with_torch ;; esac

# The GPU tests do not depend on the version of Python. This file exists if a driver has a card;
# then the tests above have run on it.
if [ "$(uname -s)" = Linux ] && [ ! -e /proc/driver/nvidia/version ]; then
    echo "python: GPUs, emulated ones"
    newest=target/python-venv/$(version_of "$newest_python")/bin/python
    LD_LIBRARY_PATH=$(tests/emulator/build.sh)
    export LD_LIBRARY_PATH
    KVSTORE_GPUS=${KVSTORE_GPUS:-4} check gpus "$newest" kvstore-python/tests/test_gpus.py \
        kvstore-python/tests/test_documents.py kvstore-python/tests/test_foreign.py
    # More devices than cards, as many, and fewer.
    for numbers in "1 1" "4 2" "4 4" "2 3"; do
        echo "python: arrays of other libraries, devices and cards: $numbers"
        KVSTORE_GPUS=${numbers% *} KV_EMULATED_DEVICES=${numbers#* } \
            check "gpus-${numbers% *}-cards-${numbers#* }" "$newest" \
                kvstore-python/tests/test_gpu_interop.py kvstore-python/tests/test_gpu_exports.py \
                kvstore-python/tests/test_gpu_torch.py
    done
fi
