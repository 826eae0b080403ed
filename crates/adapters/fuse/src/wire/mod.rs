//! FUSE as bytes: requests, answers, and the two transports of them.
//!
//! ```text
//!   /dev/fuse   read(2)  -> Header, Body -+                       +-> write(2)     device.rs
//!                                         +-> Adapter::answer, Out |
//!   io_uring    entry    -> Header, Body -+   (operations.rs)     +-> commit       ring.rs
//!                                                                     one per entry
//! ```
//!
//! A request is a header, a structure of the kernel, and names or data. Each row of
//! `operations.rs` takes the fields of its structure in the order of linux/fuse.h. Both transports
//! hand over the same three parts ([`Body`]), so a row does not know which of them it serves.
//!
//! Promises
//! - Any bytes are a request or an error; none ends the mount, but for a request without a whole
//!   header.
//! - Every request that has an answer gets exactly one.
//! - Io_uring is used if the kernel offers it and every queue has an entry. Otherwise all requests
//!   come through /dev/fuse, as they do from older kernels.
//!
//! Rejected: fuser 0.18 and fuse-backend-rs 0.14 have no FUSE over io_uring, and no seam at which a
//! transport can be added.
//!
//! Assumptions: FUSE 7.31 or later. FORGET and INTERRUPT come through /dev/fuse, and notifications
//! go there, with io_uring too (fs/fuse/dev_uring.c).

mod body;
mod device;
mod init;
mod out;
pub(crate) mod ring;
mod sys;

pub(crate) use body::{Body, Data, Field, Header, Name, Node, Offset, Zero};
pub(crate) use device::{Device, serve};
pub(crate) use init::{Agreement, Offer, flag};
pub(crate) use out::Out;
pub use ring::Rings;

use crate::parking::{Class, Parking, Served};
use std::sync::Arc;

/// Requests that a transport handles itself.
pub(crate) mod opcode {
    pub(crate) const FORGET: u32 = 2;
    pub(crate) const INIT: u32 = 26;
    pub(crate) const DESTROY: u32 = 38;
    pub(crate) const BATCH_FORGET: u32 = 42;
}

/// One request under way in a worker, until its answer is sent.
#[derive(Default)]
pub(crate) struct Turn<'a> {
    /// Workers that wait for each other; none where each has its own entries.
    parking: Option<&'a Arc<Parking>>,
    served: Option<Served<'a>>,
}

impl<'a> Turn<'a> {
    pub(crate) fn of(parking: &'a Arc<Parking>) -> Turn<'a> {
        Turn { parking: Some(parking), served: None }
    }

    /// The request of the thread `caller` begins, which copies so many bytes.
    pub(crate) fn begin(&mut self, class: Class, caller: u32, bytes: usize) {
        self.served = self.parking.map(|parking| parking.begin(class, caller, bytes));
    }
}
