#!/bin/sh
# Checks that this machine can build and test the project: cargo, a C linker, a C++ compiler, a JDK
# and Maven. `setup.sh portable` also checks for Python with venv, `setup.sh test` also for a Python
# that the wheel supports. `setup.sh wheel` checks for Python with venv, but not for Java, C++ and
# Maven.
#
# As root, prints one message with all that is missing and the commands that install it, then runs
# the commands. Otherwise only prints the message, and fails. Prints nothing if nothing is missing.
# With KVSTORE_SETUP=print, only prints: the message, with status 1, or `nothing to install`.
set -eu
. "$(dirname "$0")/apt.sh"

WANTED=${1:-}
JDK_NEEDED=17
RUST_NEEDED=$(sed -n 's/^rust-version *= *"\([0-9.]*\)".*/\1/p' "$(dirname "$0")/../Cargo.toml")
PATH="${CARGO_HOME:-$HOME/.cargo}/bin:$PATH"

say() { echo "setup: $*" >&2; }

# Converts `1.88.0-nightly` to a number that can be compared: 1088.
rust_number() { echo "$1" | awk -F. '{ print $1 * 1000 + $2 }'; }

rust_is_good() {
    found=$(rustc --version 2>/dev/null | awk '{ print $2 }') &&
        cargo --version >/dev/null 2>&1 || return 1
    [ -n "$found" ] && [ "$(rust_number "$found")" -ge "$(rust_number "$RUST_NEEDED")" ]
}

# Reads the file `release` of a JDK, because javac would start a virtual machine.
jdk_version() {
    javac=$(readlink -f "$1")
    release=$(dirname "$javac")/../release
    if [ -r "$release" ]; then
        sed -n 's/^JAVA_VERSION="\([0-9]*\).*/\1/p' "$release"
    else
        "$javac" -version 2>&1 | sed -n 's/^javac \([0-9]*\).*/\1/p'
    fi
}

# Maven prefers JAVA_HOME to PATH, so this script does, too.
jdk_is_good() {
    javac=${JAVA_HOME:+$JAVA_HOME/bin/javac}
    [ -n "$javac" ] || javac=$(command -v javac) || return 1
    [ -x "$javac" ] && [ "$(jdk_version "$javac")" -ge "$JDK_NEEDED" ] 2>/dev/null
}

# A wheel needs none of these three.
cxx_is_good() { [ "$WANTED" = wheel ] || command -v c++ >/dev/null 2>&1; }
java_is_good() { [ "$WANTED" = wheel ] || jdk_is_good; }
maven_is_good() { [ "$WANTED" = wheel ] || command -v mvn >/dev/null 2>&1; }

# Debian's Python has venv in a separate package.
python_is_good() {
    [ -z "$WANTED" ] || python3 -c 'import venv, ensurepip' 2>/dev/null || return 1
    [ "$WANTED" != test ] || [ -n "$("$(dirname "$0")/pythons.sh")" ]
}

apt_has() { LC_ALL=C apt-cache policy "$1" 2>/dev/null | grep -q 'Candidate: [^(]'; }

# A new container has no package lists, and then no package has a candidate.
refresh_lists() {
    may_install || return 0
    apt_has gcc || apt-get -q update
}

jdk_package() {
    for release in 21 17 25; do
        apt_has "openjdk-$release-jdk-headless" && { echo "openjdk-$release-jdk-headless"; return; }
    done
    echo default-jdk-headless
}

# The packages for apt, without Rust.
missing_packages() {
    command -v cc >/dev/null 2>&1 || printf 'gcc libc6-dev '
    cxx_is_good || printf 'g++ '
    java_is_good || printf '%s ' "$(jdk_package)"
    maven_is_good || printf 'maven '
    python_is_good || printf 'python3-venv '
}

# Sets `rust`, the command that installs Rust, and adds the package of that command to `packages`.
plan_rust() {
    if command -v rustup >/dev/null 2>&1; then
        rust="rustup update stable"
    elif has_apt && apt_has rustup; then
        packages="${packages}rustup "
        rust="rustup default stable"
    else
        # Does not run a script from the network; the user may do so.
        rust="curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh -s -- -y   # run it yourself"
    fi
}

can_install_rust() { [ "${rust#rustup }" != "$rust" ]; }

# announce HEADLINE   prints in one message what is missing and the commands that install it
announce() {
    needed=$packages
    if [ -n "$packages" ] && ! has_apt; then
        needed="a compiler for C (cc)"
        [ "$WANTED" = wheel ] ||
            needed="$needed, a compiler for C++ (c++), a JDK >= $JDK_NEEDED, Maven"
        needed="$needed${WANTED:+, Python >= 3.10 with venv} (use this system's packages) "
    fi
    message="$1: $needed${rust:+${needed:+and }Rust >= $RUST_NEEDED}"
    next='
setup:     '
    if [ -n "$packages" ] && has_apt; then
        is_root && as= || as="sudo "
        message="$message$next${as}apt-get update && $as$APT_INSTALL ${packages% }"
    fi
    say "$message${rust:+$next$rust}"
}

if {
    command -v cc && cxx_is_good && maven_is_good && java_is_good && python_is_good &&
        rust_is_good
} >/dev/null 2>&1; then
    ! only_prints || say "nothing to install"
    exit
fi

# The message is complete before anything is installed.
refresh_lists
packages=$(missing_packages)
rust=
rust_is_good || plan_rust
if only_prints; then
    announce "would install"
    exit 1
elif [ -n "$packages" ] && may_install; then
    announce "installs"
    # shellcheck disable=SC2086 # a list of package names
    apt_install_packages $packages
elif [ -z "$packages" ] && can_install_rust; then
    announce "installs"
else
    announce "missing, install it"
    exit 1
fi
java_is_good || {
    say "a JDK >= $JDK_NEEDED is needed, but JAVA_HOME=${JAVA_HOME:-} or an older javac comes first"
    exit 1
}
python_is_good || { say "Python >= 3.10 with venv is needed; PYTHONS may name one"; exit 1; }
if [ -n "$rust" ]; then
    can_install_rust || {
        say "Rust >= $RUST_NEEDED is missing: run the last command above"
        exit 1
    }
    $rust
    rust_is_good || {
        say "Rust >= $RUST_NEEDED is still missing: does another rustc come first on PATH?"
        exit 1
    }
fi
