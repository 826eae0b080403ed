#!/bin/sh
# Tries the static programs that `make dist` built, each alone in an empty root (root): try-static.sh DIR. Those of other
# processors run where qemu's user emulation is installed.
set -eu
cd "$(dirname "$0")/.."
. packaging/lib.sh
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT

for package in "$1"/syncline-*-linux-musl.tar.xz; do
    [ -e "$package" ] || { say "no static programs to try"; exit 0; }
    arch=${package%-linux-musl.tar.xz}
    arch=${arch##*-}
    emulator=
    if [ "$arch" != "$(uname -m)" ]; then
        # 32-bit ARM has no version in its emulator's name.
        emulator=$(command -v "qemu-${arch%v7}-static" || true)
        [ -n "$emulator" ] || { say "left out: $arch, as qemu-user-static is not installed"; continue; }
    fi
    rm -rf "$root"/*
    tar -C "$root" --strip-components=1 -xJf "$package"
    tar -C packaging -cf "$root/in.tar" systemd
    [ -z "$emulator" ] || cp "$emulator" "$root/emulator"
    run() { chroot "$root" ${emulator:+/emulator} /syncline "$@"; }
    [ "$(run --version)" = "syncline $version" ]
    run mkfs /made.img --size 64M
    run mkdir /made.img:/d
    run cp /in.tar /made.img:/d/in.tar
    run mv /made.img:/d /made.img:/e
    run cat /made.img:/e/in.tar >"$root/out.tar"
    cmp "$root/in.tar" "$root/out.tar"
    run import /in.tar /filled.img
    run import /in.tar /filled.qcow2
    run export /filled.img -o /tree.tar
    tar -tf "$root/tree.tar" | grep -q '^\(./\)\?systemd/.'
    run check /made.img /filled.img /filled.qcow2
    e2fsck -fn "$root/filled.img" >/dev/null 2>&1
    say "the static program for $arch works in an empty root"
done
