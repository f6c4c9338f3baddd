#!/bin/sh
# replay.sh [NUMBER [SEED]]   runs random programs in Python with the released wheel and replays
#                             them in Clojure with the released jar. Every result must be
#                             bit-identical. Default: 1000 programs from seed 0.
# Needs `make jar wheel` and Maven's `verify`, which writes the class path.
set -eu
cd "$(dirname "$0")/.."

number=${1:-1000} seed=${2:-0}
python=$(scripts/pythons.sh | tail -n 1)
venv=target/replay-venv
reports=${KVSTORE_REPORTS:-target}
scripts/venv.py --python "$python" --wheel target/wheels/mxkv-*_"$(uname -m)".whl "$venv" numpy
"$venv/bin/python" kvstore-python/tests/record_programs.py "$number" "$seed" >target/programs.jsonl
jar=$(ls clojure/target/kvstore-*.jar | grep -vE 'sources|javadoc')
exec java -cp "clojure/src/test/clojure:$jar:$(cat clojure/target/test-classpath.txt)" \
    clojure.main -m dev.kvstore.programs target/programs.jsonl "$reports/replay.json"
