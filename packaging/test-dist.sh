#!/bin/sh
# Tries what `make dist` built on clean systems: chroots of Debian 12 and 11, made by debootstrap (root). In each the packages
# are installed, used as root and as a user, and purged; nothing may be left. lintian may find no error.
# SUITES names the suites; the chroots need the network for their packages.
set -eu
cd "$(dirname "$0")/.."
. packaging/lib.sh
suites=${SUITES:-bookworm bullseye}
for program in debootstrap lintian; do
    PATH="$PATH:/usr/sbin" command -v $program >/dev/null || {
        say "$program is missing; install it: apt-get install $program" >&2
        exit 1
    }
done
[ "$(id -u)" = 0 ] || { say "a chroot needs root; run it as root" >&2; exit 1; }
ls "$dist"/*.deb >/dev/null 2>&1 || { say "no packages; run: make dist" >&2; exit 1; }
passed=0

(cd "$dist" && sha256sum --quiet -c SHA256SUMS)
passed=$((passed + 1))

# Packages are judged by a user, as lintian wants.
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
cp "$dist"/*.deb "$copy" && chmod -R a+rX "$copy"
if ! su -s /bin/sh nobody -c "HOME=$copy lintian --fail-on error $copy/*.deb"; then
    say "lintian found errors" >&2
    exit 1
fi
passed=$((passed + 1))

for suite in $suites; do
    base=target/dist-build/$suite.tar
    root=$(mktemp -d)
    trap 'umount "$root/home/somebody/card" "$root/proc" 2>/dev/null || true; rm -rf --one-file-system "$root" "$copy"' EXIT
    if [ ! -f "$base" ]; then
        say "debootstrap $suite"
        PATH="$PATH:/usr/sbin" debootstrap --variant=minbase --include=ca-certificates "$suite" "$root" >"$root.log" 2>&1 || {
            say "$suite cannot be had:" >&2
            tail -n 3 "$root.log" >&2
            exit 1
        }
        rm -f "$root.log"
        tar -C "$root" -cf "$base" .
    else
        tar -C "$root" -xf "$base"
    fi
    chmod 755 "$root"
    mount -t proc proc "$root/proc"
    # Nothing but what a mount needs of /dev, beside debootstrap's.
    [ ! -e /dev/fuse ] || mknod -m 666 "$root/dev/fuse" c 10 229
    # fusermount3 looks there; a chroot without an init has none.
    [ -e "$root/etc/mtab" ] || ln -s ../proc/self/mounts "$root/etc/mtab"
    mkdir "$root/packages"
    cp "$dist"/*.deb "$dist"/*.tar.xz "$root/packages/"
    [ "$suite" != bookworm ] || cp "$dist"/*-manylinux*_"$(uname -m)".whl "$root/packages/" 2>/dev/null || say "no wheel to try"
    cp packaging/try-packages.sh "$root/packages/try.sh"
    cp packaging/try-documents.sh packaging/try-python.py docs/LIBRARIES.md "$root/packages/"
    chmod -R a+rX "$root/packages"
    cp /etc/resolv.conf "$root/etc/resolv.conf" 2>/dev/null || true
    say "$suite: install, use, purge"
    chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive LC_ALL=C \
        ${http_proxy:+http_proxy="$http_proxy"} ${https_proxy:+https_proxy="$https_proxy"} \
        sh /packages/try.sh
    # Nothing of ours is left.
    left=$(find "$root" -xdev -name '*syncline*' ! -path "$root/packages*" ! -path "$root/var/log/*" || true)
    [ -z "$left" ] || { say "$suite: left behind: $left" >&2; exit 1; }
    umount "$root/proc"
    rm -rf --one-file-system "$root"
    passed=$((passed + 1))
done
trap - EXIT
rm -rf "$copy"
sh packaging/try-static.sh "$dist"
sh packaging/try-wheels.sh "$dist"
sh packaging/try-windows.sh "$dist"
echo "$passed passed, 0 failed"
