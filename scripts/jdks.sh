#!/bin/sh
# Prints the homes of the oldest and the newest JDK of this machine that the jar supports, one per
# line. JDKS names other homes, separated by spaces.
set -eu
OLDEST=17

candidates() {
    if [ -n "${JDKS:-}" ]; then
        printf '%s\n' $JDKS
        return
    fi
    [ -z "${JAVA_HOME:-}" ] || echo "$JAVA_HOME"
    javac=$(command -v javac) && dirname "$(dirname "$(readlink -f "$javac")")"
    for home in /usr/lib/jvm/* "$HOME"/.sdkman/candidates/java/* \
        /Library/Java/JavaVirtualMachines/*/Contents/Home; do
        echo "$home"
    done
}

# Prints the major version and the home of each JDK.
numbered() {
    candidates | while read -r home; do
        [ -x "$home/bin/javac" ] && [ -r "$home/release" ] || continue
        echo "$(sed -n 's/^JAVA_VERSION="\([0-9]*\).*/\1/p' "$home/release") $home"
    done
}

numbered | awk -v oldest=$OLDEST '$1 >= oldest' | sort -n -s -k1,1 | sed -n '1p;$p' | uniq |
    cut -d' ' -f2-
