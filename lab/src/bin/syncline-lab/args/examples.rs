//! Examples of each command, for `--help` and the man pages. A test parses every line.

/// Command, then one example a line: the command line, and its purpose.
pub const EXAMPLES: crate::help::Examples = &[
    (
        "advise",
        &[
            ["syncline-lab advise app.calls.trace", "mount options for a program on an eMMC"],
            ["syncline-lab advise /var/lib --for 1h", "for what programs do there; as root"],
            [
                "syncline-lab advise app.calls.trace --device ./card.toml --per-day 20",
                "on a card that `probe --fit` measured, with its lifetime",
            ],
        ],
    ),
    (
        "bench sqlite",
        &[
            ["syncline-lab bench sqlite", "both sync modes on a model of an eMMC"],
            [
                "syncline-lab bench sqlite insert --journal-mode delete,wal --device sd-2012",
                "two journal modes on a model of an SD card",
            ],
            ["syncline-lab bench sqlite --dir /mnt/card", "what is mounted there, in real time"],
        ],
    ),
    ("bench fileio", &[["syncline-lab bench fileio --html report.html", "a report with plots"]]),
    ("bench create", &[["syncline-lab bench create --log jbd2,packed", "both journal formats"]]),
    ("bench mixed", &[["syncline-lab bench mixed --alloc default,hot_zones", "two policies"]]),
    (
        "bench android-day",
        &[["syncline-lab bench android-day --fill 60,90", "on a volume that was used"]],
    ),
    (
        "bench several",
        &[["syncline-lab bench several sqlite/insert create --json a.json", "for `compare`"]],
    ),
    ("bench replay", &[["syncline-lab bench replay --trace app.trace", "in both sync modes"]]),
    (
        "bench fjord",
        &[
            ["syncline-lab bench fjord email --long", "every configuration"],
            ["syncline-lab bench fjord day", "wake-ups and energy of a day under each policy"],
        ],
    ),
    (
        "bench applications",
        &[["syncline-lab bench applications maps --device all", "on nine devices"]],
    ),
    (
        "cache",
        &[
            [
                "syncline-lab cache --trace app.trace --size 4M,64M --device sd-2012",
                "two sizes, with the time on a model of an SD card",
            ],
            [
                "syncline-lab cache --trace disk.csv --policy lru,spatialclock --after-cache DIR",
                "two policies, and the traces of what they let through",
            ],
        ],
    ),
    (
        "compare",
        &[
            ["syncline-lab compare before.json after.json", "what differs between two results"],
            ["syncline-lab compare a.json b.json --html c.html", "with charts"],
            ["syncline-lab compare --ignore device emmc.json sd.json", "runs of two devices"],
        ],
    ),
    (
        "sweep",
        &[
            ["syncline-lab sweep plan.toml -o results", "on this machine's processors"],
            [
                "syncline-lab sweep plan.toml -o results --resume",
                "what a run before did not get to",
            ],
            [
                "syncline-lab sweep plan.toml -o results --executor tcp://10.0.0.1:8786",
                "on a cluster of Dask",
            ],
        ],
    ),
    (
        "trace import",
        &[
            ["syncline-lab trace import run.log -o run.trace", "any known format"],
            ["syncline-lab trace import day.events -o day", "what a mount with trace=day wrote"],
            [
                "syncline-lab trace import day.trace --to parquet --device-name phone -o records",
                "for DuckDB, Polars, Dask and Spark",
            ],
        ],
    ),
    (
        "trace watch",
        &[
            ["syncline-lab trace watch /dev/mmcblk0 -o /var/lib/watch", "until Ctrl-C; as root"],
            [
                "syncline-lab trace watch --all -o watch --for 1d --names plain",
                "every disk, with paths",
            ],
        ],
    ),
    (
        "trace export",
        &[["syncline-lab trace export disk.trace --to fio -o disk.log", "for `fio --read_iolog`"]],
    ),
    ("trace stat", &[["syncline-lab trace stat app.trace", "reads, writes, syncs, reuse"]]),
    (
        "trace join",
        &[[
            "syncline-lab trace join app.calls.trace app.blocks.trace -o named.trace",
            "a capture of an earlier version: which file and process each request is for",
        ]],
    ),
    (
        "trace mix",
        &[["syncline-lab trace mix w3 -o w3.trace", "then `syncline-lab cache --trace w3.trace`"]],
    ),
    ("trace hot", &[["syncline-lab trace hot app.trace", "files that are updated in place"]]),
    (
        "trace record",
        &[["syncline-lab trace record -o app.trace -- sqlite3 a.db", "the calls of a program"]],
    ),
    (
        "replay",
        &[
            ["syncline-lab replay --trace disk.trace --device sd-2012", "on a model"],
            [
                "syncline-lab replay --trace disk.trace --device /dev/sdx --overwrite --depth 8",
                "on a device, whose contents are lost",
            ],
            ["syncline-lab replay --trace app.trace --dir /mnt/card", "system calls, on a mount"],
        ],
    ),
    (
        "reproduce",
        &[
            ["syncline-lab reproduce --list", "every table and figure of the papers"],
            ["syncline-lab reproduce eager-sync/table-5.4", "one of them"],
            ["syncline-lab reproduce --html papers.html", "all, with charts"],
        ],
    ),
    (
        "devices",
        &[
            ["syncline-lab devices", "the list"],
            ["syncline-lab devices sd-2012", "one profile, to copy and change"],
        ],
    ),
    (
        "flash serve",
        &[["syncline-lab flash serve nexus7-emmc DIR --attach", "prints the block device (root)"]],
    ),
    ("flash cut", &[["syncline-lab flash cut DIR", "loses what was not flushed"]]),
    ("flash on", &[["syncline-lab flash on DIR", "after `syncline-lab flash cut DIR`"]]),
    ("flash stats", &[["syncline-lab flash stats DIR", "requests, programs, erases"]]),
    (
        "flash detach",
        &[["syncline-lab flash detach DIR", "ends what `syncline-lab flash serve` began"]],
    ),
    (
        "latency",
        &[
            ["syncline-lab latency /mnt/card --quick", "what is mounted there, in a minute"],
            [
                "syncline-lab latency --in-process nexus7-emmc --html report.html",
                "a volume on a model of an eMMC, with charts",
            ],
        ],
    ),
    (
        "lifetime",
        &[[
            "syncline-lab lifetime --trace mail.trace --device sd-2012 --size 16G --per-day 20",
            "on a card of 16 GB",
        ]],
    ),
    (
        "probe",
        &[
            ["syncline-lab probe /mnt/card --quick", "what is mounted there, in a minute"],
            ["syncline-lab probe /mnt/card --fit card.toml", "a model of your card"],
            ["syncline-lab probe sd-2012", "a model, in virtual time"],
            [
                "syncline-lab probe /dev/sdX --destroy --destroy --html card.html",
                "a card, whose contents are lost",
            ],
        ],
    ),
    ("completions", &[["syncline-lab completions bash", "to be sourced by the shell"]]),
    ("man", &[["syncline-lab man bench", "one page, for `man -l -`"]]),
];
