#!/bin/sh
# tally.sh NAME COMMAND..   runs a test command, shows its output and keeps it to be counted
# tally.sh --summary        counts the tests of every output that was kept
set -eu
logs=$(dirname "$0")/../target/tally

# Adds up the result lines of cargo (`test result: ok. 3 passed; 0 failed; 1 ignored; ..`).
rust_counts() {
    cat "$logs"/*.log | awk '/^test result: / { passed += $4; failed += $6; ignored += $8 }
        END { printf "Rust tests: %d passed, %d failed, %d ignored\n", passed, failed, ignored }'
}

# Adds up the result lines of the JVM's runners: Maven's (`Tests run: 3, Failures: 0, Errors: 0,
# Skipped: 0`, of which the last of a run is its total, without a class name) and clojure.test's
# (`Ran 3 tests containing 9 assertions.`, `0 failures, 1 errors.`).
jvm_counts() {
    cat "$logs"/*.log | sed 's/\x1b\[[0-9;]*m//g' | awk '
        /Tests run: [0-9]+, Failures: [0-9]+, Errors: [0-9]+, Skipped: [0-9]+$/ {
            gsub(/[^0-9 ]/, " "); run += $1; failed += $2 + $3; skipped += $4 }
        /^Ran [0-9]+ tests containing/ { run += $2 }
        /^[0-9]+ failures, [0-9]+ errors\.$/ { failed += $1 + $3 }
        END { printf "JVM tests:  %d run, %d failed, %d skipped\n", run, failed, skipped }'
}

if [ "$1" = --summary ]; then
    rust_counts
    jvm_counts
    exit
fi

name=$1
shift
mkdir -p "$logs"
# A pipe into tee would hide the command's status: it travels beside the output, in a file.
{ "$@" 2>&1 && echo 0 >"$logs/$name.status" || echo $? >"$logs/$name.status"; } | tee "$logs/$name.log"
exit "$(cat "$logs/$name.status")"
