//! The model without contents: commands in, completion times out.
//!
//! ```text
//!   submitted at now -> one of queue_depth places free -> + request_us -> the controller is free
//!                    -> + dispatch_us -> + command_us -> Ftl -> done
//! ```
//!
//! For replays and lifetime estimates that need no bytes; [`crate::NandDevice`] adds contents and a
//! clock. Single-threaded, deterministic, integer. Offsets are clamped to the device, never out of
//! bounds. Tested in `tests/it/ftl.rs`.

use crate::NandError;
use crate::counters::{Counters, Latencies, Report, WAKE_NS, Wear};
use crate::flash::Flash;
use crate::ftl::{Arrival, Ftl, Span, build};
use crate::geometry::Layout;
use crate::profile::Profile;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use syncline_device::{SplitMix64, WriteLife, Zones};

/// Bytes of the writes that fill the device before it is aged.
const FILL_BYTES: u64 = 512 * 1024;

/// A flash device without contents.
pub struct Simulator {
    ftl: Box<dyn Ftl>,
    flash: Flash,
    size_bytes: u64,
    request_ns: u64,
    command_ns: u64,
    dispatch_ns: u64,
    flush_ns: u64,
    unit_bus_ns: u64,
    write_through: bool,
    /// True if what is in the buffer survives a power cut.
    protected: bool,
    /// When each place of the queue is free; that of a command under way is not there.
    queue_ns: BinaryHeap<Reverse<u64>>,
    /// When the controller can take the next command.
    controller_ns: u64,
    /// When the last command was done.
    done_ns: u64,
    latencies: [Latencies; 4],
}

/// Index of each kind of command in the latencies.
const READ: usize = 0;
const WRITE: usize = 1;
const FLUSH: usize = 2;
const DISCARD: usize = 3;

impl Simulator {
    /// A fresh device of `size_bytes`: nothing mapped, no wear.
    pub fn new(profile: &Profile, size_bytes: u64) -> Result<Self, NandError> {
        profile.validate()?;
        let layout = profile.layout(size_bytes)?;
        Ok(Simulator {
            ftl: build(profile, layout),
            flash: Flash::new(&profile.timing, profile.slc.as_ref(), layout),
            size_bytes,
            request_ns: u64::from(profile.host.request_us) * 1000,
            command_ns: u64::from(profile.timing.command_us) * 1000,
            dispatch_ns: u64::from(profile.timing.dispatch_us) * 1000,
            flush_ns: u64::from(profile.timing.flush_us) * 1000,
            unit_bus_ns: profile.timing.bus_ns(layout.unit_bytes),
            write_through: profile.buffer.buffer_kib == 0,
            protected: profile.buffer.protected,
            queue_ns: vec![Reverse(0); profile.host.queue_depth as usize].into(),
            controller_ns: 0,
            done_ns: 0,
            latencies: Default::default(),
        })
    }

    /// Usable size in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// Derived sizes.
    pub fn layout(&self) -> &Layout {
        &self.flash.layout
    }

    /// A read command at `now_ns`; returns when the host has the data.
    pub fn read(&mut self, now_ns: u64, offset_bytes: u64, len_bytes: u64) -> u64 {
        let at_ns = self.start(now_ns);
        self.flash.counters.reads += 1;
        let mut done_ns = at_ns;
        if let Some(span) = self.span(offset_bytes, len_bytes) {
            self.flash.counters.read_bytes += span.sectors * 512;
            done_ns = self.ftl.read(&span, at_ns, self.unit_bus_ns, &mut self.flash);
        }
        self.finish(READ, now_ns, done_ns)
    }

    /// A write command at `now_ns` of data of unknown lifetime; returns when the buffer has the
    /// data, with `fua` when the cells have. A write to a zone elsewhere than at its write pointer
    /// does nothing.
    pub fn write(&mut self, now_ns: u64, offset_bytes: u64, len_bytes: u64, fua: bool) -> u64 {
        self.write_with_life(now_ns, offset_bytes, len_bytes, fua, WriteLife::NotSet)
    }

    /// [`Simulator::write`] of data with an expected lifetime.
    pub fn write_with_life(
        &mut self,
        now_ns: u64,
        offset_bytes: u64,
        len_bytes: u64,
        fua: bool,
        life: WriteLife,
    ) -> u64 {
        let at_ns = self.start(now_ns);
        self.flash.counters.writes += 1;
        let mut done_ns = at_ns;
        if let Some(span) = self.span(offset_bytes, len_bytes) {
            self.flash.counters.written_bytes += span.sectors * 512;
            let through = (fua && !self.protected) || self.write_through;
            let arrival = Arrival { at_ns, bus_ns: self.unit_bus_ns, through, life };
            done_ns = self.ftl.write(&span, arrival, &mut self.flash);
        }
        self.finish(WRITE, now_ns, done_ns)
    }

