# make demo    a real SQLite on a user-space ext4 over a simulated eMMC: one table, no privileges
# make test    every check and every test; the last line is "N passed, N failed, N skipped"
# make lint    the checks alone
# make fmt     formats code and breaks long comment lines
# make fuzz    every fuzz test, SECONDS each at least (default 60)
# make fuzz-guided  the targets of fuzz/, which is a workspace of its own, with inputs that coverage guides: GUIDED_SECONDS each
#              (default 600); what they keep is in target/fuzz
# make model-long  random operations against the reference model, OPS of them (default 200,000); a tree of NAMES (default 20,000)
#              goes back and forth between a volume and the kernel
# make crash-long  power cuts over all workloads: STATES of sync=ordered (default 32,000) and
#              EAGER_STATES of sync=eager (default 100,000); BUFFER_STATES of the write buffer (default 120,000),
#              RELAXED_STATES of a volume on it with strict and relaxed files, of each mode (default 50,000), ATOMIC_STATES of
#              atomic writes in each format of the log (default 90,000), PERIODIC_STATES of sync=periodic (default 100,000)
# make flashlite-long  power cuts of FlashLite logs: FLASHLITE_STATES of them (default 60,000)
# make mount-long  (root) mounts: BLOWS kills and power cuts of each mode (default 100), and of fuse2fs; FSX_OPS random
#              operations (default 100,000), 32 threads for STRESS_SECONDS (default 600); threads, CONFIGURATION_BLOWS kills
#              (default 30) and power cuts in each of 40 configurations, CONFIGURATION_SECONDS each (default 60)
# make programs  (root) sqlite3, git, tar and rsync, fio, MariaDB, PostgreSQL and a build of this project on mounts, in both
#              modes and with log=packed, with kills; PROGRAMS names some of scripts/programs
# make periodic-programs  (root) SQLite, LMDB, RocksDB, git, PostgreSQL, MariaDB and a browser's profile under kills and power cuts, BLOWS of
#              each, with sync=periodic and with relaxed files: one table; PERIODIC has options, as "--only SQLite LMDB"
# make oltp    (root) MariaDB and sysbench over emulated flash with and without mtime_update; ROWS (default 1,000,000)
# make posix   (root) the conformance suite on DIR
# make matrix  (root) every way to change a file beside every way to read it, ROUNDS changes each (default 1,000)
# make flashlite-lifetime  erases of a 3.3 GB download, default storage against FlashLite
# make flashlite-bench  a FlashLite log against a plain file in DIR (default .), real time; opens one of 100 GiB (400 MiB in DIR)
# make swarm   a BitTorrent client on this machine downloads 1 GiB through its own storage and through FlashLite, killed half
#              way: one table, target/swarm.html with the block traces; SWARM has options, as "--size 64 --seeders"
# make swarm-test  checks and tests of swarm/, which is a workspace of its own
# make pjdfstest  (root) pjd/pjdfstest on mounts of both modes and on the kernel's ext4, PJDFSTEST=its checkout; PJD has options
# make xfstests  (root) kdave/xfstests on a mount and on the kernel's ext4, XFSTESTS=its checkout, built here if it is not; TESTS
#              (default: generic, group quick), XFS has options, as "--modes eager,ordered"
# make xfstests-loads  (root) the loads of its tests that take long on a mount, timed beside the kernel's ext4; LOADS has options
# make soak    (root) a mount of each mode in 64 MB of memory under load, killed, recovered, compared; SOAK has options, as
#              "--minutes 10 --modes eager"
# make bench   every workload on the simulated device
# make bench-cache  accesses a second of every replacement policy, on 10 million accesses
# make compare-libcachesim  miss counts of the policies against libCacheSim's (needs its Python package, see the script)
# make compare-ftlsim  write amplification and erases of the page map against SSSL-ftlsim's, FTLSIM=its checkout
# make compare-femu  those, device time and speed against FEMU's translation layer, FEMU=its checkout
# make compare-flashsim  those of BAST against FlashSim's, FLASHSIM=its checkout, BOOST=directory of Boost's headers
# make bench-speed  the volume in memory against the kernel's ext4 and libext2fs; an fsync with each format of the log
# make bench-buffer  the write buffer on memory devices: cost of a write, throughput, recovery of a log of LOG_MIB
# make log-instructions  processor work of an fsync and of a cached overwrite with each format of the log (valgrind)
# make log-lifetime  (root) years until flash is worn, with either format of the log: SQLite and TRACES of system calls
# make bench-nand   host writes a second of the flash simulator, by mapping scheme
# make bench-mounted  (root) kernel ext4, xfs, btrfs, f2fs, fuse2fs and Syncline mounts on the same emulated flash, real time; MOUNTED has
#              options: --guest has all of them in qemu guests, in virtual time, "--only xfs --quick"
# make guest   the write buffer through ublk, nbd-client and a loop device in a qemu guest of Debian's 6.12 kernel: limits, commands,
#              CUTS power cuts under ext4 of each (default 10), as many with relaxed files; one table
# make guest-nfs  `serve --nfs` with the NFS client of that kernel: SQLite, syncs, the conformance suite, kills of the server (CUTS)
# make guest-peers  dm-writecache, bcache and the write buffer before the same emulated flash in that guest, virtual time
# make bench-libraries  (FUSE) the C library and the Python package beside Rust: streams in memory, fsyncs on the emulated eMMC;
#              the extension of SQLite beside the Rust VFS
# make sqlite-suite  SQLite's own TCL tests of files, journals and crashes with databases in images, SQLITE=a source of it, as
#              `apt-get source sqlite3` leaves it; SUITE has options and tests, as "--options sync=ordered wal crash"
# make test-arm  the program and the tests of the core for ARM, 64-bit and 32-bit, under qemu's user emulation; TARGETS, CRATES,
#              STATES and what it needs: docs/INSTALL.md
# make bench-preload  programs whose syncs wait, beside libeatmydata (package libeatmydata1) and beside none
# make relaxed-blocks  (root) SQLite on a kernel's ext4 over the write buffer, with and without `buffer relax` and `preload`, in real time
# make fjord-mounted  (root) the configurations of `bench fjord` in real time: a browser, a mail client and SQLite on mounts over
#              emulated flash; FJORD has options, as "--rounds 1 --only browsing"
# make corrupt-relaxed  a real browser's profile and a cache in SQLite with parts of their files lost: whether they recover
# make bench-tree  (root) untar, find, rm -rf and streams on kernel ext4, fuse2fs and Syncline mounts in memory
# make latency  (root) write() and fallocate() beside another file's fsyncs, on kernel ext4, a Syncline mount and in
#              process, all on the emulated eMMC in real time; half an hour, or LATENCY=--quick: five minutes
# make recorder  (root) the recorder's strategies beside another file's fsyncs on kernel ext4, a Syncline mount and in an
#              image, real time: records lost and slack used; RECORDER has options, as "--records 120000": ten minutes each
# make samples  (root) captures the programs of samples/ again
# make capture-cost  (FUSE) what `mount -o trace=` costs, in turns with a mount without it, real time
# make install  the program, helpers of mount(8), units, man pages, completions, C library below PREFIX (default /usr/local), in DESTDIR
# make dist    Debian packages, tarball, wheel, SBOM and SHA256SUMS in target/dist
# make wheel   the Python package alone
# make test-dist  (root, Debian) the packages in clean chroots of Debian 11 and 12: installed, used as root and as a user, purged; lintian
# make deps    what the tests need from the system: installs it as root on Debian, else says it; `make test` begins with it
# make figures runs named in RUNS (`cargo xtask figures` lists them) are measured, stored in docs/figures and filled into the documents
# make clean   removes what was built

