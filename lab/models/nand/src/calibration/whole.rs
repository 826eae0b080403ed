//! Figures of a device as a whole: write amplification by collection and placement, and zones.

use super::{Figure, Pattern, RANDOM_BYTES, RANDOM_REQUESTS, SEED, SEQUENTIAL_BYTES, SIZE_BYTES};
use super::{prepare, sustained_write};
use crate::NandError;
use crate::profile::Profile;
use crate::sim::Simulator;
use syncline_device::{SplitMix64, WriteLife, Zones};

/// Size of the device on which write amplification is measured.
const WAF_BYTES: u64 = 2 << 30;

impl Figure {
    /// What a figure of random writes over the whole device measures, on one of [`WAF_BYTES`].
    pub(super) fn waf(self, profile: &Profile) -> Option<Result<f64, NandError>> {
        let cache = |percent, placed| Cache { percent, placed }.waf(profile);
        Some(match self {
            Figure::SteadyWriteIops => steady_write(profile),
            Figure::PermutedWriteWaf => permuted_write(profile),
            Figure::CacheHalfWaf => cache(50, false),
            Figure::CacheHalfPlacedWaf => cache(50, true),
            Figure::CacheFullWaf => cache(100, false),
            Figure::CacheFullPlacedWaf => cache(100, true),
            _ => return None,
        })
    }

    /// What a figure of zones measures.
    pub(super) fn of_zones(self, profile: &Profile) -> Option<Result<f64, NandError>> {
        Some(match self {
            Figure::ZoneSustainedWriteRatio => zone_ratio(profile, sustained_write),
            Figure::ZoneRandomReadRatio => {
                zone_ratio(profile, |device| zone_reads(device, SIZE_BYTES / 2))
            }
            Figure::ZoneReadRangeRatio => Simulator::new(profile, SIZE_BYTES).map(|mut device| {
                zone_reads(&mut device, SIZE_BYTES / 2) / zone_reads(&mut device, 64 << 20)
            }),
            Figure::ZoneRewriteWaf => zone_rewrite(profile),
            Figure::ZoneWriteDeepRatio => zone_depth(profile),
            _ => return None,
        })
    }
}

/// Writes a second of 4 KiB at random places of a device that was overwritten so once.
fn steady_write(profile: &Profile) -> Result<f64, NandError> {
    let mut device = Simulator::new(profile, WAF_BYTES)?;
    device.precondition(100, SEED);
    let mut rng = SplitMix64::new(SEED);
    let mut places = vec![0; 512];
    let writes = WAF_BYTES / RANDOM_BYTES / 4;
    for i in 0..writes {
        let place = &mut places[i as usize % 512];
        let offset = rng.below(WAF_BYTES / RANDOM_BYTES) * RANDOM_BYTES;
        *place = device.write(*place, offset, RANDOM_BYTES, false);
    }
    let end_ns = places.iter().copied().fold(0, u64::max);
    Ok(writes as f64 * 1e9 / end_ns as f64)
}

/// Write amplification of the third pass of 128 KiB writes, each place once a pass.
fn permuted_write(profile: &Profile) -> Result<f64, NandError> {
    let mut device = Simulator::new(profile, WAF_BYTES)?;
    let mut rng = SplitMix64::new(SEED);
    let mut before = device.counters();
    for _ in 0..3 {
        before = device.counters();
        let mut places: Vec<u64> = (0..WAF_BYTES / SEQUENTIAL_BYTES).collect();
        for i in (1..places.len()).rev() {
            places.swap(i, rng.below(i as u64 + 1) as usize);
        }
        for place in places {
            device.write(0, place * SEQUENTIAL_BYTES, SEQUENTIAL_BYTES, false);
        }
    }
    Ok(device.counters().since(&before).write_amplification())
}

/// CacheLib's flash cache: one engine appends large items to a ring, one overwrites buckets of
/// 4 KiB of small items at random. The small ones have 4 % of the cache and 81 % of the bytes: of
/// the trace `kvcache202206` 3,244,378,219 items of 2,968.02 GB became 12,892.61 GB of writes (log
/// of the artifact of WARP, FAST'26), so about 2.7 thousand million of them were a bucket each.
struct Cache {
    /// Share of the device that it uses.
    percent: u64,
    /// True if each engine has a handle of its own.
    placed: bool,
}

impl Cache {
    const SMALL_SPACE_PERCENT: u64 = 4;
    const SMALL_WRITES_PERCENT: u64 = 81;
    /// A write of the ring.
    const LARGE_BYTES: u64 = 256 << 10;

