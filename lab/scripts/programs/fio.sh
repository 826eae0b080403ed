#!/bin/sh
# fio writes, reads back and verifies checksums: buffered, mapped and direct, with fsyncs.
. "$(dirname "$0")/lib.sh"
need fio fio
size=2m
seconds=
image_size=256M
[ -n "$long" ] && size=128m && seconds=--time_based=1\ --runtime=60 && image_size=2G
begin fio $image_size

job() {
    label=$1
    shift
    # shellcheck disable=SC2086 # words
    (cd "$work" && fio --name="$label" --directory="$mnt" --size=$size --verify=crc32c \
        --verify_fatal=1 --verify_backlog=256 --randrepeat=1 --fallocate=none --group_reporting \
        $seconds "$@") >"$work/said" 2>&1 || fail "fio $label: $(tail -n 20 "$work/said")"
    rm -f "$mnt/$label".*
}

job randwrite --rw=randwrite --bs=4k --ioengine=psync --fsync=64 --numjobs=2
# Once over the file: blocks of any length at any place overlap those of an earlier round, which fio then takes for damaged, on a
# tmpfs, too.
job mixed --time_based=0 --rw=randrw --bsrange=512-64k --ioengine=psync --fdatasync=64 --bs_unaligned=1
job sequential --rw=write --bs=256k --ioengine=psync --end_fsync=1
job mapped --rw=randwrite --bs=4k --ioengine=mmap --fsync=128
job direct --rw=randwrite --bs=16k --ioengine=libaio --iodepth=8 --direct=1
job overwrite --rw=randwrite --bs=4k --ioengine=psync --overwrite=1 --sync=1 --io_size=1m
finish
