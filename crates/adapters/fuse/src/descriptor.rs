//! Requests through a descriptor, which need no mount.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use fuser::{Config, Session, SessionACL};

use crate::adapter::Adapter;
use crate::affinity::CpuAffinity;
use crate::parking::Parking;
use crate::session::{Setup, serving};

/// Serves what comes through `from`, one request after the other, until it ends: a descriptor of
/// /dev/fuse that somebody else has mounted, or a socket of packets whose other end speaks FUSE.
/// Every file is closed then. The volume is not unmounted: a clone of it can be.
///
/// # Errors
/// Any end but the kernel's own: [`io::ErrorKind::InvalidData`] for bytes that are no request, the
/// end of a socket among them, which is read as none.
pub fn serve_descriptor(setup: &Setup<'_>, from: OwnedFd) -> io::Result<()> {
    let (serve, tap) = serving(setup);
    let parking = Parking::new(1, CpuAffinity::default());
    let adapter = Adapter::new(Arc::clone(&serve), tap, parking, &setup.options);
    let notifier = adapter.notifier();
    let mut config = Config::default();
    config.n_threads = Some(1);
    let session = Session::from_fd(adapter, from, SessionACL::All, config)?;
    // The cell is new, and no request was answered yet.
    let _ = notifier.set(session.notifier());
    drop(notifier);
    let done = session.run();
    serve.clear();
    done
}
