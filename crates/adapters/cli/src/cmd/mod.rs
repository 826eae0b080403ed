//! The commands, one a file. Each has `run`, which gets its arguments and prints.

#[cfg(target_os = "linux")]
pub(crate) mod buffer;
#[cfg(target_os = "linux")]
mod buffer_keeper;
#[cfg(target_os = "linux")]
mod buffer_serve;
pub(crate) mod cat;
pub(crate) mod check;
pub(crate) mod cp;
#[cfg(target_os = "linux")]
pub(crate) mod ctl;
#[cfg(target_os = "linux")]
pub(crate) mod flashlite;
pub(crate) mod generated;
#[cfg(target_os = "linux")]
mod hints;
pub(crate) mod import;
pub(crate) mod info;
#[cfg(target_os = "linux")]
pub(crate) mod isolate;
pub(crate) mod ls;
pub(crate) mod mkdir;
#[cfg(target_os = "linux")]
pub(crate) mod mount;
#[cfg(target_os = "linux")]
mod mount_control;
#[cfg(target_os = "linux")]
mod mount_log;
#[cfg(target_os = "linux")]
mod mount_open;
pub(crate) mod mv;
#[cfg(target_os = "linux")]
pub(crate) mod preload;
#[cfg(target_os = "linux")]
pub(crate) mod record;
#[cfg(target_os = "linux")]
pub(crate) mod record_read;
pub(crate) mod recover;
#[cfg(target_os = "linux")]
mod remount;
#[cfg(target_os = "linux")]
mod reopened;
pub(crate) mod repair;
#[cfg(target_os = "linux")]
pub(crate) use reopened::Pin;
pub(crate) mod rm;
pub(crate) mod serve;
#[cfg(target_os = "linux")]
pub(crate) mod service;
pub(crate) mod shell;
#[cfg(unix)]
mod shell_line;
pub(crate) mod stat;
#[cfg(target_os = "linux")]
pub(crate) mod status;
#[cfg(target_os = "linux")]
pub(crate) mod top;
#[cfg(target_os = "linux")]
mod top_view;
#[cfg(target_os = "linux")]
mod top_web;
#[cfg(not(target_os = "linux"))]
#[path = "top_web_absent.rs"]
mod top_web;
pub(crate) mod transfer;
#[cfg(target_os = "linux")]
pub(crate) mod umount;
#[cfg(target_os = "linux")]
mod zeros;
