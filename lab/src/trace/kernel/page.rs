//! One page of the kernel's ring buffer (`kernel/trace/ring_buffer.c`, header of a page and of an
//! event; the same since Linux 2.6.31).
//!
//! ```text
//!   0 u64 time of the page, ns   8 long bytes of data | flags    16 data
//!   event:  u32 type:5 delta:27   1..=28: data of type x 4 bytes   0: u32 length, data
//!                                 29: padding   30: u32 more delta   31: u32 of an absolute time
//!   flags:  bit 31 events were lost before this page   bit 30: how many is behind the data
//! ```

/// Bytes before the data.
const HEADER_BYTES: usize = 16;
const LOST: u64 = 1 << 31;
const LOST_STORED: u64 = 1 << 30;
const COMMIT_MASK: u64 = (1 << 27) - 1;
/// Low bits of an absolute time that an event carries.
const TIME_BITS: u32 = 59;

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let part = bytes.get(at..at.checked_add(4)?)?;
    part.try_into().ok().map(u32::from_ne_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    let part = bytes.get(at..at.checked_add(8)?)?;
    part.try_into().ok().map(u64::from_ne_bytes)
}

/// Type and delta of an event: bit fields, whose order is that of the machine's bytes.
fn split(word: u32) -> (u32, u64) {
    if cfg!(target_endian = "big") {
        (word >> 27, u64::from(word & 0x07FF_FFFF))
    } else {
        (word & 31, u64::from(word >> 5))
    }
}

/// Passes time and bytes of every event of a page on. Returns how many were lost before it; at
/// least 1 if some were. What is damaged ends the page.
pub(super) fn each<'a>(page: &'a [u8], take: &mut dyn FnMut(u64, &'a [u8])) -> u64 {
    let (Some(mut time_ns), Some(commit)) = (u64_at(page, 0), u64_at(page, 8)) else { return 0 };
    // A long of 32 bits leaves the upper half to the data.
    let (commit, header) = match size_of::<usize>() {
        4 => (u64::from(u32_at(page, 8).unwrap_or(0)), 12),
        _ => (commit, HEADER_BYTES),
    };
    let bytes = usize::try_from(commit & COMMIT_MASK).unwrap_or(0);
    let data = page.get(header..).unwrap_or_default();
    let lost = match (commit & LOST != 0, commit & LOST_STORED != 0) {
        (true, true) => u64_at(data, bytes).unwrap_or(1).max(1),
        (true, false) => 1,
        _ => 0,
    };
    let data = data.get(..bytes).unwrap_or(data);
    let mut at = 0;
    // Every iteration consumes at least four bytes.
    while let Some(word) = u32_at(data, at) {
        let (kind, delta) = split(word);
        let more = u32_at(data, at + 4);
        let (start, end) = match kind {
            29 if delta == 0 => break,
            29 => {
                time_ns = time_ns.wrapping_add(delta);
                let Some(bytes) = more else { break };
                at = at.saturating_add(4).saturating_add((bytes as usize).max(4));
                continue;
            }
            30 | 31 => {
                let Some(more) = more else { break };
                let time = delta | u64::from(more) << 27;
                time_ns = match kind {
                    30 => time_ns.wrapping_add(time),
                    _ => time_ns >> TIME_BITS << TIME_BITS | time & ((1 << TIME_BITS) - 1),
                };
                at += 8;
                continue;
            }
            0 => {
                let Some(bytes) = more else { break };
                (at + 8, at.saturating_add(4).saturating_add((bytes as usize).max(4)))
            }
            words => (at + 4, at + 4 + 4 * words as usize),
        };
        time_ns = time_ns.wrapping_add(delta);
        let Some(event) = data.get(start..end) else { break };
        take(time_ns, event);
        // Events begin at multiples of four bytes.
        at = end.next_multiple_of(4);
    }
    lost
}
