#!/bin/sh
# Builds what is published, in target/dist: Debian packages, a tarball, static programs, the program for Windows, wheels,
# an SBOM and SHA256SUMS.
#
# Built with zig's linker the programs run with the glibc of Debian 11 and later. Where the tools cannot be had
# (no Python or network) they are built with cargo alone, and need this machine's glibc or a later one.
set -eu
cd "$(dirname "$0")/.."
. packaging/lib.sh
arch=$(uname -m)
host=$arch-unknown-linux-gnu
SYNCLINE_COMMIT=${SYNCLINE_COMMIT:-$(git describe --always --dirty --abbrev=12 2>/dev/null || echo unknown)}
export SYNCLINE_COMMIT

rm -rf "$dist"
mkdir -p "$dist"
if tools; then
    sh packaging/build.sh zigbuild --target "$host.$glibc"
else
    say "zig is not to be had: the programs will need this machine's glibc or a later one" >&2
    sh packaging/build.sh build --target "$host"
    glibc=$(ldd --version | sed -n '1s/.* //p')
fi
build=$dist_build/$host/dist

needs=$(newest_glibc "$build/syncline" "$build/syncline-lab" "$build"/libsyncline*.so)
if [ "$(printf '%s\n%s\n' "$needs" "$glibc" | sort -V | tail -n 1)" != "$glibc" ]; then
    say "the programs need glibc $needs, later than $glibc; look for new symbols with objdump -T" >&2
    exit 1
fi
bytes=$(stat -c %s "$build/syncline")
if [ "$bytes" -ge $((binary_mb_max * 1000000)) ]; then
    say "the program has $bytes bytes, not less than $binary_mb_max MB; see [profile.program]" >&2
    exit 1
fi
say "the program has $bytes bytes and needs glibc $needs"

# The tarball: PREFIX as it will be, under one directory.
name=syncline-$version-$arch-linux-gnu
rm -rf "$dist_build/stage"
sh packaging/install.sh "" "$dist_build/stage/$name" "$build"
sh packaging/install-lab.sh "" "$dist_build/stage/$name" "$build"
sh packaging/install-library.sh /usr/local lib "$dist_build/stage/library" "$build"
cp -a "$dist_build/stage/library/usr/local/." "$dist_build/stage/$name/"
tar -C "$dist_build/stage" --owner=0 --group=0 --sort=name -cJf "$dist/$name.tar.xz" "$name"

if command -v dpkg-deb >/dev/null 2>&1; then
    sh packaging/deb.sh "$build"
else
    say "no dpkg-deb: no Debian packages"
fi
if tools; then sh packaging/wheel.sh "$dist"; else say "no wheels: maturin and zig are not to be had" >&2; fi
sh packaging/static.sh "$dist"
sh packaging/windows.sh "$dist"
cargo run --quiet -p xtask -- sbom syncline-cli syncline-lab syncline-preload syncline-c syncline-sqlite syncline-py \
    >"$dist/syncline-$version.cdx.json"
(cd "$dist" && sha256sum -- * >../SHA256SUMS && mv ../SHA256SUMS .)
say "done:"
ls -l "$dist"
