#!/bin/sh
# Counts what the running kernel's ext4 sends to a device for the workloads of `syncline-lab bench`: write requests, KiB and
# flushes per operation, as JSON on standard output. The figures in baselines/ were measured so.
# Usage: lab/scripts/measure-kernel-counts.sh [OPERATIONS-DIVISOR]    as root, with loop devices, python3, e2fsprogs.
set -eu

divisor=${1:-1}
here=$(dirname "$0")
if [ "$(id -u)" != 0 ] || [ ! -e /dev/loop-control ]; then
    echo "measure-kernel-counts: needs root and loop devices; run it on a machine that has both" >&2
    exit 1
fi
if [ ! -d /sys/kernel/tracing/instances ]; then
    mount -t tracefs tracefs /sys/kernel/tracing
fi
dir=$(mktemp -d)
loop=
cleanup() {
    if mountpoint -q "$dir/mnt"; then umount "$dir/mnt"; fi
    if [ -n "$loop" ]; then losetup -d "$loop"; fi
    rm -rf "$dir"
}
trap cleanup EXIT INT TERM
mkdir "$dir/mnt"
truncate -s 2G "$dir/image"
# Direct I/O, so that flushes reach the device; where the directory's file system has none, buffered.
loop=$(losetup --direct-io=on -f --show "$dir/image" 2>/dev/null || losetup -f --show "$dir/image")
name=$(basename "$loop")
echo 0 >"/sys/block/$name/queue/rotational"
echo none >"/sys/block/$name/queue/scheduler"

echo "{\"schema\": \"syncline.kernel-counts/1\", \"kernel\": \"$(uname -r)\", \"rows\": ["
comma=
for workload in sqlite-delete sqlite-persist sqlite-wal random-overwrite-fsync random-overwrite-fdatasync \
    sequential-overwrite-fsync sequential-256k-fsync sequential-256k-overwrite-fsync create; do
    mkfs.ext4 -q -F -b 4096 -E nodiscard,lazy_itable_init=0,lazy_journal_init=0 "$loop"
    mount -o data=ordered "$loop" "$dir/mnt"
    python3 "$here/kernel_workload.py" prepare "$workload" "$dir/mnt"
    umount "$dir/mnt"
    mount -o data=ordered "$loop" "$dir/mnt"
    printf '%s' "$comma"
    python3 "$here/kernel_workload.py" run "$workload" "$dir/mnt" "$name" "$divisor"
    comma=",
"
    umount "$dir/mnt"
done
echo
echo "]}"
