#!/bin/sh
# Debian packages of a build: deb.sh BUILD. Run by dist.sh.
#
#   syncline          the program, helpers of mount(8), units, udev rule, preload library, extension of SQLite
#   syncline-lab      the measuring program
#   libsyncline0      the C library
#   libsyncline-dev   headers, pkg-config file, static library
#
# Made with dpkg-deb from what install.sh installs, so that there is one list of files.
set -eu
. packaging/lib.sh
build=$1
arch=$(dpkg --print-architecture)
triplet=$(dpkg-architecture -qDEB_HOST_MULTIARCH)
here=packaging/debian
work=$dist_build/deb
# Reproducible: the time of the last change.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}
export SOURCE_DATE_EPOCH
rm -rf "$work"

# Documents of every package; the changelog's date is the last change's.
documents() { # PACKAGE
    doc=$work/$1/usr/share/doc/$1
    mkdir -p "$doc"
    cp "$here/copyright" "$doc/copyright"
    {
        echo "syncline ($version-1) unstable; urgency=medium"
        echo
        echo "  * See CHANGELOG.md."
        echo
        echo " -- $maintainer  $(date -u -R -d "@$SOURCE_DATE_EPOCH")"
    } | gzip -9n >"$doc/changelog.Debian.gz"
    gzip -9n <CHANGELOG.md >"$doc/changelog.gz"
}

# The libraries that files need. dpkg-shlibdeps would ask for this machine's libc6, whatever was built with zig.
libraries() { # FILES...
    depends="libc6 (>= $(newest_glibc "$@"))"
    for needed in $(objdump -p "$@" | sed -n 's/^ *NEEDED *//p' | sort -u); do
        case $needed in
            libc.so.6 | libm.so.6 | libdl.so.2 | libpthread.so.0 | librt.so.1 | ld-linux*) ;;
            libgcc_s.so.1) depends="$depends, libgcc-s1" ;;
            *) echo "deb: which package has $needed? add it to packaging/deb.sh" >&2 && exit 1 ;;
        esac
    done
    echo "$depends"
}

finish() { # PACKAGE DEPENDS
    root=$work/$1
    find "$root" -type d -exec chmod 755 {} +
    mkdir -p "$root/DEBIAN"
    size=$(du -sk --apparent-size --exclude=DEBIAN "$root" | cut -f1)
    sed -e "s|@VERSION@|$version-1|" -e "s|@ARCH@|$arch|" -e "s|@DEPENDS@|$2|" -e "s|@SIZE@|$size|" \
        -e "s|@MAINTAINER@|$maintainer|" "$here/$1.control" >"$root/DEBIAN/control"
    for script in postinst prerm postrm triggers shlibs; do
        [ -f "$here/$1.$script" ] || continue
        cp "$here/$1.$script" "$root/DEBIAN/$script"
        case $script in post* | pre*) chmod 755 "$root/DEBIAN/$script" ;; esac
    done
    if [ -f "$here/$1.lintian-overrides" ]; then
        install -D -m 644 "$here/$1.lintian-overrides" "$root/usr/share/lintian/overrides/$1"
    fi
    (cd "$root" && find . -type f ! -path './DEBIAN/*' -printf '%P\0' | sort -z | xargs -0 md5sum >DEBIAN/md5sums)
    find "$root" -newermt "@$SOURCE_DATE_EPOCH" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
    dpkg-deb --root-owner-group -Zxz --build "$root" "$dist/$1_$version-1_$arch.deb" >/dev/null
}

maintainer="Syncline maintainers <maintainers@syncline.invalid>"

sh packaging/install.sh /usr "$work/syncline" "$build"
doc=$work/syncline/usr/share/doc/syncline
# The copyright file has the licences.
rm "$doc"/LICENSE-*
find "$work/syncline/usr/share/man" -type f -exec gzip -9n {} +
documents syncline
depends=$(libraries "$build/syncline" "$build/libsyncline_preload.so" "$build/libsyncline_sqlite.so")
finish syncline "$depends"

sh packaging/install-lab.sh /usr "$work/syncline-lab" "$build"
find "$work/syncline-lab/usr/share/man" -type f -exec gzip -9n {} +
documents syncline-lab
depends=$(libraries "$build/syncline-lab")
finish syncline-lab "$depends"

sh packaging/install-library.sh /usr "lib/$triplet" "$work/library" "$build"
for package in libsyncline0 libsyncline-dev; do
    mkdir -p "$work/$package/usr/lib/$triplet"
    documents "$package"
done
mv "$work/library/usr/lib/$triplet"/libsyncline.so.[0-9]* "$work/libsyncline0/usr/lib/$triplet/"
depends=$(libraries "$build/libsyncline_c.so")
finish libsyncline0 "$depends"
cp -a "$work/library/usr/." "$work/libsyncline-dev/usr/"
finish libsyncline-dev "libsyncline0 (= $version-1)"
