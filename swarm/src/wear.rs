//! Wear of a recorded download: its commands on models of flash devices (section 4.4.2).

use anyhow::{Result, anyhow};
use serde::Serialize;
use syncline_device::{TraceEvent, TraceOp};
use syncline_nand::{Profile, Simulator};

/// Name and specification of each device: an SSD with page mapping, an early one that maps blocks
/// and logs one, and the two schemes with more log blocks, in superblocks of 512 KiB as in
/// `crates/libs/flashlite/tests/it/lifetime.rs`.
const DEVICES: [(&str, &str); 4] = [
    ("ssd-850pro, page mapping", "ssd-850pro"),
    ("ssd-mtron, BAST", "ssd-mtron"),
    ("BAST, 16 log blocks of 512 KiB", BAST),
    ("FAST, 16 log blocks of 512 KiB", FAST),
];
const BAST: &str = "generic-emmc:mapping=bast,log_blocks=16,channels=1,dies_per_channel=1,\
                    planes=1,page_kib=4,pages_per_block=128";
const FAST: &str = "generic-emmc:mapping=fast,log_blocks=16,channels=1,dies_per_channel=1,\
                    planes=1,page_kib=4,pages_per_block=128";
/// Bytes of a command when the device is filled.
const FILL_BYTES: u64 = 512 << 10;

/// Erases of one device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Wear {
    /// Name of the device.
    pub device: String,
    /// While downloading.
    pub download_erases: u64,
    /// With the rearranging.
    pub erases: u64,
}

/// Plays the commands on every device, each filled once from start to end as one in use is; the
/// first `download` of them are the download.
pub(crate) fn wear(size_bytes: u64, events: &[TraceEvent], download: usize) -> Result<Vec<Wear>> {
    let (first, rest) = events.split_at(download.min(events.len()));
    let one = |(name, spec): &(&str, &str)| {
        let profile = Profile::parse_built_in(spec)?;
        let mut simulator = Simulator::new(&profile, size_bytes)?;
        let mut now_ns = 0;
        for at in (0..size_bytes).step_by(FILL_BYTES as usize) {
            now_ns = simulator.write(now_ns, at, FILL_BYTES.min(size_bytes - at), false);
        }
        now_ns = simulator.flush(now_ns);
        let new = simulator.counters().erases;
        now_ns = play(&mut simulator, now_ns, first);
        let downloaded = simulator.counters().erases;
        play(&mut simulator, now_ns, rest);
        simulator.check().map_err(|what| anyhow!("the model of {name} is wrong: {what}"))?;
        Ok(Wear {
            device: (*name).to_owned(),
            download_erases: downloaded - new,
            erases: simulator.counters().erases - new,
        })
    };
    DEVICES.iter().map(one).collect()
}

fn play(simulator: &mut Simulator, start_ns: u64, events: &[TraceEvent]) -> u64 {
    events.iter().fold(start_ns, |now_ns, event| {
        let (at, len) = (event.offset_bytes, event.len_bytes);
        match event.op {
            TraceOp::Read => simulator.read(now_ns, at, len),
            TraceOp::Write => simulator.write(now_ns, at, len, event.fua),
            TraceOp::Flush => simulator.flush(now_ns),
            TraceOp::Discard => simulator.discard(now_ns, at, len),
        }
    })
}
