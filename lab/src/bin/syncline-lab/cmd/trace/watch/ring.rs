//! The kernel's side: an instance of tracefs with the events of the watched devices, and its
//! buffers, a page at a time.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::OFlags;
use rustix::time::{ClockId, clock_gettime};
use syncline_lab::trace::{EventKind, Events, KernelLayout, Request};

use super::devices::Watched;
use crate::tracefs::Instance;
use syncline_cli::error::{Failure, Result};

/// Buffer of each processor: what 10,000 requests a second fill in two seconds, KiB.
const BUFFER_KIB: u32 = 4 << 10;
/// Unit in which the buffer is read, where the kernel lets it be chosen (6.8), KiB.
const PAGE_KIB: usize = 32;
/// Unit before that, KiB.
const SMALL_PAGE_KIB: usize = 4;
/// Events that end this shortly before a round wait for the next: another processor may still be
/// writing an earlier one.
const SETTLE_NS: u64 = 2_000_000;

/// Events of tracefs, what each means, and the filter that it gets.
const EVENTS: [(&str, EventKind, Filter); 10] = [
    ("block/block_rq_issue", EventKind::Issue, Watched::requests),
    ("block/block_rq_complete", EventKind::Complete, Watched::requests),
    ("block/block_bio_queue", EventKind::Queue, Watched::queue),
    ("block/block_bio_complete", EventKind::QueueDone, Watched::volumes),
    ("ext4/ext4_writepages", EventKind::Begin, Watched::volumes),
    ("ext4/ext4_writepages_result", EventKind::End, Watched::volumes),
    ("f2fs/f2fs_writepages", EventKind::Begin, Watched::volumes),
    ("iomap/iomap_dio_rw_begin", EventKind::Begin, Watched::volumes),
    ("writeback/writeback_single_inode_start", EventKind::Begin, Watched::write_back),
    ("writeback/writeback_single_inode", EventKind::End, Watched::write_back),
];

type Filter = fn(&Watched) -> String;

/// The buffers, and what their events become.
pub(super) struct Ring {
    instance: Instance,
    buffers: Vec<File>,
    page: Vec<u8>,
    pages_max: usize,
    events: Events,
}

fn failed(text: String) -> Failure {
    Failure::Failed(format!("{text}; use a kernel with the block events of ftrace"))
}

impl Ring {
    /// Begins to record.
    pub(super) fn new(devices: &[Watched]) -> Result<Ring> {
        let instance = Instance::new().map_err(Failure::Failed)?;
        instance.set("tracing_on", "0").map_err(failed)?;
        let chosen = instance.set("buffer_subbuf_size_kb", &PAGE_KIB.to_string());
        let page_kib = if chosen.is_ok() { PAGE_KIB } else { SMALL_PAGE_KIB };
        instance.set("buffer_size_kb", &BUFFER_KIB.to_string()).map_err(failed)?;
        instance.set("trace_clock", "boot").map_err(failed)?;
        let mut events = Events::default();
        for device in devices {
            for volume in &device.volumes {
                events.part(*volume, device.disk);
            }
            if device.queued {
                events.queued(device.disk);
            }
        }
        for (name, kind, filter) in EVENTS {
            enable(&instance, name, kind, filter, devices, &mut events)?;
        }
        let buffers = buffers(&instance)?;
        instance.set("tracing_on", "1").map_err(failed)?;
        // Twice what a buffer holds: a round ends, however fast events come.
        let pages_max = 2 * BUFFER_KIB as usize / page_kib;
        Ok(Ring { instance, buffers, page: vec![0; page_kib << 10], pages_max, events })
    }

    /// Takes what the buffers hold, and passes on the requests that are complete.
    pub(super) fn drain(&mut self, give: &mut dyn FnMut(&Request)) -> Result<()> {
        let until_ns = boot_ns().saturating_sub(SETTLE_NS);
        for buffer in &mut self.buffers {
            for _ in 0..self.pages_max {
                match buffer.read(&mut self.page) {
                    Ok(0) => break,
                    Ok(bytes) => self.events.page(&self.page[..bytes]),
                    Err(err) if err.kind() == ErrorKind::WouldBlock => break,
                    Err(err) if err.kind() == ErrorKind::Interrupted => {}
                    Err(err) => return Err(Failure::host(Path::new("tracefs"), &err)),
                }
            }
        }
        self.events.take(until_ns, give);
        Ok(())
    }

    /// Stops, and passes on the rest.
    pub(super) fn end(&mut self, give: &mut dyn FnMut(&Request)) -> Result<()> {
        self.instance.set("tracing_on", "0").map_err(failed)?;
        self.drain(give)?;
        self.events.end(give);
        Ok(())
    }

    /// Events that were lost so far.
    pub(super) fn lost(&self) -> u64 {
        self.events.lost()
    }
}

/// The clock of the events.
pub(super) fn boot_ns() -> u64 {
    let time = clock_gettime(ClockId::Boottime);
    // Both are positive since boot.
    let (s, ns) = (time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs());
    s.saturating_mul(1_000_000_000).saturating_add(ns)
}

/// Enables one event for the devices that it matters for. Those of file systems may be absent.
fn enable(
    instance: &Instance,
    name: &str,
    kind: EventKind,
    filter: Filter,
    devices: &[Watched],
    events: &mut Events,
) -> Result<()> {
    let wanted = |device: &&Watched| match kind {
        EventKind::Issue | EventKind::Complete => !device.queued,
        EventKind::QueueDone => device.queued,
        _ => true,
    };
    let filters: Vec<String> = devices.iter().filter(wanted).map(filter).collect();
    if filters.is_empty() {
        return Ok(());
    }
    let path = instance.path(&format!("events/{name}/format"));
    let Ok(format) = fs::read_to_string(&path) else {
        return match kind {
            EventKind::Begin | EventKind::End => Ok(()),
            _ => Err(failed(format!("tracefs: no event {name}"))),
        };
    };
    events.learn(KernelLayout::parse(kind, &format)?);
    instance.set(&format!("events/{name}/filter"), &filters.join(" || ")).map_err(failed)?;
    instance.set(&format!("events/{name}/enable"), "1").map_err(failed)
}

fn buffers(instance: &Instance) -> Result<Vec<File>> {
    let dir = instance.path("per_cpu");
    let failed = |err: std::io::Error| Failure::host(Path::new("tracefs"), &err);
    let mut buffers = Vec::new();
    for entry in fs::read_dir(dir).map_err(failed)? {
        let path = entry.map_err(failed)?.path().join("trace_pipe_raw");
        let flags = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or(0);
        let opened = OpenOptions::new().read(true).custom_flags(flags).open(path);
        buffers.push(opened.map_err(failed)?);
    }
    Ok(buffers)
}
