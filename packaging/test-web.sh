#!/bin/sh
# Tests the npm package with Node and the page with Chromium. Exit code 77: something is missing, which
# the last line names.
set -eu
cd "$(dirname "$0")/.."
PATH="$PATH:/usr/sbin:/sbin"
for pair in node:nodejs chromium:chromium mke2fs:e2fsprogs qemu-img:qemu-utils; do
    command -v "${pair%%:*}" >/dev/null || { echo "needs ${pair%%:*}; install ${pair#*:}" >&2; exit 77; }
done
major=$(node -p 'process.versions.node.split(".")[0]')
[ "$major" -ge 20 ] || { echo "needs Node 20; this is Node $major" >&2; exit 77; }
sh packaging/web.sh web-test
# The program whose figures the demo has to have.
if [ -z "${SYNCLINE_LAB:-}" ]; then
    cargo build --quiet --locked -p syncline-lab --bin syncline-lab
    SYNCLINE_LAB=${CARGO_TARGET_DIR:-$(pwd)/target}/debug/syncline-lab
    export SYNCLINE_LAB
fi
exec node --test --test-reporter=spec target/npm/test crates/adapters/wasm/test/page.test.js \
    crates/adapters/wasm/test/memory.test.js crates/adapters/wasm/test/lab.test.js
