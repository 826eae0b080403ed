#!/bin/sh
# Installs what building and testing needs beside Rust where that is possible, else names it.
# With --try a failed installation is said and does not fail: tests that need what is missing are
# skipped, with the reason.
set -eu

# program:package, one program that shows the package is there. The last lines are wanted by single
# tests: databases, network blocks, traces.
wanted="cc:build-essential pkg-config:pkg-config git:git mke2fs:e2fsprogs debugfs:e2fsprogs
fuse2fs:fuse2fs setfattr:attr setfacl:acl losetup:util-linux mount:mount fusermount3:fuse3
curl:curl sha256sum:coreutils python3:python3
fio:fio sqlite3:sqlite3 valgrind:valgrind strace:strace nbdinfo:libnbd-bin qemu-img:qemu-utils blkparse:blktrace sfdisk:fdisk
bsdtar:libarchive-tools
busybox:busybox-static fish:fish zsh:zsh
dbus-daemon:dbus-daemon nfs-cp:libnfs-utils chromium:chromium node:nodejs clang:clang llvm-ar:llvm"

PATH="$PATH:/usr/sbin:/sbin"
missing=""
for pair in $wanted; do
    program=${pair%%:*}
    package=${pair#*:}
    command -v "$program" >/dev/null 2>&1 && continue
    case " $missing " in *" $package "*) ;; *) missing="$missing $package" ;; esac
done

# The Python package is tested in a virtual environment.
python3 -c 'import ensurepip' 2>/dev/null || missing="$missing python3-venv"

failed() {
    [ "${1:-}" = --try ] || exit 1
}

if [ -n "$missing" ]; then
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
        export DEBIAN_FRONTEND=noninteractive
        echo "installing:$missing"
        # shellcheck disable=SC2086 # a list of words
        if ! timeout --kill-after=10 300 apt-get update -qq ||
            ! timeout --kill-after=10 600 apt-get install -y -qq --no-install-recommends $missing >/dev/null; then
            echo "not installed:$missing; tests that need them are skipped" >&2
            failed "${1:-}"
        fi
    else
        echo "missing:$missing; as root on Debian: apt-get install$missing" >&2
    fi
fi
sh "$(dirname "$0")/need-cargo.sh"
if ! cargo deny --version >/dev/null 2>&1; then
    echo "missing: cargo-deny; cargo install --locked cargo-deny" >&2
fi
