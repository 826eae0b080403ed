//! `libsyncline_preload.so`: chosen files of any program need not survive a power cut, on any file
//! system (informed-storage paper, 6.6, without a file system of its own).
//!
//! ```text
//!   program --> fsync(fd) --> hooks --> library: which file, which rule --> strict: libc's fsync
//!                                          |                            `-> relaxed: noted, 0
//!               exit, _exit, exec --> finish: the deferred syncs are done, the report is written
//! ```
//!
//! | file | what |
//! |---|---|
//! | `rules` | globs and their decisions; pure |
//! | `files` | the state of files: decision, name, whether a sync is owed; pure |
//! | `system` | libc's own functions, identity and name of a descriptor |
//! | `library` | the state of the process, decisions, the end |
//! | `naming` | renames and links |
//! | `hooks` | the functions that programs call in place of libc's |
//! | `logs` | files kept as FlashLite logs: which, and their descriptors |
//! | `log_file` | one of these files |
//! | `log_hooks` | the functions that are called on those |
//! | `macros` | definitions of hooks |
//!
//! Promises
//! - Strict unless the last rule that matches says relaxed; strict too if there is any doubt: no
//!   name, several hard links, a lock that is not to be had, more than 65,536 files, bad rules.
//! - A file that was skipped is synced before it gets a strict name (rename, link), and at the end.
//! - Errors of the descriptor (`EBADF`, `EINVAL`) are the same as without the library.
//! - Never blocks: no lock is waited for longer than a few yields, so that children between fork
//!   and exec are safe.
//!
//! - With `log GLOB` a file that is filled in any order is a FlashLite log until it is renamed,
//!   linked, mapped, opened as a stream, or the program ends: then it is a plain file. After a kill
//!   the log is beside the file, and the same program goes on with it.
//!
//! Not covered: system calls without libc (Go, static programs, io_uring, which the report counts),
//! a program's end by a signal, `execl` and its kin, set-id programs (the loader refuses). `fcntl`
//! needs no hook: on Linux it cannot set `O_SYNC`. A file that is synced before it is renamed is
//! opened and closed for that, which ends locks of fcntl that the process has on it.
//!
//! Variables: `SYNCLINE_PRELOAD_RULES` (a rule each line), `SYNCLINE_PRELOAD_RULES_FILE` (the same
//! in a file, before them), `SYNCLINE_PRELOAD_REPORT` (a file to which each process appends a line
//! of JSON; `-`: standard error). Tested in `tests/it`, with a second preloaded library that sees
//! what arrives.

#[cfg_attr(test, allow(dead_code))]
mod files;
#[cfg(not(test))]
mod hooks;
#[cfg(not(test))]
mod library;
#[cfg(not(test))]
mod log_file;
#[cfg(not(test))]
mod log_hooks;
#[cfg(not(test))]
mod logs;
#[cfg(not(test))]
mod macros;
#[cfg(not(test))]
mod naming;
#[cfg_attr(test, allow(dead_code))]
mod rules;
#[cfg(not(test))]
mod system;
