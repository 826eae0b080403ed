//! Negotiation with the kernel, dispatch of requests.
//!
//! ```text
//!   transport -> fields taken -> worker begins (parking) -> record begins (capture)
//!             -> function of `serve/` -> record sent -> answer made, sent -> worker ends
//! ```
//!
//! The requests themselves are rows of `operations.rs`.

use std::sync::{Arc, OnceLock};

use crate::capture::{Event, Tap};
use crate::convert;
use crate::ioctl::Stale;
use crate::kernel::keeps_right_beside_direct_writes;
use crate::options::FuseOptions;
use crate::serve::{Entry, Serve};
use crate::wire::{Agreement, Device, Offer, flag};

/// Largest write and read of one request, in bytes.
pub(crate) const REQUEST_BYTES_MAX: u32 = 1 << 20;

/// Requests that the kernel may have under way in the background (readahead, write-back).
const BACKGROUND_MAX: u16 = 64;

/// Hands requests to the volume.
pub(crate) struct Adapter {
    pub(crate) serve: Arc<Serve>,
    /// The capture of `trace=`.
    pub(crate) tap: Option<Arc<Tap>>,
    /// The kernel keeps written data until it likes.
    pub(crate) writeback_cache: bool,
    /// Every read and write of a program comes here, past the kernel's cache.
    pub(crate) all_reads: bool,
    /// The kernel's cache stays right beside writes that go past it.
    pub(crate) may_bypass: bool,
    /// Takes notifications; set when the mount is there.
    pub(crate) device: OnceLock<Device>,
}

impl Adapter {
    pub(crate) fn new(serve: Arc<Serve>, tap: Option<Arc<Tap>>, options: &FuseOptions) -> Adapter {
        Adapter {
            serve,
            tap,
            writeback_cache: options.writeback_cache,
            all_reads: options.trace_reads,
            may_bypass: false,
            device: OnceLock::new(),
        }
    }

    /// Lets the kernel drop its copy of an inode's attributes, but not of the contents, for which
    /// it might have to wait. Otherwise the old ones are shown until the inode leaves its memory.
    pub(crate) fn attributes_changed(&self, ino: u32) {
        if let Some(device) = self.device.get() {
            device.invalidate(ino, -1);
        }
    }

    /// Lets the kernel drop its copy of an inode's contents, and of its attributes. May wait for
    /// pages that other workers are about to answer.
    pub(crate) fn contents_changed(&self, ino: u32) {
        if let Some(device) = self.device.get() {
            device.invalidate(ino, 0);
        }
    }

    /// As one of the two, after an ioctl.
    pub(crate) fn changed(&self, ino: u32, what: Stale) {
        match what {
            Stale::Nothing => {}
            Stale::Attributes => self.attributes_changed(ino),
            Stale::Contents => self.contents_changed(ino),
        }
    }

    /// Takes back `lookups` of an inode.
    pub(crate) fn forget(&self, node: u64, lookups: u64) {
        if let Ok(ino) = convert::ino(node) {
            self.serve.forget(ino, lookups);
            if let Some(tap) = &self.tap {
                tap.send(&Event::Forgot { ino, lookups });
            }
        }
    }

    /// Records a name that the kernel learns by a listing.
    pub(crate) fn listed(&self, dir: u32, entry: &Entry<'_>, taken: bool) {
        if let (Some(tap), Some(attr), true) = (&self.tap, &entry.attr, taken) {
            tap.send(&Event::Learned { dir, name: entry.name.into(), found: attr.into() });
        }
    }

