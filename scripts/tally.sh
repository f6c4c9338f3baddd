#!/bin/sh
# tally.sh NAME COMMAND..    runs a test command, and keeps its output and reports. Prints each line
#                            after NAME, because several commands may run at a time.
# tally.sh --summary NAME..  prints the test counts and the seconds of these commands; see tally.py
#
# The environment variable KVSTORE_REPORTS names the folder where the command writes its reports.
# The folder is new in each run, so that no report of an earlier run is counted.
set -eu
here=$(dirname "$0")

if [ "$1" = --summary ]; then
    shift
    exec python3 "$here/tally.py" "$here/../target/tally" "$@"
fi

name=$1
folder=$here/../target/tally/$name
shift
rm -rf "$folder"
mkdir -p "$folder/reports"
KVSTORE_REPORTS=$(cd "$folder/reports" && pwd)
export KVSTORE_REPORTS
# Remove the options of the `make` that runs this script, because with them cargo would use one
# processor.
unset MAKEFLAGS MFLAGS MAKELEVEL
started=$(date +%s)
# A pipe hides the status of the command, so a file keeps it.
{ "$@" 2>&1 && echo 0 >"$folder/status" || echo $? >"$folder/status"; } | tee "$folder/output.log" |
    sed -u "s/^/$name: /"
echo $(($(date +%s) - started)) >"$folder/seconds"
exit "$(cat "$folder/status")"
