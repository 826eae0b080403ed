//! `service`: a mount that libfuse's `fuservicemount3` makes for a user
//! ([`syncline_fuse::Service`]).
//!
//! ```text
//!   fuservicemount3 card.img dir -t syncline -o ro
//!     |  connects to /run/filesystems/syncline     a socket of systemd (packaging/systemd)
//!     v
//!   syncline service [-o OPTIONS]                  one process a mount; its standard input
//!     arguments, /dev/fuse --> options, a descriptor of the image --> no rights --> reads, mounts
//! ```
//!
//! Promises
//! - It opens no file that an argument names: the program of the user opens the image and the files
//!   below a qcow2, with the rights of the user.
//! - It reads the image only after it has given up its rights, in whatever user it runs
//!   ([`crate::contain`]). There is no keeper: what it may still ask, it asks the user's program.
//! - Options that need a file or another process are refused by name, and so is `sandbox=off`.
//! - The user's program prints why a mount is refused, and ends with the code of `syncline mount`.
//!
//! Assumes: standard input is the connection, as of `StandardInput=socket` and `Accept=yes`. Tested
//! in `tests/it/service.rs`.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use syncline_control::{Power, Session};
use syncline_device::{FileDevice, FileOptions};
use syncline_fuse::{FuseOptions, Sandbox, Service, ServiceHost};
use syncline_image::Files;

use super::isolate::close_inherited;
use super::mount::{Serving, chosen_log, settle};
use super::mount_open::{Contained, Open, rings};
use crate::args;
use crate::contain::{self, Rights};
use crate::error::{Failure, Result};
use crate::format::line;
use crate::image::Standard;

/// Serves the program at the other end of standard input.
pub(crate) fn run(args: &args::Service) -> Result<()> {
    let service = accepted().map_err(|err| {
        let text = format!("a service of mounts: {err}; let fuservicemount3 start it");
        Failure::Failed(text)
    })?;
    let done = mount(args, &service);
    // Without effect on a mount that was there.
    done.inspect_err(|failure| {
        service.refuse(&line(failure.message().unwrap_or_default()), failure.code());
    })
}

fn accepted() -> io::Result<Arc<Service>> {
    close_inherited()?;
    let socket = io::stdin().as_fd().try_clone_to_owned()?;
    let null = File::options().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdin(&null)?;
    Service::accept(socket).map(Arc::new)
}

fn mount(args: &args::Service, service: &Arc<Service>) -> Result<()> {
    let (image, dir, lists) = words(service.arguments())?;
    let mut options = FuseOptions::parse(&[&args.options[..], &lists].concat())?;
    check(&options, service)?;
    settle(&mut options);
    syncline_fuse::prepare_memory();
    let (files, client) = opened(service, &options, image)?;
    let shown = client.shown.clone();
    let (unpacking, rings) = (Standard::contained("unpack"), rings(&options, &shown));
    let (trace, log, control, null) = Default::default();
    let open = Open { image: files, unpacking, trace, log, control, rings, null };
    let log_reason = chosen_log(&mut options, (&shown, &dir), &open);
    let host = ServiceHost::new(Arc::clone(service), &dir, &shown, &options);
    // The FUSE device comes from the user: none is opened.
    let (layers, _) = contain::enter(open.limits(&options), &[]);
    layers.check(options.sandbox)?;
    // Of a test; the product has none.
    eprint!("{}", contain::attacked());
    let (host, rights, own_queues) = (Arc::new(host), Arc::new(client), false);
    let contained = Contained { host, rights, layers, own_queues };
    let (mounter, in_background) = (None, false);
    let serving = Serving { open, contained, options, log_reason, mounter, in_background };
    let ready = || service.done().map_err(|err| Failure::host(&dir, &err));
    serving.serve(&shown, &dir, Some(ready))
}

/// Image, directory and lists of options of a program that mounts.
fn words(arguments: &[OsString]) -> Result<(PathBuf, PathBuf, Vec<String>)> {
    let translated = crate::helper::translate(arguments, "mount").unwrap_or_default();
    let (mut paths, mut lists) = (Vec::new(), Vec::new());
    let mut rest = translated.into_iter().skip(2);
    while let Some(word) = rest.next() {
        if word == "-o" {
            let list = rest.next().unwrap_or_default().into_string();
            let wrong = |_| Failure::Usage("options that are no text; write them in UTF-8".into());
            lists.push(list.map_err(wrong)?);
        } else {
            paths.push(PathBuf::from(word));
        }
    }
    match <[PathBuf; 2]>::try_from(paths) {
        Ok([image, dir]) => Ok((image, dir, lists)),
        Err(_) => {
            Err(Failure::Usage("two paths are needed; give an image and a directory".to_owned()))
        }
    }
}

