#!/bin/sh
# Builds the page into target/web and the npm package into target/npm, with WebAssembly of the given
# profile: "web", which is small, or another one. The demo and the traces of the page have C in them:
# without clang the page is built without these.
set -eu
cd "$(dirname "$0")/.."
profile=${1:-web}
target=${CARGO_TARGET_DIR:-target}
wasm=wasm32-unknown-unknown

if ! [ -d "$(rustc --print target-libdir --target $wasm)" ]; then
    echo "no standard library for WebAssembly; rustup target add $wasm" >&2
    exit 77
fi
# The same bytes whatever the folders of the machine are.
home=${CARGO_HOME:-$HOME/.cargo}
export CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_RUSTFLAGS="--remap-path-prefix=$home=cargo --remap-path-prefix=$(pwd)=."
export CFLAGS_wasm32_unknown_unknown="-ffile-prefix-map=$home=cargo"
folder=$profile
[ "$profile" != dev ] || folder=debug
built=$target/$wasm/$folder
module=$built/syncline_wasm.wasm
lab=
wanted="-p syncline-wasm --lib"
if clang --print-targets 2>/dev/null | grep -q wasm32 && command -v llvm-ar >/dev/null; then
    lab=$built/syncline-lab-web.wasm
    wanted="$wanted -p syncline-lab --bin syncline-lab-web --features syncline-lab/web"
else
    echo "the page is without demo and traces: no clang and llvm-ar; apt-get install clang llvm" >&2
fi
# shellcheck disable=SC2086 # a list of words
cargo build --quiet --locked $wanted --target $wasm --profile "$profile"

from=crates/adapters/wasm
rm -rf target/web target/npm
mkdir -p target/web target/npm
cp -R $from/npm/. target/npm/
cp LICENSE-MIT LICENSE-APACHE target/npm/
cp "$module" target/npm/ext4.wasm
cp -R $from/page/. target/web/
cp $from/npm/ext4.js $from/npm/devices.js "$module" target/web/
mv target/web/syncline_wasm.wasm target/web/ext4.wasm
if [ -n "$lab" ]; then
    cp "$lab" target/web/lab.wasm
else
    rm target/web/lab.js target/web/lab-worker.js target/web/bars.js
    sed '/<!-- lab -->/,/<!-- end -->/d' $from/page/index.html >target/web/index.html
fi
# A browser takes new files when this line of the service worker changes.
sum=$(cd target/web && find . -type f ! -name sw.js | LC_ALL=C sort | xargs sha256sum | sha256sum | cut -c1-16)
if [ -f target/web/sw.js ]; then
    sed "s/@VERSION@/$sum/" target/web/sw.js >target/web/sw.new
    mv target/web/sw.new target/web/sw.js
fi
