//! Published figures of devices, measured on their profiles.
//!
//! A profile lists what was published in `[[check]]` tables; [`Figure`] says how each is measured,
//! on a device of [`SIZE_BYTES`] that was written once from begin to end. Time is virtual, so a
//! figure is exact and the same everywhere. A published figure that excludes another one, or that
//! the model does not reach, is listed with the reason and not held. Tested in
//! `tests/it/schemes/published.rs`: every other one is within [`WITHIN_PERCENT`].

use crate::NandError;
use crate::profile::Profile;
use crate::sim::Simulator;
use serde::{Deserialize, Serialize};
use syncline_device::SplitMix64;

mod whole;

/// Size of the device that is measured.
pub const SIZE_BYTES: u64 = 8 << 30;
/// Largest deviation from the published figure, in per cent.
pub const WITHIN_PERCENT: f64 = 20.0;

/// Sequential tests and CrystalDiskMark's random tests work on a file of 100 MB.
const FILE_BYTES: u64 = 100_000_000;
/// A request of a sequential test: what a card reader's or phone's block layer sends at most.
const SEQUENTIAL_BYTES: u64 = 128 << 10;
const RANDOM_BYTES: u64 = 4096;
/// Requests of a random test on the file.
const RANDOM_REQUESTS: u64 = 2048;
/// Bytes of a sequential test of many requests at a time, more than any buffer.
const DEEP_BYTES: u64 = 1 << 30;
/// Requests and space of table 6 of the informed-storage paper.
const SPARSE_REQUESTS: u64 = 32_768;
const SPARSE_BYTES: u64 = 1 << 30;
const SEED: u64 = 1;

