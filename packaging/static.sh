#!/bin/sh
# Static programs, for systems without this glibc, as Alpine's, OpenWrt's or an empty container: static.sh DIR [TARGET...].
# Each is one tarball in DIR. A target whose standard library or whose linker cannot be had is left out, with a line.
set -eu
cd "$(dirname "$0")/.."
. packaging/lib.sh
out=$1
shift
[ $# -gt 0 ] || set -- x86_64 aarch64 armv7 riscv64
tools || { say "zig is not to be had: no static programs"; exit 0; }
mkdir -p "$out"

for arch in "$@"; do
    case $arch in
    armv7) target=armv7-unknown-linux-musleabihf ;;
    riscv64) target=riscv64gc-unknown-linux-musl ;;
    *) target=$arch-unknown-linux-musl ;;
    esac
    standard_library "$target" || { say "no static program for $arch: rustup has no $target here, and no rust-src"; continue; }
    flags=
    # As .cargo/config.toml has it for this target; RUSTFLAGS replaces what is there.
    [ "$arch" != armv7 ] || flags="--cfg=io_uring_skip_arch_check"
    # zig compiles the C parts. It links no program that may be loaded anywhere (PIE), so Rust's own linker does where
    # Rust ships a libc. Elsewhere zig links with its own libc, to a fixed address.
    last=
    if [ -n "$build_std" ]; then last="-C link-self-contained=no -C relocation-model=static"
    else
        # A quarter of the program: no symbols, which cargo leaves where a package has an optimisation of its own, no
        # tables to unwind, one copy of code that is alike, and packed relocations, which every libc of Rust reads.
        flags="$flags -C linker=rust-lld -C linker-flavor=ld.lld -C strip=${STRIP:-symbols} -C link-arg=--no-eh-frame-hdr"
        flags="$flags -C link-arg=-T$(pwd)/packaging/program.ld -C link-arg=--icf=all -C link-arg=--pack-dyn-relocs=relr"
    fi
    # shellcheck disable=SC2086 # lists of words
    env ${build_std:+RUSTC_BOOTSTRAP=1} RUSTFLAGS="$flags" cargo-zigbuild rustc $build_std --target-dir "$dist_build" \
        --profile program --target "$target" -p syncline-cli --bin syncline -- $last
    name=syncline-$version-$arch-linux-musl
    stage=$dist_build/stage/$name
    rm -rf "$stage"
    install -D -m 755 "$dist_build/$target/program/syncline" "$stage/syncline"
    install -m 644 LICENSE-APACHE LICENSE-MIT "$stage"
    tar -C "$dist_build/stage" --owner=0 --group=0 --sort=name -cJf "$out/$name.tar.xz" "$name"
done
