//! `-o`: the volume's options, those of the mount itself, and what fstab adds.
//!
//! Each option of the mount is a row of `table.rs`. Unknown names are refused with the nearest
//! known one, whichever of the three it belongs to.

use std::path::PathBuf;

use syncline_device::may_run;
use syncline_fs::options::spec;
use syncline_fs::{LogFormat, MountOptions};

use crate::error::{FuseError, Result};
use crate::fstab::{self, Word};
use crate::table::MOUNT_OPTIONS;

/// CPUs of the worker that serves a program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Affinity {
    /// The program's, while that makes small calls in turn; see `affinity/`.
    #[default]
    Caller,
    /// Any that the kernel chooses.
    None,
}

/// Transport of requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Uring {
    /// io_uring where the kernel offers it; see `wire/ring.rs`.
    #[default]
    Auto,
    /// /dev/fuse.
    Off,
}

/// Rights that the serving process gives up before it reads the image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sandbox {
    /// Everything that the kernel has.
    #[default]
    Best,
    /// As that, and none may be missing.
    Strict,
    /// None.
    Off,
}

impl Sandbox {
    /// Its word.
    pub fn name(self) -> &'static str {
        match self {
            Sandbox::Best => "best",
            Sandbox::Strict => "strict",
            Sandbox::Off => "off",
        }
    }
}

/// Options of one FUSE mount.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FuseOptions {
    /// Options of the volume.
    pub volume: MountOptions,
    /// The caller chooses the format of the journal's transactions (`log=auto`).
    pub log_auto: bool,
    /// Users other than the one who mounted may use it (`allow_other`).
    pub allow_other: bool,
    /// Every file shows this owner (`uid=`).
    pub uid: Option<u32>,
    /// Every file shows this group (`gid=`).
    pub gid: Option<u32>,
    /// Set-id bits have their effect (`suid`).
    pub suid: bool,
    /// Device files work (`dev`).
    pub dev: bool,
    /// Programs cannot be run (`noexec`).
    pub noexec: bool,
    /// With `ro`: nothing is written, not even a replay of the log (`noload`, `norecovery`).
    pub noload: bool,
    /// The kernel keeps written data until it likes or fsync comes (`writeback_cache`).
    pub writeback_cache: bool,
    /// Calls of programs and commands to the device are recorded in this file, with the extension
    /// `.events` (`trace=`).
    pub trace: Option<PathBuf>,
    /// Every read of a program is in the trace, not only those that the kernel's cache has not
    /// (`trace_reads`).
    pub trace_reads: bool,
    /// Worker threads (`threads=`); 0: chosen by the number of processors.
    pub threads: usize,
    /// CPUs of workers (`affinity=`).
    pub affinity: Affinity,
    /// Transport of requests (`uring=`).
    pub uring: Uring,
    /// Rights that are given up (`sandbox=`).
    pub sandbox: Sandbox,
    /// The file system is in this partition of the image (`partition=`).
    pub partition: Option<u32>,
    /// The file system begins at this byte of the image (`offset=`).
    pub offset: Option<u64>,
    /// Files that a qcow2 is over, the next one first (`backing=`).
    pub backing: Vec<PathBuf>,
    /// A write buffer is under the volume, with its log in this file or device (`buffer_log=`).
    pub buffer_log: Option<PathBuf>,
    /// Size in bytes of a log file that is made (`buffer_log_size=`) [64 MiB].
    pub buffer_log_size: Option<u64>,
    /// Memory of the buffer in bytes (`buffer_ram=`) [16 MiB]; 0: none.
    pub buffer_ram: Option<u64>,
    /// The policy `power` is on (`power=`) [when files are relaxed].
    pub power: Option<bool>,
    /// The policy `session` is on (`session=`) [when files are relaxed].
    pub session: Option<bool>,
    /// The policy `auto-ram` is on (`auto_ram=`).
    pub auto_ram: bool,
    /// Program that says the state of power and session (`sensor=`).
    pub sensor: Option<PathBuf>,
}

/// Fewest worker threads: each blocked one is a program waiting for the device.
const THREADS_MIN: usize = 8;

impl FuseOptions {
    /// Worker threads: as many as asked for, or two for each processor.
    pub fn workers(&self) -> usize {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let usual = (processors * 2).max(THREADS_MIN);
        if self.threads == 0 { usual } else { self.threads }
    }

