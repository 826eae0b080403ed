//! The operations of the cases as system calls: words in, `ok`, values or an error's name out.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use rustix::fs::{
    Access, AtFlags, CWD, FallocateFlags, FileType, Gid, Mode, OFlags, RenameFlags, Stat, Timespec,
    Timestamps, UTIME_NOW, UTIME_OMIT, Uid, XattrFlags,
};
use rustix::io::Errno;

/// Answer of an operation.
pub(crate) type Answer = Result<String, Errno>;

const ERRORS: [(Errno, &str); 34] = [
    (Errno::ACCESS, "EACCES"),
    (Errno::ADDRINUSE, "EADDRINUSE"),
    (Errno::AGAIN, "EAGAIN"),
    (Errno::BADF, "EBADF"),
    (Errno::BUSY, "EBUSY"),
    (Errno::DQUOT, "EDQUOT"),
    (Errno::EXIST, "EEXIST"),
    (Errno::FBIG, "EFBIG"),
    (Errno::INVAL, "EINVAL"),
    (Errno::IO, "EIO"),
    (Errno::ISDIR, "EISDIR"),
    (Errno::LOOP, "ELOOP"),
    (Errno::MFILE, "EMFILE"),
    (Errno::MLINK, "EMLINK"),
    (Errno::NAMETOOLONG, "ENAMETOOLONG"),
    (Errno::NODATA, "ENODATA"),
    (Errno::NODEV, "ENODEV"),
    (Errno::NOENT, "ENOENT"),
    (Errno::NOSPC, "ENOSPC"),
    (Errno::NOSYS, "ENOSYS"),
    (Errno::NOTDIR, "ENOTDIR"),
    (Errno::NOTEMPTY, "ENOTEMPTY"),
    (Errno::NOTTY, "ENOTTY"),
    (Errno::NXIO, "ENXIO"),
    (Errno::OPNOTSUPP, "EOPNOTSUPP"),
    (Errno::OVERFLOW, "EOVERFLOW"),
    (Errno::PERM, "EPERM"),
    (Errno::RANGE, "ERANGE"),
    (Errno::ROFS, "EROFS"),
    (Errno::SPIPE, "ESPIPE"),
    (Errno::STALE, "ESTALE"),
    (Errno::TOOBIG, "E2BIG"),
    (Errno::TXTBSY, "ETXTBSY"),
    (Errno::XDEV, "EXDEV"),
];

/// The name of an error as programs know it.
pub(crate) fn name_of(errno: Errno) -> String {
    let found = ERRORS.iter().find(|(known, _)| *known == errno);
    found.map_or_else(|| format!("{errno:?}"), |(_, name)| (*name).to_owned())
}

/// An error of the standard library as a number.
pub(crate) fn failed(err: std::io::Error) -> Errno {
    Errno::from_io_error(&err).unwrap_or(Errno::IO)
}

/// The words of one operation.
struct Words<'a>(&'a [OsString]);

impl Words<'_> {
    fn at(&self, at: usize) -> &OsStr {
        self.0.get(at).map_or(OsStr::new(""), |word| word)
    }

    fn text(&self, at: usize) -> &str {
        self.at(at).to_str().unwrap_or_default()
    }

    fn number(&self, at: usize) -> Result<i64, String> {
        self.text(at).parse().map_err(|_| format!("word {}: not a number", at + 1))
    }

    /// An offset or length; -1 as programs pass it.
    fn bytes(&self, at: usize) -> Result<u64, String> {
        Ok(self.number(at)?.cast_unsigned())
    }

    fn mode(&self, at: usize, missing: u32) -> Result<Mode, String> {
        let bits = match self.text(at) {
            "" => Ok(missing),
            text => u32::from_str_radix(text, 8).map_err(|_| format!("{text}: not a mode")),
        };
        Ok(Mode::from_bits_retain(bits?))
    }

    fn owner(&self, at: usize) -> Result<(Option<Uid>, Option<Gid>), String> {
        let id = |text: &str| match text {
            "-" => Ok(None),
            text => text.parse().map(Some).map_err(|_| format!("{text}: not an id")),
        };
        Ok((id(self.text(at))?.map(Uid::from_raw), id(self.text(at + 1))?.map(Gid::from_raw)))
    }

    fn times(&self, at: usize) -> Result<Timestamps, String> {
        let last_access = time(self.text(at))?;
        Ok(Timestamps { last_access, last_modification: time(self.text(at + 1))? })
    }
}

