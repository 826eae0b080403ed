//! `syncline`, whose serving process behaves on request as if its owner had lost it to an attacker.
//!
//! The request `takeover` on its control socket tries everything that a process without rights must
//! not be able to do. The answer has one line for each attempt: a name, and the errno or `done`.
//! With [`PANIC`] in the environment of the mount, the request is a bug. A helper of a library
//! makes the attempts before it serves, and says the lines to standard error.

use std::ffi::CStr;
use std::path::Path;
use std::process::ExitCode;

use libc::{c_long, c_void};
use syncline::{Access, Disk, OpenOptions};

/// Variable of the environment.
const PANIC: &str = "TAKEN_OVER_PANIC";
/// Largest number of a descriptor that is tried.
const DESCRIPTORS: i32 = 512;
/// A place behind the end of any image of the test.
const BEHIND: usize = 1 << 40;

const PASSWD: &CStr = c"/etc/passwd";
const LOG: &CStr = c"/dev/log";
const NEW: &CStr = c"/tmp/syncline-takeover";
/// No attempt may do harm where it is not refused.
const ABSENT: &CStr = c"/nonexistent/syncline";
const ROOT: &CStr = c"/";
const DISK: &CStr = c"/dev/loop0";
const MEMORY: &CStr = c"/proc/1/mem";

