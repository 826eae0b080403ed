#!/bin/sh
# The wheel of the Python package: wheel.sh DIR. One for every Python from 3.9 on, and glibc 2.31 or later.
set -eu
cd "$(dirname "$0")/.."
. packaging/lib.sh
out=$1
tools || { say "maturin and zig are not to be had; install python3-venv and look at the network" >&2; exit 1; }
CARGO_TARGET_DIR=$dist_build maturin build --quiet --profile dist --zig --target "$(uname -m)-unknown-linux-gnu" \
    --compatibility "manylinux_$(echo "$glibc" | tr . _)" --out "$out" -m crates/libs/syncline-py/Cargo.toml
