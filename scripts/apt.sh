# Sourced by the scripts that install packages of Debian's or Ubuntu's where they may.

has_apt() { command -v apt-get >/dev/null 2>&1; }

is_root() { [ "$(id -u)" -eq 0 ]; }

may_install() { has_apt && is_root; }

# apt_install PACKAGE..   installs them; fails where they are not to be had, or we may not. The lists may be missing or old.
apt_install() {
    may_install || return 1
    DEBIAN_FRONTEND=noninteractive apt-get -q install -y --no-install-recommends "$@" </dev/null ||
        { apt-get -q update && DEBIAN_FRONTEND=noninteractive apt-get -q install -y --no-install-recommends "$@" </dev/null; }
}