/// One attempt: its name, the system call, and the arguments.
type Attempt = (&'static str, c_long, [usize; 6]);

fn text(of: &'static CStr) -> usize {
    of.as_ptr() as usize
}

/// On files and sockets.
fn on_files() -> Vec<Attempt> {
    let here = libc::AT_FDCWD as usize;
    let (unix, inet, stream) =
        (libc::AF_UNIX as usize, libc::AF_INET as usize, libc::SOCK_STREAM as usize);
    let opened = (libc::O_RDONLY as usize, libc::O_RDWR as usize, libc::O_CREAT as usize);
    vec![
        ("open a file", libc::SYS_openat, [here, text(PASSWD), opened.0, 0, 0, 0]),
        ("make a file", libc::SYS_openat, [here, text(NEW), opened.1 | opened.2, 0o600, 0, 0]),
        ("open a directory", libc::SYS_openat, [here, text(ROOT), opened.0, 0, 0, 0]),
        ("open a device", libc::SYS_openat, [here, text(DISK), opened.1, 0, 0, 0]),
        ("open memory", libc::SYS_openat, [here, text(MEMORY), opened.0, 0, 0, 0]),
        ("openat2", libc::SYS_openat2, [here, text(PASSWD), 0, 24, 0, 0]),
        ("open by handle", libc::SYS_open_by_handle_at, [3, 0, 0, 0, 0, 0]),
        ("remove", libc::SYS_unlinkat, [here, text(ABSENT), 0, 0, 0, 0]),
        ("rename", libc::SYS_renameat2, [here, text(ABSENT), here, text(ABSENT), 0, 0]),
        ("link", libc::SYS_linkat, [here, text(ABSENT), here, text(ABSENT), 0, 0]),
        ("symlink", libc::SYS_symlinkat, [text(ABSENT), here, text(ABSENT), 0, 0, 0]),
        ("mkdir", libc::SYS_mkdirat, [here, text(ABSENT), 0o700, 0, 0, 0]),
        (
            "mknod",
            libc::SYS_mknodat,
            [here, text(ABSENT), libc::S_IFBLK as usize | 0o600, 0x700, 0, 0],
        ),
        ("chmod", libc::SYS_fchmodat, [here, text(ABSENT), 0o666, 0, 0, 0]),
        ("fchmod", libc::SYS_fchmod, [usize::MAX, 0o777, 0, 0, 0, 0]),
        ("chown", libc::SYS_fchownat, [here, text(ABSENT), 0, 0, 0, 0]),
        ("setxattr", libc::SYS_setxattr, [text(ABSENT), text(ABSENT), 0, 0, 0, 0]),
        ("truncate", libc::SYS_truncate, [text(ABSENT), 0, 0, 0, 0, 0]),
        ("list a directory", libc::SYS_getdents64, [3, 0, 0, 0, 0, 0]),
        ("socket", libc::SYS_socket, [inet, stream, 0, 0, 0, 0]),
        ("local socket", libc::SYS_socket, [unix, stream, 0, 0, 0, 0]),
        ("connect", libc::SYS_connect, [3, text(LOG), 16, 0, 0, 0]),
        ("bind", libc::SYS_bind, [3, text(LOG), 16, 0, 0, 0]),
        ("listen", libc::SYS_listen, [3, 1, 0, 0, 0, 0]),
    ]
}

/// On processes, memory, rights and the machine.
fn on_others() -> Vec<Attempt> {
    let here = libc::AT_FDCWD as usize;
    let parent = std::os::unix::process::parent_id() as usize;
    vec![
        ("execve", libc::SYS_execve, [text(ABSENT), 0, 0, 0, 0, 0]),
        ("execveat", libc::SYS_execveat, [here, text(ABSENT), 0, 0, 0, 0]),
        ("fork", libc::SYS_clone, [libc::SIGCHLD as usize, 0, 0, 0, 0, 0]),
        ("clone3", libc::SYS_clone3, [0, 0, 0, 0, 0, 0]),
        ("ptrace", libc::SYS_ptrace, [libc::PTRACE_PEEKDATA as usize, parent, 0, 0, 0, 0]),
        ("kill init", libc::SYS_kill, [1, 0, 0, 0, 0, 0]),
        ("kill the parent", libc::SYS_kill, [parent, 0, 0, 0, 0, 0]),
        ("kill a thread", libc::SYS_tgkill, [parent, parent, 0, 0, 0, 0]),
        ("kill by tkill", libc::SYS_tkill, [parent, 0, 0, 0, 0, 0]),
        ("queue a signal", libc::SYS_rt_sigqueueinfo, [parent, 0, 0, 0, 0, 0]),
        ("pidfd", libc::SYS_pidfd_open, [parent, 0, 0, 0, 0, 0]),
        ("mount", libc::SYS_mount, [text(ABSENT), text(ABSENT), 0, libc::MS_BIND as usize, 0, 0]),
        ("unmount", libc::SYS_umount2, [text(ABSENT), libc::MNT_DETACH as usize, 0, 0, 0, 0]),
        ("open_tree", libc::SYS_open_tree, [here, text(ABSENT), 1, 0, 0, 0]),
        ("fsopen", libc::SYS_fsopen, [text(ROOT), 0, 0, 0, 0, 0]),
        ("chroot", libc::SYS_chroot, [text(ROOT), 0, 0, 0, 0, 0]),
        ("pivot_root", libc::SYS_pivot_root, [text(ABSENT), text(ABSENT), 0, 0, 0, 0]),
        ("unshare", libc::SYS_unshare, [libc::CLONE_NEWUSER as usize, 0, 0, 0, 0, 0]),
        ("setns", libc::SYS_setns, [3, 0, 0, 0, 0, 0]),
        ("read memory", libc::SYS_process_vm_readv, [parent, 0, 0, 0, 0, 0]),
        ("write memory", libc::SYS_process_vm_writev, [parent, 0, 0, 0, 0, 0]),
        ("bpf", libc::SYS_bpf, [0, 0, 0, 0, 0, 0]),
        ("userfaultfd", libc::SYS_userfaultfd, [1, 0, 0, 0, 0, 0]),
        ("keyctl", libc::SYS_keyctl, [0, 0, 0, 0, 0, 0]),
        ("add_key", libc::SYS_add_key, [text(ROOT), text(ROOT), 0, 0, 0, 0]),
        ("perf_event_open", libc::SYS_perf_event_open, [0, 0, 0, 0, 0, 0]),
        ("io_uring_setup", libc::SYS_io_uring_setup, [8, 0, 0, 0, 0, 0]),
        ("io_uring_register", libc::SYS_io_uring_register, [3, 0, 0, 0, 0, 0]),
        ("memfd_create", libc::SYS_memfd_create, [text(ROOT), 0, 0, 0, 0, 0]),
        ("setuid", libc::SYS_setuid, [0, 0, 0, 0, 0, 0]),
        ("setresuid", libc::SYS_setresuid, [0, 0, 0, 0, 0, 0]),
        ("setgid", libc::SYS_setgid, [0, 0, 0, 0, 0, 0]),
        ("setgroups", libc::SYS_setgroups, [0, 0, 0, 0, 0, 0]),
        ("capset", libc::SYS_capset, [0, 0, 0, 0, 0, 0]),
        ("dumpable again", libc::SYS_prctl, [libc::PR_SET_DUMPABLE as usize, 1, 0, 0, 0, 0]),
        ("new filter", libc::SYS_seccomp, [1, 0, 0, 0, 0, 0]),
        ("limits", libc::SYS_prlimit64, [0, libc::RLIMIT_NOFILE as usize, 0, 0, 0, 0]),
        ("kernel module", libc::SYS_finit_module, [3, text(ROOT), 0, 0, 0, 0]),
        ("kexec", libc::SYS_kexec_load, [0, 0, 0, 0, 0, 0]),
        ("reboot", libc::SYS_reboot, [0, 0, 0, 0, 0, 0]),
        ("swapon", libc::SYS_swapon, [text(ABSENT), 0, 0, 0, 0, 0]),
        ("personality", libc::SYS_personality, [0, 0, 0, 0, 0, 0]),
        ("terminal", libc::SYS_ioctl, [0, libc::TIOCSTI as usize, text(ROOT), 0, 0, 0]),
        ("loop device", libc::SYS_ioctl, [3, 0x4c00, 0, 0, 0, 0]),
        ("syslog", libc::SYS_syslog, [3, 0, 0, 0, 0, 0]),
        ("time", libc::SYS_clock_settime, [0, 0, 0, 0, 0, 0]),
    ]
}

/// The errno of a call; 0: it was done.
fn errno((_, call, arguments): &Attempt) -> i32 {
    let [a, b, c, d, e, f] = *arguments;
    // SAFETY: every pointer among the arguments is null or a constant that the kernel only reads;
    // no call of the list gives memory to the process or takes it away.
    let done = unsafe { libc::syscall(*call, a, b, c, d, e, f) };
    match done {
        -1 => std::io::Error::last_os_error().raw_os_error().unwrap_or(-1),
        // A new process has nothing to do.
        // SAFETY: ends this copy of the process and nothing else.
        0 if *call == libc::SYS_clone => unsafe { libc::_exit(0) },
        _ => 0,
    }
}

/// Writes behind the end of every regular file that is open.
fn behind_the_end() -> Vec<(String, i32)> {
    let write = |descriptor: i32| {
        let mut stat = std::mem::MaybeUninit::<libc::stat>::uninit();
        // SAFETY: the kernel fills the structure if it succeeds, and only then it is read.
        let stat = unsafe {
            (libc::fstat(descriptor, stat.as_mut_ptr()) == 0).then(|| stat.assume_init())
        }?;
        if stat.st_mode & libc::S_IFMT != libc::S_IFREG {
            return None;
        }
        let byte = [1u8];
        let from = byte.as_ptr().cast::<c_void>();
        // SAFETY: one byte is read from an array of one.
        let done = unsafe { libc::pwrite64(descriptor, from, 1, BEHIND as i64) };
        let errno = std::io::Error::last_os_error().raw_os_error().unwrap_or(-1);
        Some(("write behind the image".to_owned(), if done == -1 { errno } else { 0 }))
    };
    (3..DESCRIPTORS).filter_map(write).collect()
}

fn attack() -> String {
    assert!(std::env::var_os(PANIC).is_none(), "a bug");
    let attempts = on_files().into_iter().chain(on_others());
    let mut tried: Vec<(String, i32)> =
        attempts.map(|attempt| (attempt.0.to_owned(), errno(&attempt))).collect();
    tried.extend(behind_the_end());
    let line = |(name, errno): (String, i32)| match errno {
        0 => format!("{name}: done\n"),
        errno => format!("{name}: {errno}\n"),
    };
    tried.into_iter().map(line).collect()
}

/// A program with a library whose helper is taken over: writes a file, and reads it again.
fn library(image: &Path) -> syncline::Result<()> {
    let own = std::env::current_exe().expect("a program has a path");
    let options = OpenOptions::parse(&format!("isolate={}", own.display()))?;
    let disk = Disk::open(image, &options)?;
    let file = disk.open_file(b"/file", Access::CREATE, 0o644)?;
    file.write(b"still served")?;
    file.sync(false)?;
    let mut back = [0; 12];
    file.read_at(0, &mut back)?;
    assert_eq!(&back, b"still served");
    drop(file);
    disk.close()
}

/// `taken_over attack DIR` prints what the process that serves DIR could do; `taken_over library
/// IMAGE` is a program with a library.
fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().collect();
    if let [_, word, image] = &arguments[..]
        && word == "library"
    {
        library(image.as_ref()).expect("the helper serves");
        return ExitCode::SUCCESS;
    }
    if let [_, word, dir] = &arguments[..]
        && word == "attack"
    {
        let dir = std::fs::canonicalize(dir).expect("the directory is there");
        let said = syncline_control::socket::ask(&dir, "takeover").expect("it answers");
        print!("{}", said.unwrap_or_default());
        return ExitCode::SUCCESS;
    }
    syncline_cli::main_with_takeover(attack)
}
