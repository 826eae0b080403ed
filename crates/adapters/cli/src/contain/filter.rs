//! System calls of a process that has given up its rights.
//!
//! Every call that is not in [`CALLS`] fails with EPERM. It does not end the process: an unknown
//! call of another C library then costs an error, not the data that a program has not synced.
//! `tests/fuzz_targets/tests/it/takeover.rs` names a call that a mount makes and this list lacks.

use std::collections::BTreeMap;

use libc::c_long;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule,
};

type Error = Box<dyn std::error::Error>;

/// Calls that are allowed with any arguments, each group for one reason.
const CALLS: &[&[c_long]] = &[
    // Image, log, trace and requests: all are open.
    &[
        libc::SYS_read,
        libc::SYS_write,
        libc::SYS_readv,
        libc::SYS_writev,
        libc::SYS_pread64,
        libc::SYS_pwrite64,
        libc::SYS_preadv,
        libc::SYS_pwritev,
        libc::SYS_preadv2,
        libc::SYS_pwritev2,
        libc::SYS_fsync,
        libc::SYS_fdatasync,
        libc::SYS_fallocate,
        libc::SYS_ftruncate,
        libc::SYS_lseek,
        libc::SYS_fstat,
        libc::SYS_fstatfs,
        libc::SYS_newfstatat,
        libc::SYS_statx,
        libc::SYS_close,
        libc::SYS_dup,
        libc::SYS_fcntl,
        libc::SYS_flock,
        libc::SYS_io_uring_enter,
        libc::SYS_splice,
        libc::SYS_vmsplice,
    ],
    // Sockets that are open, and questions to the keeper.
    &[
        libc::SYS_accept4,
        libc::SYS_recvmsg,
        libc::SYS_sendmsg,
        libc::SYS_recvfrom,
        libc::SYS_sendto,
        libc::SYS_getsockname,
        libc::SYS_getpeername,
        libc::SYS_getsockopt,
        libc::SYS_setsockopt,
        libc::SYS_shutdown,
        libc::SYS_socketpair,
        libc::SYS_ppoll,
    ],
    // Memory.
    &[
        libc::SYS_brk,
        libc::SYS_mmap,
        libc::SYS_munmap,
        libc::SYS_mremap,
        libc::SYS_mprotect,
        libc::SYS_madvise,
    ],
    // Threads and their processors. `clone` and `clone3` have rules of their own.
    &[
        libc::SYS_futex,
        libc::SYS_set_robust_list,
        libc::SYS_rseq,
        libc::SYS_membarrier,
        libc::SYS_clone3,
        libc::SYS_gettid,
        libc::SYS_getpid,
        libc::SYS_sched_yield,
        libc::SYS_sched_getaffinity,
        libc::SYS_sched_setaffinity,
        libc::SYS_sched_getscheduler,
        libc::SYS_sched_setscheduler,
        libc::SYS_sched_getparam,
        libc::SYS_sched_get_priority_min,
        libc::SYS_sched_get_priority_max,
        libc::SYS_sched_getattr,
        libc::SYS_sched_setattr,
        libc::SYS_getcpu,
        libc::SYS_set_tid_address,
    ],
    // Time, signals, random keys of hash tables, the end.
    &[
        libc::SYS_clock_gettime,
        libc::SYS_clock_nanosleep,
        libc::SYS_nanosleep,
        libc::SYS_gettimeofday,
        libc::SYS_rt_sigaction,
        libc::SYS_rt_sigprocmask,
        libc::SYS_rt_sigreturn,
        libc::SYS_sigaltstack,
        libc::SYS_restart_syscall,
        libc::SYS_getrandom,
        libc::SYS_geteuid,
        libc::SYS_getuid,
        libc::SYS_getegid,
        libc::SYS_getgid,
        libc::SYS_uname,
        libc::SYS_sysinfo,
        libc::SYS_chdir,
        libc::SYS_dup3,
        libc::SYS_exit,
        libc::SYS_exit_group,
    ],
    #[cfg(target_arch = "x86_64")]
    &[libc::SYS_poll, libc::SYS_dup2, libc::SYS_time, libc::SYS_arch_prctl],
];

/// Calls of a command, which opens files itself.
const COMMAND_CALLS: &[c_long] = &[
    libc::SYS_openat,
    libc::SYS_openat2,
    libc::SYS_getdents64,
    libc::SYS_readlinkat,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_statfs,
    libc::SYS_getcwd,
    libc::SYS_umask,
    libc::SYS_unlinkat,
    libc::SYS_renameat2,
    libc::SYS_mkdirat,
    libc::SYS_symlinkat,
    libc::SYS_linkat,
    libc::SYS_mknodat,
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_utimensat,
    libc::SYS_getxattr,
    libc::SYS_lgetxattr,
    libc::SYS_fgetxattr,
    libc::SYS_listxattr,
    libc::SYS_llistxattr,
    libc::SYS_flistxattr,
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    libc::SYS_fsetxattr,
    libc::SYS_removexattr,
    libc::SYS_lremovexattr,
    libc::SYS_fremovexattr,
    libc::SYS_copy_file_range,
    libc::SYS_sendfile,
    libc::SYS_fadvise64,
    libc::SYS_syncfs,
    libc::SYS_pipe2,
    libc::SYS_getppid,
];
/// Those that newer processors lack.
#[cfg(target_arch = "x86_64")]
const COMMAND_CALLS_OLD: &[c_long] = &[
    libc::SYS_renameat,
    libc::SYS_open,
    libc::SYS_stat,
    libc::SYS_lstat,
    libc::SYS_access,
    libc::SYS_readlink,
    libc::SYS_unlink,
    libc::SYS_rmdir,
    libc::SYS_rename,
    libc::SYS_mkdir,
    libc::SYS_pipe,
];
#[cfg(target_arch = "aarch64")]
const COMMAND_CALLS_OLD: &[c_long] = &[libc::SYS_renameat];
#[cfg(target_arch = "riscv64")]
const COMMAND_CALLS_OLD: &[c_long] = &[];

