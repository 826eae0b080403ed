#!/bin/sh
# A disk with a root partition, made of a tar archive without root, loop devices or systemd-repart: disk.sh ROOTFS.tar DISK.
# For mkosi: `Format=tar` in mkosi.conf, and this as mkosi.postoutput.
set -eu
root=$2.root
trap 'rm -f "$root"' EXIT

syncline import --spare 20% --label root "$1" "$root"
# Partitions begin and end at whole MiB; the table is in the first one, its copy in the last.
mib=$((($(stat -c %s "$root") + 1048575) / 1048576))
truncate -s $((mib + 2))M "$2"
# The type says that this is the root of an x86-64 machine, where systemd looks for it.
sfdisk --quiet "$2" <<END
label: gpt
start=1MiB, size=${mib}MiB, name=root, type=4F68BCE3-E8CD-4DB1-96E7-FBCAF984B709
END
dd if="$root" of="$2" bs=1M seek=1 conv=notrunc,sparse status=none
syncline check --partition 1 "$2"