    /// Policies that are on as soon as the mount can write, as settings of `syncline ctl set`.
    pub fn policies(&self) -> Vec<&'static str> {
        self.policies_where(|given| given.unwrap_or(!self.volume.relaxed.is_empty()))
    }

    /// Policies that begin with the first file that is relaxed later: those of which nothing is
    /// said.
    pub fn later_policies(&self) -> Vec<&'static str> {
        self.policies_where(|given| given.is_none() && self.volume.relaxed.is_empty())
    }

    fn policies_where(&self, wanted: impl Fn(Option<bool>) -> bool) -> Vec<&'static str> {
        let auto_ram = (Some(self.auto_ram), "auto-ram=on");
        let all = [(self.power, "power=on"), (self.session, "session=on"), auto_ram];
        all.into_iter().filter(|(given, _)| wanted(*given)).map(|(_, word)| word).collect()
    }

    /// Parses comma-separated lists, later ones on top of earlier ones.
    ///
    /// # Errors
    /// [`FuseError::Usage`] for an unknown name (with the nearest known one) or a bad value.
    pub fn parse<S: AsRef<str>>(lists: &[S]) -> Result<FuseOptions> {
        let mut options = FuseOptions::default();
        let all = || lists.iter().flat_map(|list| words(list.as_ref()));
        for item in all().filter(|item| !item.is_empty()) {
            options.apply(item)?;
        }
        options.suid &= !refused(lists, "suid", "nosuid");
        options.dev &= !refused(lists, "dev", "nodev");
        options.check_buffer()?;
        if options.partition.is_some() && options.offset.is_some() {
            let text = "mount options `partition` and `offset` name one place each; leave one out";
            return Err(FuseError::Usage(text.to_owned()));
        }
        for item in all().filter(|_| !options.volume.read_only) {
            if let Some(Word::ReadOnly(why)) = fstab::meaning(item) {
                return Err(FuseError::Usage(format!("mount option `{item}`: {why}")));
            }
        }
        options.check_sensor()?;
        options.noload = all().any(|item| matches!(fstab::meaning(item), Some(Word::ReadOnly(_))));
        if options.trace_reads && options.trace.is_none() {
            let text = "mount option `trace_reads` needs `trace=FILE`; give both";
            return Err(FuseError::Usage(text.to_owned()));
        }
        Ok(options)
    }

    /// Checks that sizes of a buffer come with its log, and that a buffer can write.
    fn check_buffer(&self) -> Result<()> {
        let sized = self.buffer_log_size.is_some() || self.buffer_ram.is_some() || self.auto_ram;
        let text = match &self.buffer_log {
            None if sized => {
                "`buffer_log_size`, `buffer_ram` and `auto_ram` need `buffer_log=FILE`"
            }
            Some(_) if self.volume.read_only => "`buffer_log` needs a mount without `ro`",
            Some(_) if self.volume.log == LogFormat::Packed => {
                "`buffer_log` needs `log=jbd2`: both put small syncs into a log"
            }
            _ => return Ok(()),
        };
        Err(FuseError::Usage(format!("mount option {text}; add or leave out one of them")))
    }

    /// Checks that a sensor can be run from any directory and by this user, and that a policy asks
    /// for it.
    fn check_sensor(&self) -> Result<()> {
        let text = match &self.sensor {
            Some(program) if !program.is_absolute() => "needs a path from the root, such as /bin/x",
            Some(program) if program.exists() && !may_run(program) => {
                "names a program that others can change; as root name one that only root can"
            }
            Some(_) if !self.policies().iter().any(|word| *word != "auto-ram=on") => {
                "needs `power=on` or `session=on`; add one"
            }
            _ => return Ok(()),
        };
        Err(FuseError::Usage(format!("mount option `sensor` {text}")))
    }

    /// Sets an option of the mount, of fstab or of the volume.
    fn apply(&mut self, item: &str) -> Result<()> {
        if let Some(done) = spec::apply(MOUNT_OPTIONS, self, item) {
            return done.map_err(|err| FuseError::Usage(plain(&err)));
        }
        match fstab::meaning(item) {
            // Whether the mount has `ro` is known at the end.
            Some(Word::Same | Word::ReadOnly(_)) => Ok(()),
            Some(Word::Refused(why)) => {
                Err(FuseError::Usage(format!("mount option `{item}`: {why}")))
            }
            None => {
                let names: Vec<&str> = MOUNT_OPTIONS.iter().map(|row| row.name).collect();
                self.volume.apply_or(item, &names).map_err(|err| {
                    FuseError::Usage(format!("{}; see `syncline mount --help`", plain(&err)))
                })
            }
        }
    }
}