    /// A flush command at `now_ns`; returns when everything completed before is in the cells, or
    /// at once if the buffer is protected.
    pub fn flush(&mut self, now_ns: u64) -> u64 {
        let at_ns = self.start(now_ns);
        self.flash.counters.flushes += 1;
        if self.protected {
            return self.finish(FLUSH, now_ns, at_ns);
        }
        let (drained_ns, was_dirty) = self.ftl.flush(at_ns, &mut self.flash);
        let done_ns = drained_ns + if was_dirty { self.flush_ns } else { 0 };
        self.finish(FLUSH, now_ns, done_ns)
    }

    /// A cache barrier at `now_ns`; returns when the controller has taken the command. It takes no
    /// other time, as no source has one.
    pub fn barrier(&mut self, now_ns: u64) -> u64 {
        let at_ns = self.start(now_ns);
        self.flash.counters.barriers += 1;
        self.ftl.barrier();
        self.queue_ns.push(Reverse(at_ns));
        at_ns
    }

    /// A discard command at `now_ns`. Unmaps the units that lie wholly in the range.
    pub fn discard(&mut self, now_ns: u64, offset_bytes: u64, len_bytes: u64) -> u64 {
        let at_ns = self.start(now_ns);
        self.flash.counters.discards += 1;
        if let Some((unit, units)) = self.whole_units(offset_bytes, len_bytes) {
            self.ftl.discard(unit, units, &mut self.flash);
        }
        self.finish(DISCARD, now_ns, at_ns)
    }

    /// Units (first, count) that lie wholly in a range; a last unit cut off by the end of the
    /// device counts as whole.
    pub fn whole_units(&self, offset_bytes: u64, len_bytes: u64) -> Option<(u32, u32)> {
        let unit_bytes = self.flash.layout.unit_bytes;
        let end = offset_bytes.saturating_add(len_bytes).min(self.size_bytes);
        let first = offset_bytes.div_ceil(unit_bytes);
        let after = if end == self.size_bytes {
            u64::from(self.flash.layout.host_units)
        } else {
            end / unit_bytes
        };
        (first < after).then(|| (first as u32, (after - first) as u32))
    }

    /// Units (first, count) touched by a range.
    pub fn touched_units(&self, offset_bytes: u64, len_bytes: u64) -> Option<(u32, u32)> {
        self.span(offset_bytes, len_bytes).map(|s| (s.unit, s.units))
    }

    /// True if the newest copy of a unit would survive a power cut at `now_ns`.
    pub fn durable(&self, unit: u32, now_ns: u64) -> bool {
        self.volatile_page(unit, now_ns).is_none()
    }

    /// As [`Ftl::volatile_page`].
    pub(crate) fn volatile_page(&self, unit: u32, now_ns: u64) -> Option<u32> {
        let is_known = !self.protected && unit < self.flash.layout.host_units;
        is_known.then(|| self.ftl.volatile_page(unit, now_ns)).flatten()
    }

    /// As [`Ftl::is_page_volatile`].
    pub(crate) fn is_page_volatile(&self, page: u32, now_ns: u64) -> bool {
        !self.protected && self.ftl.is_page_volatile(page, now_ns)
    }

    /// A power cut at `now_ns`: write pointers go back to what is in the cells. Then
    /// [`Simulator::power_cycle`].
    pub(crate) fn cut(&mut self, now_ns: u64) {
        if !self.protected {
            self.ftl.fall_back(now_ns);
        }
        self.power_cycle();
    }

    /// Power off and on: the buffer and the open streams are lost. What of the contents is lost is
    /// told by [`Simulator::durable`] before. A protected buffer is in the cells then.
    pub fn power_cycle(&mut self) {
        if self.protected {
            self.ftl.flush(0, &mut self.flash);
        }
        self.ftl.power_cycle();
        self.queue_ns = vec![Reverse(0); self.queue_ns.len()].into();
        self.controller_ns = 0;
        self.done_ns = 0;
    }

    /// Ages the device: fills the first `fill_percent` of it in order, then overwrites as many
    /// units at seeded random places in that part, as far as it is before the zones. Wear stays;
    /// open streams, time and counters do not.
    pub fn precondition(&mut self, fill_percent: u32, seed: u64) {
        let fill_bytes = self.size_bytes / 100 * u64::from(fill_percent.min(100));
        let unit_bytes = self.flash.layout.unit_bytes;
        let mut units = fill_bytes / unit_bytes;
        self.write_in_order(units * unit_bytes);
        units = units.min(u64::from(self.flash.layout.conventional_units()));
        let mut rng = SplitMix64::new(seed);
        for _ in 0..units {
            self.write(0, rng.below(units) * unit_bytes, unit_bytes, false);
        }
        self.end_of_aging();
    }