# What the demo compares: one sync mode, journal format and journal mode of SQLite, or lists.
DEMO_SYNC ?= ordered,eager
DEMO_LOG ?= jbd2,packed
DEMO_MODES ?= delete,atomic
DEVICE ?= nexus7-emmc
SECONDS ?= 60
OPS ?= 200000
NAMES ?= 20000
STATES ?= 32000
EAGER_STATES ?= 100000
BUFFER_STATES ?= 120000
RELAXED_STATES ?= 50000
ATOMIC_STATES ?= 90000
PERIODIC_STATES ?= 100000
FLASHLITE_STATES ?= 60000
BLOWS ?= 100
FSX_OPS ?= 100000
STRESS_SECONDS ?= 600
CONFIGURATION_BLOWS ?= 30
CONFIGURATION_SECONDS ?= 60
PROGRAMS ?= sqlite git archives fio mariadb postgresql build
ROWS ?= 1000000
ROUNDS ?= 1000

# rustup's default place is often not on the path of a non-login shell.
export PATH := $(PATH):$(HOME)/.cargo/bin
SYNCLINE := cargo run --release --quiet -p syncline-cli --bin syncline --
XTASK := cargo run --quiet -p xtask --

.PHONY: demo test figures lint fmt fuzz model-long crash-long flashlite-long bench bench-speed bench-nand bench-mounted bench-tree deps clean cargo
.PHONY: mount-long programs oltp posix matrix latency
.PHONY: flashlite-lifetime flashlite-bench swarm swarm-test

