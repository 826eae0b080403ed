//! `isolate`: the process that reads an image for a library whose open has the option `isolate`.
//!
//! Standard input is a socket to the library, which sends the files of the image. The process gives
//! up its rights before it reads them ([`crate::contain`]). It can do nothing for its user that
//! this user could not do: all that it uses is what the user has opened for it.

use std::convert::Infallible;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, RawFd};

use syncline::Disk;

use super::mount_open::DATA_BYTES;
use crate::contain::{self, Keeps, Limits};
use crate::error::{Failure, Result};

/// Most open descriptors: the image, a connection for each call of the library that is under way.
const DESCRIPTORS_MAX: u64 = 64;
/// First descriptor that is not a standard one.
const FIRST: RawFd = 3;

/// Serves the library; returns only if there is none.
pub(crate) fn run() -> Result<Infallible> {
    let failed = |err: io::Error| Failure::Failed(format!("the helper of a library: {err}"));
    close_inherited().map_err(failed)?;
    let control = io::stdin().as_fd().try_clone_to_owned().map_err(failed)?;
    let null = File::open("/dev/null").map_err(failed)?;
    rustix::stdio::dup2_stdin(&null).map_err(|err| failed(err.into()))?;
    drop(null);
    let contain = |size_bytes, cache_bytes: u64| {
        let limits = Limits {
            descriptors: DESCRIPTORS_MAX,
            data_bytes: DATA_BYTES.saturating_add(cache_bytes.saturating_mul(4)),
            file_bytes: Some(size_bytes),
            keeps: Keeps::Nothing,
        };
        contain::enter(limits, &[]);
        // Of a test; the product has none.
        eprint!("{}", contain::attacked());
    };
    Disk::isolated(&control, contain).map_err(|err| Failure::Usage(err.text))?;
    // The library is gone: as if this process had been killed with it.
    std::process::exit(0)
}

/// Closes what the library's program has open without close-on-exec. Nothing of this process is
/// open yet.
pub(super) fn close_inherited() -> io::Result<()> {
    let open = std::fs::read_dir("/proc/self/fd")?;
    let names = open.map(|entry| Ok(entry?.file_name())).collect::<io::Result<Vec<_>>>()?;
    let numbers = names.iter().filter_map(|name| name.to_str()?.parse::<RawFd>().ok());
    for descriptor in numbers.filter(|number| *number >= FIRST) {
        // The one that listed them is closed already.
        let _ = nix::unistd::close(descriptor);
    }
    Ok(())
}