    /// The answer to INIT. `ring`: io_uring can be used.
    pub(crate) fn agree(&mut self, offer: &Offer, ring: bool) -> Agreement {
        // Not FUSE_ATOMIC_O_TRUNC: an open with O_TRUNC would cut the file before the kernel finds
        // that it is a running program (ETXTBSY). Without it the kernel sends a SETATTR afterwards.
        // Not FUSE_ASYNC_DIO: with it an O_DIRECT write by io_submit or io_uring ends after the
        // kernel has dropped the pages of its range for the second time (`fuse_direct_io`,
        // `generic_file_direct_write`), and `fuse_aio_complete` drops none. A reader beside it can
        // have brought an old page back by then, which stays for good. Without it the call that
        // submits a write waits for it, and drops the pages afterwards. To tell the kernel to drop
        // them would be late, or wait for a page that waits for us.
        let mut wanted = flag::ASYNC_READ
            | flag::BIG_WRITES
            | flag::MAX_PAGES
            | flag::INIT_EXT
            | flag::PARALLEL_DIROPS
            | flag::DO_READDIRPLUS
            | flag::READDIRPLUS_AUTO
            | flag::CACHE_SYMLINKS
            | flag::HANDLE_KILLPRIV_V2
            | flag::POSIX_ACL
            | flag::DONT_MASK
            | flag::EXPORT_SUPPORT;
        if self.writeback_cache {
            wanted |= flag::WRITEBACK_CACHE;
        }
        if ring {
            wanted |= flag::OVER_IO_URING;
        }
        // Shared mappings go through the kernel's cache all the same (Linux 6.6).
        let with_maps = flag::DIRECT_IO_ALLOW_MMAP;
        let uname = rustix::system::uname();
        self.may_bypass = !self.writeback_cache
            && offer.flags & with_maps != 0
            && uname.release().to_str().is_ok_and(keeps_right_beside_direct_writes);
        if self.all_reads || self.may_bypass {
            wanted |= with_maps;
        }
        Agreement {
            // What the kernel does not have it does itself, or without.
            flags: wanted & offer.flags,
            readahead_bytes: offer.readahead_bytes.min(REQUEST_BYTES_MAX),
            request_bytes: REQUEST_BYTES_MAX,
            background: BACKGROUND_MAX,
            // Times that the kernel sets itself (`writeback_cache`) are as coarse as the image's.
            time_granularity_ns: self.serve.time_granularity_ns(),
        }
    }
}

/// Makes [`Adapter::answer`] from the rows of `operations.rs`: a function a row, by its number.
macro_rules! operations {
    (
        |$fuse:ident, $serve:ident, $caller:ident, $node:ident, $out:ident|
        $($request:ident $number:literal ($($field:ident: $form:ty),*) { $($row:tt)* })*
    ) => {
        $(fn $request<'a>(
            $fuse: &'a Adapter,
            ($node, $caller): (u32, $crate::caller::Caller),
            body: &mut $crate::wire::Body<'_>,
            $out: &mut $crate::wire::Out<'_>,
            turn: &mut $crate::wire::Turn<'a>,
        ) -> Result<(), Errno> {
            let _ = ($node, &mut *body);
            $(let $field = <$form as $crate::wire::Field>::take(body)?;)*
            $crate::adapter::row!($fuse, $serve, $caller, $node, $out, turn, $($row)*)
        })*

        /// Names of requests by their numbers.
        pub(crate) const NAMES: &[(u32, &str)] = &[$(($number, stringify!($request))),*];

        impl Adapter {
            /// Serves one request and puts its answer into `out`.
            ///
            /// # Errors
            /// The number that answers it instead.
            pub(crate) fn answer<'a>(
                &'a self,
                header: &$crate::wire::Header,
                body: &mut $crate::wire::Body<'_>,
                out: &mut $crate::wire::Out<'_>,
                turn: &mut $crate::wire::Turn<'a>,
            ) -> Result<(), Errno> {
                self.serve.count(header.opcode);
                let asked = (convert::ino(header.node)?, header.caller);
                match header.opcode {
                    $($number => $request(self, asked, body, out, turn),)*
                    _ => Err(Errno::NOSYS),
                }
            }
        }
    };
}

/// The body of one request.
macro_rules! row {
    (
        $fuse:ident, $serve:ident, $caller:ident, $node:ident, $out:ident, $turn:ident,
        $(let $name:ident = $value:expr,)*
        $(refuse: $condition:expr => $errno:expr,)?
        class: $class:expr,
        $(bytes: $bytes:expr,)?
        trace: $trace:expr,
        serve: $served:expr,
        answer: $answer:ident $(($($extra:expr),*))?,
    ) => {{
        let ($serve, tap) = (&*$fuse.serve, $fuse.tap.as_deref());
        $(let $name = $value;)*
        $(if $condition { return Err($errno); })?
        $turn.begin($class, $caller.thread, 0 $(+ $bytes)?);
        let done = $crate::capture::recorded(tap, $caller.thread, || $trace, || $served);
        $crate::parking::ready();
        match done {
            Ok(value) => $crate::answer::$answer($out, value $(, $($extra),*)?),
            Err(err) => Err($crate::convert::errno(&err)),
        }
    }};
    (
        $fuse:ident, $serve:ident, $caller:ident, $node:ident, $out:ident, $turn:ident,
        at_once: $answered:expr,
    ) => {{
        let _ = ($fuse, $caller, &mut *$out, $turn);
        $answered
    }};
}

pub(crate) use {operations, row};