demo: cargo
	@$(SYNCLINE) bench sqlite --device $(DEVICE) --sync $(DEMO_SYNC) --log $(DEMO_LOG) --journal-mode $(DEMO_MODES)

test:
	@sh scripts/deps.sh --try
	@$(XTASK) ci

figures: cargo
	@$(XTASK) figures $(RUNS)

lint: cargo
	@$(XTASK) ci fmt tidy deny clippy

fmt: cargo
	cargo fmt --all
	@$(XTASK) tidy --fix

# One at a time, so that each has a core to itself. A name with "fuzz" in it makes a fuzz test.
fuzz: cargo
	SYNCLINE_FUZZ_SECONDS=$(SECONDS) cargo test --workspace --no-fail-fast fuzz -- \
		--test-threads=1 --nocapture

# What libFuzzer asks of a compiler: counters of the edges, and a table of their places.
GUIDED_FLAGS = -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
	-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
	-Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1 --cfg fuzzing
GUIDED_SECONDS ?= 600

.PHONY: fuzz-guided soak
# --target: build scripts and macros are not for the fuzzer.
fuzz-guided: cargo
	@host=$$(rustc -vV | sed -n 's/^host: //p'); cd fuzz && \
	RUSTFLAGS="$(GUIDED_FLAGS)" cargo build --quiet --release --target $$host --target-dir ../target/fuzz-build && \
	for target in seeds/*; do target=$${target#seeds/}; mkdir -p ../target/fuzz/$$target && \
	../target/fuzz-build/$$host/release/$$target -max_total_time=$(GUIDED_SECONDS) -timeout=30 -rss_limit_mb=2048 \
		-artifact_prefix=../target/fuzz/$$target- ../target/fuzz/$$target seeds/$$target || exit 1; done

soak: cargo
	@cargo build --quiet --release -p syncline-cli
	@python3 scripts/soak.py target/release/syncline $(SOAK)

model-long: cargo
	SYNCLINE_MODEL_OPS=$(OPS) cargo test -p syncline-model --test it model:: -- \
		--ignored long_run --nocapture
	SYNCLINE_INTEROP_NAMES=$(NAMES) cargo test -p syncline-model --test it interop::

crash-long: cargo
	SYNCLINE_CRASH_STATES=$(STATES) cargo test -p syncline-model --test it crash:: -- \
		--nocapture --skip eager:: --skip periodic:: --skip ace::
	SYNCLINE_CRASH_STATES=$(EAGER_STATES) cargo test -p syncline-model --test it crash::eager:: -- \
		--nocapture
	SYNCLINE_CRASH_STATES=$(PERIODIC_STATES) cargo test -p syncline-model --test it -- \
		--nocapture crash::periodic:: crash::ace::
	SYNCLINE_CRASH_STATES=$(PERIODIC_STATES) cargo test -p syncline-fs --test it crowd_crash:: -- --nocapture
	SYNCLINE_CRASH_STATES=$(BUFFER_STATES) cargo test -p syncline-buffer --test it crash:: -- \
		--nocapture
	SYNCLINE_CRASH_STATES=$(RELAXED_STATES) cargo test -p syncline-fs --test it relaxed::strict_and_relaxed -- \
		--nocapture
	SYNCLINE_ATOMIC_STATES=$(ATOMIC_STATES) cargo test -p syncline-fs --test it atomic::every_crash -- \
		--nocapture

flashlite-long: cargo
	SYNCLINE_FLASHLITE_CRASH_STATES=$(FLASHLITE_STATES) cargo test -p syncline-flashlite --test it \
		-- --nocapture crash::
mount-long: cargo
	SYNCLINE_BLOWS=$(BLOWS) cargo test -p syncline-cli --test mounted -- --include-ignored --nocapture crash:: periodic::
	SYNCLINE_FSX_OPS=$(FSX_OPS) SYNCLINE_STRESS_SECONDS=$(STRESS_SECONDS) \
		cargo test -p syncline-cli --test mounted programs:: -- --nocapture
	SYNCLINE_STRESS_ON=all SYNCLINE_BLOWS=$(CONFIGURATION_BLOWS) SYNCLINE_STRESS_SECONDS=$(CONFIGURATION_SECONDS) \
		cargo test -p syncline-cli --test mounted stress:: -- --nocapture --test-threads 1

programs: cargo
	@cargo build --quiet --release -p syncline-cli
	@for program in $(PROGRAMS); do for sync in ordered eager eager,log=packed; do \
		SYNC=$$sync sh scripts/programs/$$program.sh $(CURDIR)/target/release/syncline; code=$$?; \
		[ $$code = 0 ] || [ $$code = 77 ] || exit $$code; done; done

.PHONY: periodic-programs
# The system's python3 has the system's lmdb.
periodic-programs: cargo
	@cargo build --quiet --release -p syncline-cli
	@/usr/bin/python3 scripts/periodic_programs.py target/release/syncline --blows $(BLOWS) --json target/periodic-programs.json $(PERIODIC)

oltp: cargo
	@cargo build --quiet --release -p syncline-cli
	@python3 scripts/oltp.py target/release/syncline --rows $(ROWS) --json target/oltp.json

posix: cargo
	@cargo run --release --quiet -p syncline-posix -- conform $(DIR)

.PHONY: pjdfstest xfstests xfstests-loads
pjdfstest: cargo
	@[ -n "$(PJDFSTEST)" ] || { echo "give PJDFSTEST=DIR, a checkout of pjd/pjdfstest" >&2; exit 2; }
	@cargo build --quiet --release -p syncline-cli
	@python3 scripts/pjdfstest.py target/release/syncline $(PJDFSTEST) $(PJD)

xfstests: cargo
	@[ -n "$(XFSTESTS)" ] || { echo "give XFSTESTS=DIR, a checkout of kdave/xfstests" >&2; exit 2; }
	@cargo build --quiet --release -p syncline-cli
	@python3 scripts/xfstests.py target/release/syncline $(XFSTESTS) $(TESTS) $(XFS)

xfstests-loads: cargo
	@[ -n "$(XFSTESTS)" ] || { echo "give XFSTESTS=DIR, a built checkout of kdave/xfstests" >&2; exit 2; }
	@cargo build --quiet --release -p syncline-cli
	@python3 scripts/xfstests_loads.py target/release/syncline $(XFSTESTS) $(LOADS)

matrix: cargo
	SYNCLINE_MATRIX_ROUNDS=$(ROUNDS) cargo test -p syncline-fuse --test it matrix:: -- --nocapture

flashlite-lifetime: cargo
	SYNCLINE_FLASHLITE_LIFETIME_MIB=3379 cargo test -p syncline-flashlite --test it -- \
		--nocapture lifetime::

flashlite-bench: cargo
	@DIR=$(abspath $(or $(DIR),.)) cargo bench --quiet -p syncline-flashlite --bench speed

swarm: cargo
	@mkdir -p target
	@cd swarm && cargo run --release --quiet -- run --html ../target/swarm.html --json ../target/swarm.json $(SWARM)

swarm-test: cargo
	cd swarm && cargo fmt --check && cargo clippy --release --all-targets -- -D warnings && cargo test --release

bench: cargo
	@$(SYNCLINE) bench several sqlite fileio create mixed --device $(DEVICE) --sync $(DEMO_SYNC)

.PHONY: bench-buffer
bench-buffer: cargo
	@cargo bench --quiet -p syncline-buffer --bench speed

.PHONY: bench-cache
bench-cache: cargo
	@cargo bench --quiet -p syncline-cache --bench speed

.PHONY: compare-libcachesim
PYTHON ?= python3
compare-libcachesim: cargo
	@cargo build --quiet --release -p syncline-cli
	@$(PYTHON) scripts/compare_libcachesim.py target/release/syncline $(TRACES)

.PHONY: compare-ftlsim
compare-ftlsim: cargo
	@[ -n "$(FTLSIM)" ] || { echo "give FTLSIM=DIR, a checkout of SSSL-ftlsim" >&2; exit 2; }
	@cargo build --quiet --release -p syncline-cli
	@$(PYTHON) scripts/compare_ftlsim.py target/release/syncline $(FTLSIM) $(TRACES)

.PHONY: compare-femu
compare-femu: cargo
	@[ -n "$(FEMU)" ] || { echo "give FEMU=DIR, a checkout of FEMU" >&2; exit 2; }
	@cargo build --quiet --release -p syncline-cli
	@$(PYTHON) scripts/compare_femu.py target/release/syncline $(FEMU) $(TRACES)

.PHONY: compare-flashsim
compare-flashsim: cargo
	@[ -n "$(FLASHSIM)" ] || { echo "give FLASHSIM=DIR, a checkout of FlashSim" >&2; exit 2; }
	@$(PYTHON) scripts/compare_flashsim.py $(FLASHSIM) $(if $(BOOST),--boost $(BOOST))

bench-speed: cargo
	@cargo bench --quiet -p syncline-fs --bench speed
	@cargo bench --quiet -p syncline-fs --bench log_speed

.PHONY: log-instructions
log-instructions: cargo
	@cargo build --quiet --release -p syncline-cli
	@python3 scripts/log_instructions.py target/release/syncline

.PHONY: log-lifetime
log-lifetime: cargo
	@cargo build --quiet --release -p syncline-cli
	@python3 scripts/log_lifetime.py target/release/syncline $(TRACES)

bench-nand: cargo
	@cargo bench --quiet -p syncline-nand --bench speed

.PHONY: bench-libraries
bench-libraries: cargo
	@cargo build --quiet --release -p syncline-cli -p syncline-c -p syncline-py -p syncline-sqlite
	@cargo build --quiet --release -p syncline --example throughput
	@cargo build --quiet --release -p syncline-sqlite --example inserts
	@$(PYTHON) scripts/bench_libraries.py target/release $(LIBRARIES)
	@$(PYTHON) scripts/bench_libraries.py target/release --sqlite $(LIBRARIES)

.PHONY: sqlite-suite test-arm
sqlite-suite: cargo
	@[ -n "$(SQLITE)" ] || { echo "give SQLITE=DIR, a source of SQLite: apt-get source sqlite3" >&2; exit 2; }
	@cargo build --quiet --release -p syncline-sqlite
	@python3 scripts/sqlite_suite.py target/release/libsyncline_sqlite.so $(SQLITE) $(SUITE)

test-arm: cargo
	@sh scripts/test_arm.sh

.PHONY: bench-preload
bench-preload: cargo
	@cargo build --quiet --release -p syncline-preload
	@python3 scripts/bench_preload.py target/release/libsyncline_preload.so

bench-mounted: cargo
	@cargo build --quiet --release -p syncline-cli
	@python3 scripts/bench_mounted.py target/release/syncline --html target/bench-mounted.html \
		--json target/bench-mounted.json $(MOUNTED)

.PHONY: guest guest-nfs guest-peers
CUTS ?= 10
GUEST ?= --instruction-ns 1
guest: cargo
	@cargo build --quiet --release -p syncline-cli
	@python3 scripts/guest_blocks.py target/release/syncline --cuts $(CUTS) $(GUEST) --json target/guest.json

guest-nfs: cargo
	@cargo build --quiet --release -p syncline-cli -p syncline-posix
	@python3 scripts/guest_nfs.py target/release/syncline --kills $(CUTS)

guest-peers: cargo
	@cargo build --quiet --release -p syncline-cli
	@python3 scripts/guest_peers.py target/release/syncline --json target/guest-peers.json

.PHONY: fjord-mounted corrupt-relaxed relaxed-blocks
corrupt-relaxed:
	@python3 scripts/corrupt_relaxed.py $(CORRUPT)

relaxed-blocks: cargo
	@cargo build --quiet --release -p syncline-cli -p syncline-preload
	@python3 scripts/relaxed_blocks.py target/release/syncline --json target/relaxed-blocks.json $(RELAXED)

fjord-mounted: cargo
	@cargo build --quiet --release -p syncline-cli
	@python3 scripts/fjord_mounted.py target/release/syncline --json target/fjord-mounted.json $(FJORD)

bench-tree: cargo
	@cargo build --quiet --release -p syncline-cli
	@python3 scripts/bench_tree.py target/release/syncline --json target/bench-tree.json

latency: cargo
	@cargo build --quiet --release -p syncline-cli
	@python3 scripts/latency.py target/release/syncline --json target/latency.json $(LATENCY)

.PHONY: recorder
recorder: cargo
	@cargo build --quiet --release -p syncline-cli
	@python3 scripts/recorder.py target/release/syncline --json target/recorder.json $(RECORDER)

.PHONY: samples capture-cost
samples: cargo
	@cargo build --quiet --release -p syncline-cli
	@python3 scripts/capture.py target/release/syncline --out samples --scale 0.5

capture-cost: cargo
	@cargo build --quiet --release -p syncline-cli
	@python3 scripts/capture_cost.py target/release/syncline

.PHONY: install dist wheel test-dist
PREFIX ?= /usr/local
LIBDIR ?= lib
# As root `make install` installs what a user has built, without a build of its own.
install: packages-built
	@sh packaging/install.sh "$(PREFIX)" "$(DESTDIR)" target/dist-build/dist
	@sh packaging/install-library.sh "$(PREFIX)" "$(LIBDIR)" "$(DESTDIR)" target/dist-build/dist

.PHONY: packages-built
packages-built:
	@[ -n "$$(command -v cargo)" ] || [ -x target/dist-build/dist/syncline ] || sh scripts/need-cargo.sh
	@[ -z "$$(command -v cargo)" ] || cargo build --target-dir target/dist-build --profile dist \
		-p syncline-cli -p syncline-preload -p syncline-c -p syncline-sqlite

dist: cargo
	@sh packaging/dist.sh

wheel: cargo
	@mkdir -p target/dist
	@sh packaging/wheel.sh target/dist

test-dist:
	@sh packaging/test-dist.sh

deps:
	@sh scripts/deps.sh

clean: cargo
	cargo clean

cargo:
	@sh scripts/need-cargo.sh
