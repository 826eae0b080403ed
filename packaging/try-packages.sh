#!/bin/sh
# Runs in a clean chroot: installs the packages beside this script by the lines of their docs/INSTALL.md, uses and purges them.
set -eux
packages=$(cd "$(dirname "$0")" && pwd)
cd "$packages"
# Before a package is installed, its documents are read within it.
dpkg-deb --fsys-tarfile syncline_*.deb | tar -C /tmp -xf - --wildcards './usr/share/doc/syncline/docs/*.md'
manual=/tmp/usr/share/doc/syncline/docs

# Lines of INSTALL.md's blocks that begin so, without sudo and remarks, for a shell without a terminal.
manual_lines() { # BEGINNING
    awk -v beginning="$1" '
        /^```/ { fenced = !fenced; next }
        { sub(/^sudo /, ""); sub(/ +#.*/, "") }
        !fenced || index($0, beginning) != 1 || !/syncline/ { next }
        { sub(/^apt [a-z]+/, "& -y -qq"); sub(/^apt /, "apt-get "); print; found = 1 }
        END { exit !found }
    ' "$manual/INSTALL.md" || { echo "INSTALL.md has no line \`$1\`" >&2; exit 1; }
}

apt-get update -qq
apt-get install -y -qq fuse3 e2fsprogs gcc libc6-dev pkg-config util-linux mount sqlite3 >/dev/null
install=$(manual_lines 'apt install')
sh -eux -c "$install" >/dev/null
for package in *.deb; do dpkg -s "${package%%_*}" >/dev/null; done

syncline --version --verbose
man_pages=$(find /usr/share/man -name 'syncline*.1.gz' | wc -l)
[ "$man_pages" -gt 20 ] || [ ! -d /usr/share/man/man1 ] # minimal systems keep no pages
[ -f /usr/share/bash-completion/completions/syncline ]
[ -f /usr/lib/systemd/system/syncline-mount@.service ]
[ -f /usr/lib/systemd/system/syncline.socket ]
[ -f /usr/lib/udev/rules.d/70-syncline.rules ]

# A user without privileges: images, the simulated device, chosen files unsynced.
useradd -m somebody
cat >/home/somebody/try.sh <<'END'
set -eux
cd
syncline mkfs --size 64M card.img
echo hello >greeting
syncline cp greeting card.img:/greeting
syncline cat card.img:/greeting | grep -q hello
syncline check card.img
syncline-lab bench sqlite insert --operations 20 --json bench.json
grep -q syncline.bench/1 bench.json
syncline preload --relaxed '*' -- sh -c 'echo x >file; sync file'
# As README says: an image as a directory, with a database.
if [ -e /dev/fuse ]; then
    mkdir card
    syncline mount card.img card
    sqlite3 card/mounted.db 'CREATE TABLE t(a); INSERT INTO t VALUES (1), (2);'
    syncline umount card
    syncline check card.img
fi
# As LIBRARIES says: the database without a mount.
printf '%s\n' '.load /usr/lib/syncline/libsyncline_sqlite' '.open file:/app.db?vfs=syncline&image=card.img' \
    'PRAGMA journal_mode=wal; CREATE TABLE t(a); INSERT INTO t VALUES (3);' | sqlite3 | grep -q wal
syncline ls card.img:/ | grep -q app.db
/usr/sbin/e2fsck -fn card.img
END
su -s /bin/sh - somebody -c 'sh /home/somebody/try.sh'

# All command lines of the documents, and their links. Minimal systems keep no documents.
documents=/usr/share/doc/syncline
if [ -d $documents/docs ] && [ -e /dev/fuse ]; then
    apt-get install -y -qq zstd xz-utils fdisk >/dev/null
    for user in somebody root; do
        for what in links syncline syncline-lab; do
            su -s /bin/sh - $user -c "
                mkdir tried && cd tried && sh $packages/try-documents.sh $what $documents && cd .. && rm -rf tried"
        done
    done
fi

# Root: a mount by mount(8) and by fstab's type, where this machine has FUSE.
if [ -e /dev/fuse ]; then
    mkdir -p /mnt/card
    mount -t fuse.syncline /home/somebody/card.img /mnt/card
    grep -q hello /mnt/card/greeting
    echo more >/mnt/card/more
    sync /mnt/card/more
    umount /mnt/card
    # umount(8) of Debian 11 does not wait for its helper: the last data may still be being written.
    for _ in 1 2 3 4 5 6 7 8 9 10; do
        syncline ls /home/somebody/card.img:/ && break
        sleep 0.5
    done
    syncline cat /home/somebody/card.img:/more | grep -q more
    # As the unit calls it, with an empty list of options.
    syncline mount --foreground -o "" /home/somebody/card.img /mnt/card &
    for _ in 1 2 3 4 5 6 7 8 9 10; do
        mountpoint -q /mnt/card && break
        sleep 0.5
    done
    syncline umount /mnt/card
    wait
fi

# The C library, by what its package says.
cd /home/somebody
cat >try.c <<'END'
#include <stdio.h>
#include <syncline.h>
int main(void)
{
    syncline_volume volume;
    if (syncline_mkfs("c.img", 16 << 20, NULL, 0) || syncline_open("c.img", NULL, &volume))
        return 1;
    return syncline_mkdir(volume, "/d", 0755) || syncline_close(volume);
}
END
# shellcheck disable=SC2046 # words
gcc try.c $(pkg-config --cflags --libs syncline) -o try-c
./try-c
syncline ls c.img:/ | grep -q d
rm c.img
# shellcheck disable=SC2046 # words
gcc try.c -static-libgcc $(pkg-config --cflags syncline) -l:libsyncline.a $(pkg-config --libs-only-l --static syncline | sed 's/-lsyncline//') -o try-static
./try-static
for example in files tree images build; do
    # Minimal systems keep no documents.
    [ -d /usr/share/doc/libsyncline-dev/examples ] || continue
    # shellcheck disable=SC2046 # words
    gcc /usr/share/doc/libsyncline-dev/examples/$example.c $(pkg-config --cflags --libs syncline) -o example
    ./example example.img
    rm example example.img
done

# The wheel, as docs/INSTALL.md says, for a user and for root; what docs/LIBRARIES.md shows runs.
wheel=$(find "$packages" -name '*.whl')
if [ -n "$wheel" ]; then
    apt-get install -y -qq python3-venv >/dev/null
    install=$(manual_lines 'python3 -m venv')
    # With what sweeps need, as docs/FLEETS.md says.
    # shellcheck disable=SC2016 # a line of Markdown
    extra=$(grep -o '`pip install [^`]*`' "$manual/FLEETS.md" | tr -d '`')
    [ -n "$extra" ]
    for user in somebody root; do
        su -s /bin/sh - "$user" -c "
            set -eux
            cp $wheel .
            $install
            venv/bin/python $packages/try-python.py $packages/LIBRARIES.md
            if venv/bin/pip download -q --no-deps -d fetched fsspec; then
                venv/bin/$extra
                venv/bin/python -c 'import fsspec, pyarrow; from syncline import sweeps'
            else
                echo 'left out: the package index cannot be reached'
            fi
            rm -rf venv fetched syncline-*.whl"
    done
    apt-get purge -y -qq python3-venv >/dev/null
fi

# The tarball runs where it is unpacked.
apt-get install -y -qq xz-utils >/dev/null
mkdir /unpacked
tar -C /unpacked -xJf "$packages"/*-linux-gnu.tar.xz
/unpacked/*/bin/syncline preload --relaxed '*' -- true
rm -rf /unpacked

purge=$(manual_lines 'apt purge')
sh -eux -c "$purge" >/dev/null
rm -r /tmp/usr
[ ! -e /usr/bin/syncline ] && [ ! -e /usr/bin/syncline-lab ]
userdel -r somebody 2>/dev/null || rm -rf /home/somebody
