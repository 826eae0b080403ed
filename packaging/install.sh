#!/bin/sh
# Installs a built tree: install.sh PREFIX DESTDIR BUILD, where BUILD holds the binary and the libraries.
# Packages, the tarball and `make install` all come from here, so there is one list of files.
set -eu
prefix=$1 destdir=$2 build=$3
here=$(cd "$(dirname "$0")" && pwd)
root=$destdir$prefix

put() { # MODE FILE TARGET
    install -D -m "$1" "$2" "$root/$3"
}

put 755 "$build/syncline" bin/syncline
# Where `syncline preload` looks for it.
put 644 "$build/libsyncline_preload.so" lib/syncline/libsyncline_preload.so
# The extension that SQLite's `.load` names.
put 644 "$build/libsyncline_sqlite.so" lib/syncline/libsyncline_sqlite.so

# mount(8) and umount(8) look for their helpers in /sbin.
mkdir -p "$root/sbin"
ln -sf ../bin/syncline "$root/sbin/mount.fuse.syncline"
ln -sf ../bin/syncline "$root/sbin/umount.fuse.syncline"

# The binary prints its own pages and completions.
mkdir -p "$root/share/man/man1" "$root/share/man/man8"
"$build/syncline" man --all "$root/share/man/man1"
echo '.so man1/syncline-mount.1' >"$root/share/man/man8/mount.fuse.syncline.8"
echo '.so man1/syncline-umount.1' >"$root/share/man/man8/umount.fuse.syncline.8"
mkdir -p "$root/share/bash-completion/completions" "$root/share/fish/vendor_completions.d" \
    "$root/share/zsh/vendor-completions"
"$build/syncline" completions bash >"$root/share/bash-completion/completions/syncline"
"$build/syncline" completions fish >"$root/share/fish/vendor_completions.d/syncline.fish"
"$build/syncline" completions zsh >"$root/share/zsh/vendor-completions/_syncline"

for unit in "$here"/systemd/*.service; do
    put 644 "$unit" "lib/systemd/system/$(basename "$unit")"
    # The units name the binary by its full path.
    sed -i "s|/usr/bin/syncline|$prefix/bin/syncline|" "$root/lib/systemd/system/$(basename "$unit")"
done
put 644 "$here/udev/70-syncline.rules" lib/udev/rules.d/70-syncline.rules

for doc in README.md CHANGELOG.md SECURITY.md LICENSE-MIT LICENSE-APACHE; do
    put 644 "$here/../$doc" "share/doc/syncline/$doc"
done
for doc in LICENSE NOTICE LICENSE-d3; do
    put 644 "$here/../lab/report/vendor/$doc" "share/doc/syncline/echarts/$doc"
done
for doc in "$here"/../docs/*.md; do
    put 644 "$doc" "share/doc/syncline/docs/$(basename "$doc")"
done