    /// Write amplification while the ring goes round the second time.
    fn waf(&self, profile: &Profile) -> Result<f64, NandError> {
        let mut device = Simulator::new(profile, WAF_BYTES)?;
        let cache = WAF_BYTES / 100 * self.percent;
        let small = cache / 100 * Self::SMALL_SPACE_PERCENT / RANDOM_BYTES;
        let large = cache / Self::LARGE_BYTES - small * RANDOM_BYTES / Self::LARGE_BYTES - 1;
        let first_small = large * Self::LARGE_BYTES;
        let (ring, buckets) = match self.placed {
            true => (WriteLife::Long, WriteLife::Short),
            false => (WriteLife::NotSet, WriteLife::NotSet),
        };
        let per_large = Self::LARGE_BYTES * Self::SMALL_WRITES_PERCENT
            / (100 - Self::SMALL_WRITES_PERCENT)
            / RANDOM_BYTES;
        let mut rng = SplitMix64::new(SEED);
        let mut before = device.counters();
        for i in 0..2 * large {
            if i == large {
                before = device.counters();
            }
            let offset = i % large * Self::LARGE_BYTES;
            device.write_with_life(0, offset, Self::LARGE_BYTES, false, ring);
            for _ in 0..per_large {
                let offset = first_small + rng.below(small) * RANDOM_BYTES;
                device.write_with_life(0, offset, RANDOM_BYTES, false, buckets);
            }
        }
        Ok(device.counters().since(&before).write_amplification())
    }
}

/// What `measure` gives in zones, over what it gives where all of the device is conventional.
fn zone_ratio(
    profile: &Profile,
    measure: impl Fn(&mut Simulator) -> f64,
) -> Result<f64, NandError> {
    let conventional = profile.with("conventional_percent=100")?;
    let on = |profile| Ok(measure(&mut Simulator::new(profile, SIZE_BYTES)?));
    Ok(on(profile)? / on(&conventional)?)
}

/// Random reads a second of 4 KiB, 32 at a time, in the last bytes of a full device.
fn zone_reads(device: &mut Simulator, space: u64) -> f64 {
    let start_ns = prepare(device);
    let mut rng = SplitMix64::new(SEED);
    let first = device.size_bytes() - space;
    let offsets =
        (0..4 * RANDOM_REQUESTS).map(|_| first + rng.below(space / RANDOM_BYTES) * RANDOM_BYTES);
    let pattern = Pattern {
        write: false,
        bytes: RANDOM_BYTES,
        offsets: offsets.collect(),
        depth: 32,
        flush: false,
    };
    (4 * RANDOM_REQUESTS) as f64 * 1e9 / pattern.run(device, start_ns) as f64
}

/// Write amplification of resets and whole writes of zones in random order.
fn zone_rewrite(profile: &Profile) -> Result<f64, NandError> {
    let mut device = Simulator::new(profile, WAF_BYTES)?;
    let zones = zones_of(&device)?;
    device.fill();
    let count = u64::from(zones.zone_of(device.size_bytes()));
    let mut rng = SplitMix64::new(SEED);
    let mut now_ns = 0;
    for _ in 0..count {
        let start = zones.start_of(rng.below(count) as u32);
        now_ns = device.discard(now_ns, start, zones.zone_bytes);
        for offset in (start..start + zones.zone_bytes).step_by(SEQUENTIAL_BYTES as usize) {
            now_ns = device.write(now_ns, offset, SEQUENTIAL_BYTES, false);
        }
    }
    device.flush(now_ns);
    Ok(device.counters().write_amplification())
}

/// Writes a second of 4 KiB to a zone, 32 at a time, over those one at a time.
fn zone_depth(profile: &Profile) -> Result<f64, NandError> {
    let took_ns = |depth| {
        let mut device = Simulator::new(profile, WAF_BYTES)?;
        let zones = zones_of(&device)?;
        let offsets = (zones.start_of(0)..zones.start_of(1)).step_by(RANDOM_BYTES as usize);
        let offsets = offsets.collect();
        let pattern = Pattern { write: true, bytes: RANDOM_BYTES, offsets, depth, flush: false };
        Ok::<u64, NandError>(pattern.run(&mut device, 0))
    };
    Ok(took_ns(1)? as f64 / took_ns(32)? as f64)
}

fn zones_of(device: &Simulator) -> Result<Zones, NandError> {
    let reason = || "the figure is one of zones".to_owned();
    let no_zones = || NandError::BadValue { key: "conventional_percent", reason: reason() };
    device.zones().ok_or_else(no_zones)
}
