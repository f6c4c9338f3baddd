#!/bin/sh
# Runs the examples for clusters on this machine: Spark, Ray, Slurm and Kubernetes. Uses the jar
# that `make install` has put into the local Maven repository, and the wheel of `make wheel`; builds
# the image of the servers. Prints a line for each example, the reason for each skipped one, and a
# count. Fails if an example fails.
set -eu
cd "$(dirname "$0")/.."
. scripts/apt.sh
root=$PWD
venv=$root/target/clusters-venv
folder=$root/target/clusters
passed=0 failed=0 skipped=0

RAY=ray==2.60.0
KUBERNETES=kubernetes-validate==1.37.0
SLURM="slurmctld slurmd slurm-client iproute2"

# skip NAME REASON
skip() {
    skipped=$((skipped + 1))
    echo "$1: skipped: $2"
}

# run NAME PATTERN COMMAND..   runs a command for at most 5 minutes. Prints the parts of its output
#                              that match the pattern, and everything if it fails.
run() {
    name=$1 pattern=$2
    log=$folder/$name.log
    shift 2
    started=$(date +%s)
    if timeout --kill-after=10 300 "$@" </dev/null >"$log" 2>&1; then
        passed=$((passed + 1))
        echo "$name: passed after $(($(date +%s) - started)) s"
        grep -oE "$pattern" "$log" | sed "s/^/$name: /" || true
    else
        echo "$name: failed with status $? after $(($(date +%s) - started)) s:"
        failed=$((failed + 1))
        sed "s/^/$name: /" "$log"
    fi
}

has() { command -v "$1" >/dev/null 2>&1; }

has_slurm() { has slurmctld && has slurmd && has sbatch && has ip; }

mkdir -p "$folder"
set -- target/wheels/mxkv-*_"$(uname -m)".whl
[ -f "$1" ] || { echo "$0: there is no wheel yet, run \`make wheel\`" >&2; exit 1; }
scripts/venv.py --wheel "$1" "$venv" "$RAY" "$KUBERNETES" numpy
python=$venv/bin/python

# The servers of Slurm and Kubernetes: the command without shared libraries, and its image.
image=
if scripts/container.sh >"$folder/container.log" 2>&1; then
    image=target/kvstore-image.tar
    echo "container: built $(du -h "$image" | cut -f1) $image"
else
    scripts/static.sh
fi

if (cd examples/spark && mvn -q -B -ntp package) >"$folder/spark-build.log" 2>&1; then
    run spark "[0-9]+ workers in .*" examples/spark/run-local
    # The second worker ends its process once. Spark starts both again.
    run spark-failure "[0-9]+ workers in .*" examples/spark/run-local 2 20 1
else
    failed=$((failed + 1))
    echo "spark: failed to build:"
    sed "s/^/spark: /" "$folder/spark-build.log"
fi

# Ray would otherwise report its usage to its authors.
RAY_USAGE_STATS_ENABLED=0 run ray "[0-9]+ workers, one .*" "$python" examples/ray/train.py

# shellcheck disable=SC2086 # a list of packages
if ! is_root; then
    skip slurm "the network of its nodes needs root"
elif has_slurm || { apt_install $SLURM >/dev/null && has_slurm; }; then
    run slurm "^worker .*|^checkpoint .*" tests/clusters/slurm.sh "$folder/slurm" \
        target/container/kvstore "$python"
else
    skip slurm "cannot be installed here ($SLURM)"
fi

if [ -n "$image" ]; then
    run kubernetes "worker [0-9].*|restored [a-z]+,.*|checked against.*|skipped .*" "$python" \
        tests/clusters/test_kubernetes.py "$image" "$folder/kubernetes"
else
    skip kubernetes "there is no image: $(tail -n 1 "$folder/container.log")"
fi

echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
