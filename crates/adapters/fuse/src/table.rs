//! The options of a mount beside those of its volume, one row each.

use syncline_fs::LogFormat;
use syncline_fs::options::spec::{Form, OptionSpec};

use crate::options::{Affinity, FuseOptions, Sandbox, Uring, path_of};

type Row = OptionSpec<FuseOptions>;

/// Most worker threads.
const THREADS_MAX: u32 = 128;

/// A size of a buffer or its log: at most a tebibyte.
const fn bytes(set: fn(&mut FuseOptions, u64)) -> Form<FuseOptions> {
    Form::Size { low: 0, high: 1 << 40, set }
}

/// An owner or a group.
const fn id(set: fn(&mut FuseOptions, u32)) -> Form<FuseOptions> {
    Form::Number { low: 0, high: u32::MAX - 1, unit: "N", set }
}

/// A row whose default is nothing.
const fn row(name: &'static str, form: Form<FuseOptions>, help: &'static str) -> Row {
    Row { name, form, help, live: false, show: |_| None }
}

/// A row of a flag.
const fn flag(name: &'static str, help: &'static str, set: fn(&mut FuseOptions)) -> Row {
    row(name, Form::Flag(set), help)
}

/// `log=`, given to the volume by the mount.
fn set_log(options: &mut FuseOptions, log: LogFormat) {
    (options.volume.log, options.log_auto) = (log, false);
}

