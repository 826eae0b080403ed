//! When the dies and channels are free: parallelism in integer nanoseconds.
//!
//! ```text
//!   program   channel: [transfer]            die: [transfer][ program ......... ]
//!   read      die: [ read ... ]              channel:       [transfer]
//!   erase     all dies of the superblock: [ erase ............ ]
//! ```
//!
//! A die does one thing at a time (no cache program, no suspend); a channel carries one transfer at
//! a time. An operation starts when its data and its resources are free. Nothing is re-ordered.
//! Tested here by hand-computed schedules.

use crate::NandError;
use crate::geometry::{Layout, check};
use crate::profile::SlcParameters;
use serde::{Deserialize, Serialize};

/// Times of the flash and of the path to it: the `[timing]` table of a profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Timing {
    /// Cell array to page register (tR), microseconds.
    pub read_us: u32,
    /// Page register to cell array (tPROG), microseconds.
    pub program_us: u32,
    /// Erase of a block (tBERS), microseconds.
    pub erase_us: u32,
    /// Channel between controller and die, 10^6 bytes a second.
    pub channel_mb_per_s: u32,
    /// Bus between host and controller, 10^6 bytes a second.
    pub bus_mb_per_s: u32,
    /// Controller's work for each command, microseconds.
    pub command_us: u32,
    /// Controller's work for each command before that, during which no other command starts,
    /// microseconds: the most commands a second.
    #[serde(default)]
    pub dispatch_us: u32,
    /// Controller's work for a flush that finds dirty data, after the buffer is drained,
    /// microseconds.
    pub flush_us: u32,
}

impl Timing {
    /// Refuses times that would make a device without limits or one that never answers.
    pub fn validate(&self) -> Result<(), NandError> {
        check("read_us", self.read_us, 0, 100_000)?;
        check("program_us", self.program_us, 0, 1_000_000)?;
        check("erase_us", self.erase_us, 0, 10_000_000)?;
        check("channel_mb_per_s", self.channel_mb_per_s, 1, 100_000)?;
        check("bus_mb_per_s", self.bus_mb_per_s, 1, 100_000)?;
        check("command_us", self.command_us, 0, 1_000_000)?;
        check("dispatch_us", self.dispatch_us, 0, 1_000_000)?;
        check("flush_us", self.flush_us, 0, 10_000_000)
    }

    /// Time of `bytes` on the host bus.
    pub fn bus_ns(&self, bytes: u64) -> u64 {
        bytes * 1000 / u64::from(self.bus_mb_per_s)
    }
}

/// Times of the cells of one kind, nanoseconds.
#[derive(Clone, Copy, Debug)]
struct Cells {
    read_ns: u64,
    program_ns: u64,
    erase_ns: u64,
}

impl Cells {
    fn new(read_us: u32, program_us: u32, erase_us: u32) -> Cells {
        let ns = |us: u32| u64::from(us) * 1000;
        Cells { read_ns: ns(read_us), program_ns: ns(program_us), erase_ns: ns(erase_us) }
    }
}

/// Availability of every die and channel. All times are nanoseconds of the device's clock.
#[derive(Clone, Debug)]
pub struct Schedule {
    cells: Cells,
    slc: Cells,
    page_transfer_ns: u64,
    channel_mb_per_s: u64,
    die_free_ns: Vec<u64>,
    channel_free_ns: Vec<u64>,
    /// True if dies and channels are powers of two: then `&` replaces the division.
    die_mask: Option<u32>,
}

impl Schedule {
    /// Everything free at time 0.
    pub fn new(t: &Timing, slc: Option<&SlcParameters>, l: &Layout) -> Self {
        let cells = Cells::new(t.read_us, t.program_us, t.erase_us);
        let of_slc =
            |s: &SlcParameters| Cells::new(s.slc_read_us, s.slc_program_us, s.slc_erase_us);
        Schedule {
            cells,
            slc: slc.map_or(cells, of_slc),
            page_transfer_ns: l.page_bytes() * 1000 / u64::from(t.channel_mb_per_s),
            channel_mb_per_s: u64::from(t.channel_mb_per_s),
            die_free_ns: vec![0; l.dies as usize],
            channel_free_ns: vec![0; l.channels as usize],
            die_mask: l.dies.is_power_of_two().then(|| l.dies - 1),
        }
    }

    fn die(&self, page: u32) -> usize {
        (match self.die_mask {
            Some(mask) => page & mask,
            None => page % self.die_free_ns.len() as u32,
        }) as usize
    }

    /// Reads `bytes` of the page with this number; returns when the controller has them.
    pub fn read(&mut self, page: u32, bytes: u64, at_ns: u64) -> u64 {
        self.read_from(self.cells, page, bytes, at_ns)
    }

    /// [`Schedule::read`] of the SLC write cache.
    pub fn slc_read(&mut self, page: u32, bytes: u64, at_ns: u64) -> u64 {
        self.read_from(self.slc, page, bytes, at_ns)
    }

    fn read_from(&mut self, cells: Cells, page: u32, bytes: u64, at_ns: u64) -> u64 {
        let die = self.die(page);
        let channel = die % self.channel_free_ns.len();
        let sensed = at_ns.max(self.die_free_ns[die]) + cells.read_ns;
        let done = sensed.max(self.channel_free_ns[channel]) + bytes * 1000 / self.channel_mb_per_s;
        self.die_free_ns[die] = done;
        self.channel_free_ns[channel] = done;
        done
    }

