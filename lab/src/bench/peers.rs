//! Cost of other file systems' request counts on the same model of a device.
//!
//! `baselines/peers.toml` has, for each file system and workload, what was counted on a kernel for
//! one operation, and the order and places of those requests as an assumption (counts do not tell
//! them). [`replay`] sends that pattern through the flash model, with the system calls of our own
//! run as the host's time.
//!
//! ```text
//!   "random 4"      4 KiB at a random block of a 16 MiB file that was written in order before
//!   "at:NAME 4"     4 KiB at a place of its own, the same one in each operation
//!   "log:NAME 8"    the next 8 KiB of a sequential area of 32 MiB, which wraps
//!   "log:wal 8 4"   8 KiB, but the next write begins 4 KiB further on
//!   "again:NAME 4"  4 KiB where the last write to that area began
//!   "next 4"        4 KiB where the last write of any kind ended
//!   "flush"         everything before it is durable
//! ```
//!
//! Assumptions favour the peers: only what was counted in the foreground is sent, none of their
//! write-back, checkpoints or cleaning; each log is perfectly sequential.
//! `lab/tests/bench/peers.rs` checks that patterns add up to the counts, and that the pattern of
//! the kernel's own ext4 costs what our ordered mode costs.

use serde::Deserialize;
use syncline_device::SplitMix64;
use syncline_nand::{Profile, Simulator};

use crate::error::{LabError, Result};

const STORED: &str = include_str!("../../../baselines/peers.toml");

const KIB: u64 = 1024;
/// Longest request of a pattern, KiB.
const LEN_KIB_MAX: u64 = 1024;
/// Size of the device in bytes.
const DEVICE_BYTES: u64 = 2 << 30;
/// Offset and size of the overwritten file, in bytes.
const FILE: (u64, u64) = (128 << 20, 16 << 20);
/// Offset of the first sequential area, and the size of each, in bytes.
const LOGS: (u64, u64) = (512 << 20, 32 << 20);
/// Offset of the first fixed place, and the distance between two, in bytes. Each lies inside of
/// older data.
const PLACES: (u64, u64) = (256 << 20, 1 << 20);
/// Older data at a place, and where in it the writes go, in bytes.
const AROUND: (u64, u64) = (64 * KIB, 24 * KIB);

/// Requests of one operation, as counted on a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Counted {
    /// Write requests.
    pub writes: f64,
    /// Flushes; a FUA write is one more.
    pub flushes: f64,
    /// KiB written.
    pub kib: f64,
}

/// The requests of one operation of one file system.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pattern {
    /// `xfs`, `f2fs`, `fast_commit`, `ext4`.
    pub file_system: String,
    /// Name of the workload in reports.
    pub workload: String,
    /// SQLite's journal mode.
    pub journal_mode: Option<String>,
    /// Counted requests.
    pub counted: Counted,
    /// The requests in order; see the module's description.
    pub steps: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    pattern: Vec<Pattern>,
}

/// Every stored pattern.
pub fn patterns() -> Result<Vec<Pattern>> {
    let stored: std::result::Result<Stored, _> = toml::from_str(STORED);
    stored.map(|stored| stored.pattern).map_err(|err| {
        LabError::Usage(format!("baselines/peers.toml: {err}; correct it and build again"))
    })
}

/// One request of a pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// At a random block of the file.
    Random {
        /// Length in bytes.
        len_bytes: u64,
    },
    /// At a place of its own.
    At {
        /// Number of the place.
        place: usize,
        /// Length in bytes.
        len_bytes: u64,
    },
    /// The next part of a sequential area.
    Log {
        /// Number of the area.
        area: usize,
        /// Length in bytes.
        len_bytes: u64,
        /// Distance to the start of the next one, in bytes.
        advance_bytes: u64,
    },
    /// The begin of what was written last to a sequential area.
    Again {
        /// Number of the area.
        area: usize,
        /// Length in bytes.
        len_bytes: u64,
    },
    /// The place at which the last write ended.
    Next {
        /// Length in bytes.
        len_bytes: u64,
    },
    /// A flush.
    Flush,
}