/// `ioctl` requests: the device of FUSE is copied for a worker, blocks are discarded, a socket does
/// not wait.
const IOCTLS: [u64; 3] = [0x8004_e500, 0x1277, 0x5421];

/// `ioctl` requests of a command: the size, the sectors and the flag of a block device, the size
/// and the settings of a terminal, a copy that shares blocks.
const COMMAND_IOCTLS: [u64; 8] =
    [0x8008_1272, 0x1260, 0x1268, 0x125e, 0x127b, 0x5413, 0x5401, 0x4004_9409];

/// `prctl`: names of threads.
const PR_SET_NAME: u64 = 15;
/// `prctl`: names of memory, by the C library.
const PR_SET_VMA: u64 = 0x5356_4d41;

fn equals(argument: u8, value: u64) -> Result<SeccompRule, Error> {
    let is = SeccompCondition::new(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, value)?;
    Ok(SeccompRule::new(vec![is])?)
}

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// The rule of `ioctl`: one of these requests.
fn ioctls(requests: impl IntoIterator<Item = u64>) -> Result<Vec<SeccompRule>, Error> {
    requests.into_iter().map(|request| equals(1, request)).collect()
}

/// The calls that are allowed to every contained process, with the rules of their arguments.
fn rules() -> Result<Rules, Error> {
    let any = |call: &c_long| (*call, Vec::new());
    let mut rules: Rules = CALLS.iter().flat_map(|group| group.iter()).map(any).collect();
    // A new thread, never a process.
    let thread = libc::CLONE_THREAD as u64;
    let is = SeccompCmpOp::MaskedEq(thread);
    let is = SeccompCondition::new(0, SeccompCmpArgLen::Dword, is, thread)?;
    rules.insert(libc::SYS_clone, vec![SeccompRule::new(vec![is])?]);
    rules.insert(libc::SYS_ioctl, ioctls(IOCTLS)?);
    let names = [PR_SET_NAME, PR_SET_VMA].map(|option| equals(0, option));
    rules.insert(libc::SYS_prctl, names.into_iter().collect::<Result<_, _>>()?);
    // Signals to this process alone: the one of an internal error.
    let own = u64::from(std::process::id());
    rules.insert(libc::SYS_tgkill, vec![equals(0, own)?]);
    Ok(rules)
}

/// Installs the filter for this thread and those that it starts. `may_open`: something else
/// restricts the files that can be opened. `drops`: threads give up capabilities later.
pub(super) fn install(may_open: bool, drops: bool) -> Result<(), Error> {
    let mut rules = rules()?;
    if drops {
        rules.extend([libc::SYS_capget, libc::SYS_capset].map(|call| (call, Vec::new())));
    }
    if may_open {
        // Landlock says which files.
        rules.insert(libc::SYS_openat, Vec::new());
    }
    apply(rules)
}

/// Installs the filter of a command; with `rings` it may make rings of io_uring, which reach
/// sockets past the filter.
pub(super) fn install_for_command(rings: bool) -> Result<(), Error> {
    let mut rules = rules()?;
    let setup: &[c_long] = &[libc::SYS_io_uring_setup, libc::SYS_io_uring_register];
    let calls = COMMAND_CALLS.iter().chain(COMMAND_CALLS_OLD);
    let calls = calls.chain(setup.iter().filter(|_| rings));
    rules.extend(calls.map(|call| (*call, Vec::new())));
    rules.insert(libc::SYS_ioctl, ioctls(IOCTLS.into_iter().chain(COMMAND_IOCTLS))?);
    apply(rules)
}

fn apply(rules: Rules) -> Result<(), Error> {
    let arch = std::env::consts::ARCH.try_into()?;
    let denied = SeccompAction::Errno(libc::EPERM as u32);
    let filter = SeccompFilter::new(rules, denied, SeccompAction::Allow, arch)?;
    // The C library makes a thread with `clone` where the kernel has no `clone3`, whose flags are
    // in memory and cannot be seen.
    let clone3 = BTreeMap::from([(libc::SYS_clone3, Vec::new())]);
    let none = SeccompAction::Errno(libc::ENOSYS as u32);
    let without = SeccompFilter::new(clone3, SeccompAction::Allow, none, arch)?;
    // In this order: the second filter does not allow a third.
    for filter in [without, filter] {
        let program: BpfProgram = filter.try_into()?;
        seccompiler::apply_filter(&program)?;
    }
    Ok(())
}