/// A measurement. The name ends with the unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Figure {
    /// 128 KiB writes in order, one at a time, 10^6 bytes a second.
    SequentialWriteMbPerS,
    /// 128 KiB reads in order.
    SequentialReadMbPerS,
    /// 4 KiB writes at random places of 100 MB, one at a time.
    #[serde(rename = "random-write-4k-mb-per-s")]
    RandomWriteMbPerS,
    /// 4 KiB reads at random places of 100 MB.
    #[serde(rename = "random-read-4k-mb-per-s")]
    RandomReadMbPerS,
    /// 32,768 writes of 4 KiB at random places of 1 GiB, in ascending order, 10^3 bytes a second.
    #[serde(rename = "sorted-write-4k-kb-per-s")]
    SortedWriteKbPerS,
    /// The same places in random order.
    #[serde(rename = "scattered-write-4k-kb-per-s")]
    ScatteredWriteKbPerS,
    /// 32,768 reads of 4 KiB of 1 GiB, in ascending order.
    #[serde(rename = "sorted-read-4k-kb-per-s")]
    SortedReadKbPerS,
    /// The same places in random order.
    #[serde(rename = "scattered-read-4k-kb-per-s")]
    ScatteredReadKbPerS,
    /// 256 KiB in order + fsync through ext4 ordered, 16 MiB, 10^6 bytes a second.
    #[serde(rename = "ext4-sequential-256k-mb-per-s")]
    Ext4SequentialMbPerS,
    /// 4 KiB at random places of those 16 MiB + fsync through ext4 ordered.
    #[serde(rename = "ext4-random-4k-mb-per-s")]
    Ext4RandomMbPerS,
    /// Random reads of 4 KiB, one at a time, a second.
    #[serde(rename = "random-read-4k-iops")]
    RandomReadIops,
    /// Random reads of 4 KiB, 32 at a time, a second.
    #[serde(rename = "random-read-4k-qd32-iops")]
    RandomReadQd32Iops,
    /// Random writes of 4 KiB, 32 at a time, a second.
    #[serde(rename = "random-write-4k-qd32-iops")]
    RandomWriteQd32Iops,
    /// Random reads of 4 KiB, 512 at a time (16 threads of 32), a second.
    #[serde(rename = "random-read-4k-qd512-iops")]
    RandomReadQd512Iops,
    /// Random writes of 4 KiB, 512 at a time, a second.
    #[serde(rename = "random-write-4k-qd512-iops")]
    RandomWriteQd512Iops,
    /// Random writes of 4 KiB, one at a time, a second.
    #[serde(rename = "random-write-4k-iops")]
    RandomWriteIops,
    /// Random writes of 4 KiB with a flush after each, a second.
    #[serde(rename = "random-write-4k-flush-iops")]
    RandomWriteFlushIops,
    /// 128 KiB writes in order, 32 at a time, over 1 GiB, 10^6 bytes a second.
    #[serde(rename = "sequential-write-128k-qd32-mb-per-s")]
    SequentialWriteQd32MbPerS,
    /// 128 KiB reads in order, 32 at a time.
    #[serde(rename = "sequential-read-128k-qd32-mb-per-s")]
    SequentialReadQd32MbPerS,
    /// 1 MiB writes in order, 8 at a time, over 1 GiB, 10^6 bytes a second.
    #[serde(rename = "sequential-write-1m-qd8-mb-per-s")]
    SequentialWriteQd8MbPerS,
    /// 1 MiB reads in order, 8 at a time.
    #[serde(rename = "sequential-read-1m-qd8-mb-per-s")]
    SequentialReadQd8MbPerS,
    /// 1 MiB writes in order without a rest, one at a time, over the whole device twice: the rate
    /// of the last quarter of a pass, when an SLC write cache is full, 10^6 bytes a second.
    SustainedWriteMbPerS,
    /// Random writes of 4 KiB over the whole device, 512 at a time, after it was overwritten at
    /// random once, a second.
    #[serde(rename = "random-write-4k-steady-iops")]
    SteadyWriteIops,
    /// Bytes programmed for each byte written: 128 KiB writes, each place once a pass, in random
    /// order, as fio has it; the third pass.
    #[serde(rename = "permuted-write-128k-waf")]
    PermutedWriteWaf,
    /// Bytes programmed for each byte written by a cache on half of the device, without placement.
    /// See [`Cache`].
    #[serde(rename = "cachelib-half-waf")]
    CacheHalfWaf,
    /// The same with a handle for each of its two engines.
    #[serde(rename = "cachelib-half-placed-waf")]
    CacheHalfPlacedWaf,
    /// A cache on the whole device, without placement.
    #[serde(rename = "cachelib-full-waf")]
    CacheFullWaf,
    /// The same with a handle for each of its two engines.
    #[serde(rename = "cachelib-full-placed-waf")]
    CacheFullPlacedWaf,
    /// [`Figure::SustainedWriteMbPerS`] in zones, over that of a conventional area.
    #[serde(rename = "zone-sustained-write-ratio")]
    ZoneSustainedWriteRatio,
    /// Random reads of 4 KiB from zones, 32 at a time, over those from a conventional area.
    #[serde(rename = "zone-random-read-ratio")]
    ZoneRandomReadRatio,
    /// Random reads of 4 KiB from 4 GiB of zones, 32 at a time, over those from 64 MiB.
    #[serde(rename = "zone-read-range-ratio")]
    ZoneReadRangeRatio,
    /// Bytes programmed for each byte written, when zones are reset and written again in random
    /// order.
    #[serde(rename = "zone-rewrite-waf")]
    ZoneRewriteWaf,
    /// Writes of 4 KiB to one zone, 32 at a time, over those one at a time.
    #[serde(rename = "zone-write-4k-deep-ratio")]
    ZoneWriteDeepRatio,
}

/// One published figure: a `[[check]]` table of a profile.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Check {
    /// The measured figure.
    pub figure: Figure,
    /// The published value, in the unit of the figure.
    pub published: f64,
    /// Half a unit of the last digit that is printed, where that is more than [`WITHIN_PERCENT`]:
    /// 0.005 for a printed 0.01.
    pub rounding: Option<f64>,
    /// Publication of the figure.
    pub source: String,
    /// Host of the measurement, of `[hosts]`; none: the profile's own.
    pub host: Option<String>,
    /// Why the profile does not give it, if it does not.
    pub excluded: Option<String>,
}

