//! A block trace on a simulated device, and how long the device can take it.

use std::fs::File;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::{Value, json};
use syncline_evaluate::{Share, Shares, WearReplay};
use syncline_nand::{Lifetime, Profile, SlcWear, Wear};
use syncline_trace::{Names, Record, TraceKind, TraceReader};

use crate::error::{Result, StudyError};
use crate::observer::Observer;
use crate::profile;

/// Shares of the blocks whose erases are told, percent.
const PERCENTILES: [u32; 5] = [1, 25, 50, 75, 99];

/// Request of `syncline lifetime`; fields are its options.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LifetimeRequest {
    /// A block trace of ours.
    pub trace: PathBuf,
    /// Device profile, with overrides.
    pub device: String,
    /// Size of the device, bytes; by itself the power of two that holds the trace.
    pub size: Option<u64>,
    /// Fill the mapping to this share and overwrite at random first, percent.
    pub precondition: u32,
    /// Times that the trace runs, one after the other.
    pub passes: u64,
}

impl Default for LifetimeRequest {
    fn default() -> LifetimeRequest {
        LifetimeRequest {
            trace: PathBuf::new(),
            device: "nexus7-emmc".to_owned(),
            size: None,
            precondition: 80,
            passes: 1,
        }
    }
}

/// The wear that a trace causes.
pub struct LifetimeResult {
    /// The device's profile.
    pub profile: Profile,
    /// The device after the last pass.
    pub replay: WearReplay,
    /// Erases of each block.
    pub spread: Spread,
    /// Least, mean and most erases of a block.
    pub wear: Wear,
    /// Time until the rated cycles; nothing if nothing was written.
    pub lifetime: Option<Lifetime>,
    /// Wear of the SLC write cache, if there is one.
    pub slc: Option<SlcWear>,
}

impl LifetimeRequest {
    /// Replays the trace.
    ///
    /// # Errors
    /// A profile, size or trace that cannot be used; [`StudyError::Interrupted`].
    pub fn run(&self, observer: &dyn Observer) -> Result<LifetimeResult> {
        if self.precondition > 95 {
            return Err(StudyError::Usage("precondition is at most 95 per cent".to_owned()));
        }
        let profile = profile(&self.device)?;
        let size = match self.size {
            Some(size) => size,
            None => WearReplay::size_for(end(&self.trace, observer)?),
        };
        let mut replay = WearReplay::new(&profile, size, self.precondition)?;
        observer.begin("passes", self.passes);
        for _ in 0..self.passes {
            replay.begin_pass();
            let mut play = |record: &Record, names: &Names| Ok(replay.record(record, names)?);
            let duration_ns = each(&self.trace, observer, &mut play)?;
            replay.idle_until(duration_ns);
            observer.advance(1);
        }
        observer.end();
        let cycles = profile.geometry.rated_cycles;
        let spread = Spread { worn: replay.worn(), cycles };
        let wear = Wear::of(&spread.worn);
        let c = replay.device().counters();
        let lifetime = Lifetime::of(replay.device().layout(), cycles, &c, &wear, replay.end_ns());
        let slc = profile.slc.map(|slc| {
            let blocks = replay.device().slc_blocks();
            SlcWear::of(slc.slc_rated_cycles, blocks, c.slc_erases, replay.end_ns())
        });
        Ok(LifetimeResult { profile, replay, spread, wear, lifetime, slc })
    }
}

/// Passes every record of a block trace on. Returns how long was recorded, as far as it says that.
fn each(
    path: &Path,
    observer: &dyn Observer,
    take: &mut dyn FnMut(&Record, &Names) -> Result<()>,
) -> Result<u64> {
    let failed = |err| StudyError::of_trace(path, err);
    let file = File::open(path).map_err(|err| StudyError::host(path, &err))?;
    let mut reader = TraceReader::open(file).map_err(failed)?;
    if reader.header().kind != TraceKind::Block {
        let text = format!(
            "{}: a {} trace has no places on a device; record or convert a block trace",
            path.display(),
            reader.header().kind.name()
        );
        return Err(StudyError::Unsupported(text));
    }
    while let Some((records, names)) = reader.next_batch().map_err(failed)? {
        if observer.stopped() {
            return Err(StudyError::Interrupted);
        }
        for record in records.iter().filter(|record| !record.failed()) {
            take(record, names)?;
        }
    }
    Ok(reader.duration_ns().unwrap_or(0))
}

