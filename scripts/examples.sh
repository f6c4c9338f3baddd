#!/bin/sh
# Runs the sample projects with the jar that `make install` has put into the local repository, each
# with its tool, and compares their output. If a tool is missing, prints what ran instead.
set -eu
cd "$(dirname "$0")/.."
root=$PWD
java=${JAVA_HOME:+$JAVA_HOME/bin/}java
status=0

# The files that `make jar` has made: the jar, and the class path of Clojure.
version=$(sed -n 's:^  <version>\(.*\)</version>:\1:p' clojure/pom.xml)
jar=$root/clojure/target/kvstore-$version.jar
class_path=$jar:$(cat clojure/target/release/classpath.txt)

# expect NAME OUTPUT HOW COMMAND..   runs a command in the folder of the example and checks its
#                                    output
expect() {
    name=$1 expected=$2 how=$3
    log=$root/target/example-$1
    shift 3
    code=0
    (cd "examples/$name" && "$@") </dev/null >"$log.out" 2>"$log.err" || code=$?
    # Maven may put colour codes around the output of a program.
    found=$(sed 's/\x1b\[[0-9;]*m//g' "$log.out")
    if [ "$code" -eq 0 ] && [ "$found" = "$expected" ]; then
        echo "examples/$name: $how: $found"
    else
        status=1
        echo "examples/$name: $how: expected \`$expected\`, found (exit $code):"
        cat "$log.out" "$log.err"
    fi
}

has() { command -v "$1" >/dev/null 2>&1; }

# tools_deps ALIAS   does the same as `clojure -M:ALIAS`
tools_deps() {
    alias=$1
    cp=$root/target/tools-deps.txt
    mvn -q -B -ntp -f "$root/tests/packaging/pom.xml" dependency:build-classpath \
        "-Dmdep.outputFile=$cp" || return
    "$java" -cp "$(cat "$cp")" clojure.main "$root/tests/packaging/deps.clj" "$alias" \
        >"$root/target/deps-arguments.txt" || return
    old_ifs=$IFS
    IFS='
'
    # shellcheck disable=SC2046 # one argument per line
    set -- $(cat "$root/target/deps-arguments.txt")
    IFS=$old_ifs
    "$java" "$@"
}

read_lein() {
    main=$("$java" -cp "$class_path" clojure.main "$root/tests/packaging/lein.clj" \
        "$root/clojure/pom.xml") || return
    "$java" --enable-native-access=ALL-UNNAMED -cp "src:$class_path" \
        clojure.main -m "$main"
}

expect maven "w = 3.000" "ran" mvn -q -B -ntp compile exec:exec
expect java "after init: [1.0, 1.0, 1.0, 1.0, 1.0, 1.0]
the sum of a push replaces the value: [8.0, 8.0, 8.0, 8.0, 8.0, 8.0]
unless there is an updater: [16.0, 16.0, 16.0, 16.0, 16.0, 16.0]" \
    "ran" "$java" --enable-native-access=ALL-UNNAMED -cp "$jar" Quickstart.java
# expect_deps NAME ALIAS OUTPUT
expect_deps() {
    if has clojure; then
        expect "$1" "$3" "ran" clojure "-M:$2"
    else
        expect "$1" "$3" "ran by tools.deps, no \`clojure\` on this machine" tools_deps "$2"
    fi
}
expect_deps deps run "w = 3.000"
expect_deps resume run "killed 4 times, went on from checkpoints, the same weights"
expect_deps resume poisoned "went back 20 times of 140, every weight is a number"
if has lein; then
    expect lein "average: [3.3125 2.625]" "ran" lein run
else
    expect lein "average: [3.3125 2.625]" \
        "not run, no \`lein\` on this machine: coordinates read, program ran" read_lein
fi
exit "$status"
