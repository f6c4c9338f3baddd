#!/bin/sh
# kernels.sh --write|--check   compiles the kernels; see kernels.py. Installs the one
#                              supported compiler, the assembler and the disassembler of NVIDIA into
#                              their own folder. None needs a driver or a GPU.
set -eu
cd "$(dirname "$0")/.."

# CUDA 13.2 is the first with a package of the disassembler. It also reads code of CUDA 12.9.
PACKAGES="nvidia-cuda-nvrtc-cu12==12.0.140 nvidia-cuda-nvcc-cu12==12.9.86
    nvidia-cuda-nvdisasm==13.2.51"
venv=$PWD/target/kernels-venv

# NVIDIA has these packages for this system only. Other systems use the files that are checked in.
case $(uname -sm) in
    "Linux x86_64") ;;
    *) echo "kernels: not checked: the compiler is there for Linux on x86-64 only"; exit 0 ;;
esac
scripts/setup.sh portable
# shellcheck disable=SC2086 # a list of packages
scripts/venv.py --no-deps "$venv" $PACKAGES
"$venv/bin/python" scripts/kernels.py "$1"
