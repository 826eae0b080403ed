#!/bin/sh
# What building and testing needs beside Rust: installed where that is possible, else named.
# Without e2fsprogs, root or loop devices the tests that need them are skipped, with the reason.
set -eu

# program:package, one program that shows the package is there
wanted="cc:build-essential pkg-config:pkg-config git:git mke2fs:e2fsprogs debugfs:e2fsprogs
fuse2fs:fuse2fs setfattr:attr setfacl:acl losetup:util-linux mount:mount fusermount3:fuse3
curl:curl sha256sum:coreutils"

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

if [ -n "$missing" ]; then
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
        export DEBIAN_FRONTEND=noninteractive
        apt-get update -qq
        # shellcheck disable=SC2086 # a list of words
        apt-get install -y -qq --no-install-recommends $missing >/dev/null
        echo "installed:$missing"
    else
        echo "missing:$missing; as root on Debian: apt-get install$missing" >&2
    fi
fi
sh "$(dirname "$0")/need-cargo.sh"