/// The end of the highest request of a trace, bytes.
fn end(path: &Path, observer: &dyn Observer) -> Result<u64> {
    let mut end = 0u64;
    each(path, observer, &mut |record, _| {
        end = end.max(record.offset_bytes.saturating_add(record.len_bytes));
        Ok(())
    })?;
    Ok(end.min(1 << 50))
}

/// The wear of a used device as its S.M.A.R.T. page would tell it.
pub struct Spread {
    /// Erases of each block by the trace.
    pub worn: Vec<u32>,
    /// Rated erase cycles of a block.
    pub cycles: u32,
}

impl Spread {
    /// Share of the rated cycles that the run used of the most worn block, percent.
    pub fn used_percent(&self) -> f64 {
        let most = self.worn.iter().copied().max().unwrap_or(0);
        f64::from(most) * 100.0 / f64::from(self.cycles)
    }

    /// Erases that 1, 25, 50, 75 and 99 per cent of the blocks do not exceed.
    pub fn percentiles(&self) -> [u32; PERCENTILES.len()] {
        PERCENTILES.map(|percent| Wear::percentile(&self.worn, percent))
    }

    /// Blocks that were never erased.
    pub fn unused_blocks(&self) -> usize {
        self.worn.iter().filter(|erases| **erases == 0).count()
    }

    fn json(&self, wear: &Wear) -> Value {
        let [p1, p25, p50, p75, p99] = self.percentiles();
        json!({
            "min": wear.erases_min, "mean": wear.erases_mean, "max": wear.erases_max,
            "p1": p1, "p25": p25, "p50": p50, "p75": p75, "p99": p99,
            "blocks": self.worn.len(), "blocks_not_erased": self.unused_blocks(),
            "used_percent": self.used_percent(),
        })
    }
}

fn shares_json(shares: &Shares) -> Vec<Value> {
    let share = |s: Share| {
        json!({
            "name": s.name, "written_bytes": s.written_bytes,
            "programmed_bytes": s.programmed_bytes,
        })
    };
    shares.top().into_iter().map(share).collect()
}

impl LifetimeResult {
    /// The document of schema `syncline.lifetime/1`.
    pub fn document(&self) -> Value {
        let (replay, c) = (&self.replay, self.replay.device().counters());
        let life = self.lifetime.as_ref().map(|l| {
            json!({
                "cycles_used": l.cycles_used, "wear_spread": l.wear_spread,
                "written_tb": l.written_tb, "years_even": l.years_even,
                "years_worst": l.years_worst,
            })
        });
        json!({
            "schema": "syncline.lifetime/1",
            "device": self.profile.name, "size_bytes": replay.device().size_bytes(),
            "rated_cycles": self.spread.cycles, "duration_s": replay.end_ns() as f64 / 1e9,
            "written_bytes": c.written_bytes, "programmed_bytes": c.programmed_bytes,
            "write_amplification": c.write_amplification(), "erases": c.erases,
            "erases_per_block": self.spread.json(&self.wear),
            "slc": self.slc.as_ref().map(|slc| json!({
                "erases_per_block_mean": slc.erases_mean,
                "years": Some(slc.years).filter(|years| years.is_finite()),
                "folded_units": c.slc_folded_units,
            })),
            "processes": shares_json(replay.processes()), "files": shares_json(replay.files()),
            "merges": {
                "switch": c.switch_merges, "partial": c.partial_merges, "full": c.full_merges,
            },
            "lifetime": life,
        })
    }
}
