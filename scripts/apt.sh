# shellcheck shell=sh
# Sourced by the scripts that install Debian or Ubuntu packages, Rust, or Rust toolchains.
#
# With KVSTORE_SETUP=print, the functions print what they would install, and install nothing.

case ${KVSTORE_SETUP:-} in
    "" | print) ;;
    *) echo "KVSTORE_SETUP is \`$KVSTORE_SETUP\`, but \`print\` is its only value" >&2; exit 1 ;;
esac

APT_INSTALL="apt-get install -y --no-install-recommends"

only_prints() { [ "${KVSTORE_SETUP:-}" = print ]; }

has_apt() { command -v apt-get >/dev/null 2>&1; }

is_root() { [ "$(id -u)" -eq 0 ]; }

may_install() { has_apt && is_root && ! only_prints; }

# run_or_print COMMAND..   runs a command that installs; with KVSTORE_SETUP=print, prints it and
#                          fails
run_or_print() {
    only_prints || { "$@"; return; }
    echo "setup: would run: $*" >&2
    return 1
}

# Only one apt at a time, because a second one fails, and suites that run in parallel install
# packages.
apt_get() {
    flock "${TMPDIR:-/tmp}/kvstore-apt.lock" \
        env DEBIAN_FRONTEND=noninteractive apt-get "$@" </dev/null
}

# apt_install PACKAGE..   prints which packages it installs, and installs them; fails if apt does
#                         not have them or the user is not root.
# The message goes to standard error and all output of apt to standard output, so that callers can
# hide the output without the message.
apt_install() {
    if only_prints && has_apt; then
        is_root && as= || as="sudo "
        echo "setup: would install: $*" >&2
        echo "setup:     ${as}apt-get update && $as$APT_INSTALL $*" >&2
    fi
    may_install || return 1
    echo "setup: installs: $*" >&2
    apt_install_packages "$@" 2>&1
}

# apt_install_packages PACKAGE..   installs packages without a message.
# If the first try fails, it updates the package lists, which may be missing or old, and tries
# again.
apt_install_packages() {
    # shellcheck disable=SC2086 # an option list
    apt_get ${APT_INSTALL#apt-get } -q "$@" ||
        { apt_get -q update && apt_get ${APT_INSTALL#apt-get } -q "$@"; }
}