    /// Programs the page with this number, data in the controller at `ready_ns`; returns when it is
    /// in the cells.
    pub fn program(&mut self, page: u32, ready_ns: u64) -> u64 {
        self.program_to(self.cells, page, ready_ns)
    }

    /// [`Schedule::program`] in the SLC write cache.
    pub fn slc_program(&mut self, page: u32, ready_ns: u64) -> u64 {
        self.program_to(self.slc, page, ready_ns)
    }

    fn program_to(&mut self, cells: Cells, page: u32, ready_ns: u64) -> u64 {
        let die = self.die(page);
        let channel = die % self.channel_free_ns.len();
        let start = ready_ns.max(self.die_free_ns[die]).max(self.channel_free_ns[channel]);
        let transferred = start + self.page_transfer_ns;
        self.channel_free_ns[channel] = transferred;
        self.die_free_ns[die] = transferred + cells.program_ns;
        self.die_free_ns[die]
    }

    /// Copies `pages` pages, as many on each die; returns when the last is in the cells. In one
    /// step: each die reads, sends, receives and programs one page after the other, and each
    /// channel carries the transfers of its dies.
    pub fn copy(&mut self, pages: u32, at_ns: u64) -> u64 {
        if pages == 0 {
            return at_ns;
        }
        let start = self.die_free_ns.iter().copied().fold(at_ns, u64::max);
        let transfers = 2 * self.page_transfer_ns;
        let each = u64::from(pages).div_ceil(self.die_free_ns.len() as u64);
        let carried = u64::from(pages).div_ceil(self.channel_free_ns.len() as u64);
        let dies_ns = each * (self.cells.read_ns + self.cells.program_ns + transfers);
        let done = start + dies_ns.max(carried * transfers);
        self.die_free_ns.fill(done);
        self.channel_free_ns.fill(done);
        done
    }

    /// Erases a superblock on all dies; returns when all are done.
    pub fn erase(&mut self, at_ns: u64) -> u64 {
        self.erase_of(self.cells, at_ns)
    }

    /// [`Schedule::erase`] in the SLC write cache.
    pub fn slc_erase(&mut self, at_ns: u64) -> u64 {
        self.erase_of(self.slc, at_ns)
    }

    fn erase_of(&mut self, cells: Cells, at_ns: u64) -> u64 {
        let mut done = at_ns;
        for die in &mut self.die_free_ns {
            *die = at_ns.max(*die) + cells.erase_ns;
            done = done.max(*die);
        }
        done
    }

    /// Forgets all work: used when a state was built without charging its time.
    pub fn reset(&mut self) {
        self.die_free_ns.fill(0);
        self.channel_free_ns.fill(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geometry::NandGeometry;

    fn schedule(channels: u32, dies_per_channel: u32) -> Schedule {
        let g = NandGeometry {
            channels,
            dies_per_channel,
            planes: 1,
            page_kib: 4,
            pages_per_block: 8,
            map_unit_kib: 4,
            over_provisioning_percent: 10,
            rated_cycles: 3000,
        };
        let t = Timing {
            read_us: 50,
            program_us: 900,
            erase_us: 3000,
            channel_mb_per_s: 40, // 102.4 us a page
            bus_mb_per_s: 40,
            command_us: 0,
            dispatch_us: 0,
            flush_us: 0,
        };
        Schedule::new(&t, None, &Layout::new(&g, 1 << 20, 2).unwrap())
    }

    #[test]
    fn programs_on_two_dies_share_the_channel_only_for_the_transfer() {
        let mut s = schedule(1, 2);
        assert_eq!(s.program(0, 0), 1_002_400);
        assert_eq!(s.program(1, 0), 1_104_800, "the transfer waits for the channel");
        assert_eq!(s.program(2, 0), 2_004_800, "die 0 again: after its first program");
    }

    #[test]
    fn two_channels_do_not_wait_for_each_other() {
        let mut s = schedule(2, 1);
        assert_eq!(s.program(0, 0), s.program(1, 0));
    }

    #[test]
    fn a_read_waits_for_the_program_of_its_die_only() {
        let mut s = schedule(1, 2);
        let programmed = s.program(0, 0);
        assert_eq!(s.read(1, 4096, 200_000), 200_000 + 50_000 + 102_400);
        assert_eq!(s.read(2, 4096, 200_000), programmed + 50_000 + 102_400);
    }

    #[test]
    fn copies_are_limited_by_the_dies_or_by_the_channel() {
        let mut s = schedule(1, 2);
        s.program(0, 0);
        // Two on each die, after the program: read, two transfers, program.
        assert_eq!(s.copy(4, 0), 1_002_400 + 2 * (50_000 + 2 * 102_400 + 900_000));
        let mut s = schedule(1, 32);
        assert_eq!(s.copy(32, 7), 7 + 32 * 2 * 102_400);
        assert_eq!(s.copy(0, 5), 5);
    }

    #[test]
    fn an_erase_takes_all_dies() {
        let mut s = schedule(1, 3);
        s.program(1, 0);
        assert_eq!(s.erase(0), 1_002_400 + 3_000_000);
        assert_eq!(s.read(0, 0, 0), 3_050_000);
    }
}