/// `now`, `omit`, or seconds with nanoseconds behind a point.
fn time(text: &str) -> Result<Timespec, String> {
    let special = |tv_nsec| Ok(Timespec { tv_sec: 0, tv_nsec });
    match text {
        "now" => return special(UTIME_NOW),
        "omit" => return special(UTIME_OMIT),
        _ => {}
    }
    let (seconds, nanos) = text.split_once('.').unwrap_or((text, "0"));
    let bad = |_| format!("{text}: not a time");
    Ok(Timespec { tv_sec: seconds.parse().map_err(bad)?, tv_nsec: nanos.parse().map_err(bad)? })
}

fn ok(result: Result<(), Errno>) -> Answer {
    result.map(|()| "ok".to_owned())
}

/// Makes something of `kind` at the path.
pub(crate) fn make(kind: &str, path: &OsStr, mode: u32) -> Result<(), Errno> {
    let mode = Mode::from_bits_retain(mode);
    let node = |kind, device| rustix::fs::mknodat(CWD, path, kind, mode, device);
    match kind {
        "file" => {
            let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
            rustix::fs::openat(CWD, path, flags, mode).map(drop)
        }
        "dir" => rustix::fs::mkdirat(CWD, path, mode),
        "symlink" => rustix::fs::symlinkat("target", CWD, path),
        "fifo" => node(FileType::Fifo, 0),
        "socket" => node(FileType::Socket, 0),
        "char" => node(FileType::CharacterDevice, rustix::fs::makedev(1, 3)),
        "block" => node(FileType::BlockDevice, rustix::fs::makedev(259, 70_000)),
        _ => Err(Errno::NOSYS),
    }
}

fn flags_of(text: &str) -> Result<OFlags, String> {
    text.split(',').try_fold(OFlags::CLOEXEC, |flags, word| {
        Ok(flags
            | match word {
                "r" => OFlags::RDONLY,
                "w" => OFlags::WRONLY,
                "rw" => OFlags::RDWR,
                "creat" => OFlags::CREATE,
                "excl" => OFlags::EXCL,
                "trunc" => OFlags::TRUNC,
                "append" => OFlags::APPEND,
                "nofollow" => OFlags::NOFOLLOW,
                "directory" => OFlags::DIRECTORY,
                "nonblock" => OFlags::NONBLOCK,
                "path" => OFlags::PATH,
                "direct" => OFlags::DIRECT,
                "sync" => OFlags::SYNC,
                "noatime" => OFlags::NOATIME,
                _ => return Err(format!("{word}: not a flag of open")),
            })
    })
}

/// Opens a path with words as flags and a mode in octal.
pub(crate) fn open(path: &OsStr, flags: &str, mode: &str) -> Result<Result<File, Errno>, String> {
    let words = [mode.into()];
    let mode = Words(&words).mode(0, 0o644)?;
    Ok(rustix::fs::openat(CWD, path, flags_of(flags)?, mode).map(File::from))
}

