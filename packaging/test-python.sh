#!/bin/sh
# Builds the wheel, installs it into a fresh virtual environment and runs its suite there. Exits with 77, and the
# reason as the last line of standard error, where the tools cannot be had.
set -eu
cd "$(dirname "$0")/.."
tools=target/python-tools venv=target/python-test wheels=target/python-wheels
skip() {
    echo "$*" >&2
    exit 77
}

command -v mke2fs >/dev/null || PATH="$PATH:/usr/sbin:/sbin"
command -v mke2fs >/dev/null || skip "needs mke2fs; install e2fsprogs"
if ! cmp -s packaging/requirements-test.txt "$tools/requirements.txt"; then
    rm -rf "$tools"
    python3 -m venv "$tools" >/dev/null 2>&1 || skip "needs Python's venv; install python3-venv"
    "$tools/bin/pip" download -q -d "$tools/wheels" -r packaging/requirements-test.txt 2>/dev/null ||
        skip "the packages of requirements-test.txt cannot be had from the package index; look at the network"
    "$tools/bin/pip" install -q --no-index --find-links "$tools/wheels" maturin
    cp packaging/requirements-test.txt "$tools/requirements.txt"
fi
rm -rf "$venv" "$wheels"
# Not optimised: its crates have other features than those of the tests' build, so all are compiled for this alone.
CARGO_PROFILE_DEV_OPT_LEVEL=0 "$tools/bin/maturin" build --quiet --profile dev --out "$wheels" -m crates/libs/syncline-py/Cargo.toml
python3 -m venv "$venv"
"$venv/bin/pip" install -q --no-index --find-links "$tools/wheels" -r packaging/requirements-test.txt "$wheels"/*.whl
# Sweeps run this program; `make test` has built it already.
if [ -z "${SYNCLINE:-}" ]; then
    cargo build -q -p syncline-cli
    SYNCLINE="$(pwd)/target/debug/syncline"
fi
export SYNCLINE
cd crates/libs/syncline-py
"../../../$venv/bin/python" -X dev -m pytest -q -p no:cacheprovider tests
