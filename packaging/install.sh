#!/bin/sh
# Installs a built tree: install.sh PREFIX DESTDIR BUILD, where BUILD holds the binary and the libraries.
# Packages, the tarball and `make install` all come from here, so there is one list of files.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
. "$here/install-program.sh"

program syncline
# Where `syncline preload` looks for it.
put 644 "$build/libsyncline_preload.so" lib/syncline/libsyncline_preload.so
# The extension that SQLite's `.load` names.
put 644 "$build/libsyncline_sqlite.so" lib/syncline/libsyncline_sqlite.so

# mount(8) and umount(8) look for their helpers in /sbin.
mkdir -p "$root/sbin"
ln -sf ../bin/syncline "$root/sbin/mount.fuse.syncline"
ln -sf ../bin/syncline "$root/sbin/umount.fuse.syncline"

mkdir -p "$root/share/man/man8"
echo '.so man1/syncline-mount.1' >"$root/share/man/man8/mount.fuse.syncline.8"
echo '.so man1/syncline-umount.1' >"$root/share/man/man8/umount.fuse.syncline.8"

for name in syncline-mount@.service syncline-buffer@.service syncline@.service syncline.socket; do
    unit "$here/systemd/$name"
done
unit "$here/systemd/user/syncline-card@.service" user
put 644 "$here/systemd/user-login.conf" "lib/systemd/system/user@.service.d/50-syncline.conf"
put 644 "$here/udev/70-syncline.rules" lib/udev/rules.d/70-syncline.rules

for doc in README.md CHANGELOG.md CONTRIBUTING.md SECURITY.md LICENSE-MIT LICENSE-APACHE docs/figures/gain.svg \
    docs/figures/web.png docs/figures/never-worse.json samples/ci/image.yml \
    samples/ci/Containerfile samples/ci/disk.sh samples/ci/systems.yml packaging/alpine/APKBUILD \
    packaging/openwrt/Makefile; do
    put 644 "$here/../$doc" "share/doc/syncline/$doc"
done
# With all that the documents link to, which tests/it/install.rs of the program checks.
(cd "$here/.." && find docs -name '*.md' -o -path 'docs/schemas/*' -type f -o -name '*.ipynb') | while read -r doc; do
    put 644 "$here/../$doc" "share/doc/syncline/$doc"
done