/// An operation on a path.
pub(crate) fn on_path(name: &str, words: &[OsString]) -> Result<Answer, String> {
    let w = Words(words);
    let path = w.at(0);
    let no_follow = AtFlags::SYMLINK_NOFOLLOW;
    Ok(match name {
        "make" => ok(make(w.text(0), w.at(1), w.mode(2, 0o644)?.bits())),
        "open" => open(path, w.text(1), w.text(2))?.map(|_| "ok".to_owned()),
        "mkdir" => ok(rustix::fs::mkdirat(CWD, path, w.mode(1, 0o755)?)),
        "mkfifo" => ok(rustix::fs::mknodat(CWD, path, FileType::Fifo, w.mode(1, 0o644)?, 0)),
        "mknod" => ok(make(w.text(1), path, w.mode(2, 0o644)?.bits())),
        "link" => ok(rustix::fs::linkat(CWD, path, CWD, w.at(1), AtFlags::empty())),
        "symlink" => ok(rustix::fs::symlinkat(path, CWD, w.at(1))),
        "unlink" => ok(rustix::fs::unlinkat(CWD, path, AtFlags::empty())),
        "rmdir" => ok(rustix::fs::unlinkat(CWD, path, AtFlags::REMOVEDIR)),
        "rename" => ok(rustix::fs::renameat(CWD, path, CWD, w.at(1))),
        "rename2" => ok(rename2(&w)?),
        "chmod" => ok(rustix::fs::chmodat(CWD, path, w.mode(1, 0)?, AtFlags::empty())),
        "chown" | "lchown" => {
            let (uid, gid) = w.owner(1)?;
            let flags = if name == "chown" { AtFlags::empty() } else { no_follow };
            ok(rustix::fs::chownat(CWD, path, uid, gid, flags))
        }
        "truncate" => {
            let done = nix::unistd::truncate(path, w.number(1)?);
            ok(done.map_err(|err| Errno::from_raw_os_error(err as i32)))
        }
        "utimens" => ok(rustix::fs::utimensat(CWD, path, &w.times(1)?, AtFlags::empty())),
        "lutimens" => ok(rustix::fs::utimensat(CWD, path, &w.times(1)?, no_follow)),
        "stat" => rustix::fs::statat(CWD, path, AtFlags::empty()).map(|s| shown(&s, w.text(1))),
        "lstat" => rustix::fs::statat(CWD, path, no_follow).map(|s| shown(&s, w.text(1))),
        "readlink" => {
            rustix::fs::readlinkat(CWD, path, Vec::new()).map(|target| brief(target.to_bytes()))
        }
        "access" => {
            let bits = w.text(1).chars().fold(Access::EXISTS, |bits, letter| match letter {
                'r' => bits | Access::READ_OK,
                'w' => bits | Access::WRITE_OK,
                _ => bits | Access::EXEC_OK,
            });
            ok(rustix::fs::accessat(CWD, path, bits, AtFlags::EACCESS))
        }
        "umask" => {
            rustix::process::umask(w.mode(0, 0)?);
            Ok("ok".to_owned())
        }
        "chdir" => ok(rustix::process::chdir(path)),
        "ls" => listed(path),
        "bind" => {
            let bound = std::os::unix::net::UnixListener::bind(path);
            bound.map(|_| "ok".to_owned()).map_err(failed)
        }
        _ => return on_contents(name, &w),
    })
}

/// Operations that open the path, do one thing and close it; and extended attributes.
fn on_contents(name: &str, w: &Words) -> Result<Answer, String> {
    let path = w.at(0);
    let opened = |flags| open(path, flags, "");
    Ok(match name {
        "read" => opened("r")?.and_then(|file| contents(&file)),
        "write" => opened("w")?.and_then(|file| put(&file, w.text(1), 0)),
        "append" => opened("w,append")?.and_then(|file| put(&file, w.text(1), 0)),
        "getx" => {
            let mut value = [0; 1024];
            rustix::fs::lgetxattr(path, w.at(1), &mut value[..]).map(|len| brief(&value[..len]))
        }
        "setx" => ok(rustix::fs::lsetxattr(path, w.at(1), w.at(2).as_bytes(), XattrFlags::empty())),
        "rmx" => ok(rustix::fs::lremovexattr(path, w.at(1))),
        _ => return Err(format!("{name}: no such operation")),
    })
}

fn rename2(w: &Words) -> Result<Result<(), Errno>, String> {
    let flags = w.text(2).split(',').try_fold(RenameFlags::empty(), |flags, word| {
        Ok::<_, String>(
            flags
                | match word {
                    "noreplace" => RenameFlags::NOREPLACE,
                    "exchange" => RenameFlags::EXCHANGE,
                    "whiteout" => RenameFlags::WHITEOUT,
                    _ => return Err(format!("{word}: not a flag of renameat2")),
                },
        )
    });
    Ok(rustix::fs::renameat_with(CWD, w.at(0), CWD, w.at(1), flags?))
}

