//! The options of a mount beside those of its volume, one row each.

use syncline_fs::options::spec::{Given, Kind, OptionSpec};

use crate::options::{Affinity, FuseOptions};

type Row = OptionSpec<FuseOptions>;
type Set = fn(&mut FuseOptions, Given<'_>) -> syncline_fs::Result<()>;

/// Most worker threads.
const THREADS_MAX: u32 = 128;

/// Sizes of a buffer and its log: at most a tebibyte.
const BYTES: Kind = Kind::Size { low: 0, high: 1 << 40 };

/// An owner or a group.
const ID: Kind = Kind::Number { low: 0, high: u32::MAX - 1, unit: "N" };

/// A row whose default is nothing.
const fn row(name: &'static str, kind: Kind, help: &'static str, set: Set) -> Row {
    Row { name, kind, help, live: false, set, show: |_| None }
}

/// A row of a flag.
const fn flag(name: &'static str, help: &'static str, set: Set) -> Row {
    row(name, Kind::Flag, help, set)
}

/// A closure that assigns, and does not fail.
macro_rules! set {
    (|$options:ident, $given:pat_param| $assignment:expr) => {
        |$options, $given| {
            $assignment;
            Ok(())
        }
    };
}

/// Every option of a mount that is none of its volume.
pub const MOUNT_OPTIONS: &[Row] = &[
    flag(
        "allow_other",
        "Users other than the one who mounted may use it; without root it needs `user_allow_other` \
         in /etc/fuse.conf.",
        set!(|o, _| o.allow_other = true),
    ),
    Row {
        show: |_| Some("on".to_owned()),
        ..flag(
            "default_permissions",
            "The kernel checks permissions and ACLs; nobody else would.",
            |_, _| Ok(()),
        )
    },
    flag("defaults", "Nothing changes.", |_, _| Ok(())),
    row("uid", ID, "Every file shows this owner.", set!(|o, given| o.uid = Some(given.number()))),
    row("gid", ID, "Every file shows this group.", set!(|o, given| o.gid = Some(given.number()))),
    flag("suid", "Set-id bits have their effect.", set!(|o, _| o.suid = true)),
    flag(
        "allow_suid",
        "As suid, for fstab and mount(8), which take that for a default of theirs and do not \
         pass it on; nosuid goes before it.",
        set!(|o, _| o.suid = true),
    ),
    Row {
        show: |o| (!o.suid).then(|| "on".to_owned()),
        ..flag("nosuid", "Set-id bits have no effect.", set!(|o, _| o.suid = false))
    },
    flag("dev", "Device files work.", set!(|o, _| o.dev = true)),
    flag("allow_dev", "As dev, for fstab and mount(8).", set!(|o, _| o.dev = true)),
    Row {
        show: |o| (!o.dev).then(|| "on".to_owned()),
        ..flag("nodev", "Device files do not work.", set!(|o, _| o.dev = false))
    },
    Row {
        show: |o| (!o.noexec).then(|| "on".to_owned()),
        ..flag("exec", "Programs can be run.", set!(|o, _| o.noexec = false))
    },
    flag("noexec", "Programs cannot be run.", set!(|o, _| o.noexec = true)),
    flag(
        "writeback_cache",
        "The kernel keeps written data until fsync, or as long as it likes, also past a rename \
         over another file.",
        set!(|o, _| o.writeback_cache = true),
    ),
    row(
        "threads",
        Kind::Number { low: 1, high: THREADS_MAX, unit: "N" },
        "Worker threads; two a processor and at least 8 where none are given.",
        set!(|o, given| o.threads = given.number() as usize),
    ),
    Row {
        show: |o| {
            Some(match o.affinity {
                Affinity::Caller => "caller".to_owned(),
                Affinity::None => "none".to_owned(),
            })
        },
        ..row(
            "affinity",
            Kind::Choice(&["caller", "none"]),
            "caller: the worker that serves one program's small calls runs on that program's \
             processor; as root only.",
            set!(|o, given| o.affinity = match given.text() {
                "none" => Affinity::None,
                _ => Affinity::Caller,
            }),
        )
    },
    row(
        "buffer_log",
        Kind::Text("FILE"),
        "A write buffer under the volume, with its log in this file or partition; made if it \
         does not exist. Until the unmount the image needs it.",
        set!(|o, given| o.buffer_log = Some(given.text().into())),
    ),
    row(
        "buffer_log_size",
        BYTES,
        "Size of a log file that is made, 64M where none is given.",
        set!(|o, given| o.buffer_log_size = Some(given.size())),
    ),
    row(
        "buffer_ram",
        BYTES,
        "Memory of the buffer, 16M where none is given; with 0 relaxed data waits in the page \
         cache only.",
        set!(|o, given| o.buffer_ram = Some(given.size())),
    ),
    row(
        "trace",
        Kind::Text("FILE"),
        "Records requests and commands to the device in FILE.events; `syncline-lab trace import` \
         makes traces of it.",
        set!(|o, given| o.trace = Some(given.text().into())),
    ),
    flag(
        "trace_reads",
        "With `trace=` every read of a program is recorded, past the kernel's cache.",
        set!(|o, _| o.trace_reads = true),
    ),
];

#[cfg(test)]
mod tests {
    use syncline_fs::VOLUME_OPTIONS;
    use syncline_fs::options::spec;

    use super::*;

    /// The documented tables are the generated ones. With `SYNCLINE_WRITE_DOCS=1` they are written
    /// instead.
    #[test]
    fn compat_shows_the_tables_of_options() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/COMPAT.md");
        let mut text = std::fs::read_to_string(path).expect("docs/COMPAT.md is in the repository");
        let write = std::env::var_os("SYNCLINE_WRITE_DOCS").is_some();
        for (name, table) in
            [("volume", spec::markdown(VOLUME_OPTIONS)), ("mount", spec::markdown(MOUNT_OPTIONS))]
        {
            let begin = format!("<!-- options: {name} -->\n");
            let from = text.find(&begin).expect("COMPAT.md marks the table") + begin.len();
            let to = from + text[from..].find("<!-- end -->").expect("the marked table ends");
            if write {
                text.replace_range(from..to, &table);
                continue;
            }
            let hint = "docs/COMPAT.md is old: run this test with SYNCLINE_WRITE_DOCS=1";
            assert_eq!(&text[from..to], table, "{hint}");
        }
        if write {
            std::fs::write(path, text).expect("docs/COMPAT.md can be written");
        }
    }
}
