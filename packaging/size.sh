#!/bin/sh
# Sizes of what `make dist` has built, as a table of words: `cargo run -p xtask -- figures dist-size` stores them.
set -eu
cd "$(dirname "$0")/.."
. packaging/lib.sh
build=$dist_build/$(uname -m)-unknown-linux-gnu/dist
echo "what bytes"
size() { # NAME FILE
    echo "$1 $(stat -c %s "$2")"
}
size program "$build/syncline"
size lab "$build/syncline-lab"
size c-library "$build/libsyncline_c.so"
size extension "$build/libsyncline_sqlite.so"
size preload "$build/libsyncline_preload.so"
size deb "$dist"/syncline_*.deb
size c-deb "$dist"/libsyncline0_*.deb
size wheel "$dist"/syncline-*.whl
size tarball "$dist"/syncline-*.tar.xz
