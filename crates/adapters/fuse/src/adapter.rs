//! The implementation of fuser's trait: negotiation with the kernel, dispatch of requests.
//!
//! ```text
//!   fuser -> arguments converted -> worker begins (parking) -> record begins (capture)
//!            -> function of `serve/` -> record sent -> answer sent -> worker ends
//! ```
//!
//! The requests themselves are rows of `operations.rs`.

use std::sync::{Arc, OnceLock};

use fuser::{InitFlags, KernelConfig, Notifier, Request};

use crate::caller::Caller;
use crate::capture::{Event, Tap};
use crate::convert;
use crate::ioctl::Stale;
use crate::kernel::keeps_right_beside_direct_writes;
use crate::options::FuseOptions;
use crate::parking::{Class, Parking, Served};
use crate::serve::{Entry, Serve};

/// Largest write and read of one request, in bytes.
pub(crate) const REQUEST_BYTES_MAX: u32 = 1 << 20;

/// Requests that the kernel may have under way in the background (readahead, write-back).
const BACKGROUND_MAX: u16 = 64;

/// Hands requests to the volume.
pub(crate) struct Adapter {
    pub(crate) serve: Arc<Serve>,
    /// The capture of `trace=`.
    pub(crate) tap: Option<Arc<Tap>>,
    parking: Arc<Parking>,
    /// The kernel keeps written data until it likes.
    pub(crate) writeback_cache: bool,
    /// Every read and write of a program comes here, past the kernel's cache.
    pub(crate) all_reads: bool,
    /// The kernel's cache stays right beside writes that go past it.
    pub(crate) may_bypass: bool,
    /// Set when the mount is there.
    notifier: Arc<OnceLock<Notifier>>,
}

impl Adapter {
    pub(crate) fn new(
        serve: Arc<Serve>,
        tap: Option<Arc<Tap>>,
        parking: Arc<Parking>,
        options: &FuseOptions,
    ) -> Adapter {
        Adapter {
            serve,
            tap,
            parking,
            writeback_cache: options.writeback_cache,
            all_reads: options.trace_reads,
            may_bypass: false,
            notifier: Arc::default(),
        }
    }

    /// The cell for the way to tell the kernel something.
    pub(crate) fn notifier(&self) -> Arc<OnceLock<Notifier>> {
        Arc::clone(&self.notifier)
    }

    /// Lets the kernel drop its copy of an inode's attributes, but not of the contents, for which
    /// it might have to wait.
    pub(crate) fn attributes_changed(&self, ino: u32) {
        if let Some(notifier) = self.notifier.get() {
            // Without it the old ones are shown until the inode leaves the kernel's memory.
            let _ = notifier.inval_inode(convert::node(ino), -1, 0);
        }
    }

