# Every recipe is a line or two that can be pasted into a shell.
.PHONY: help setup test-setup native demo demo-dist demo-python test suites test-rust test-gpu test-jvm \
	test-check-jni test-check-gpu test-python test-replay miri check kernels fuzz nightly release-check jar install \
	examples repl bench bench-jvm peers peers-dist gpu-bundle gpu-check wheel doc clean

# rustup installs here, and a shell that was open before does not know it.
export PATH := $(or $(CARGO_HOME),$(HOME)/.cargo)/bin:$(PATH)

MAVEN = mvn -f clojure/pom.xml -B -ntp
# The jar that is released.
JAR = clojure/target/kvstore-$$(sed -n 's:^  <version>\(.*\)</version>:\1:p' clojure/pom.xml).jar

help: ## these lines
	@sed -n 's/^\([a-z-]*\):.*## /make \1	/p' Makefile | expand -t 20

setup: ## checks for cargo, a linker, a C++ compiler, a JDK and Maven; installs them where it may
	@scripts/setup.sh

native: setup ## builds the jar for this machine, clojure/target/native/kvstore-<version>.jar
	$(MAVEN) package -DskipTests

demo: native ## builds everything, runs the tutorial and trains a classifier on digits
	clojure/bin/demo

demo-dist: native ## trains it on 2 and 4 workers, processes of an MPI job, with the bits of one process
	clojure/bin/demo-dist

demo-python: wheel ## trains it with PyTorch, four replicas over a store, beside plain PyTorch
	scripts/torch.sh --any target/demo-python target/wheels/mxkv-*.whl
	target/demo-python/bin/python examples/torch/digits.py

test-setup:
	@scripts/setup.sh test

# What the summary counts. The counts of an earlier run are deleted, because a suite may not run at all.
COUNTED = jar wheel rust gpu jvm check-jni check-gpu python replay

# Three suites at a time: each leaves a processor idle now and then. The others run after a failure, too.
# ALSO names further targets that run beside them.
test: test-setup ## runs all tests on the released jar and wheel, on the host and on real or emulated GPUs
	@rm -rf $(COUNTED:%=target/tally/%)
	@status=0; $(MAKE) -k -j3 suites || status=$$?; \
	scripts/tally.sh --summary $(COUNTED) && exit $$status

# What each suite uses: the released jar and wheel, the class path that Maven writes, the Rust tests
# that `test-rust` compiles. Suites that take long come first.
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

miri: setup ## interprets the tests of the core: undefined behaviour, data races, leaks
	scripts/setup.sh portable
	scripts/tally.sh miri scripts/miri.sh $(SUITES)
	scripts/tally.sh --summary miri

fuzz: setup ## random bytes and changed files where files are read, a minute each
	scripts/fuzz.sh

check: setup ## format, lints, layers, dependencies, documentation, links, reflection, kernels
	scripts/setup.sh portable
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --no-default-features -- -D warnings
	cargo clippy --workspace --all-targets -- -D warnings
	cargo clippy --workspace --all-targets --all-features -- -D warnings
	cargo test --workspace --test layering --test generated
	scripts/deny.sh
	python3 tests/packaging/test_scripts.py
	python3 tests/packaging/test_pages.py
	python3 tests/gpu/test_peers.py
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps
	clojure/bin/check-reflection
	scripts/kernels.sh --check

kernels: ## generates the formulas of kernels and the constructors of optimizers, and compiles the kernels to PTX
	KVSTORE_GENERATE=1 cargo test --workspace --test generated
	scripts/kernels.sh --write

nightly: test-setup ## longer runs: `make demo` and `make test` in a bare Debian, Miri, 20,000 random programs, soak test, fuzzers
	tests/peers/mxnet-venv # Without MXNet, the tests below would skip the programs against it.
	scripts/bare-debian.sh
	$(MAKE) miri
	PROPTEST_CASES=1000 cargo test -p kvstore-dist --test store_jobs
	KVSTORE_TEST_ALLOCATIONS=1 cargo test -p kvstore-dist --test failed_allocations
	PROPTEST_CASES=20000 cargo test -p kvstore-tests --test local_store
	KVSTORE_MXNET_PROGRAMS=20000 KVSTORE_SOAK_SECONDS=100 KVSTORE_TEST_PROCESSES=20 $(MAKE) test
	scripts/replay.sh 20000
	scripts/fuzz.sh 600

release-check: setup ## runs the release checks: RustSec advisories, jar and wheel for both processors
	scripts/deny.sh advisories
	$(MAKE) jar wheel PLATFORMS="linux-x86_64 linux-aarch64"

jar: setup ## builds clojure/target/kvstore-<version>.jar, for other machines too, with sources and Javadoc beside it
	scripts/setup.sh portable
	$(MAVEN) -Prelease clean package -DskipTests
	scripts/tally.sh jar target/portable-venv/bin/python scripts/run_unittests.py tests/packaging/test_jar.py

wheel: ## builds target/wheels/mxkv-<version>-*.whl, for any Python from 3.10 on and other machines too
	scripts/setup.sh wheel
	scripts/wheel.sh
	scripts/tally.sh wheel target/portable-venv/bin/python scripts/run_unittests.py tests/packaging/test_wheel.py

install: jar ## puts the three jars into the local Maven repository
	$(MAVEN) -q install:install-file@jar

examples: install ## builds and runs the sample projects with the installed jar
	scripts/examples.sh

repl: native ## a Clojure REPL with the library and the namespaces ready
	clojure/bin/repl

bench: setup ## measures sums, updates, pulls and small keys beside the machine's copy bandwidth
	cargo bench -p kvstore --benches

bench-jvm: native ## measures what a call from Java and Clojure costs over Rust's, into target/bench-jvm.json
	clojure/bench/run

peers: setup ## measures side by side with MXNet 1.9.1 and PyTorch, into target/peers.json
	tests/peers/run

peers-dist: setup ## measures stores that span processes side by side with MXNet 1.9.1, into target/peers-dist.json
	tests/peers/run-dist

gpu-bundle: setup ## a folder for a machine with a GPU, target/gpu-bundle: tests, sanitizer, bench and PyTorch in ten minutes
	scripts/setup.sh portable
	scripts/gpu-bundle.sh

gpu-check: gpu-bundle ## runs that folder's script on a driver that is emulated
	scripts/tally.sh gpu-bundle target/portable-venv/bin/python scripts/run_unittests.py tests/gpu/test_bundle.py
	scripts/tally.sh gpu-peers target/portable-venv/bin/python scripts/run_unittests.py tests/gpu/test_peers.py

doc: setup ## the documentation of the crates, in target/doc
	cargo doc --workspace --no-deps

clean: ## removes what was built
	cargo clean
	$(MAVEN) clean
