//! Requests through a descriptor, which need no mount.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::adapter::Adapter;
use crate::affinity::CpuAffinity;
use crate::parking::Parking;
use crate::session::{Setup, serving};
use crate::wire::{self, Device};

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
    let mut adapter = Adapter::new(Arc::clone(&serve), tap, &setup.options);
    let device = Device::new(from);
    device.handshake(|offer| adapter.agree(offer, false))?;
    // The cell is new.
    let _ = adapter.device.set(device.clone());
    let done = wire::serve(&device, &adapter, &parking);
    serve.clear();
    done
}
