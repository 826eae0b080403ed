#!/bin/sh
# The wheels of the Python package, each for every Python from 3.9 on: wheel.sh DIR [TARGET...]. TARGET is x86_64-gnu,
# aarch64-gnu, x86_64-musl or aarch64-musl; without one all but the last are built, which was not tried. Those of glibc need
# 2.31 or later. A wheel whose standard library cannot be had is left out, with a line.
set -eu
cd "$(dirname "$0")/.."
. packaging/lib.sh
out=$1
shift
[ $# -gt 0 ] || set -- x86_64-gnu aarch64-gnu x86_64-musl
tools || { say "maturin and zig are not to be had; install python3-venv and look at the network" >&2; exit 1; }

for kind in "$@"; do
    target=${kind%-*}-unknown-linux-${kind#*-}
    rustup target add "$target" >/dev/null 2>&1 || { say "no wheel for $kind: rustup has no $target here"; continue; }
    case $kind in
    *-gnu) system=manylinux_$(echo "$glibc" | tr . _) ;;
    # The musl of Alpine 3.13 and later.
    *) system=musllinux_1_2 ;;
    esac
    CARGO_TARGET_DIR=$dist_build maturin build --quiet --profile wheel --zig --target "$target" \
        --compatibility "$system" --out "$out" -m crates/libs/syncline-py/Cargo.toml
done
