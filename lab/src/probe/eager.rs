//! Mount options of `sync=eager` for a device: the size from which an fsync writes data in place.
//!
//! ```text
//!   for 16 KiB, 32 KiB ... 4 MiB of one sync, on the profile
//!     log:    data and a metadata block behind the last ones, flush; in place every 16 syncs
//!     place:  data in place, flush; a metadata block to the log, flush
//!   the smallest size from which on `log` takes half as long again as `place`
//! ```
//!
//! A caller waits least with a copy in the log: one flush. The copy costs the time of its bytes,
//! and the data goes to its place later all the same; in place costs a second flush and, by the
//! device, much or nothing for each address that does not follow the last one. So small syncs go
//! to the log, and large ones in place where the copy costs throughput ([`COST_MAX`]). Three kinds
//! of data have an option each: new blocks (`eager_stream`), overwritten ones in a row
//! (`eager_run`), overwritten ones here and there (`eager_threshold`). Tested below.

use serde::Serialize;
use syncline_nand::{NandError, Profile, Simulator};

const PAGE_BYTES: u64 = 4096;
const SMALLEST_BYTES: u64 = 16 << 10;
const LARGEST_BYTES: u64 = 1 << 20;
/// Size that no sync reaches: everything goes to the log.
const NEVER_BYTES: u64 = 64 << 20;
/// As that, in pages.
const NEVER_PAGES: u32 = 100_000;
/// Bytes of data that is overwritten; the log lies behind it, new blocks behind that.
const REGION_BYTES: u64 = 128 << 20;
/// Device of a measurement.
const DEVICE_BYTES: u64 = 512 << 20;
/// Share of the device that was written before, in per cent.
const USED_PERCENT: u32 = 80;
/// Bytes synced in one measurement, and the fewest syncs.
const SYNCED_BYTES: u64 = 8 << 20;
const SYNCS_MIN: u64 = 16;
/// Syncs after which data in the log goes to its place.
const WRITE_BACK_SYNCS: u64 = 16;
/// 2^64 over the golden ratio: multiples of it lie all over the range.
const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;
/// Time of all requests with data in the log, of that with data in place, from which on a wait for
/// one flush less is not worth it.
const COST_MAX: f64 = 1.5;
/// Metadata and commit block of a sync.
const COMMIT_BYTES: u64 = 2 * PAGE_BYTES;

/// The options, with the values to give.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct EagerOptions {
    /// `eager_stream`, in bytes.
    pub stream_bytes: u64,
    /// `eager_run`, in bytes.
    pub run_bytes: u64,
    /// `eager_threshold`, in pages.
    pub threshold_pages: u32,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Data {
    New,
    Run,
    Scattered,
}

/// Requests to a device of its own.
struct Bench {
    device: Simulator,
    now_ns: u64,
    log_at: u64,
    new_at: u64,
    places: u64,
}

impl Bench {
    fn new(profile: &Profile) -> Result<Bench, NandError> {
        let mut device = Simulator::new(profile, DEVICE_BYTES)?;
        device.precondition(USED_PERCENT, 1);
        let now_ns = device.flush(0);
        let (log_at, new_at) = (REGION_BYTES, DEVICE_BYTES / 2);
        Ok(Bench { device, now_ns, log_at, new_at, places: 0 })
    }

    fn write(&mut self, at: u64, len: u64) {
        self.now_ns = self.device.write(self.now_ns, at, len, false);
    }

    fn log(&mut self, len: u64) {
        self.write(self.log_at, len);
        self.log_at += len;
    }

    fn flush(&mut self) {
        self.now_ns = self.device.flush(self.now_ns);
    }

    /// Ranges of one sync's data: address and length.
    fn ranges(&mut self, data: Data, bytes: u64) -> Vec<(u64, u64)> {
        // Here and there, and the same on every run.
        let mut place = |len| {
            self.places += 1;
            (self.places.wrapping_mul(SPREAD) >> 33) % (REGION_BYTES / len) * len
        };
        match data {
            Data::New => {
                self.new_at += bytes;
                vec![(self.new_at - bytes, bytes)]
            }
            Data::Run => vec![(place(bytes), bytes)],
            Data::Scattered => {
                let pages = bytes / PAGE_BYTES;
                let mut list: Vec<_> =
                    (0..pages).map(|_| (place(PAGE_BYTES), PAGE_BYTES)).collect();
                list.sort_unstable();
                list
            }
        }
    }
}

