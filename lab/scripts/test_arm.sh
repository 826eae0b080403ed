#!/bin/sh
# Builds the program and the tests of the core crates for ARM, 64-bit and 32-bit, and runs them under qemu's user emulation:
# test_arm.sh. Not part of `make test`: it takes an hour and needs what is named below.
#
#   TARGETS  default: aarch64-unknown-linux-gnu armv7-unknown-linux-gnueabihf
#   CRATES   default: the core, the crash device and the model
#   STATES   crash states of a test (default 200)
#   TESTS    arguments of the test programs, as a part of a name
#
# Tests of this machine's kernel (loop devices, mounts) and the stock programs (mke2fs, e2fsck) run natively beside
# the emulated code. Emulation keeps x86's order of memory accesses: what a weakly ordered processor would do is
# not seen; sizes, alignment, 32-bit atomics and arithmetic are.
set -eu
cd "$(dirname "$0")/../.."
targets=${TARGETS:-aarch64-unknown-linux-gnu armv7-unknown-linux-gnueabihf}
crates=${CRATES:-base device ondisk jbd2 cache buffer fs testkit model}
states=${STATES:-200}

missing=""
need() { # PROGRAM PACKAGE
    command -v "$1" >/dev/null 2>&1 || missing="$missing $2"
}
for target in $targets; do
    case $target in
        aarch64-*) need aarch64-linux-gnu-gcc "gcc-aarch64-linux-gnu libc6-dev-arm64-cross" && need qemu-aarch64-static qemu-user-static ;;
        armv7-*) need arm-linux-gnueabihf-gcc "gcc-arm-linux-gnueabihf libc6-dev-armhf-cross" && need qemu-arm-static qemu-user-static ;;
        *) echo "test-arm: $target is no target of this script" >&2 && exit 2 ;;
    esac
done
[ -z "$missing" ] || {
    echo "test-arm: missing; on Debian: apt-get install$missing" >&2
    exit 1
}
for target in $targets; do
    libraries=$(rustc --print target-libdir --target "$target" 2>/dev/null || true)
    [ -d "$libraries" ] || {
        echo "test-arm: no standard library of $target; run: rustup target add $target" >&2
        exit 1
    }
done

export CC_aarch64_unknown_linux_gnu=aarch64-linux-gnu-gcc
export CC_armv7_unknown_linux_gnueabihf=arm-linux-gnueabihf-gcc
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc
export CARGO_TARGET_ARMV7_UNKNOWN_LINUX_GNUEABIHF_LINKER=arm-linux-gnueabihf-gcc
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER="qemu-aarch64-static -L /usr/aarch64-linux-gnu"
export CARGO_TARGET_ARMV7_UNKNOWN_LINUX_GNUEABIHF_RUNNER="qemu-arm-static -L /usr/arm-linux-gnueabihf"
export CARGO_TARGET_DIR=target/arm CARGO_PROFILE_DEV_DEBUG=0
export SYNCLINE_CRASH_STATES="$states" SYNCLINE_EAGER_STATES="$states" SYNCLINE_ATOMIC_STATES="$states"

# Tests that hold a time of a real processor, as the programs named `alone` do, or the memory of the process, which
# is the emulator's with it.
limited="--skip recovered_quickly --skip a_large_copy_stays_within_the_cache"

packages=""
for crate in $crates; do packages="$packages -p syncline-$crate"; done
failed=""
for target in $targets; do
    case $target in
        aarch64-*) qemu=$CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER ;;
        armv7-*) qemu=$CARGO_TARGET_ARMV7_UNKNOWN_LINUX_GNUEABIHF_RUNNER ;;
    esac
    cargo build --quiet --target "$target" -p syncline-cli
    $qemu "target/arm/$target/debug/syncline" --version --verbose
    # shellcheck disable=SC2086 # lists of words
    cargo test --target "$target" --no-fail-fast $packages --lib --test it --test fuzz_smoke -- $limited ${TESTS:-} ||
        failed="$failed $target"
done
[ -z "$failed" ] || { echo "test-arm: tests failed on$failed" >&2; exit 1; }
echo "test-arm: all passed on $targets"
