# Recipes only call tools and scripts. Longer steps are in scripts/ and clojure/bin.
.PHONY: help setup test-setup native demo demo-dist demo-net demo-python demo-diloco \
	demo-federated test suites test-rust \
	test-gpu test-jvm test-check-jni test-check-gpu test-python test-replay miri check kernels \
	protocol fuzz nightly \
	release-check jar install examples examples-cluster container repl bench bench-jvm peers \
	peers-dist peers-net \
	peers-languages gpu-bundle gpu-check wheel doc book charts clean

# The folder where rustup installs. A shell that was opened before does not have it in PATH.
export PATH := $(or $(CARGO_HOME),$(HOME)/.cargo)/bin:$(PATH)

MAVEN = mvn -f clojure/pom.xml -B -ntp
# The released jar.
JAR = clojure/target/kvstore-$$(sed -n 's:^  <version>\(.*\)</version>:\1:p' clojure/pom.xml).jar
# Runs a file of Python tests with the environment of `scripts/setup.sh portable`.
UNITTESTS = target/portable-venv/bin/python scripts/run_unittests.py

help: ## prints this list
	@sed -n 's/^\([a-z-]*\):.*## /make \1	/p' Makefile | expand -t 20

setup: ## checks for cargo, a linker, a C++ compiler, a JDK and Maven; installs them as root
	@scripts/setup.sh

native: setup ## builds the jar for this machine, clojure/target/native/kvstore-<version>.jar
	$(MAVEN) package -DskipTests

demo: native ## runs the tutorial and trains a classifier of digits
	clojure/bin/demo

demo-dist: native ## trains it on 2 and 4 processes of an MPI job, with the bits of one process
	clojure/bin/demo-dist

demo-net: native ## trains it on two servers, while a worker is killed and another joins
	clojure/bin/demo-net

demo-python: wheel ## trains it with PyTorch, with four replicas over a store, beside plain PyTorch
	scripts/torch.sh --any target/demo-python target/wheels/mxkv-*.whl
	target/demo-python/bin/python examples/torch/digits.py

demo-diloco: wheel ## trains it with DiLoCo on a server, while a worker is killed, one joins
	scripts/torch.sh --any target/demo-python target/wheels/mxkv-*.whl
	target/demo-python/bin/python examples/diloco/demo.py

demo-federated: setup wheel ## averages models of Python and JVM clients, rolls back poisoned rounds
	mvn -q -B -ntp -f examples/federated/pom.xml compile dependency:build-classpath
	scripts/venv.py --wheel target/wheels/mxkv-*.whl target/demo-federated numpy
	target/demo-federated/bin/python examples/federated/federated.py
	target/demo-federated/bin/python examples/federated/memory.py 20 8

test-setup:
	@scripts/setup.sh test

# The suites in the summary. `test` deletes the counts of an earlier run, because a suite may not
# run at all.
COUNTED = jar wheel rust gpu jvm check-jni check-gpu python replay

# Runs two suites at a time, because each leaves a processor idle now and then; with three, the Rust
# tests end last and alone. The others also run after a failure. ALSO names further targets that run
# beside them.
test: test-setup ## runs all tests on the released jar and wheel, on CPUs and real or emulated GPUs
	@rm -rf $(COUNTED:%=target/tally/%)
	@status=0; $(MAKE) -k -j2 suites || status=$$?; \
	scripts/tally.sh --summary $(COUNTED) && exit $$status

# The prerequisites of a suite build its inputs: the released jar and wheel, the class path that
# Maven writes, the Rust tests that `test-rust` compiles. Slow suites come first.
suites: test-rust test-jvm test-python test-check-jni test-check-gpu test-gpu test-replay $(ALSO)
test-rust:
	scripts/tally.sh rust scripts/rust-tests.sh
test-gpu: test-rust
	scripts/tally.sh gpu scripts/gpu-tests.sh
test-jvm: jar
	scripts/tally.sh jvm $(MAVEN) -Preleased test failsafe:integration-test failsafe:verify
test-check-jni: test-jvm
	scripts/tally.sh check-jni clojure/bin/check-jni $(JAR)
test-check-gpu: test-jvm
	scripts/tally.sh check-gpu clojure/bin/check-gpu $(JAR)
test-python: wheel
	scripts/tally.sh python scripts/python-tests.sh target/wheels/mxkv-*_$$(uname -m).whl
test-replay: test-jvm wheel
	scripts/tally.sh replay scripts/replay.sh

miri: setup ## runs the tests of the core under Miri: undefined behaviour, data races, leaks
	scripts/setup.sh portable
	scripts/tally.sh miri scripts/miri.sh $(SUITES)
	scripts/tally.sh --summary miri

fuzz: setup ## fuzzes the readers of files, a minute each
	scripts/fuzz.sh

