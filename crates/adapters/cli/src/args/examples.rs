//! Examples of each command, for `--help` and the man pages. A test parses every line.

use clap::{Command, CommandFactory};

use super::Cli;

/// Command, then one example a line: what is typed, and what for.
const EXAMPLES: &[(&str, &[[&str; 2]])] = &[
    (
        "bench",
        &[
            ["syncline bench sqlite", "SQLite in both sync modes on a model of an eMMC"],
            [
                "syncline bench sqlite --journal-mode delete,wal --device sd-2012",
                "two journal modes on a model of an SD card",
            ],
            ["syncline bench fileio create --html report.html", "a report with plots"],
            ["syncline bench sqlite --dir /mnt/card", "what is mounted there, in real time"],
        ],
    ),
    (
        "compare",
        &[
            ["syncline compare before.json after.json", "what differs between two results"],
            ["syncline compare a.json b.json --html c.html", "with charts"],
        ],
    ),
    (
        "ls",
        &[
            ["syncline ls -l disk.img:/etc", "one directory"],
            ["syncline ls -aR disk.img:/", "everything"],
            ["syncline ls --partition 2 sdcard.img:/", "of a whole-disk image"],
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
    ("mkdir", &[["syncline mkdir -p disk.img:/srv/www/html", "with the directories above"]]),
    ("mv", &[["syncline mv disk.img:/etc/motd.new disk.img:/etc/motd", "in one transaction"]]),
    ("rm", &[["syncline rm -r disk.img:/var/cache/apt", "a directory with what is in it"]]),
    ("stat", &[["syncline stat --extents disk.img:/var/lib/app.db", "and where its blocks are"]]),
    ("info", &[["syncline info disk.img", "features, journal, free space"]]),
    ("check", &[["syncline check disk.img", "our check, then e2fsck's; nothing is written"]]),
    (
        "mkfs",
        &[
            ["syncline mkfs --size 1G disk.img", "a new image"],
            ["syncline mkfs --size 1G disk.img -- -O ^has_journal", "with options of mke2fs"],
        ],
    ),
    (
        "resize",
        &[
            ["syncline resize --size 2G disk.img", "larger or smaller"],
            ["syncline resize --minimum root.img", "as small as its files allow"],
        ],
    ),
    (
        "import",
        &[
            ["syncline import rootfs.tar root.img", "an image as large as the archive needs"],
            ["syncline import --owner 0:0 ./rootfs root.img", "a directory, all of it root's"],
            ["syncline import --size 4G - root.img", "from a pipe"],
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
                "for a network that is trusted",
            ],
        ],
    ),
    ("recover", &[["syncline recover disk.img", "after a crash, before other tools read it"]]),
    (
        "mount",
        &[
            ["syncline mount disk.img ~/disk", "until `syncline umount ~/disk`"],
            ["syncline mount -o ro disk.img ~/disk", "nothing is written"],
            ["syncline mount -o sync=ordered,noatime disk.img ~/disk", "with mount options"],
        ],
    ),
    (
        "sweep",
        &[
            ["syncline sweep plan.toml -o results", "on this machine's processors"],
            ["syncline sweep plan.toml -o results --resume", "what a run before did not get to"],
            [
                "syncline sweep plan.toml -o results --executor tcp://10.0.0.1:8786",
                "on a cluster of Dask",
            ],
        ],
    ),
    ("umount", &[["syncline umount ~/disk", "returns when everything is written"]]),
    ("status", &[["syncline status ~/disk", "what a mount has done"]]),
    (
        "trace import",
        &[
            ["syncline trace import run.log -o run.trace", "any known format"],
            ["syncline trace import day.events -o day", "what a mount with trace=day wrote"],
            [
                "syncline trace import day.trace --to parquet --device-name phone-17 -o records",
                "for DuckDB, Polars, Dask and Spark",
            ],
        ],
    ),
    (
        "trace watch",
        &[
            ["syncline trace watch /dev/mmcblk0 -o /var/lib/watch", "until Ctrl-C; as root"],
            [
                "syncline trace watch --all -o watch --for 1d --names plain",
                "every disk, with paths",
            ],
        ],
    ),
    (
        "trace export",
        &[["syncline trace export disk.trace --to fio -o disk.log", "for `fio --read_iolog`"]],
    ),
    ("trace stat", &[["syncline trace stat app.trace", "reads, writes, syncs, reuse"]]),
    (
        "trace join",
        &[[
            "syncline trace join app.calls.trace app.blocks.trace -o named.trace",
            "a capture of an earlier version: which file and process each request is for",
        ]],
    ),
    ("trace hot", &[["syncline trace hot app.trace", "files that are updated in place"]]),
    (
        "trace record",
        &[["syncline trace record -o app.trace -- sqlite3 a.db", "the calls of a program"]],
    ),
    ("replay", &[["syncline replay --trace disk.trace --device sd-2012", "on a model"]]),
    (
        "reproduce",
        &[
            ["syncline reproduce --list", "every table and figure of the papers"],
            ["syncline reproduce eager-sync/table-5.4", "one of them"],
            ["syncline reproduce --html papers.html", "all, with charts"],
        ],
    ),
    (
        "devices",
        &[
            ["syncline devices", "the list"],
            ["syncline devices sd-2012", "one profile, to copy and change"],
        ],
    ),
    (
        "flash serve",
        &[["syncline flash serve nexus7-emmc DIR --attach", "prints the block device (root)"]],
    ),
    ("flash cut", &[["syncline flash cut DIR", "loses what was not flushed"]]),
    ("flash on", &[["syncline flash on DIR", "after `syncline flash cut DIR`"]]),
    ("flash stats", &[["syncline flash stats DIR", "requests, programs, erases"]]),
    ("flash detach", &[["syncline flash detach DIR", "ends what `syncline flash serve` began"]]),
    (
        "buffer attach",
        &[[
            "syncline buffer attach card.img DIR --log card.log --create",
            "the buffered device is DIR/device",
        ]],
    ),
    ("buffer detach", &[["syncline buffer detach DIR", "everything to its place"]]),
    ("buffer status", &[["syncline buffer status DIR", "what is buffered"]]),
    ("buffer relax", &[["syncline buffer relax DIR /mnt/cache.db", "its overwrites may wait"]]),
    ("buffer strict", &[["syncline buffer strict DIR /mnt/cache.db", "they no longer do"]]),
    ("buffer zeros", &[["syncline buffer zeros app.db", "pages that describe themselves"]]),
    ("flashlite info", &[["syncline flashlite info film.log", "what is in a log"]]),
    (
        "flashlite rearrange",
        &[
            ["syncline flashlite rearrange film.log film.iso", "a normal file beside the log"],
            ["syncline flashlite rearrange film.iso --in-place", "in place of the log"],
        ],
    ),
    ("flashlite cat", &[["syncline flashlite cat film.log", "the file, as far as it is there"]]),
    ("flashlite check", &[["syncline flashlite check film.log", "all checksums"]]),
    ("ctl relax", &[["syncline ctl relax DIR/.cache", "fsync of these files does nothing"]]),
    ("ctl strict", &[["syncline ctl strict DIR/.cache", "durable again"]]),
    ("ctl relocate", &[["syncline ctl relocate DIR/app.db", "into a zone for hot files"]]),
    ("ctl set", &[["syncline ctl set DIR ram=32M power=on", "settings while it serves"]]),
    ("ctl sync", &[["syncline ctl sync DIR", "durable now, with sync=periodic too"]]),
    ("ctl clean", &[["syncline ctl clean DIR", "empties the log now"]]),
    ("ctl shutdown", &[["syncline ctl shutdown DIR --no-flush", "a power cut, to try a program"]]),
    ("ctl status", &[["syncline ctl status DIR", "settings and policies"]]),
    (
        "top",
        &[
            ["syncline top DIR", "a mount or write buffer, live"],
            ["syncline top DIR --web 127.0.0.1:8080", "the same as a page in a browser"],
        ],
    ),
    ("probe", &[["syncline probe /mnt/card --fit card.toml", "a model of your card"]]),
    ("completions", &[["syncline completions bash", "to be sourced by the shell"]]),
    (
        "man",
        &[
            ["syncline man cp", "one page, for `man -l -`"],
            ["syncline man --all DIR", "all of them as files"],
        ],
    ),
];

/// The command line with the examples.
pub fn command(mount_options: &str) -> Command {
    EXAMPLES.iter().fold(Cli::command(), |command, (path, examples)| {
        let words: Vec<&str> = path.split(' ').collect();
        let mut text = text(examples);
        if *path == "mount" {
            text.push_str(mount_options);
        }
        with(command, &words, &text)
    })
}

/// Parses arguments; prints help, version and usage errors itself.
pub fn parse(arguments: impl IntoIterator<Item = std::ffi::OsString>, mount_options: &str) -> Cli {
    let mut matches = command(mount_options).get_matches_from(arguments);
    let parsed = <Cli as clap::FromArgMatches>::from_arg_matches_mut(&mut matches);
    parsed.unwrap_or_else(|err| err.format(&mut Cli::command()).exit())
}

fn with(command: Command, path: &[&str], text: &str) -> Command {
    match path {
        [] => command.after_long_help(text.to_owned()),
        [name, rest @ ..] => command.mut_subcommand(name, |sub| with(sub, rest, text)),
    }
}

fn text(examples: &[[&str; 2]]) -> String {
    let width = examples.iter().map(|[typed, _]| typed.len()).max().unwrap_or(0);
    let lines = examples.iter().map(|[typed, what]| format!("  {typed:width$}  # {what}"));
    format!("Examples:\n{}", lines.collect::<Vec<_>>().join("\n"))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    /// Long help of every command without subcommands.
    fn leaves(command: &Command, path: &str, found: &mut Vec<(String, String)>) {
        let subs: Vec<&Command> =
            command.get_subcommands().filter(|sub| sub.get_name() != "help").collect();
        if subs.is_empty() {
            let help = command.clone().render_long_help().to_string();
            found.push((path.trim().to_owned(), help));
        }
        for sub in subs {
            leaves(sub, &format!("{path} {}", sub.get_name()), found);
        }
    }

    #[test]
    fn every_command_has_examples() {
        let mut found = Vec::new();
        leaves(&command(""), "", &mut found);
        assert!(found.len() > 40, "{}", found.len());
        let without: Vec<&String> = found
            .iter()
            .filter(|(_, help)| !help.contains("xample"))
            .map(|(path, _)| path)
            .collect();
        assert!(without.is_empty(), "no example: {without:?}");
    }

    #[test]
    fn every_example_is_a_command() {
        for [typed, _] in EXAMPLES.iter().flat_map(|(_, examples)| *examples) {
            let parsed = Cli::try_parse_from(typed.split(' '));
            assert!(parsed.is_ok(), "{typed}: {}", parsed.unwrap_err());
        }
        for (path, examples) in EXAMPLES {
            let named = |[typed, _]: &[&str; 2]| typed.contains(path);
            assert!(examples.iter().all(named), "{path}: an example of something else");
        }
    }
}
