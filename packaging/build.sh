#!/bin/sh
# Builds what packages hold into target/dist-build/[TARGET/]dist: build.sh CARGO-COMMAND [OPTION...].
set -eu
cd "$(dirname "$0")/.."
. packaging/lib.sh

cargo "$@" --target-dir "$dist_build" --profile dist \
    -p syncline-lab -p syncline-preload -p syncline-c -p syncline-sqlite
# Build scripts unwind, and only with --target do they not get these flags. Cargo leaves symbols where a package has an
# optimisation of its own.
case " $* " in
    *" --target "*) export RUSTFLAGS="-C strip=symbols -C link-arg=-Wl,--as-needed,--no-eh-frame-hdr,-T,$(pwd)/packaging/program.ld" ;;
esac
cargo "$@" --target-dir "$dist_build" --profile program -p syncline-cli
for built in "$dist_build"/program/syncline "$dist_build"/*/program/syncline; do
    beside=${built%program/syncline}dist
    # Static programs have a directory without the others.
    if [ -x "$built" ] && [ -d "$beside" ]; then cp -p "$built" "$beside/syncline"; fi
done