impl Check {
    /// True if a figure of the model is as close as [`WITHIN_PERCENT`], or prints the same.
    pub fn holds(&self, model: f64) -> bool {
        let within = self.published * WITHIN_PERCENT / 100.0;
        (model - self.published).abs() <= within.max(self.rounding.unwrap_or(0.0))
    }
}

/// Offsets of requests of one size.
struct Pattern {
    write: bool,
    bytes: u64,
    offsets: Vec<u64>,
    depth: usize,
    /// True if a flush follows each request.
    flush: bool,
}

impl Figure {
    /// Its name as in profiles.
    pub fn name(self) -> String {
        match toml::Value::try_from(self) {
            Ok(toml::Value::String(name)) => name,
            _ => format!("{self:?}"),
        }
    }

    /// Measures a profile, in the unit of the figure.
    pub fn measure(self, profile: &Profile) -> Result<f64, NandError> {
        if let Some(measured) = self.waf(profile).or_else(|| self.of_zones(profile)) {
            return measured;
        }
        let mut device = Simulator::new(profile, SIZE_BYTES)?;
        if matches!(self, Figure::Ext4SequentialMbPerS | Figure::Ext4RandomMbPerS) {
            let call_ns = 2 * u64::from(profile.host.syscall_us) * 1000;
            return Ok(ext4_ordered(&mut device, self == Figure::Ext4RandomMbPerS, call_ns));
        }
        if self == Figure::SustainedWriteMbPerS {
            return Ok(sustained_write(&mut device));
        }
        let pattern = self.pattern();
        let now_ns = prepare(&mut device);
        let bytes = pattern.bytes * pattern.offsets.len() as u64;
        let requests = pattern.offsets.len() as f64;
        let ns = pattern.run(&mut device, now_ns) as f64;
        Ok(match self {
            Figure::SequentialWriteMbPerS
            | Figure::SequentialReadMbPerS
            | Figure::SequentialWriteQd32MbPerS
            | Figure::SequentialReadQd32MbPerS
            | Figure::SequentialWriteQd8MbPerS
            | Figure::SequentialReadQd8MbPerS
            | Figure::RandomWriteMbPerS
            | Figure::RandomReadMbPerS => bytes as f64 * 1e3 / ns,
            Figure::SortedWriteKbPerS
            | Figure::ScatteredWriteKbPerS
            | Figure::SortedReadKbPerS
            | Figure::ScatteredReadKbPerS => bytes as f64 * 1e6 / ns,
            _ => requests * 1e9 / ns,
        })
    }

    fn pattern(self) -> Pattern {
        use Figure as F;
        let mut rng = SplitMix64::new(SEED);
        let mut random = |requests: u64, space: u64| -> Vec<u64> {
            (0..requests).map(|_| rng.below(space / RANDOM_BYTES) * RANDOM_BYTES).collect()
        };
        let (mut bytes, mut depth) = (RANDOM_BYTES, 1);
        let mut in_order = |of: u64, space: u64| -> Vec<u64> {
            bytes = of;
            (0..space / of).map(|i| i * of).collect()
        };
        let offsets = match self {
            F::SequentialWriteMbPerS | F::SequentialReadMbPerS => {
                in_order(SEQUENTIAL_BYTES, FILE_BYTES)
            }
            F::SequentialWriteQd32MbPerS | F::SequentialReadQd32MbPerS => {
                depth = 32;
                in_order(SEQUENTIAL_BYTES, DEEP_BYTES)
            }
            F::SequentialWriteQd8MbPerS | F::SequentialReadQd8MbPerS => {
                depth = 8;
                in_order(1 << 20, DEEP_BYTES)
            }
            F::SortedWriteKbPerS | F::SortedReadKbPerS => {
                let mut offsets = random(SPARSE_REQUESTS, SPARSE_BYTES);
                offsets.sort_unstable();
                offsets
            }
            F::ScatteredWriteKbPerS | F::ScatteredReadKbPerS => {
                random(SPARSE_REQUESTS, SPARSE_BYTES)
            }
            F::RandomReadQd32Iops | F::RandomWriteQd32Iops => {
                depth = 32;
                random(4 * RANDOM_REQUESTS, FILE_BYTES)
            }
            F::RandomReadQd512Iops | F::RandomWriteQd512Iops => {
                depth = 512;
                random(64 * RANDOM_REQUESTS, FILE_BYTES)
            }
            _ => random(RANDOM_REQUESTS, FILE_BYTES),
        };
        let write = self.name().contains("write");
        Pattern { write, bytes, offsets, depth, flush: self == F::RandomWriteFlushIops }
    }
}

