#!/bin/sh
# Tries the program for Windows that `make dist` built, under Wine: try-windows.sh DIR. Debian's mke2fs and e2fsck judge.
set -eu
cd "$(dirname "$0")/.."
. packaging/lib.sh
. packaging/wine.sh
package=$(cd "$1" && pwd)/syncline-$version-x86_64-windows.zip
[ -e "$package" ] || { say "no program for Windows to try"; exit 0; }
missing=$(wine_missing)
[ -z "$missing" ] || { say "left out: the program for Windows, as these are not installed:$missing"; exit 0; }
dir=$(mktemp -d)
loop=
trap '[ -z "$loop" ] || losetup -d "$loop" 2>/dev/null || true; wineserver -k 2>/dev/null || true; rm -rf "$dir"' EXIT
PATH="$PATH:/usr/sbin:/sbin"
export WINEDEBUG=-all WINEPREFIX="$dir/wine"

python3 -m zipfile -e "$package" "$dir"
cd "$dir/syncline-$version-x86_64-windows"
sha256sum --quiet -c SHA256SUMS
wine_stub .
run() { "$wine" ./syncline.exe "$@"; }
[ "$(run --version | tr -d '\r')" = "syncline $version" ]
mkdir -p tree/d
head -c 3000000 /dev/urandom >tree/d/random
tar -cf tree.tar tree
run mkfs made.img --size 64M
e2fsck -fn made.img >/dev/null 2>&1
run cp tree.tar 'made.img:/tree.tar'
run mkdir 'made.img:/e'
run mv 'made.img:/tree.tar' 'made.img:/e/tree.tar'
run cat 'made.img:/e/tree.tar' | cmp - tree.tar
run rm 'made.img:/e/tree.tar'
run import tree.tar filled.qcow2
run check made.img filled.qcow2
run export filled.qcow2 -o out.tar
tar -xOf out.tar --wildcards "*random" | cmp - tree/d/random
mke2fs -q -t ext4 -d tree foreign.img 32M >/dev/null
run cp 'foreign.img:/d/random' copied
cmp copied tree/d/random
debugfs -w -R "set_bg 0 free_blocks_count 3" foreign.img >/dev/null 2>&1
if run check foreign.img >/dev/null 2>&1; then say "damage was not found" >&2; exit 1; fi
# 1: it mended.
run repair foreign.img -y >/dev/null || [ $? = 1 ]
e2fsck -fn foreign.img >/dev/null 2>&1
say "the program for Windows works under Wine"

# A whole disk by the name that Windows has for it: Wine makes a device of a link of this name.
[ "$(id -u)" != 0 ] || loop=$(truncate -s 72M disk && losetup -f --show disk 2>/dev/null) || true
[ -n "$loop" ] || { say "left out: a raw disk, as loop devices are not to be had"; exit 0; }
ln -s "$loop" "$WINEPREFIX/dosdevices/physicaldrive1"
echo 'start=2048, type=83' | sfdisk -q "$loop" >/dev/null 2>&1
mke2fs -q -t ext4 -d tree -E offset=1048576 "$loop" 64M >/dev/null
disk='\\.\PhysicalDrive1'
part="--partition 1"
# shellcheck disable=SC2086 # an option and its value
{
    run info $part "$disk" >/dev/null
    run cat $part "$disk:/d/random" | cmp - tree/d/random
    run mkdir $part "$disk:/new"
    run cp $part tree.tar "$disk:/new/tree.tar"
    run mv $part "$disk:/new/tree.tar" "$disk:/moved.tar"
    run rm $part "$disk:/d/random"
    [ "$(run ls $part "$disk:/d" | tr -d '\r')" = "" ]
    run check $part "$disk"
}
losetup -d "$loop"
dd if=disk of=part.img bs=1M skip=1 status=none
e2fsck -fn part.img >/dev/null 2>&1
debugfs -R "cat /moved.tar" part.img 2>/dev/null | cmp - tree.tar
say "the program for Windows works on a raw disk under Wine"
