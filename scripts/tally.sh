#!/bin/sh
# tally.sh NAME COMMAND..   runs a test command, shows its output and keeps it to be counted
# tally.sh --summary NAME.. prints the test counts of these outputs and the seconds per command
set -eu
logs=$(dirname "$0")/../target/tally

# Adds up the results in one output: the lines of cargo (`test result: ok. 3 passed; 0 failed; 1
# ignored; ..`), the totals of Maven (`Tests run: 3, Failures: 0, Errors: 0, Skipped: 0`, where a
# single class has its time behind), the table of JUnit's console (`[  3 tests successful  ]`) and the
# last lines of Python's unittest (`Ran 3 tests in 0.1s`, `FAILED (failures=1, skipped=1)`) and of pytest (`1 failed,
# 3 passed, 1 skipped in 0.10s`).
# A command that cannot run on this machine prints `not run: REASON`, and the reason is repeated; so is what it says
# of GPUs. Checks within a Rust test that cannot run print `skipped: REASON`; they are counted, and their reasons listed.
count() {
    seconds=$(cat "${1%.log}.seconds" 2>/dev/null || echo "?")
    sed 's/\x1b\[[0-9;]*m//g' "$1" | awk -v name="$(basename "$1" .log)" -v seconds="$seconds" '
        /^test result: / { passed += $4; failed += $6; skipped += $8 }
        /Tests run: [0-9]+, Failures: [0-9]+, Errors: [0-9]+, Skipped: [0-9]+ *$/ {
            gsub(/[^0-9]+/, " ")
            passed += $1 - $2 - $3 - $4; failed += $2 + $3; skipped += $4
        }
        /^\[ +[0-9]+ tests successful +\]$/ { passed += $2 }
        /^\[ +[0-9]+ tests failed +\]$/ { failed += $2 }
        /^\[ +[0-9]+ tests (skipped|aborted) +\]$/ { skipped += $2 }
        /^Ran [0-9]+ tests? in / { passed += $2 }
        /^(OK|FAILED) \(/ {
            gsub(/[^0-9a-z=,]/, "")
            for (i = split($0, parts, ","); i > 0; i--) {
                split(parts[i], pair, "=")
                passed -= pair[2]
                if (pair[1] == "skipped") skipped += pair[2]; else failed += pair[2]
            }
        }
        /^[0-9]+ (passed|failed|skipped|errors?)(, [0-9]+ [a-z]+)* in [0-9.]+s/ {
            for (i = 1; i < NF; i += 2) {
                word = $(i + 1); sub(/,$/, "", word)
                if (word == "passed") passed += $i
                if (word == "failed" || word ~ /^error/) failed += $i
                if (word == "skipped") skipped += $i
            }
        }
        /^(not run|on which GPUs): / && !told[$0]++ { note = note "  " $0 }
        /^skipped: / {
            not_run++
            if (!told[$0]++) reasons = reasons (reasons == "" ? "" : "; ") substr($0, 10)
        }
        END { if (not_run) note = note "  not run: " not_run " checks: " reasons
              printf "%-12s %6d passed %4d failed %4d skipped %5s s%s\n", name, passed, failed, skipped, seconds, note }'
}

if [ "$1" = --summary ]; then
    shift
    # Only what is asked for: an output may be left from another day.
    for name in "$@"; do
        count "$logs/$name.log"
    done
    exit
fi

name=$1
shift
mkdir -p "$logs"
started=$(date +%s)
# A pipe into tee would hide the command's status: it travels beside the output, in a file.
{ "$@" 2>&1 && echo 0 >"$logs/$name.status" || echo $? >"$logs/$name.status"; } | tee "$logs/$name.log"
echo $(($(date +%s) - started)) >"$logs/$name.seconds"
exit "$(cat "$logs/$name.status")"