    /// Lets the kernel drop its copy of an inode's contents, and of its attributes. May wait for
    /// pages that other workers are about to answer.
    pub(crate) fn contents_changed(&self, ino: u32) {
        if let Some(notifier) = self.notifier.get() {
            let _ = notifier.inval_inode(convert::node(ino), 0, 0);
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

    /// A worker begins a request that copies so many bytes.
    pub(crate) fn begin(&self, caller: Caller, class: Class, bytes: usize) -> Served<'_> {
        self.parking.begin(class, caller.thread, bytes)
    }

    /// Takes back `lookups` of an inode; called for each part of a batch, too.
    pub(crate) fn forget(&self, node: fuser::INodeNo, lookups: u64) {
        let _served = self.parking.begin_part(Class::Names);
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

    /// Answers INIT.
    pub(crate) fn agree(&mut self, config: &mut KernelConfig) {
        // Not FUSE_ATOMIC_O_TRUNC: an open with O_TRUNC would cut the file before the kernel finds
        // that it is a running program (ETXTBSY). Without it the kernel sends a SETATTR afterwards.
        // Not FUSE_ASYNC_DIO: with it an O_DIRECT write by io_submit or io_uring ends after the
        // kernel has dropped the pages of its range for the second time (`fuse_direct_io`,
        // `generic_file_direct_write`), and `fuse_aio_complete` drops none. A reader beside it can
        // have brought an old page back by then, which stays for good. Without it the call that
        // submits a write waits for it, and drops the pages afterwards. To tell the kernel to drop
        // them would be late, or wait for a page that waits for us.
        let mut wanted = InitFlags::FUSE_PARALLEL_DIROPS
            | InitFlags::FUSE_DO_READDIRPLUS
            | InitFlags::FUSE_READDIRPLUS_AUTO
            | InitFlags::FUSE_CACHE_SYMLINKS
            | InitFlags::FUSE_HANDLE_KILLPRIV_V2
            | InitFlags::FUSE_POSIX_ACL
            | InitFlags::FUSE_DONT_MASK
            | InitFlags::FUSE_EXPORT_SUPPORT;
        if self.writeback_cache {
            wanted |= InitFlags::FUSE_WRITEBACK_CACHE;
        }
        // Shared mappings go through the kernel's cache all the same (Linux 6.6).
        let with_maps = InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP;
        let uname = rustix::system::uname();
        self.may_bypass = !self.writeback_cache
            && config.capabilities().contains(with_maps)
            && uname.release().to_str().is_ok_and(keeps_right_beside_direct_writes);
        if self.all_reads || self.may_bypass {
            wanted |= with_maps;
        }
        // What the kernel does not have it does itself, or without.
        let _ = config.add_capabilities(wanted & config.capabilities());
        let _ = config.set_max_write(REQUEST_BYTES_MAX);
        let _ = config.set_max_background(BACKGROUND_MAX);
        // Times that the kernel sets itself (`writeback_cache`) are as coarse as the image's.
        let _ = config.set_time_granularity(self.serve.time_granularity());
        if let Err(most) = config.set_max_readahead(REQUEST_BYTES_MAX) {
            let _ = config.set_max_readahead(most);
        }
    }
}

impl From<&Request> for Caller {
    fn from(request: &Request) -> Caller {
        Caller { thread: request.pid(), uid: request.uid(), gid: request.gid() }
    }
}

/// Makes fuser's `Filesystem` from the rows of `operations.rs`.
macro_rules! operations {
    (
        |$fuse:ident, $serve:ident, $caller:ident, $reply:ident|
        $($request:ident ($($argument:ident: $type:ty),*) -> $answer:ty { $($row:tt)* })*
    ) => {
        #[allow(unused_mut, reason = "a listing is put into its reply while it is served")]
        impl Filesystem for Adapter {
            fn init(&mut self, _: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
                self.agree(config);
                Ok(())
            }

            fn forget(&self, _: &Request, node: INodeNo, lookups: u64) {
                Adapter::forget(self, node, lookups);
            }

            $(fn $request(&self, request: &Request, $($argument: $type,)* mut $reply: $answer) {
                $(let $argument = match $crate::convert::Argument::taken($argument) {
                    Ok(taken) => taken,
                    Err(errno) => return $reply.error(errno),
                };)*
                let ($fuse, request) = (self, request);
                $crate::adapter::row!($fuse, $serve, $caller, $reply, request, $($row)*);
            })*
        }
    };
}

/// The body of one request.
macro_rules! row {
    (
        $fuse:ident, $serve:ident, $caller:ident, $reply:ident, $request:ident,
        $(let $name:ident = $value:expr,)*
        $(refuse: $condition:expr => $errno:expr,)?
        class: $class:expr,
        $(bytes: $bytes:expr,)?
        trace: $trace:expr,
        serve: $served:expr,
        answer: $answer:ident $(($($extra:expr),*))?,
    ) => {
        let $caller = $crate::caller::Caller::from($request);
        let ($serve, tap) = (&*$fuse.serve, $fuse.tap.as_deref());
        $(let $name = $value;)*
        $(if $condition { return $reply.error($errno); })?
        let _served = $fuse.begin($caller, $class, 0 $(+ $bytes)?);
        let done = $crate::capture::recorded(tap, $caller.thread, || $trace, || $served);
        $crate::parking::ready();
        match done {
            Ok(value) => $crate::answer::$answer($reply, value $(, $($extra),*)?),
            Err(err) => $reply.error($crate::convert::errno(&err)),
        }
    };
    (
        $fuse:ident, $serve:ident, $caller:ident, $reply:ident, $request:ident,
        $(refuse: $condition:expr => $errno:expr,)?
        at_once: $answered:expr,
    ) => {
        let _ = ($fuse, $request);
        $(if $condition { return $reply.error($errno); })?
        $answered
    };
}

pub(crate) use {operations, row};
