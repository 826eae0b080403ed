#!/bin/sh
# tar and rsync to a mount and back: contents, modes, owners, times, links, attributes.
. "$(dirname "$0")/lib.sh"
begin archives 1G
command -v rsync >/dev/null 2>&1 || [ -z "$long" ] || need rsync rsync

# A tree with one of everything, and in a long run the machine's documentation.
tree=$work/tree
mkdir -p "$tree/d/e" "$tree/empty"
seq 100000 >"$tree/d/numbers"
head -c 300000 /dev/urandom >"$tree/d/e/bytes"
ln "$tree/d/numbers" "$tree/hard"
ln -s d/numbers "$tree/soft"
ln -s nowhere "$tree/dangling"
mkfifo "$tree/fifo"
truncate -s 10M "$tree/hole"
printf end >>"$tree/hole"
chmod 4751 "$tree/d/e/bytes"
chmod 1777 "$tree/empty"
setfattr -n user.note -v value "$tree/d/numbers" 2>/dev/null || true
[ "$(id -u)" = 0 ] && chown 1234:5678 "$tree/d/e/bytes" && chmod 4751 "$tree/d/e/bytes"
# Long ago: rsync leaves a time that is right up to the second.
find "$tree" -depth -exec touch -h -d '2001-02-03 04:05:06.789012345' {} +
touch -h -d '1999-01-01' "$tree/soft"
[ -n "$long" ] && cp -a /usr/share/doc /usr/include "$tree/"

# same A B: everything that tar knows of a tree is the same.
same() {
    for side in "$1" "$2"; do
        tar -C "$side" --sort=name --xattrs --format=posix \
            --pax-option=delete=atime,delete=ctime -cf - . | sha256sum
    done >"$work/sums"
    [ "$(uniq "$work/sums" | wc -l)" = 1 ] || fail "$1 and $2 differ"
}

tar -C "$tree" --sparse --xattrs -cf - . | (mkdir "$mnt/tar" && tar -C "$mnt/tar" --xattrs -xpf -)
same "$tree" "$mnt/tar"
mkdir "$work/back"
tar -C "$mnt/tar" --sparse --xattrs -cf - . | tar -C "$work/back" --xattrs -xpf -
same "$tree" "$work/back"
if command -v rsync >/dev/null 2>&1; then
    rsync -aHX --sparse "$tree/" "$mnt/rsync/"
    same "$tree" "$mnt/rsync"
    touch "$mnt/rsync/extra"
    echo changed >"$mnt/rsync/d/e/bytes"
    rsync -aHXc --delete "$tree/" "$mnt/rsync/"
    same "$tree" "$mnt/rsync"
    rsync -aHX "$mnt/rsync/" "$work/again/"
    same "$tree" "$work/again"
fi
rm -r "$mnt/tar"
finish