check: setup ## checks format, lints, layers, dependencies, documentation, links, text, kernels
	scripts/setup.sh portable
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --all-features -- -D warnings
	cargo test --workspace --test layering --test generated
	scripts/deny.sh
	python3 tests/packaging/test_scripts.py
	python3 tests/packaging/test_kernels.py
	python3 tests/packaging/test_tally.py
	python3 tests/packaging/test_pages.py
	python3 tests/packaging/test_text.py
	python3 tests/packaging/test_clusters.py
	python3 tests/gpu/test_peers.py
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --all-features
	clojure/bin/check-reflection
	scripts/kernels.sh --check

kernels: ## generates kernel formulas and constructors of optimizers, and compiles the kernels
	KVSTORE_GENERATE=1 cargo test --workspace --test generated
	scripts/kernels.sh --write

protocol: setup ## generates the code of the network protocol
	cargo run --quiet --locked --manifest-path kvstore-net/generator/Cargo.toml \
		--target-dir target/protocol

nightly: test-setup ## runs the long tests: a bare Debian, Miri, 20,000 random programs, fuzzers
	scripts/mxnet-venv.sh # Without MXNet, the tests below would skip the programs against it.
	scripts/bare-debian.sh
	$(MAKE) protocol && git diff --exit-code kvstore-net
	cargo clippy -p kvstore --no-default-features -- -D warnings
	$(MAKE) miri
	PROPTEST_CASES=1000 cargo test -p kvstore-dist --test store_jobs
	PROPTEST_CASES=20000 cargo test -p kvstore-tests --test random_programs
	PROPTEST_CASES=1000 cargo test -p kvstore-net --test rules --test sharded --test suites
	KVSTORE_SIMULATION_SCHEDULES=20000 cargo test -p kvstore-net --lib simulation
	KVSTORE_MXNET_PROGRAMS=20000 KVSTORE_SOAK_SECONDS=100 KVSTORE_TEST_PROCESSES=20 \
		KVSTORE_TEST_ALLOCATIONS=1 $(MAKE) test
	scripts/replay.sh 20000
	KVSTORE_CUDA_EXACT=1 scripts/gpu-tests.sh
	$(MAKE) demo-net demo-diloco demo-federated examples-cluster
	target/demo-federated/bin/python examples/federated/memory.py
	scripts/fuzz.sh 600

release-check: setup ## checks RustSec's advisories, and the jar and wheel for both processors
	scripts/deny.sh advisories
	$(MAKE) jar wheel PLATFORMS="linux-x86_64 linux-aarch64"

jar: setup ## builds the released jar in clojure/target, with sources and Javadoc
	scripts/setup.sh portable
	$(MAVEN) -Prelease clean package -DskipTests
	scripts/tally.sh jar $(UNITTESTS) tests/packaging/test_jar.py

wheel: ## builds the released wheel, target/wheels/mxkv-<version>-*.whl, for Python 3.10 and later
	scripts/setup.sh wheel
	scripts/wheel.sh
	scripts/tally.sh wheel $(UNITTESTS) tests/packaging/test_wheel.py

install: jar ## puts the three jars into the local Maven repository
	$(MAVEN) -q install:install-file@jar

examples: install ## builds and runs the sample projects with the installed jar
	scripts/examples.sh

examples-cluster: install wheel ## runs the examples for Spark, Ray, Slurm and Kubernetes
	scripts/examples-cluster.sh

container: ## builds the image of `kvstore serve`, target/kvstore-image.tar
	scripts/setup.sh wheel
	scripts/container.sh

repl: native ## starts a Clojure REPL with the namespaces loaded
	clojure/bin/repl

bench: setup ## measures sums, updates, pulls and small keys beside the copy bandwidth
	cargo bench -p kvstore --benches

bench-jvm: native ## measures calls from Java and Clojure, into target/bench-jvm.json
	clojure/bench/run

peers: setup ## measures beside MXNet 1.9.1 and PyTorch, into target/peers.json
	tests/peers/run

peers-dist: setup ## measures `dist_*` stores beside MXNet 1.9.1, into target/peers-dist.json
	tests/peers/run-dist

peers-net: setup ## measures the network store beside MXNet 1.9.1, into target/peers-net.json
	tests/peers/run-net

peers-languages: jar wheel ## measures short calls of servers from Rust, Python and Java
	tests/peers/run-languages

gpu-bundle: setup ## builds a folder of tests and benchmarks for a machine with a GPU
	scripts/setup.sh portable
	scripts/gpu-bundle.sh

gpu-check: gpu-bundle ## runs the script of that folder on an emulated driver
	scripts/tally.sh gpu-bundle $(UNITTESTS) tests/gpu/test_bundle.py
	scripts/tally.sh gpu-peers $(UNITTESTS) tests/gpu/test_peers.py

doc: setup ## builds the documentation of the crates, in target/doc
	cargo doc --workspace --no-deps

book: setup ## builds the manual with the API pages of Rust, Java and Clojure, in target/book
	scripts/book.sh

charts: ## draws charts of `make peers`, `make bench` and `make demo-diloco`
	scripts/venv.py target/charts-venv matplotlib
	target/charts-venv/bin/python examples/diloco/chart.py
	target/charts-venv/bin/python scripts/charts.py

clean: ## removes all build outputs
	cargo clean
	$(MAVEN) clean
