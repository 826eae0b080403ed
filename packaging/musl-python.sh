#!/bin/sh
# A Python for musl in target/musl-python, to try wheels with: Debian's source of CPython, compiled by musl-gcc without
# optimising (Debian, packages musl-tools, gcc and make). It has the modules that the package imports, not those that need
# libraries.
set -eu
cd "$(dirname "$0")/.."
. packaging/lib.sh
command -v musl-gcc >/dev/null || { say "musl-gcc is missing; install it: apt-get install musl-tools" >&2; exit 1; }
root=$(pwd)/target/musl-python
rm -rf "$root"
mkdir -p "$root/lists/partial" "$root/sources"
cd "$root"
# Where this machine has its packages from, there is their source.
for list in /etc/apt/sources.list /etc/apt/sources.list.d/*; do
    [ ! -f "$list" ] || sed 's/^deb /deb-src /; s/^Types:.*/Types: deb-src/' "$list" >"sources/${list##*/}"
done
apt() {
    apt-get -qq -o Dir::Etc::sourcelist=/dev/null -o Dir::Etc::sourceparts="$root/sources" \
        -o Dir::State::lists="$root/lists" "$@" 2>log || { say "the source of Python cannot be had:" >&2; tail -n 3 log >&2; exit 1; }
}
apt update
apt source --download-only --tar-only python3.11
tar -xzf python3.11_*.orig.tar.gz --strip-components=1
rm -rf lists python3.11_*
{
    echo '*static*'
    for module in _bisect _contextvars _datetime _heapq _queue _random _statistics array fcntl math select; do
        echo "$module ${module}module.c"
    done
    for module in _csv _json _opcode _pickle _posixsubprocess _struct binascii unicodedata; do echo "$module $module.c"; done
    printf '%s\n' '_sha512 sha512module.c' '_socket socketmodule.c'
} >Modules/Setup.local
# musl-gcc names its system as gcc does, which configure takes for a mistake.
sed -i 's/as_fn_error .* "internal configure error for the platform triplet.*/:/' configure
{
    CC=musl-gcc OPT=-O0 CFLAGS=-w ./configure --without-ensurepip --disable-test-modules &&
        # Without this machine's zlib, which is for glibc.
        make -j"$(nproc)" MODULE_BINASCII_CFLAGS= MODULE_BINASCII_LDFLAGS= python
} >log 2>&1 || { tail -n 5 log >&2; exit 1; }
# Where it is, Python looks for this file, and then takes its library from its source.
printf build >pybuilddir.txt
./python --version
