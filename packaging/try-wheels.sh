#!/bin/sh
# Tries the wheels that `make dist` built: try-wheels.sh DIR. The tags of each are those of its name, and its module needs
# only the libraries of its tag. Then a Python of its system loads it, which makes an image, writes a file and reads it.
#
# A Python for aarch64 is Debian's, under qemu's user emulation (mmdebstrap, qemu-user-static, the network). Debian has none
# for musl: MUSL_PYTHON names one, for example that of packaging/musl-python.sh. A wheel without a Python is left out, with
# a line.
set -eu
cd "$(dirname "$0")/.."
. packaging/lib.sh
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
[ -n "${MUSL_PYTHON:-}" ] || [ ! -x target/musl-python/python ] || MUSL_PYTHON=$(pwd)/target/musl-python/python

# The libraries of the module in $work/wheel, which its tag allows.
libraries() { # TAG
    module=$work/wheel/syncline/_native.abi3.so
    needed=$(readelf -d "$module" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | grep -v '^ld-linux' | tr '\n' ' ')
    symbols=$(readelf -W --dyn-syms "$module" | grep -c '@GLIBC_' || true)
    case $1 in
    # musl is one library, and has no versions of symbols.
    musllinux*) [ "$needed" = "libc.so " ] && [ "$symbols" = 0 ] ;;
    *) [ "$(printf '%s\n%s\n' "$(newest_glibc "$module")" "$glibc" | sort -V | tail -n 1)" = "$glibc" ] ;;
    esac || { say "$1: the module needs $needed, with $symbols symbols of glibc" >&2; exit 1; }
}

# A root with Debian's Python for aarch64, which runs nothing of its own while it is made.
arm_root() {
    base=target/dist-build/python-arm64.tar
    emulator=$(command -v qemu-aarch64-static) || { why="qemu-user-static is not installed"; return 1; }
    if [ ! -f "$base" ]; then
        for program in mmdebstrap arch-test; do
            command -v $program >/dev/null || { why="$program is not installed"; return 1; }
        done
        mmdebstrap --quiet --arch=arm64 --variant=extract --include=python3 bookworm "$base" >"$work/log" 2>&1 ||
            { why="Debian's packages for arm64 cannot be had"; rm -f "$base"; return 1; }
    fi
    mkdir -p "$work/arm"
    tar -C "$work/arm" -xf "$base"
    cp "$emulator" "$work/arm/emulator"
}

# Runs the example with the module in $work/wheel; fails with the reason in $why if there is no Python for it.
try() { # TAG
    case $1 in
    musllinux*_"$(uname -m)")
        [ -n "${MUSL_PYTHON:-}" ] || { why="no Python of musl, see packaging/musl-python.sh"; return 1; }
        run "$MUSL_PYTHON" "$work" ;;
    manylinux*_"$(uname -m)") run python3 "$work" ;;
    manylinux*_aarch64)
        [ "$(id -u)" = 0 ] || { why="another root needs root"; return 1; }
        arm_root || return 1
        cp -r "$work/wheel" "$work/try.py" "$work/arm/"
        PYTHONPATH=/wheel chroot "$work/arm" /emulator /usr/bin/python3.11 /try.py "$version" /image || exit 1 ;;
    *) why="no Python of musl for this processor"; return 1 ;;
    esac
}

run() { # PYTHON DIRECTORY
    PYTHONPATH=$2/wheel "$1" "$2/try.py" "$version" "$2/image" || exit 1
}

cat >"$work/try.py" <<'END'
import sys

import syncline

version, image = sys.argv[1:]
assert syncline.__version__ == version, syncline.__version__
with syncline.Volume.create(image, 64 << 20) as volume:
    volume.makedirs("/logs/2024")
    with volume.open("/logs/2024/today", "a", encoding="utf-8") as file:
        file.write("hello\n")
        file.fsync()
with syncline.Volume(image, "r") as volume:
    assert volume.read_bytes("/logs/2024/today") == b"hello\n"
assert syncline.check(image).is_clean
try:
    syncline.Volume(image + ".none", "r")
except FileNotFoundError:
    pass
else:
    sys.exit("an image that is not there was opened")
END

for wheel in "$1"/syncline-*.whl; do
    [ -e "$wheel" ] || { say "no wheels to try"; exit 0; }
    tag=${wheel##*-abi3-}
    tag=${tag%.whl}
    rm -rf "$work/wheel" "$work/image" "$work/arm"
    python3 -m zipfile -e "$wheel" "$work/wheel"
    info=$work/wheel/syncline-$version.dist-info/WHEEL
    if [ "$(basename "$wheel")" != "syncline-$version-cp39-abi3-$tag.whl" ] || ! grep -q "^Tag: cp39-abi3-$tag$" "$info"; then
        say "$wheel: its name is not that of its version and tag" >&2
        exit 1
    fi
    libraries "$tag"
    if try "$tag"; then say "the wheel for $tag works"; else say "left out: the wheel for $tag, $why"; fi
done