    /// Fills the device in order, once. Wear stays; open streams, time and counters do not.
    pub fn fill(&mut self) {
        self.write_in_order(self.size_bytes);
        self.end_of_aging();
    }

    fn write_in_order(&mut self, until: u64) {
        let mut offset = 0;
        while offset < until {
            let len = FILL_BYTES.min(until - offset).min(self.bytes_to_zone(offset));
            self.write(0, offset, len, false);
            offset += len;
        }
    }

    /// Bytes from `offset` to the next begin of a zone.
    fn bytes_to_zone(&self, offset: u64) -> u64 {
        self.zones().map_or(u64::MAX, |zones| zones.end_of(offset) - offset)
    }

    fn end_of_aging(&mut self) {
        self.ftl.flush(0, &mut self.flash);
        self.ftl.settle(&mut self.flash);
        self.power_cycle();
        self.flash.reset_accounting();
        self.reset_latencies();
    }

    /// The zones, if it has some.
    pub fn zones(&self) -> Option<Zones> {
        let layout = &self.flash.layout;
        (layout.zones > 0).then(|| Zones {
            conventional_bytes: u64::from(layout.conventional_units()) * layout.unit_bytes,
            zone_bytes: layout.block_bytes(),
        })
    }

    /// Offset at which a zone takes its next write; of a full zone its end.
    pub fn pointer_bytes(&self, zone: u32) -> u64 {
        let layout = &self.flash.layout;
        let first = layout.conventional_units() + zone * layout.units_per_block;
        u64::from(first + self.ftl.pointer(zone)) * layout.unit_bytes
    }

    /// Totals so far.
    pub fn counters(&self) -> Counters {
        self.flash.counters
    }

    /// Erases of each superblock.
    pub fn erases(&self) -> &[u32] {
        self.flash.erases()
    }

    /// Superblocks of the SLC write cache; 0 without one.
    pub fn slc_blocks(&self) -> u64 {
        self.ftl.slc_blocks()
    }

    /// Totals, wear and latencies so far.
    pub fn report(&self) -> Report {
        let [read, write, flush, discard] = &self.latencies;
        Report {
            counters: self.flash.counters,
            wear: Wear::of(self.flash.erases()),
            read: read.report(),
            write: write.report(),
            flush: flush.report(),
            discard: discard.report(),
        }
    }

    /// Starts the latency percentiles anew, as at the begin of a phase.
    pub fn reset_latencies(&mut self) {
        self.latencies.iter_mut().for_each(Latencies::reset);
    }

    /// Returns the flash unit with the newest copy of a map unit. `None`: unmapped, or only in the
    /// write buffer.
    pub fn locate(&self, unit: u32) -> Option<u32> {
        self.ftl.locate(unit)
    }

    /// Bytes of all tables of the model, whatever the backlog; latency histograms not counted.
    pub fn memory_bytes(&self) -> u64 {
        self.ftl.memory_bytes() + self.flash.erases().len() as u64 * 4
    }

    /// Checks every invariant of the mapping by a full scan.
    pub fn check(&self) -> Result<(), String> {
        self.ftl.check(&self.flash)
    }

    /// Takes the place of the queue that is free first; returns when the device starts on the
    /// command.
    fn start(&mut self, now_ns: u64) -> u64 {
        let idle_ns = now_ns.saturating_sub(self.done_ns);
        self.flash.counters.wakeups += u64::from(idle_ns >= WAKE_NS);
        let free_ns = self.queue_ns.pop().map_or(now_ns, |Reverse(ns)| ns);
        let mut at_ns = now_ns.max(free_ns) + self.request_ns;
        if self.dispatch_ns > 0 {
            at_ns = at_ns.max(self.controller_ns) + self.dispatch_ns;
            self.controller_ns = at_ns;
        }
        at_ns + self.command_ns
    }

    fn finish(&mut self, kind: usize, now_ns: u64, done_ns: u64) -> u64 {
        self.queue_ns.push(Reverse(done_ns));
        self.done_ns = self.done_ns.max(done_ns);
        self.latencies[kind].record(done_ns - now_ns);
        done_ns
    }

    fn span(&self, offset_bytes: u64, len_bytes: u64) -> Option<Span> {
        let end = offset_bytes.saturating_add(len_bytes).min(self.size_bytes);
        let len = end.checked_sub(offset_bytes).filter(|l| *l > 0)?;
        let mut span = Span::new(offset_bytes, len, self.flash.layout.unit_bytes);
        // Nothing lies behind the end of the device, so its last unit needs no read-modify-write.
        span.tail_partial &= end != self.size_bytes;
        Some(span)
    }
}
