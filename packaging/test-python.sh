#!/bin/sh
# Installs the Python package into a fresh virtual environment and runs its suite there. With a program and an extension
# module that `make test` has built, in SYNCLINE_LAB and SYNCLINE_NATIVE, the package is laid out as its wheel lays it out;
# without them both are built, and the wheel is. Exits with 77, and the reason as the last line of standard error, where
# the tools cannot be had.
set -eu
cd "$(dirname "$0")/.."
tools=target/python-tools venv=target/python-test wheels=target/python-wheels
package=crates/libs/syncline-py
skip() {
    echo "$*" >&2
    exit 77
}

if ! cmp -s packaging/requirements-test.txt "$tools/requirements.txt"; then
    rm -rf "$tools"
    python3 -m venv "$tools" >/dev/null 2>&1 || skip "needs Python's venv; install python3-venv"
    "$tools/bin/pip" download -q -d "$tools/wheels" -r packaging/requirements-test.txt 2>/dev/null ||
        skip "the packages of requirements-test.txt cannot be had from the package index; look at the network"
    "$tools/bin/pip" install -q --no-index --find-links "$tools/wheels" maturin
    cp packaging/requirements-test.txt "$tools/requirements.txt"
fi
rm -rf "$venv" "$wheels"
python3 -m venv "$venv"
if [ -n "${SYNCLINE_NATIVE:-}" ] && [ -n "${SYNCLINE_LAB:-}" ]; then
    "$venv/bin/pip" install -q --no-compile --no-index --find-links "$tools/wheels" -r packaging/requirements-test.txt
    site=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
    cp -r "$package/python/syncline" "$site/"
    cp "$SYNCLINE_NATIVE" "$site/syncline/_native.abi3.so"
    maturin=$(pwd)/$tools/bin/maturin
    said=$(cd "$package" && "$maturin" pep517 write-dist-info --metadata-directory "$site" --interpreter python3 2>&1) || {
        echo "$said" >&2
        exit 1
    }
else
    "$tools/bin/maturin" build --quiet --profile dev --out "$wheels" -m "$package/Cargo.toml"
    "$venv/bin/pip" install -q --no-compile --no-index --find-links "$tools/wheels" -r packaging/requirements-test.txt "$wheels"/*.whl
    cargo build -q -p syncline-lab -p syncline-cli
    SYNCLINE_LAB="$(pwd)/target/debug/syncline-lab"
fi
export SYNCLINE_LAB
cd "$package"
"../../../$venv/bin/python" -X dev -m pytest -q -p no:cacheprovider -o tmp_path_retention_policy=none tests