/// True if the last of `yes` and `no` is `no`. mount(8) keeps `suid` and `dev` to itself, as its
/// defaults, and puts `nosuid` and `nodev` before the words that it does not know: so
/// against these `allow_suid` and `allow_dev` do nothing, in whatever order.
fn refused<S: AsRef<str>>(lists: &[S], yes: &str, no: &str) -> bool {
    let items = lists.iter().flat_map(|list| words(list.as_ref()));
    items.filter(|item| *item == yes || *item == no).last() == Some(no)
}

/// The words of a list of options. As for mount(8), a comma between double quotes separates none.
pub fn words(list: &str) -> impl Iterator<Item = &str> {
    let mut is_quoted = false;
    list.split(move |letter| {
        is_quoted ^= letter == '"';
        letter == ',' && !is_quoted
    })
}

/// The path in the value of an option: without the double quotes that a comma in it needs.
pub(crate) fn path_of(value: &str) -> PathBuf {
    let inner = value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    inner.unwrap_or(value).into()
}

/// The text of an invalid argument without its class.
fn plain(err: &syncline_fs::FsError) -> String {
    match err {
        syncline_fs::FsError::Invalid(text) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use syncline_fs::Atime;

    #[test]
    fn both_kinds_and_fstab_words() {
        let lists = ["rw,noatime,allow_other,x-systemd.automount", "uid=1000,nofail,commit=30"];
        let options = FuseOptions::parse(&lists).unwrap();
        assert!(options.allow_other && !options.suid && !options.dev);
        assert_eq!(options.affinity, Affinity::Caller);
        assert_eq!(FuseOptions::parse(&["affinity=none"]).unwrap().affinity, Affinity::None);
        assert_eq!(FuseOptions::parse(&["uring=off"]).unwrap().uring, Uring::Off);
        assert_eq!((options.uid, options.gid), (Some(1000), None));
        let traced = FuseOptions::parse(&["trace_reads,trace=/t/run"]).unwrap();
        assert_eq!(traced.trace.as_deref(), Some(std::path::Path::new("/t/run")));
        assert_eq!((options.volume.atime, options.volume.commit_s), (Atime::Noatime, 30));
    }

    #[test]
    fn a_stock_line_of_fstab_is_taken_or_refused_by_name() {
        let stock = "rw,suid,dev,exec,auto,nouser,async,noatime,nodiratime,errors=remount-ro,\
                     data=ordered,barrier=1,stripe=128,discard,commit=30,x-systemd.automount,\
                     x-systemd.device-timeout=10,nofail,_netdev,user_xattr,acl,lazytime,user=me";
        let options = FuseOptions::parse(&[stock]).unwrap();
        assert!(options.suid && options.dev && options.volume.nodiratime && !options.noload);
        let ask = |list| FuseOptions::parse(&[list]).map(|o| (o.suid, o.dev)).unwrap();
        assert_eq!(ask("allow_suid,allow_dev"), (true, true));
        assert_eq!(ask("nosuid,allow_suid,nodev,suid,allow_dev"), (true, false));
        for lie in ["sync", "nobarrier", "data=journal", "errors=panic", "usrquota", "noload"] {
            let err = FuseOptions::parse(&[lie]).unwrap_err().to_string();
            assert!(err.contains(&format!("`{lie}`: ")) && err.contains("; "), "{err}");
        }
        for order in ["ro,norecovery", "noload,ro"] {
            let options = FuseOptions::parse(&[order]).unwrap();
            assert!(options.volume.read_only && options.noload, "{order}");
        }
        assert!(FuseOptions::parse(&["ro,noload,rw"]).is_err());
    }

    #[test]
    fn a_buffer_has_a_log_and_sizes() {
        let list = ["buffer_log=/a/log,buffer_ram=0", "buffer_log_size=128m"];
        let options = FuseOptions::parse(&list).unwrap();
        assert_eq!(options.buffer_log.as_deref(), Some("/a/log".as_ref()));
        assert_eq!((options.buffer_ram, options.buffer_log_size), (Some(0), Some(128 << 20)));
        assert_eq!(FuseOptions::parse(&["offset=1M"]).unwrap().offset, Some(1 << 20));
    }

    #[test]
    fn relaxed_files_bring_their_policies() {
        let policies = |list| FuseOptions::parse(&[list]).map(|o| o.policies()).unwrap();
        assert_eq!(policies("sync=periodic"), [] as [&str; 0]);
        assert_eq!(policies("relaxed=*.db"), ["power=on", "session=on"]);
        assert_eq!(policies("relaxed=*.db,power=off"), ["session=on"]);
        assert_eq!(policies("buffer_log=/l,auto_ram=on"), ["auto-ram=on"]);
        let later = |list| FuseOptions::parse(&[list]).map(|o| o.later_policies()).unwrap();
        assert_eq!(later("sync=ordered,session=off"), ["power=on"]);
        assert_eq!(later("relaxed=*.db,session=off"), [] as [&str; 0]);
        let alone = FuseOptions::parse(&["auto_ram=on"]).unwrap_err().to_string();
        assert!(alone.contains("need `buffer_log=FILE`"), "{alone}");
        let unasked = FuseOptions::parse(&["buffer_log=/l,auto_ram=on,sensor=/bin/true"]);
        assert!(unasked.unwrap_err().to_string().contains("needs `power=on`"));
        assert_eq!(policies("sync=periodic,power=on,sensor=/a"), ["power=on"]);
    }

    #[test]
    fn the_last_log_counts() {
        let log = |list| FuseOptions::parse(&[list]).map(|o| (o.volume.log, o.log_auto)).unwrap();
        assert_eq!(log("noatime"), (LogFormat::Jbd2, false));
        assert_eq!(log("log=packed"), (LogFormat::Packed, false));
        assert_eq!(log("log=packed,log=auto"), (LogFormat::Jbd2, true));
        assert_eq!(log("log=auto,log=packed"), (LogFormat::Packed, false));
        assert_eq!(log("log=auto,log=jbd2"), (LogFormat::Jbd2, false));
    }

    #[test]
    fn a_comma_in_quotes_is_a_part_of_a_path() {
        let list = r#"ro,backing="/a,b",noatime"#;
        assert_eq!(words(list).collect::<Vec<_>>(), ["ro", r#"backing="/a,b""#, "noatime"]);
        let options = FuseOptions::parse(&[list, "backing=base"]).unwrap();
        assert_eq!(options.backing, [PathBuf::from("/a,b"), "base".into()]);
        let traced = FuseOptions::parse(&[r#"trace="/t,1""#]).unwrap();
        assert_eq!(traced.trace, Some("/t,1".into()));
        assert_eq!(words("a,b\"c,d").count(), 2, "a quote that does not end");
        assert!(FuseOptions::parse(&["backing="]).is_err());
    }

    #[test]
    fn unknown_names_are_refused_with_the_nearest() {
        for (bad, near) in [
            ("alow_other", "`allow_other`"),
            ("noatmie", "`noatime`"),
            ("writeback_cash", "`writeback_cache`"),
            ("uid", "bad or missing value"),
            ("uid=x", "give a number"),
            ("threads=0", "1 to 128"),
            ("commit=0", "give"),
            ("affinity=0", "give one of caller, none"),
            ("buffer_ram=16M", "need `buffer_log=FILE`"),
            ("buffer_log=a,ro", "without `ro`"),
            ("buffer_log=a,log=packed", "needs `log=jbd2`"),
            ("buffer_log=a,buffer_ram=x", "give a size"),
            ("buffer_log=", "bad or missing value"),
            ("trace=", "bad or missing value"),
            ("trace_reads", "give both"),
            ("power=on,sensor=x", "a path from the root"),
            ("sensor=/x", "needs `power=on`"),
            ("power=yes", "give one of on, off"),
            ("partition=0", "give a number"),
            ("partition=2,offset=1M", "leave one out"),
        ] {
            let err = FuseOptions::parse(&[bad]).unwrap_err();
            assert!(matches!(&err, FuseError::Usage(_)), "{bad}");
            assert!(err.to_string().contains(near), "{bad}: {err}");
        }
    }
}
