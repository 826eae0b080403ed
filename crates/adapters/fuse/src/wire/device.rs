//! The transport of every kernel: /dev/fuse, or a socket of packets in its place.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::io::Errno;

use super::{Body, Field, Header, Offer, Out, Turn, opcode, sys};
use crate::adapter::{Adapter, REQUEST_BYTES_MAX};
use crate::convert;
use crate::parking::Parking;

/// Bytes of the header of an answer, `struct fuse_out_header`.
pub(super) const ANSWER_BYTES: usize = 16;
/// Bytes of a request besides its data.
const FIXED_BYTES: usize = 4096;
/// Number of the notification that an inode's attributes or contents changed.
const NOTIFY_INVAL_INODE: i32 = 2;

/// The header of an answer.
pub(super) fn answer_header(unique: u64, done: Result<usize, Errno>) -> [u8; ANSWER_BYTES] {
    let (len, error) = match done {
        Ok(len) => (len, 0),
        Err(errno) => (0, -errno.raw_os_error()),
    };
    header(len, error, unique)
}

fn header(len: usize, error: i32, unique: u64) -> [u8; ANSWER_BYTES] {
    let mut bytes = [0; ANSWER_BYTES];
    bytes[..4].copy_from_slice(&((ANSWER_BYTES + len) as u32).to_ne_bytes());
    bytes[4..8].copy_from_slice(&error.to_ne_bytes());
    bytes[8..].copy_from_slice(&unique.to_ne_bytes());
    bytes
}

/// One queue of requests.
#[derive(Clone)]
pub(crate) struct Device(Arc<OwnedFd>);

impl AsFd for Device {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Device {
    pub(crate) fn new(from: OwnedFd) -> Device {
        Device(Arc::new(from))
    }

    /// A further queue of the same mount; needs a right to open /dev/fuse.
    pub(crate) fn further(&self) -> io::Result<Device> {
        let further = std::fs::File::options().read(true).write(true).open("/dev/fuse")?;
        sys::clone_device(&further, self.as_fd())?;
        Ok(Device::new(further.into()))
    }

    /// The next request; `None`: the mount is gone.
    fn receive(&self, into: &mut [u8]) -> io::Result<Option<usize>> {
        loop {
            match rustix::io::read(&*self.0, &mut *into) {
                Ok(len) => return Ok(Some(len)),
                // A request that was interrupted, or a signal.
                Err(Errno::NOENT | Errno::INTR | Errno::AGAIN) => {}
                Err(Errno::NODEV) => return Ok(None),
                Err(err) => return Err(err.into()),
            }
        }
    }

    fn send(&self, head: &[u8], body: &[u8]) -> rustix::io::Result<()> {
        rustix::io::writev(&*self.0, &[IoSlice::new(head), IoSlice::new(body)]).map(drop)
    }

    /// Sends an answer. Nobody waits any more where it fails: the request was interrupted, or the
    /// mount is gone.
    fn answer(&self, unique: u64, done: Result<&[u8], Errno>) {
        let head = answer_header(unique, done.map(<[u8]>::len));
        let _ = self.send(&head, done.unwrap_or_default());
    }

    /// Lets the kernel drop its copy of an inode's attributes, and of its contents from `from` on
    /// unless that is negative. It has none where this fails.
    pub(crate) fn invalidate(&self, ino: u32, from: i64) {
        let body = [convert::node(ino), from as u64, 0].map(u64::to_ne_bytes).concat();
        let head = header(body.len(), NOTIFY_INVAL_INODE, 0);
        let _ = self.send(&head, &body);
    }

    /// Answers INIT, as `agree` likes.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidData`] for another request, [`io::ErrorKind::NotConnected`] if the
    /// mount is gone, [`io::ErrorKind::Unsupported`] for a kernel that is too old.
    pub(crate) fn handshake(
        &self,
        mut agree: impl FnMut(&Offer) -> super::Agreement,
    ) -> io::Result<()> {
        let (mut request, mut answer) = (vec![0; REQUEST_BYTES_MAX as usize], [0; 128]);
        loop {
            let len = self.receive(&mut request)?.ok_or(io::ErrorKind::NotConnected)?;
            let header = Header::parse(&request[..len]).ok_or(io::ErrorKind::InvalidData)?;
            let refused = |errno: Errno, kind: io::ErrorKind| {
                self.answer(header.unique, Err(errno));
                Err(kind.into())
            };
            if header.opcode != opcode::INIT {
                return refused(Errno::IO, io::ErrorKind::InvalidData);
            }
            let offer = Offer::parse(&mut Body::whole(&request[Header::BYTES..len]))?;
            if offer.is_too_old() {
                return refused(Errno::PROTO, io::ErrorKind::Unsupported);
            }
            let mut out = Out::new(&mut answer);
            let agreed = if offer.is_too_new() { Default::default() } else { agree(&offer) };
            let fits = agreed.put(&mut out);
            debug_assert!(fits, "an answer to INIT has 64 bytes");
            let len = out.len();
            self.answer(header.unique, Ok(&answer[..len]));
            if !offer.is_too_new() {
                return Ok(());
            }
        }
    }
}

/// Serves what comes through `device` until the mount is gone.
///
/// # Errors
/// [`io::ErrorKind::InvalidData`] for bytes that are no request; those of the device.
pub(crate) fn serve(device: &Device, adapter: &Adapter, parking: &Arc<Parking>) -> io::Result<()> {
    let mut request = vec![0; REQUEST_BYTES_MAX as usize + FIXED_BYTES];
    let mut answer = vec![0; REQUEST_BYTES_MAX as usize];
    while let Some(len) = device.receive(&mut request)? {
        let header = Header::parse(&request[..len]).ok_or(io::ErrorKind::InvalidData)?;
        let mut body = Body::whole(&request[Header::BYTES..len]);
        match header.opcode {
            opcode::FORGET => {
                if let Ok(lookups) = u64::take(&mut body) {
                    forget(adapter, parking, (header.node, lookups));
                }
            }
            opcode::BATCH_FORGET => forget_all(adapter, parking, &mut body),
            opcode::DESTROY => {
                device.answer(header.unique, Ok(&[]));
                return Ok(());
            }
            _ => {
                let (mut out, mut turn) = (Out::new(&mut answer), Turn::of(parking));
                let done = adapter.answer(&header, &mut body, &mut out, &mut turn);
                let len = out.len();
                device.answer(header.unique, done.map(|()| &answer[..len]));
            }
        }
    }
    Ok(())
}

fn forget(adapter: &Adapter, parking: &Arc<Parking>, (node, lookups): (u64, u64)) {
    let _served = parking.begin_part(crate::parking::Class::Names);
    adapter.forget(node, lookups);
}

/// Takes what there is: a count that is too high is a kernel's mistake.
fn forget_all(adapter: &Adapter, parking: &Arc<Parking>, body: &mut Body<'_>) {
    let (Ok(count), Ok(_)) = (u32::take(body), u32::take(body)) else { return };
    for _ in 0..count {
        let (Ok(node), Ok(lookups)) = (u64::take(body), u64::take(body)) else { return };
        forget(adapter, parking, (node, lookups));
    }
}
