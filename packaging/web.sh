#!/bin/sh
# Builds the page into target/web and the npm package into target/npm, with WebAssembly of the given
# profile: "web", which is small, or another one.
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
cargo build --quiet --locked -p syncline-wasm --target $wasm --profile "$profile"
folder=$profile
[ "$profile" != dev ] || folder=debug
module=$target/$wasm/$folder/syncline_wasm.wasm

from=crates/adapters/wasm
rm -rf target/web target/npm
mkdir -p target/web target/npm
cp -R $from/npm/. target/npm/
cp LICENSE-MIT LICENSE-APACHE target/npm/
cp "$module" target/npm/ext4.wasm
cp -R $from/page/. target/web/
cp $from/npm/ext4.js $from/npm/devices.js "$module" target/web/
mv target/web/syncline_wasm.wasm target/web/ext4.wasm
# A browser takes new files when this line of the service worker changes.
sum=$(cd target/web && find . -type f ! -name sw.js | LC_ALL=C sort | xargs sha256sum | sha256sum | cut -c1-16)
if [ -f target/web/sw.js ]; then
    sed "s/@VERSION@/$sum/" target/web/sw.js >target/web/sw.new
    mv target/web/sw.new target/web/sw.js
fi