/// Refuses what needs more than the files that the other program opens.
fn check(options: &FuseOptions, service: &Service) -> Result<()> {
    let own = "a service opens no files and asks nobody; leave it out, or use `syncline mount`";
    let power = "a service cannot ask for the state of the battery; give power=off, or use \
                 `syncline mount`";
    let session = "a service cannot ask for the state of the session; give session=off, or use \
                   `syncline mount`";
    let others = "only root may give it; add the line user_allow_other to /etc/fuse.conf";
    let policies = options.policies();
    let refused = [
        (options.trace.is_some(), "trace", own),
        (options.buffer_log.is_some(), "buffer_log", own),
        (options.sensor.is_some(), "sensor", own),
        (policies.contains(&"power=on"), "power=on", power),
        (policies.contains(&"session=on"), "session=on", session),
        (options.sandbox == Sandbox::Off, "sandbox=off", "a service is contained; leave it out"),
        (options.allow_other && !service.allows_other(), "allow_other", others),
    ];
    match refused.into_iter().find(|(is_given, ..)| *is_given) {
        Some((_, name, why)) => Err(Failure::Usage(format!("mount option `{name}`: {why}"))),
        None => Ok(()),
    }
}

/// Has the image and the files below it opened.
fn opened(
    service: &Arc<Service>,
    options: &FuseOptions,
    image: PathBuf,
) -> Result<(Files, Client)> {
    let read_only = options.volume.read_only;
    let file = asked(service, &image, &image, read_only)?;
    let identity = file.identity()?;
    // Its absolute name, which the arguments need not have.
    let raw = file.try_clone_file().map_err(|err| Failure::host(&image, &err))?;
    let link = std::fs::read_link(format!("/proc/self/fd/{}", raw.as_raw_fd()));
    let shown = link.ok().filter(|path| path.is_absolute()).unwrap_or_else(|| image.clone());
    let below =
        options.backing.iter().map(|path| Ok((asked(service, path, path, true)?, path.clone())));
    let files = Files::alone(file, &shown, below.collect::<Result<_>>()?)?;
    Ok((files, Client { service: Arc::clone(service), image, shown, identity }))
}

fn asked(service: &Service, path: &Path, shown: &Path, read_only: bool) -> Result<FileDevice> {
    let options = FileOptions { read_only, ..FileOptions::default() };
    Ok(FileDevice::open_by(shown, options, &|flags| service.open(path, flags))?)
}

/// Rights that the user's program still has, before it has made the mount.
struct Client {
    service: Arc<Service>,
    /// As that program names it.
    image: PathBuf,
    shown: PathBuf,
    /// Device and inode number of the image.
    identity: (u64, u64),
}

impl Rights for Client {
    fn open_image(&self, read_only: bool) -> Result<FileDevice> {
        let file = asked(&self.service, &self.image, &self.shown, read_only)?;
        if file.identity()? == self.identity {
            Ok(file)
        } else {
            Err(super::reopened::another(&self.shown))
        }
    }

    fn log(&self, text: &str) {
        crate::complain(&format!("{}: {text}", self.shown.display()));
    }

    fn services(&self) -> (Session, Power) {
        Default::default()
    }

    fn remove_control(&self) {}

    fn remove_log(&self) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(line: &str) -> Result<(PathBuf, PathBuf, Vec<String>)> {
        words(&line.split(' ').map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn arguments_are_those_of_a_mount_helper() {
        let (image, dir, lists) = of("syncline a.img dir -s -o ro,noatime -ouid=7").unwrap();
        assert_eq!((image, dir), ("a.img".into(), "dir".into()));
        assert_eq!(lists, ["ro,noatime", "uid=7"]);
        for wrong in
            ["syncline a.img", "syncline a b c", "syncline a b --keeper", "syncline a b -f"]
        {
            let failure = of(wrong).unwrap_err();
            assert_eq!(failure.code(), 2, "{wrong}");
            assert!(failure.message().unwrap().starts_with("two paths are needed; "), "{wrong}");
        }
    }
}