/// An operation on an open file.
pub(crate) fn on_file(name: &str, file: &File, words: &[OsString]) -> Result<Answer, String> {
    let w = Words(words);
    Ok(match name {
        "chmod" => ok(rustix::fs::fchmod(file, w.mode(0, 0)?)),
        "chown" => {
            let (uid, gid) = w.owner(0)?;
            ok(rustix::fs::fchown(file, uid, gid))
        }
        "truncate" => ok(rustix::fs::ftruncate(file, w.bytes(0)?)),
        "utimens" => ok(rustix::fs::futimens(file, &w.times(0)?)),
        "stat" => rustix::fs::fstat(file).map(|stat| shown(&stat, w.text(0))),
        "read" => contents(file),
        "write" => put(file, w.text(0), w.bytes(1).unwrap_or(0)),
        "sync" => ok(rustix::fs::fsync(file)),
        "link" => ok(rustix::fs::linkat(file, "", CWD, w.at(0), AtFlags::EMPTY_PATH)),
        "fallocate" => {
            let flags = w.text(0).split(',').try_fold(FallocateFlags::empty(), |flags, word| {
                Ok::<_, String>(
                    flags
                        | match word {
                            "plain" => FallocateFlags::empty(),
                            "keep" => FallocateFlags::KEEP_SIZE,
                            "punch" => FallocateFlags::PUNCH_HOLE,
                            "zero" => FallocateFlags::ZERO_RANGE,
                            "collapse" => FallocateFlags::COLLAPSE_RANGE,
                            "insert" => FallocateFlags::INSERT_RANGE,
                            _ => return Err(format!("{word}: not a mode of fallocate")),
                        },
                )
            });
            ok(rustix::fs::fallocate(file, flags?, w.bytes(1)?, w.bytes(2)?))
        }
        "allocate-all" => ok(fill_up(file)),
        "await-inode" => ok(await_inode(file)),
        _ => return Err(format!("@{name}: no such operation")),
    })
}

/// Allocates ever smaller pieces at the end until nothing is left.
fn fill_up(file: &File) -> Result<(), Errno> {
    for shift in (12..=26).rev() {
        loop {
            let size = rustix::fs::fstat(file)?.st_size.cast_unsigned();
            match rustix::fs::fallocate(file, FallocateFlags::empty(), size, 1 << shift) {
                Ok(()) => {}
                Err(Errno::NOSPC) => break,
                Err(errno) => return Err(errno),
            }
        }
    }
    Ok(())
}

/// Waits until a removed file is gone for good: Linux tells a FUSE mount so after unlink(2) has
/// returned.
fn await_inode(file: &File) -> Result<(), Errno> {
    let began = Instant::now();
    while rustix::fs::fstatvfs(file)?.f_ffree == 0 {
        if began.elapsed() > Duration::from_secs(120) {
            return Err(Errno::TIMEDOUT);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

fn put(file: &File, text: &str, at: u64) -> Answer {
    file.write_all_at(text.as_bytes(), at).map(|()| "ok".to_owned()).map_err(failed)
}

fn contents(file: &File) -> Answer {
    let mut bytes = [0; 4096];
    let len = file.read_at(&mut bytes, 0).map_err(failed)?;
    Ok(brief(&bytes[..len]))
}

/// Bytes as a word of a case: `.` for zeros, the length alone if there are many.
fn brief(bytes: &[u8]) -> String {
    if bytes.len() > 64 {
        return format!("{} bytes", bytes.len());
    }
    if bytes.is_empty() {
        return "nothing".to_owned();
    }
    String::from_utf8_lossy(bytes).replace('\0', ".")
}

fn listed(path: &OsStr) -> Answer {
    let entries = std::fs::read_dir(path).map_err(failed)?;
    let mut names = Vec::new();
    for entry in entries {
        names.push(entry.map_err(failed)?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(if names.is_empty() { "nothing".to_owned() } else { names.join(",") })
}

/// The asked fields of a stat, with commas between.
fn shown(stat: &Stat, fields: &str) -> String {
    let field = |name: &str| match name {
        "type" => kind(FileType::from_raw_mode(stat.st_mode)).to_owned(),
        "mode" => format!("{:04o}", stat.st_mode & 0o7777),
        "nlink" => stat.st_nlink.to_string(),
        "uid" => stat.st_uid.to_string(),
        "gid" => stat.st_gid.to_string(),
        "size" => stat.st_size.to_string(),
        "blocks" => stat.st_blocks.to_string(),
        "rdev" => {
            let device = stat.st_rdev;
            format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device))
        }
        "atime" => format!("{}.{:09}", stat.st_atime, stat.st_atime_nsec),
        "mtime" => format!("{}.{:09}", stat.st_mtime, stat.st_mtime_nsec),
        _ => format!("no field {name}"),
    };
    fields.split(',').map(field).collect::<Vec<_>>().join(",")
}

fn kind(kind: FileType) -> &'static str {
    match kind {
        FileType::RegularFile => "file",
        FileType::Directory => "dir",
        FileType::Symlink => "symlink",
        FileType::Fifo => "fifo",
        FileType::Socket => "socket",
        FileType::CharacterDevice => "char",
        FileType::BlockDevice => "block",
        FileType::Unknown => "unknown",
    }
}
