//! The first request and its answer: abilities of both sides.

use rustix::io::Errno;

use super::{Body, Field, Out, sys};

/// Abilities, bits of `flags` and `flags2` of INIT (linux/fuse.h).
pub(crate) mod flag {
    pub(crate) const ASYNC_READ: u64 = 1 << 0;
    pub(crate) const EXPORT_SUPPORT: u64 = 1 << 4;
    pub(crate) const BIG_WRITES: u64 = 1 << 5;
    pub(crate) const DONT_MASK: u64 = 1 << 6;
    pub(crate) const DO_READDIRPLUS: u64 = 1 << 13;
    pub(crate) const READDIRPLUS_AUTO: u64 = 1 << 14;
    pub(crate) const WRITEBACK_CACHE: u64 = 1 << 16;
    pub(crate) const PARALLEL_DIROPS: u64 = 1 << 18;
    pub(crate) const POSIX_ACL: u64 = 1 << 20;
    pub(crate) const MAX_PAGES: u64 = 1 << 22;
    pub(crate) const CACHE_SYMLINKS: u64 = 1 << 23;
    pub(crate) const HANDLE_KILLPRIV_V2: u64 = 1 << 28;
    pub(crate) const INIT_EXT: u64 = 1 << 30;
    pub(crate) const DIRECT_IO_ALLOW_MMAP: u64 = 1 << 36;
    pub(crate) const OVER_IO_URING: u64 = 1 << 41;
}

/// Version of the protocol.
const MAJOR: u32 = 7;
/// Newest minor version that is spoken, and the oldest (Linux 5.4).
const MINOR: u32 = 40;
const MINOR_MIN: u32 = 31;

/// Abilities of the kernel, `struct fuse_init_in`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Offer {
    pub(crate) major: u32,
    minor: u32,
    pub(crate) readahead_bytes: u32,
    pub(crate) flags: u64,
}

impl Offer {
    pub(crate) fn parse(body: &mut Body<'_>) -> Result<Offer, Errno> {
        let (major, minor) = (u32::take(body)?, u32::take(body)?);
        let (readahead_bytes, low) = (u32::take(body)?, u64::from(u32::take(body)?));
        // Older kernels have no second word.
        let high = if low & flag::INIT_EXT == 0 { 0 } else { u64::from(u32::take(body)?) };
        Ok(Offer { major, minor, readahead_bytes, flags: high << 32 | low })
    }

    /// The kernel is older than what this side needs.
    pub(crate) fn is_too_old(&self) -> bool {
        self.major < MAJOR || self.major == MAJOR && self.minor < MINOR_MIN
    }

    /// A newer kernel asks again, with our major version.
    pub(crate) fn is_too_new(&self) -> bool {
        self.major > MAJOR
    }
}

/// Abilities that are used, `struct fuse_init_out`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Agreement {
    pub(crate) flags: u64,
    pub(crate) readahead_bytes: u32,
    /// Bytes of the largest write, and of the largest read.
    pub(crate) request_bytes: u32,
    pub(crate) background: u16,
    pub(crate) time_granularity_ns: u32,
}

impl Agreement {
    pub(crate) fn put(&self, out: &mut Out<'_>) -> bool {
        let congestion = (u32::from(self.background) * 3 / 4) as u16;
        let pages = self.request_bytes.max(self.readahead_bytes).div_ceil(sys::page_bytes()) as u16;
        let (low, high) = (self.flags as u32, (self.flags >> 32) as u32);
        let head = [MAJOR, MINOR, self.readahead_bytes, low].map(u32::to_ne_bytes).concat();
        let background = [self.background, congestion].map(u16::to_ne_bytes).concat();
        let sizes = [self.request_bytes, self.time_granularity_ns].map(u32::to_ne_bytes).concat();
        let pages = [pages, 0].map(u16::to_ne_bytes).concat();
        let tail = [high, 0, 0, 0, 0, 0, 0, 0].map(u32::to_ne_bytes).concat();
        out.put(&[&head, &background, &sizes, &pages, &tail])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_has_the_layout_of_linux() {
        let (mut bytes, flags) = ([0; 80], flag::MAX_PAGES | flag::OVER_IO_URING);
        let agreed = Agreement {
            flags,
            readahead_bytes: 1 << 17,
            request_bytes: 1 << 20,
            background: 64,
            time_granularity_ns: 1,
        };
        let mut out = Out::new(&mut bytes);
        assert!(agreed.put(&mut out));
        assert_eq!(out.len(), 64);
        let word = |at: usize| u32::from_ne_bytes(*bytes[at..].first_chunk().unwrap());
        let words = [0, 4, 8, 12, 20, 24, 32, 36].map(word);
        assert_eq!(words, [7, 40, 1 << 17, 1 << 22, 1 << 20, 1, 1 << 9, 0]);
        let half = |at: usize| u16::from_ne_bytes(*bytes[at..].first_chunk().unwrap());
        assert_eq!([16, 18, 28].map(half), [64, 48, 256]);
    }

    #[test]
    fn a_second_word_of_abilities_is_there_if_it_is_said() {
        let words = |low: u32| [7, 45, 9, low, 1 << 9].map(u32::to_ne_bytes).concat();
        let offered = |low| Offer::parse(&mut Body::whole(&words(low))).unwrap();
        assert_eq!(offered(1).flags, 1);
        let all = flag::INIT_EXT | flag::OVER_IO_URING;
        assert_eq!(offered(1 << 30).flags, all);
        assert!(!offered(1).is_too_old() && !offered(1).is_too_new());
        assert!(Offer::parse(&mut Body::whole(&words(1)[..12])).is_err());
    }
}
