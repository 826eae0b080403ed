//! Examples of each command, for `--help` and the man pages. A test parses every line.

/// Command, then one example a line: the command line, and its purpose.
pub const EXAMPLES: crate::help::Examples = &[
    (
        "ls",
        &[
            ["syncline ls -l disk.img:/etc", "one directory"],
            ["syncline ls -aR disk.img:/", "everything"],
            ["syncline ls --partition 2 sdcard.img:/", "a partition of a whole-disk image"],
        ],
    ),
    ("cat", &[["syncline cat disk.img:/etc/fstab", "a file of an image"]]),
    (
        "cp",
        &[
            ["syncline cp -a disk.img:/home ./home", "a tree out of an image, with its owners"],
            ["syncline cp -r ./site disk.img:/srv/", "a tree into a directory of an image"],
            ["syncline cp - disk.img:/etc/motd", "standard input becomes a file"],
            ["syncline cp disk.img:/var/log/syslog -", "a file to standard output"],
            ["syncline cp old.img:/etc/hosts new.img:/etc/", "from one image to another"],
        ],
    ),
    ("mkdir", &[["syncline mkdir -p disk.img:/srv/www/html", "with missing parent directories"]]),
    ("mv", &[["syncline mv disk.img:/etc/motd.new disk.img:/etc/motd", "in one transaction"]]),
    ("rm", &[["syncline rm -r disk.img:/var/cache/apt", "a directory and its contents"]]),
    ("stat", &[["syncline stat --extents disk.img:/var/lib/app.db", "with its extents"]]),
    ("info", &[["syncline info disk.img", "features, journal, free space"]]),
    (
        "check",
        &[
            ["syncline check disk.img", "nothing is written"],
            ["syncline check --compare a.img b.img", "with the opinion of e2fsck"],
        ],
    ),
    (
        "mkfs",
        &[
            ["syncline mkfs disk.img 1G", "a new image"],
            ["syncline mkfs -O ^has_journal -m 0 disk.img 1G", "with options of mke2fs"],
            ["syncline mkfs -n disk.img 8T", "sizes only; nothing is made"],
        ],
    ),
    (
        "resize",
        &[
            ["syncline resize disk.img 2G", "grow or shrink"],
            ["syncline resize --minimum root.img", "as small as its files allow"],
        ],
    ),
    (
        "import",
        &[
            ["syncline import rootfs.tar root.img", "a new image, as large as the archive needs"],
            ["syncline import --owner 0:0 ./rootfs root.img", "a directory; root owns all files"],
            ["syncline import --size 4G - root.img", "from a pipe"],
            ["syncline import oci:app:latest root.img", "a container image (OCI layout)"],
            ["syncline import --docker - root.img", "what `docker save` writes into a pipe"],
            ["syncline import --layers base.tar app.tar.gz root.img", "layers, the lowest first"],
        ],
    ),
    (
        "export",
        &[
            ["syncline export root.img -o rootfs.tar", "everything"],
            ["syncline export --partition 2 disk.img:/etc", "a directory, to standard output"],
        ],
    ),
    (
        "serve",
        &[
            ["syncline serve --nfs 127.0.0.1:2049 disk.img", "for clients on this machine"],
            ["syncline serve --nfs 127.0.0.1:0 -o ro disk.img", "on a free port, read-only"],
            [
                "syncline serve --nfs 0.0.0.0:2049 --allow 10.0.7.0/24 disk.img",
                "for a trusted network",
            ],
        ],
    ),
    ("repair", &[["syncline repair -y --undo disk.undo disk.img", "mend what `check` found"]]),
    (
        "shell",
        &[
            ["syncline shell disk.img", "looks around"],
            ["syncline shell disk.img -c du -c find", "commands of the arguments"],
            ["syncline shell -w disk.img", "changes files too"],
        ],
    ),
    ("recover", &[["syncline recover disk.img", "after a crash, before other tools read it"]]),
    (
        "mount",
        &[
            ["syncline mount disk.img ~/disk", "until `syncline umount ~/disk`"],
            ["syncline mount -o ro disk.img ~/disk", "nothing is written"],
            ["syncline mount --partition 2 card.img ~/disk", "a partition of a whole disk"],
            ["syncline mount -o sync=ordered,noatime disk.img ~/disk", "with mount options"],
        ],
    ),
    ("umount", &[["syncline umount ~/disk", "returns when everything is written"]]),
    ("status", &[["syncline status ~/disk", "state and counters of a mount"]]),
    (
        "buffer attach",
        &[[
            "syncline buffer attach card.img DIR --log card.log --create",
            "the buffered device is DIR/device",
        ]],
    ),
    ("buffer detach", &[["syncline buffer detach DIR", "writes all data to its home blocks"]]),
    ("buffer status", &[["syncline buffer status DIR", "contents and counters"]]),
    ("buffer relax", &[["syncline buffer relax DIR /mnt/cache.db", "its overwrites are deferred"]]),
    ("buffer strict", &[["syncline buffer strict DIR /mnt/cache.db", "they are durable again"]]),
    ("buffer zeros", &[["syncline buffer zeros app.db", "pages that need no header in a log"]]),
    ("flashlite info", &[["syncline flashlite info film.log", "size, records, durable part"]]),
    (
        "flashlite rearrange",
        &[
            ["syncline flashlite rearrange film.log film.iso", "a plain file; the log stays"],
            ["syncline flashlite rearrange film.iso --in-place", "replaces the log"],
        ],
    ),
    ("flashlite cat", &[["syncline flashlite cat film.log", "the data; missing ranges are zeros"]]),
    ("flashlite check", &[["syncline flashlite check film.log", "verifies all checksums"]]),
    ("ctl relax", &[["syncline ctl relax DIR/.cache", "fsync of these files does nothing"]]),
    ("ctl strict", &[["syncline ctl strict DIR/.cache", "durable again"]]),
    ("ctl relocate", &[["syncline ctl relocate DIR/app.db", "to a zone for often updated files"]]),
    ("ctl set", &[["syncline ctl set DIR ram=32M power=on", "changes settings"]]),
    ("ctl sync", &[["syncline ctl sync DIR", "durable now, in every sync mode"]]),
    ("ctl clean", &[["syncline ctl clean DIR", "empties the log now"]]),
    ("ctl shutdown", &[["syncline ctl shutdown DIR --no-flush", "a power cut, to test a program"]]),
    ("ctl status", &[["syncline ctl status DIR", "settings and policies"]]),
    (
        "top",
        &[
            ["syncline top DIR", "a mount or write buffer, live"],
            ["syncline top DIR --web 8080", "the same as a page in a browser"],
        ],
    ),
    ("completions", &[["syncline completions bash", "for the shell to source"]]),
    (
        "man",
        &[
            ["syncline man cp", "one page, for `man -l -`"],
            ["syncline man --all DIR", "all of them as files"],
        ],
    ),
];
