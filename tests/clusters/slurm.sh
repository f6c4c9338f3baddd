#!/bin/sh
# slurm.sh FOLDER KVSTORE PYTHON   runs examples/slurm/train.sbatch in a Slurm of this machine: a
#                                  controller and two nodes, each a process. Prints the job's
#                                  output, and fails if a result is wrong.
#
# Needs root, and Debian's packages slurmctld, slurmd, slurm-client and iproute2. FOLDER is for all
# files of Slurm and the job. The script has a network and an /etc/hosts of its own, which names the
# nodes. No other process reaches this Slurm, which trusts every user.
set -eu

if [ "${SLURM_TEST_NETWORK:-}" != private ]; then
    SLURM_TEST_NETWORK=private exec unshare --net --mount --propagation=private -- "$0" "$@"
fi
ip link set lo up
# The address of each node. glibc finds no address for a listener in a network with loopback only.
ip link add nodes type veth peer name unused
ip address add 10.113.7.1/24 dev nodes
ip address add 10.113.7.2/24 dev nodes
ip link set nodes up
rm -rf "$1"
mkdir -p "$1/state" "$1/spool" "$1/job"
folder=$(cd "$1" && pwd) kvstore=$(realpath "$2") python=$(realpath -s "$3")
examples=$(cd "$(dirname "$0")/../../examples" && pwd)
{ cat /etc/hosts; echo "10.113.7.1 node1"; echo "10.113.7.2 node2"; } >"$folder/hosts"
mount --bind "$folder/hosts" /etc/hosts

cat >"$folder/slurm.conf" <<EOF
ClusterName=example
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort=17817
SlurmUser=root
SlurmdUser=root
AuthType=auth/none
CredType=cred/none
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool/%n
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd.%n.pid
SlurmctldLogFile=$folder/slurmctld.log
SlurmdLogFile=$folder/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SlurmdParameters=config_overrides
NodeName=node1 NodeHostname=localhost NodeAddr=node1 Port=17819 CPUs=2
NodeName=node2 NodeHostname=localhost NodeAddr=node2 Port=17820 CPUs=2
PartitionName=main Nodes=ALL Default=YES State=UP
EOF
export SLURM_CONF="$folder/slurm.conf"

pids=
# shellcheck disable=SC2317,SC2329 # the trap calls it
end() {
    # shellcheck disable=SC2086 # a list of processes
    kill $pids 2>/dev/null || true
    wait
}
trap end EXIT
trap 'exit 1' HUP INT TERM

slurmctld -D -c >"$folder/slurmctld.out" 2>&1 &
pids=$!
for node in node1 node2; do
    slurmd -D -N $node >"$folder/$node.out" 2>&1 &
    pids="$pids $!"
done

# Waits for idle nodes, at most 30 seconds.
tries=0
until [ "$(sinfo --noheader --states=idle --format=%D 2>/dev/null)" = 2 ]; do
    tries=$((tries + 1))
    [ "$tries" -lt 150 ] || { echo "the nodes of Slurm are not idle"; cat "$folder"/*.log; exit 1; }
    sleep 0.2
done

status=0
cd "$folder/job"
mkdir bin
ln -s "$kvstore" bin/kvstore
PATH=$folder/job/bin:$PATH \
    sbatch --wait --quiet --output="$folder/job/log" \
    "$examples/slurm/train.sbatch" "$python" "$examples/digits/worker.py" || status=$?
cat "$folder/job/log"
[ "$status" -eq 0 ] || exit "$status"

# Two tasks on each node, which end with the same weights.
results=$(grep -c '^worker [0-3] of 4: ' log) || true
weights=$(sed -n 's/^worker .* weights //p' log | sort -u | wc -l)
read=$(sed -n 's/^worker .* accuracy \([0-9.]*\), .*/\1/p' log |
    awk '$1 > 0.9 { n++ } END { print n + 0 }')
ended=$(grep -c '^ending: completing' log) || true
parts=$(find . -name '*.safetensors' -path '*/checkpoints/trained/*' | wc -l)
echo "checkpoint with $parts parts"
found="$results workers, $weights weights, $read read digits, $ended servers ended, $parts parts"
expected="4 workers, 1 weights, 4 read digits, 2 servers ended, 2 parts"
[ "$found" = "$expected" ] || { echo "slurm.sh: expected $expected, found $found"; exit 1; }
