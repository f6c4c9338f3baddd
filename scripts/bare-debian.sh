#!/bin/sh
# bare-debian.sh [COMMAND..]   runs `make demo` and `make test`, or COMMAND, in a new minimal Debian
#                              with git, make and ca-certificates.
#
# Clones the committed state. SUITE is the release (default trixie, the oldest with rustup), MIRROR
# the server, ROOT the root folder, which is deleted first. Copies the host's network settings:
# proxies, certificates, and the configuration of apt, pip, cargo and Maven. Needs root for
# debootstrap and chroot. With KVSTORE_SETUP=print, only prints what it would install.
set -eu
cd "$(dirname "$0")/.."
. scripts/apt.sh

SUITE=${SUITE:-trixie}
root=${ROOT:-$PWD/target/bare-debian/$SUITE}
[ $# -gt 0 ] || set -- "make demo" "make test"

PACKAGES="ca-certificates git make"

if only_prints; then
    status=0
    command -v debootstrap >/dev/null 2>&1 || { status=1; apt_install debootstrap || :; }
    echo "$0: would install $SUITE with $PACKAGES into $root" >&2
    exit "$status"
fi
is_root || { echo "$0: needs root, for debootstrap and chroot" >&2; exit 1; }
command -v debootstrap >/dev/null 2>&1 || apt_install debootstrap ||
    { echo "$0: debootstrap is missing: apt-get install debootstrap" >&2; exit 1; }

# Mounts are private to this process and its children.
if [ "${BARE_DEBIAN_MOUNTS:-}" != private ]; then
    BARE_DEBIAN_MOUNTS=private \
        exec unshare --mount --propagation=private -- scripts/bare-debian.sh "$@"
fi

# in_root COMMAND   runs a command with a login environment and the host's proxies
in_root() {
    env -i HOME=/root TERM=dumb LANG=C.UTF-8 \
        PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
        ${http_proxy:+"http_proxy=$http_proxy"} ${https_proxy:+"https_proxy=$https_proxy"} \
        ${no_proxy:+"no_proxy=$no_proxy"} ${PYTHON_PACKAGES:+"PYTHON_PACKAGES=$PYTHON_PACKAGES"} \
        chroot "$root" sh -euc "$1" </dev/null
}

# copy FILE   copies a file of the host to the same place, if it exists
copy() {
    [ -e "$1" ] || return 0
    mkdir -p "$root$(dirname "$1")"
    cp -RL "$1" "$root$(dirname "$1")/"
}

# The home of the user root in the new system.
home=$root/root

# copy_home FILE   copies a file from the caller's home to root's, if it exists
copy_home() {
    [ -e "$HOME/$1" ] || return 0
    mkdir -p "$home/$(dirname "$1")"
    cp -L "$HOME/$1" "$home/$1"
}

rm -rf --one-file-system "$root"
mkdir -p "$root"
debootstrap --variant=minbase "$SUITE" "$root" ${MIRROR:+"$MIRROR"} >"$root.log" 2>&1 ||
    { tail -n 20 "$root.log"; exit 1; }

copy /etc/resolv.conf
copy /etc/hosts
copy /etc/pip.conf
copy /usr/local/share/ca-certificates
copy_home .cargo/config.toml
copy_home .m2/settings.xml
copy_home .config/pip/pip.conf
apt-config dump --format '%f "%v";%n' Acquire::http::Proxy Acquire::https::Proxy \
    >"$root/etc/apt/apt.conf.d/90proxy"

mount -t proc proc "$root/proc"
mount --rbind /sys "$root/sys"
mount --rbind /dev "$root/dev"
mount -t tmpfs tmpfs "$root/run"

in_root "apt-get -q update && DEBIAN_FRONTEND=noninteractive \
    apt-get -q install -y --no-install-recommends $PACKAGES" >>"$root.log" 2>&1 ||
    { tail -n 20 "$root.log"; exit 1; }
git bundle create --quiet "$home/kvstore.bundle" HEAD
in_root "cd && git clone --quiet kvstore.bundle kvstore && cd kvstore && git log -1 --oneline"

for command in "$@"; do
    echo "bare-debian: $SUITE: $command"
    started=$(date +%s)
    in_root "cd ~/kvstore && $command"
    echo "bare-debian: $SUITE: $command: passed after $(($(date +%s) - started)) s"
done
