# make demo       a real SQLite on a user-space ext4 over a simulated eMMC and UFS: one table, no privileges
# make test       every check and every test; the last line is "N passed, N failed, N skipped"
# make lint       the checks alone
# make fmt        formats code and breaks long comment lines
# make fuzz       every fuzz test, SECONDS each at least (default 60)
# make bench      every workload on the simulated device
# make figures    runs named in RUNS (`cargo xtask figures` lists them) are measured, stored and filled into the documents
# make install    programs, mount helpers, units, man pages, completions and C library below PREFIX (default /usr/local), in DESTDIR
# make dist       Debian packages, tarball, static programs, Windows program, wheels, SBOM and SHA256SUMS in target/dist
# make wheel      the Python package alone, for this machine
# make web        the page in target/web, static files that open ext4 images in a browser; the npm package in target/npm
# make test-dist  (root, Debian) the packages in clean chroots of Debian 11 and 12: installed, used, purged; lintian; wheels, static and Windows programs
# make deps       what the tests need from the system: installed as root on Debian, else named; `make test` begins with it
# make clean      removes all builds
#
# Long tests, comparisons and other benchmarks: `cargo xtask run` lists them, `make NAME` runs one.

# What the demo compares: one sync mode, journal format, journal mode of SQLite and device, or lists.
DEMO_SYNC ?= ordered,eager
DEMO_LOG ?= jbd2,packed
DEMO_MODES ?= delete,atomic
DEVICE ?= nexus7-emmc ufs-4
SECONDS ?= 60
PREFIX ?= /usr/local
LIBDIR ?= lib

# rustup's default place is often not on the path of a non-login shell.
export PATH := $(PATH):$(HOME)/.cargo/bin
LAB := cargo run --release --quiet -p syncline-lab --bin syncline-lab --
XTASK := cargo xtask

.PHONY: demo test lint fmt fuzz bench figures install dist wheel web test-dist deps clean cargo

demo: cargo
	@$(LAB) bench sqlite $(DEVICE:%=--device %) --sync $(DEMO_SYNC) --log $(DEMO_LOG) --journal-mode $(DEMO_MODES)

test:
	@sh scripts/deps.sh --try
	@$(XTASK) ci

lint: cargo
	@$(XTASK) ci fmt tidy deny clippy

fmt: cargo
	cargo fmt --all
	@$(XTASK) tidy --fix

# One at a time, so that each has a core to itself. A name with "fuzz" in it makes a fuzz test.
fuzz: cargo
	SYNCLINE_FUZZ_SECONDS=$(SECONDS) cargo test --workspace --no-fail-fast fuzz -- --test-threads=1 --nocapture

bench: cargo
	@$(LAB) bench several sqlite fileio create mixed $(DEVICE:%=--device %) --sync $(DEMO_SYNC)

figures: cargo
	@$(XTASK) figures $(RUNS)

# As root without cargo it installs the build of a user.
install:
	@[ -n "$$(command -v cargo)" ] || [ -x target/dist-build/dist/syncline ] || sh scripts/need-cargo.sh
	@[ -z "$$(command -v cargo)" ] || sh packaging/build.sh build
	@sh packaging/install.sh "$(PREFIX)" "$(DESTDIR)" target/dist-build/dist
	@sh packaging/install-lab.sh "$(PREFIX)" "$(DESTDIR)" target/dist-build/dist
	@sh packaging/install-library.sh "$(PREFIX)" "$(LIBDIR)" "$(DESTDIR)" target/dist-build/dist

dist: cargo
	@sh packaging/dist.sh

wheel: cargo
	@mkdir -p target/dist
	@sh packaging/wheel.sh target/dist "$$(uname -m)-gnu"

web: cargo
	@sh packaging/web.sh

test-dist:
	@sh packaging/test-dist.sh

deps:
	@sh scripts/deps.sh

clean: cargo
	cargo clean

# Variables of the command line are in the environment.
.DEFAULT:
	@$(XTASK) run $@

cargo:
	@sh scripts/need-cargo.sh