impl Pattern {
    /// The steps, with areas and places numbered in the order of their first use.
    pub fn parse(&self) -> Result<Vec<Step>> {
        let mut names: Vec<String> = Vec::new();
        let mut number = |name: &str| {
            names.iter().position(|known| known == name).unwrap_or_else(|| {
                names.push(name.to_owned());
                names.len() - 1
            })
        };
        let parsed = self.steps.iter().map(|text| {
            let words: Vec<&str> = text.split_whitespace().collect();
            let bytes = |word: &str| {
                word.parse::<u64>().ok().filter(|kib| *kib <= LEN_KIB_MAX).map(|kib| kib * KIB)
            };
            let step = match words.as_slice() {
                ["flush"] => Some(Step::Flush),
                ["next", len] => bytes(len).map(|len_bytes| Step::Next { len_bytes }),
                ["random", len] => bytes(len).map(|len_bytes| Step::Random { len_bytes }),
                [place, len] if place.starts_with("at:") => {
                    bytes(len).map(|len_bytes| Step::At { place: number(place), len_bytes })
                }
                [again, len] if again.starts_with("again:") => {
                    let area = number(&again.replacen("again:", "log:", 1));
                    bytes(len).map(|len_bytes| Step::Again { area, len_bytes })
                }
                [log, len, rest @ ..] if log.starts_with("log:") && rest.len() < 2 => {
                    let area = number(log);
                    let advance = rest.first().copied().unwrap_or(len);
                    bytes(len).zip(bytes(advance)).map(|(len_bytes, advance_bytes)| Step::Log {
                        area,
                        len_bytes,
                        advance_bytes,
                    })
                }
                _ => None,
            };
            step.ok_or_else(|| {
                let at = format!("{} {}", self.file_system, self.workload);
                LabError::Usage(format!("pattern {at}: `{text}` is no step; correct it"))
            })
        });
        parsed.collect()
    }
}

/// Operations a second of `pattern` on a fresh device of `profile`. Each operation has `calls`
/// system calls at the profile's price.
pub fn replay(
    pattern: &Pattern,
    profile: &Profile,
    calls: f64,
    operations: u64,
    seed: u64,
) -> Result<f64> {
    let steps = pattern.parse()?;
    let mut device = Simulator::new(profile, DEVICE_BYTES)?;
    let mut rng = SplitMix64::new(seed);
    let mut now_ns = 0;
    for mib in 0..FILE.1 >> 20 {
        now_ns = device.write(now_ns, FILE.0 + (mib << 20), 1 << 20, false);
    }
    for place in 0..steps.len() as u64 {
        now_ns = device.write(now_ns, PLACES.0 + place * PLACES.1, AROUND.0, false);
    }
    now_ns = device.flush(now_ns);
    let start_ns = now_ns;
    let (mut ends, mut last) = (vec![0u64; steps.len()], vec![0u64; steps.len()]);
    let host_ns = (calls * f64::from(profile.host.syscall_us) * 1000.0) as u64;
    let mut next = 0;
    for _ in 0..operations {
        now_ns += host_ns;
        for step in &steps {
            let (at, len_bytes) = match step {
                Step::Flush => {
                    now_ns = device.flush(now_ns);
                    continue;
                }
                Step::Random { len_bytes } => {
                    let places = FILE.1.checked_div(*len_bytes).unwrap_or(1);
                    (FILE.0 + rng.below(places) * len_bytes, *len_bytes)
                }
                Step::At { place, len_bytes } => {
                    (PLACES.0 + *place as u64 * PLACES.1 + AROUND.1, *len_bytes)
                }
                Step::Log { area, len_bytes, advance_bytes } => {
                    let end = &mut ends[*area];
                    if *end + len_bytes > LOGS.1 {
                        *end = 0;
                    }
                    last[*area] = LOGS.0 + *area as u64 * LOGS.1 + *end;
                    *end += advance_bytes;
                    (last[*area], *len_bytes)
                }
                Step::Again { area, len_bytes } => (last[*area], *len_bytes),
                Step::Next { len_bytes } => (next, *len_bytes),
            };
            now_ns = device.write(now_ns, at, len_bytes, false);
            next = at + len_bytes;
        }
    }
    let seconds = (now_ns - start_ns) as f64 / 1e9;
    Ok(if seconds > 0.0 { operations as f64 / seconds } else { 0.0 })
}
