# What the scripts beside this one share: an image, its mount, faults injected into it, and the end.
#
#   sh NAME.sh SYNCLINE [--short]     exit code 0: every check passed; 77: it cannot run here
#
# SYNC=ordered|eager|eager,log=packed (default eager) chooses the mode, SYNCLINE_SCRATCH where images go. Nothing
# outside of the scratch directory is touched, and it is removed at the end.
set -eu

PATH="$PATH:/usr/sbin:/sbin"
LC_ALL=C
export PATH LC_ALL
sync="${SYNC:-eager}"
server=
long=yes
syncline="${1:?usage: $0 SYNCLINE [--short]}"
[ "${2:-}" = --short ] && long=

skip() { echo "$1"; exit 77; }
fail() { echo "$name: $1" >&2; exit 1; }

# need PROGRAM PACKAGE: installs the package for a long run of root, else the script is not run.
need() {
    command -v "$1" >/dev/null 2>&1 && return
    if [ -n "$long" ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
        { apt-get update -qq && DEBIAN_FRONTEND=noninteractive \
            apt-get install -y -qq --no-install-recommends "$2"; } >/dev/null 2>&1 || true
    fi
    command -v "$1" >/dev/null 2>&1 || skip "needs $1; install $2"
}

# until_true SECONDS COMMAND...: waits for the command to succeed.
until_true() {
    tries=$(($1 * 20))
    shift
    until "$@" >/dev/null 2>&1; do
        tries=$((tries - 1))
        [ "$tries" -gt 0 ] || fail "no end of waiting for: $*"
        sleep 0.05
    done
}

# begin NAME SIZE: a fresh image of SIZE, mounted at $mnt; $work is for everything else.
begin() {
    name=$1
    need mke2fs e2fsprogs
    [ -w /dev/fuse ] || skip "needs /dev/fuse; load the kernel module fuse"
    scratch="${SYNCLINE_SCRATCH:-/dev/shm}"
    [ -w "$scratch" ] || scratch="${TMPDIR:-/tmp}"
    work=$(mktemp -d "$scratch/syncline-$name-XXXXXX")
    mnt=$work/mnt
    image=$work/image
    trap clear EXIT
    trap 'exit 1' INT TERM HUP
    chmod 755 "$work"
    mkdir "$mnt"
    # Servers that run as other users need one that they may write, whatever /tmp allows.
    mkdir -m 1777 "$work/tmp"
    export TMPDIR="$work/tmp"
    truncate -s "$2" "$image"
    mke2fs -q -t ext4 -E nodiscard,root_owner=0:0 "$image"
    mount_it
}

mount_it() {
    "$syncline" mount -f -o "sync=$sync,allow_other" "$image" "$mnt" </dev/null &
    server=$!
    until_true 120 mountpoint -q "$mnt"
}

# The serving process dies, and with it every program that uses the mount: one that lives on would
# find the next mount at the same place. What is left must be recoverable by e2fsck -p, a packed
# log by `syncline recover` before. Then it is mounted again.
strike() {
    kill -9 "$server"
    wait "$server" 2>/dev/null || true
    server=
    end_programs || true
    umount -l "$mnt"
    cp --sparse=always "$image" "$work/copy"
    case "$sync" in *log=packed*)
        "$syncline" recover "$work/copy" >"$work/said" 2>&1 || fail "recover: $(cat "$work/said")" ;;
    esac
    rc=0
    e2fsck -p "$work/copy" >"$work/said" 2>&1 || rc=$?
    # 1 is the mark of the orphan file, on a kernel's image, too.
    [ "$rc" -le 1 ] || fail "e2fsck -p ended with $rc: $(cat "$work/said")"
    e2fsck -fn "$work/copy" >"$work/said" 2>&1 || fail "e2fsck -fn: $(cat "$work/said")"
    rm "$work/copy"
    mount_it
}

# The image is clean after the unmount.
finish() {
    "$syncline" umount "$mnt"
    wait "$server"
    server=
    e2fsck -fn "$image" >"$work/said" 2>&1 || fail "e2fsck -fn: $(cat "$work/said")"
    echo "$name: every check passed, sync=$sync"
}

# Scripts with programs in the background put what kills them, and waits, into end_programs.
end_programs() { :; }

clear() {
    end_programs || true
    if [ -n "$server" ]; then
        kill -9 "$server" 2>/dev/null || true
        wait "$server" 2>/dev/null || true
    fi
    mountpoint -q "$mnt" 2>/dev/null && umount -l "$mnt"
    rm -rf "$work"
}

# slain PID..: kills these children of the script and waits for their end.
slain() {
    for child; do
        kill -9 "$child" 2>/dev/null || true
        wait "$child" 2>/dev/null || true
    done
}

# insert_until_killed TABLE: rows with the numbers after $answered, each noted once it is answered; the
# process that does it is $writer. The script says what sql STATEMENT does.
insert_until_killed() {
    (
        i=$answered
        while i=$((i + 1)) && sql "INSERT INTO $1 VALUES ($i)"; do
            echo "$i" >"$work/next" && mv "$work/next" "$work/answered"
        done
    ) >/dev/null 2>&1 &
    writer=$!
}

# no_insert_is_missing TABLE: every answered row is there; $answered is the last row from now on.
no_insert_is_missing() {
    last=$(cat "$work/answered" 2>/dev/null || echo 0)
    there=$(sql "SELECT count(*) FROM $1 WHERE k <= $last")
    [ "$there" = "$last" ] || fail "$last inserts were answered, $there are there"
    answered=$(sql "SELECT coalesce(max(k), 0) FROM $1")
}

# pause LEAST MOST: sleeps a random number of milliseconds.
pause() {
    random=$(od -An -N2 -tu2 /dev/urandom)
    ms=$(($1 + random % ($2 - $1)))
    sleep "$((ms / 1000)).$(printf %03d $((ms % 1000)))"
}
