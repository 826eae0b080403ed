#!/bin/sh
# Installs the C library: install-library.sh PREFIX LIBDIR DESTDIR BUILD. LIBDIR is below PREFIX, as lib or
# lib/x86_64-linux-gnu.
set -eu
prefix=$1 lib=$2 root=$3$1 build=$4
here=$(cd "$(dirname "$0")/../crates/libs/syncline-c" && pwd)
version=$(sed -n '/^\[workspace.package\]/,/^$/s/^version = "\(.*\)"/\1/p' "$here/../../../Cargo.toml")
install -D -m 644 "$build/libsyncline_c.so" "$root/$lib/libsyncline.so.$version"
ln -sf "libsyncline.so.$version" "$root/$lib/libsyncline.so.0"
ln -sf libsyncline.so.0 "$root/$lib/libsyncline.so"
install -D -m 644 "$build/libsyncline_c.a" "$root/$lib/libsyncline.a"
for header in "$here"/include/*.h; do
    install -D -m 644 "$header" "$root/include/$(basename "$header")"
done
mkdir -p "$root/$lib/pkgconfig"
sed -e "s|@PREFIX@|$prefix|" -e "s|@LIBDIR@|\${prefix}/$lib|" -e "s|@VERSION@|$version|" \
    "$here/syncline.pc.in" >"$root/$lib/pkgconfig/syncline.pc"
for example in "$here"/examples/*.c; do
    install -D -m 644 "$example" "$root/share/doc/libsyncline-dev/examples/$(basename "$example")"
done