/// Time of syncs of so many bytes, with the write-back of what is in the log, in nanoseconds.
fn syncs_ns(profile: &Profile, data: Data, bytes: u64, in_place: bool) -> Result<u64, NandError> {
    let mut bench = Bench::new(profile)?;
    let begin_ns = bench.now_ns;
    let syncs = (SYNCED_BYTES / bytes).max(SYNCS_MIN).next_multiple_of(WRITE_BACK_SYNCS);
    let mut logged = Vec::new();
    for n in 1..=syncs {
        let ranges = bench.ranges(data, bytes);
        if in_place {
            ranges.iter().for_each(|(at, len)| bench.write(*at, *len));
            bench.flush();
            bench.log(COMMIT_BYTES);
        } else {
            bench.log(bytes + COMMIT_BYTES);
            logged.extend(ranges);
        }
        bench.flush();
        if n % WRITE_BACK_SYNCS == 0 {
            logged.sort_unstable();
            logged.dedup();
            logged.drain(..).for_each(|(at, len)| bench.write(at, len));
        }
    }
    bench.flush();
    Ok(bench.now_ns - begin_ns)
}

/// The smallest size from which on a copy in the log costs too much; none up to the largest.
fn place_from(profile: &Profile, data: Data) -> Result<Option<u64>, NandError> {
    let (mut bytes, mut from) = (LARGEST_BYTES, None);
    while bytes >= SMALLEST_BYTES {
        let log_ns = syncs_ns(profile, data, bytes, false)? as f64;
        if log_ns < syncs_ns(profile, data, bytes, true)? as f64 * COST_MAX {
            break;
        }
        from = Some(bytes);
        bytes /= 2;
    }
    Ok(from)
}

/// The options to suggest for a device with this profile.
pub(crate) fn eager_options(profile: &Profile) -> Result<EagerOptions, NandError> {
    let scattered = place_from(profile, Data::Scattered)?;
    // The option is the largest number of pages that goes to the log.
    let pages = |bytes: u64| u32::try_from(bytes / PAGE_BYTES - 1).unwrap_or(NEVER_PAGES);
    Ok(EagerOptions {
        stream_bytes: place_from(profile, Data::New)?.unwrap_or(NEVER_BYTES),
        run_bytes: place_from(profile, Data::Run)?.unwrap_or(NEVER_BYTES),
        threshold_pages: scattered.map_or(NEVER_PAGES, pages),
    })
}

impl EagerOptions {
    /// As words of `-o`.
    pub fn text(&self) -> String {
        let size = |bytes: u64| match bytes {
            bytes if bytes.is_multiple_of(1 << 20) => format!("{}M", bytes >> 20),
            bytes => format!("{}K", bytes >> 10),
        };
        format!(
            "eager_stream={},eager_run={},eager_threshold={}",
            size(self.stream_bytes),
            size(self.run_bytes),
            self.threshold_pages
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_follow_what_a_flush_and_an_address_cost() {
        let text = |spec: &str| {
            let profile = Profile::parse_built_in(spec).unwrap();
            eager_options(&profile).unwrap().text()
        };
        // eMMC: an address costs much, a flush little.
        assert_eq!(text("nexus7-emmc"), "eager_stream=32K,eager_run=32K,eager_threshold=100000");
        // A card that merges 4 MiB for each address out of order, and one with more log blocks.
        let one = "sd-2012:log_blocks=1";
        assert_eq!(text(one), "eager_stream=64M,eager_run=64M,eager_threshold=100000");
        assert_eq!(text("sd-2012"), "eager_stream=16K,eager_run=1M,eager_threshold=100000");
        // UFS whose controller takes one request at a time: an address costs a request.
        let ufs = "eager_stream=64K,eager_run=128K,eager_threshold=100000";
        assert_eq!(text("galaxy-s6-ufs"), ufs);
    }
}