/// The requests of ext4 ordered for a write and fsync each (data; journal body and flush; commit
/// block and flush) on a fresh device; MB/s of the data.
fn ext4_ordered(device: &mut Simulator, random: bool, call_ns: u64) -> f64 {
    const FILE: u64 = 64 << 20;
    const FILE_BYTES: u64 = 16 << 20;
    const JOURNAL: u64 = 128 << 20;
    let mut rng = SplitMix64::new(SEED);
    let (mut now_ns, mut log) = (0, JOURNAL);
    let mut pass = |random: bool| {
        let (bytes, body): (u64, u64) =
            if random { (RANDOM_BYTES, 8 << 10) } else { (256 << 10, 16 << 10) };
        let (start_ns, places) = (now_ns, FILE_BYTES / bytes);
        let requests = if random { RANDOM_REQUESTS } else { places };
        for i in 0..requests {
            let place = if random { rng.below(places) } else { i };
            now_ns = device.write(now_ns + call_ns, FILE + place * bytes, bytes, false);
            for part in [body, 4096] {
                now_ns = device.write(now_ns, log, part, false);
                now_ns = device.flush(now_ns);
                log += part;
            }
        }
        (requests * bytes) as f64 * 1e3 / (now_ns - start_ns) as f64
    };
    let sequential = pass(false);
    if random { pass(true) } else { sequential }
}

/// Writes the device twice; MB/s of the last quarter.
fn sustained_write(device: &mut Simulator) -> f64 {
    const BYTES: u64 = 1 << 20;
    let (mut now_ns, mut start_ns) = (0, 0);
    let requests = device.size_bytes() / BYTES;
    for i in 0..2 * requests {
        if i == 2 * requests - requests / 4 {
            start_ns = now_ns;
        }
        let offset = i % requests * BYTES;
        if let Some(zones) = device.zones()
            && offset >= zones.conventional_bytes
            && offset == zones.start_of(zones.zone_of(offset))
        {
            now_ns = device.discard(now_ns, offset, zones.zone_bytes);
        }
        now_ns = device.write(now_ns, offset, BYTES, false);
    }
    (requests / 4 * BYTES) as f64 * 1e3 / (now_ns - start_ns) as f64
}

/// Writes the device once; returns when it is at rest, an SLC write cache folded.
fn prepare(device: &mut Simulator) -> u64 {
    let mut now_ns = 0;
    for offset in (0..device.size_bytes()).step_by(1 << 20) {
        now_ns = device.write(now_ns, offset, 1 << 20, false);
    }
    device.flush(now_ns) + 100_000_000_000
}

impl Pattern {
    /// Sends the requests, `depth` at a time; returns how long they took, ns. Written data is
    /// flushed at the end of the time.
    fn run(&self, device: &mut Simulator, start_ns: u64) -> u64 {
        let mut places = vec![start_ns; self.depth];
        for &offset in &self.offsets {
            let Some(first) = places.iter_mut().min() else { continue };
            *first = match self.write {
                true => device.write(*first, offset, self.bytes, false),
                false => device.read(*first, offset, self.bytes),
            };
            if self.flush {
                *first = device.flush(*first);
            }
        }
        let mut end_ns = places.iter().copied().fold(start_ns, u64::max);
        if self.write {
            end_ns = device.flush(end_ns);
        }
        end_ns - start_ns
    }
}