/// Every option of a mount that is none of its volume.
pub const MOUNT_OPTIONS: &[Row] = &[
    row(
        "log",
        Form::Choice(&[
            ("jbd2", |o| set_log(o, LogFormat::Jbd2)),
            ("packed", |o| set_log(o, LogFormat::Packed)),
            ("auto", |o| (o.volume.log, o.log_auto) = (LogFormat::Jbd2, true)),
        ]),
        "jbd2 and packed: as for the volume. auto: packed if the image is a file, or a disk that \
         a line of fstab mounts here at boot, and no disk below it can be taken out; jbd2 for \
         every other image, for disk images with partitions and qcow2, and with `ro`, \
         `sync=ordered` or `buffer_log`. The mount and `status` say the choice and the reason.",
    ),
    flag(
        "allow_other",
        "Other users may access the mount. Users other than root need `user_allow_other` in \
         /etc/fuse.conf for it.",
        |o| o.allow_other = true,
    ),
    Row {
        show: |_| Some("on".to_owned()),
        ..flag(
            "default_permissions",
            "The kernel checks permissions and ACLs; the file system does not.",
            |_| {},
        )
    },
    flag("defaults", "Has no effect.", |_| {}),
    row("uid", id(|o, uid| o.uid = Some(uid)), "Every file shows this owner."),
    row("gid", id(|o, gid| o.gid = Some(gid)), "Every file shows this group."),
    flag("suid", "Set-user-ID and set-group-ID bits take effect.", |o| o.suid = true),
    flag(
        "allow_suid",
        "As suid, for fstab and mount(8), which treat suid as a default and do not pass it on; \
         nosuid takes precedence.",
        |o| o.suid = true,
    ),
    Row {
        show: |o| (!o.suid).then(|| "on".to_owned()),
        ..flag("nosuid", "Set-user-ID and set-group-ID bits have no effect.", |o| o.suid = false)
    },
    flag("dev", "Device files work.", |o| o.dev = true),
    flag("allow_dev", "As dev, for fstab and mount(8).", |o| o.dev = true),
    Row {
        show: |o| (!o.dev).then(|| "on".to_owned()),
        ..flag("nodev", "Device files do not work.", |o| o.dev = false)
    },
    Row {
        show: |o| (!o.noexec).then(|| "on".to_owned()),
        ..flag("exec", "Programs can be run.", |o| o.noexec = false)
    },
    flag("noexec", "Programs cannot be run.", |o| o.noexec = true),
    flag(
        "writeback_cache",
        "The kernel caches written data until fsync or its own write-back, even after a rename \
         over another file.",
        |o| o.writeback_cache = true,
    ),
    row(
        "threads",
        Form::Number {
            low: 1,
            high: THREADS_MAX,
            unit: "N",
            set: |o, number| o.threads = number as usize,
        },
        "Number of worker threads. The default is two for each processor, and at least 8. With \
         io_uring each processor has this number of workers, but at most 8.",
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
            Form::Choice(&[
                ("caller", |o| o.affinity = Affinity::Caller),
                ("none", |o| o.affinity = Affinity::None),
            ]),
            "caller: the worker that serves one program's small calls runs on that program's \
             processor. With /dev/fuse this needs root or RLIMIT_NICE. none: no worker is bound \
             to a processor.",
        )
    },
    Row {
        show: |o| Some(if o.uring == Uring::Auto { "auto" } else { "off" }.to_owned()),
        ..row(
            "uring",
            Form::Choice(&[("auto", |o| o.uring = Uring::Auto), ("off", |o| o.uring = Uring::Off)]),
            "auto: requests come through io_uring where the kernel offers it \
             (/sys/module/fuse/parameters/enable_uring), with a queue for each processor. off: \
             they come through /dev/fuse.",
        )
    },
    Row {
        show: |o| Some(o.sandbox.name().to_owned()),
        ..row(
            "sandbox",
            Form::Choice(&[
                ("best", |o| o.sandbox = Sandbox::Best),
                ("strict", |o| o.sandbox = Sandbox::Strict),
                ("off", |o| o.sandbox = Sandbox::Off),
            ]),
            "best: the serving process gives up every right that it does not need, as far as this \
             system allows. strict: the mount fails if the system does not allow all of this. off: \
             the process keeps its rights.",
        )
    },
    row(
        "partition",
        Form::Number {
            low: 1,
            high: u32::MAX,
            unit: "N",
            set: |o, number| o.partition = Some(number),
        },
        "The file system in this partition (GPT or MBR) of a whole-disk image.",
    ),
    row(
        "offset",
        Form::Size { low: 0, high: 1 << 60, set: |o, bytes| o.offset = Some(bytes) },
        "The file system begins at this byte of the image.",
    ),
    row(
        "backing",
        Form::Text {
            word: "FILE",
            set: |o, file| {
                o.backing.push(path_of(file));
                Ok(())
            },
        },
        "The image is a qcow2 over this file; given again, the file below that. Only the image is \
         written. A path with a comma is put in double quotes.",
    ),
    row(
        "buffer_log",
        Form::Text {
            word: "FILE",
            set: |o, file| {
                o.buffer_log = Some(path_of(file));
                Ok(())
            },
        },
        "A write buffer under the volume, with its log in this file or partition; a missing file \
         is created. The image needs the log until the unmount.",
    ),
    row(
        "buffer_log_size",
        bytes(|o, size| o.buffer_log_size = Some(size)),
        "Size of a new log file; by default 64M.",
    ),
    row(
        "buffer_ram",
        bytes(|o, size| o.buffer_ram = Some(size)),
        "Memory of the buffer; by default 16M. With 0 only the page cache holds relaxed data.",
    ),
    Row {
        show: |o| o.policies().contains(&"power=on").then(|| "on".to_owned()),
        ..row(
            "power",
            Form::Choice(&[("on", |o| o.power = Some(true)), ("off", |o| o.power = Some(false))]),
            "on: while the battery is low, or the machine is being switched off or suspended \
             (UPower, logind or `sensor=`), every file is strict and no data waits in memory. The \
             default is on as soon as a file is relaxed.",
        )
    },
    Row {
        show: |o| o.policies().contains(&"session=on").then(|| "on".to_owned()),
        ..row(
            "session",
            Form::Choice(&[
                ("on", |o| o.session = Some(true)),
                ("off", |o| o.session = Some(false)),
            ]),
            "on: changes become durable when the user has been away for 5 s (logind or \
             `sensor=`). The default is on as soon as a file is relaxed.",
        )
    },
    Row {
        show: |o| o.auto_ram.then(|| "on".to_owned()),
        ..row(
            "auto_ram",
            Form::Choice(&[("on", |o| o.auto_ram = true), ("off", |o| o.auto_ram = false)]),
            "on: the memory of the buffer doubles after 3 s above 80 % use and halves after 5 s \
             below 10 %, between 4 and 64 MiB. The default is off.",
        )
    },
    row(
        "sensor",
        Form::Text {
            word: "PROGRAM",
            set: |o, file| {
                o.sensor = Some(path_of(file));
                Ok(())
            },
        },
        "For `power` and `session`: this program runs every 10 s and prints `power=good`, \
         `power=failing`, `session=active`, `session=away`, or several of them. UPower and logind \
         are asked for what it leaves out.",
    ),
    row(
        "trace",
        Form::Text {
            word: "FILE",
            set: |o, file| {
                o.trace = Some(path_of(file));
                Ok(())
            },
        },
        "Records requests and commands to the device in FILE.events; `syncline-lab trace import` \
         converts it to traces.",
    ),
    flag(
        "trace_reads",
        "With `trace=`: reads bypass the kernel's page cache, so that each is recorded.",
        |o| o.trace_reads = true,
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
