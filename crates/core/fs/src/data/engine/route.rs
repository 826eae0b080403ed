//! Chooses where an eager fsync writes its data, to the log or in place, by what each costs.
//!
//! ```text
//!              now                                            later
//!   log        data + record, flush or FUA                    data written a second time
//!   in place   data + gaps between runs, flush                -
//!     with metadata  + record at the log; a flush more if     copies of the log that must be
//!                    it shows new blocks or a new size        logged again (`log=packed`)
//!
//!   log  <-- run_ns -->  home       the device is at the log or among the files
//! ```
//!
//! The caller waits for `now`, the device works for `now` and `later`. The price of a route is the
//! geometric mean of the two times. So the log is chosen only if the caller's time falls by a
//! larger factor than the device's time rises. Data is written a second time only if it is not
//! overwritten or freed before write-back. This also wears the flash: if all of it is written
//! twice, the price rises by the share [`WEAR`].
//!
//! On a simple card a move from the log to the files is expensive. So a sync of data alone is not
//! decided by its own price there: the two positions are states, and each has the lowest cost of
//! all syncs so far if the last one ends in it (a work function). The position changes when the
//! saving that earlier syncs missed is as large as the cost of the move. A sync that commits
//! metadata ends at the log on both routes, so its own price decides. On a device on which a move
//! costs nothing every sync is decided by its own price.
//!
//! With `log=jbd2` a write in place revokes the copies that the log has of its blocks: one record
//! and one flush, which are added to the cost of the move.
//!
//! Deterministic: prices follow from the device's requests and from counts. Tested below and, for
//! every profile, in `lab/tests/bench/never_worse.rs`.

use syncline_device::Costs;

/// Share of the time that the wear of a second write costs.
const WEAR: f64 = 0.03;
/// Blocks of a record beside data: descriptor and commit block, and the inode's.
const RECORD_BLOCKS: u64 = 2;

/// Largest sync whose route is shown, in pages.
const SHOWN_PAGES: usize = 1024;

/// Data that one sync has to make durable.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SyncWork {
    pub(crate) blocks: u64,
    pub(crate) runs: u64,
    /// Ways between two runs, by their length.
    pub(crate) near: u64,
    pub(crate) far: u64,
    /// Blocks of which the log has the newest copy: in place they are logged again.
    pub(crate) live: u64,
    /// As `live`, but the copies can be revoked.
    pub(crate) revoked: u64,
    /// First byte and the byte after the last, of blocks that exist.
    pub(crate) place: Option<(u64, u64)>,
    /// Metadata commits with it wherever the data goes.
    pub(crate) commits: bool,
    /// The metadata shows new blocks or a new size: the data must be durable before it.
    pub(crate) grows: bool,
    /// Share of the data that write-back has to write once more if it goes to the log.
    pub(crate) rewritten: f64,
    /// Ways to addresses for each block of it, since write-back sorts the blocks of many syncs.
    pub(crate) ways: f64,
    /// The device has a volatile cache: writes take their time in the flush.
    pub(crate) cached: bool,
    /// It has FUA writes: a record needs no flush.
    pub(crate) fua: bool,
}

impl SyncWork {
    /// Adds a run of blocks on the device.
    pub(crate) fn add(&mut self, first: u64, blocks: u64, block_bytes: u64) {
        let (start, end) = (first * block_bytes, (first + blocks) * block_bytes);
        self.blocks += blocks;
        self.runs += 1;
        match &mut self.place {
            Some((_, last)) => {
                let near = Costs::is_near(*last, start);
                *(if near { &mut self.near } else { &mut self.far }) += u64::from(*last != start);
                *last = end;
            }
            None => self.place = Some((start, end)),
        }
    }
}

/// Prices of the two routes of a sync, in nanoseconds, without the way to the place.
#[derive(Clone, Copy, Debug)]
struct Prices {
    log_ns: f64,
    place_ns: f64,
    /// A record ends the sync also if the data is in place.
    commits: bool,
}

impl Prices {
    fn new(work: &SyncWork, block_bytes: u64, costs: &Costs) -> Prices {
        // Time of the caller, and of the caller and the second write of blocks that are logged.
        let price_ns = |now_ns: f64, logged: u64, runs: f64| {
            let ways = (logged as f64 * work.ways).min(runs);
            let data_ns = (logged * block_bytes) as f64 * costs.byte_ns;
            let later_ns = work.rewritten * (data_ns + ways * costs.near_ns);
            let wear = 1.0 + WEAR * work.rewritten * logged as f64 / work.blocks as f64;
            (now_ns * (now_ns + later_ns)).sqrt() * wear
        };
        let (data, runs) = (work.blocks * block_bytes, work.runs as f64);
        let record = (RECORD_BLOCKS + u64::from(work.commits)) * block_bytes;
        let flush_ns = costs.end_ns(true);
        let record_ns = costs.end_ns(!work.cached || !work.fua);
        let log_ns = costs.interval_ns(data + record) + record_ns;
        let commits = work.commits || work.live > 0;
        // The inode goes with blocks that are logged again.
        let record = if commits { (RECORD_BLOCKS + 1) * block_bytes } else { 0 };
        // Data and record are two requests, or two flushes.
        let twice = if work.cached { work.grows || work.revoked > 0 && commits } else { commits };
        let mut place_ns = work.near as f64 * costs.near_ns + work.far as f64 * costs.run_ns;
        place_ns += match twice {
            true => costs.interval_ns(data) + flush_ns + costs.interval_ns(record) + record_ns,
            false => costs.interval_ns(data + record) + flush_ns,
        };
        Prices {
            log_ns: price_ns(log_ns, work.blocks, runs),
            place_ns: price_ns(place_ns, work.live, runs * work.live as f64 / work.blocks as f64),
            commits,
        }
    }
}

/// Position of the device, and what the other one would have saved.
#[derive(Debug, Default)]
pub(crate) struct Route {
    at_home: bool,
    /// Least cost of all syncs ended among the files, less that of ending at the log, in
    /// nanoseconds. Neither is further than the way.
    home_ns: f64,
    /// End of the last data in place.
    end: u64,
    /// End of the last data, if all of it were in place.
    last: u64,
}

impl Route {
    /// Decides for one sync. True: in place.
    pub(crate) fn decide(&mut self, work: &SyncWork, block_bytes: u64, costs: &Costs) -> bool {
        let Prices { log_ns, place_ns, commits } = Prices::new(work, block_bytes, costs);
        let (start, back_ns) = (work.place.map(|(start, _)| start), costs.back_ns);
        let goes_on = |end: u64, other_ns: f64| if start == Some(end) { back_ns } else { other_ns };
        let step_ns = match start {
            Some(start) if start == self.last => 0.0,
            Some(start) if Costs::is_near(self.last, start) => costs.near_ns,
            _ => costs.run_ns,
        };
        let (out_ns, usual_out_ns) =
            (goes_on(self.end, costs.run_ns), goes_on(self.last, costs.run_ns));
        self.last = work.place.map_or(self.last, |(_, end)| end);
        let in_place = if commits {
            // Both end at the log.
            let (to_log_ns, to_place_ns) = match self.at_home {
                true => (back_ns, step_ns),
                false => (0.0, usual_out_ns),
            };
            (self.at_home, self.home_ns) = (false, out_ns);
            place_ns + to_place_ns + back_ns < log_ns + to_log_ns
        } else {
            let revoke_ns = match work.revoked {
                0 => 0.0,
                _ => costs.interval_ns(RECORD_BLOCKS * block_bytes) + costs.end_ns(true),
            };
            let way_ns = (out_ns + back_ns) / 2.0 + revoke_ns;
            let log_end_ns = log_ns + (self.home_ns + way_ns).min(0.0);
            let home_end_ns = place_ns + step_ns + self.home_ns.min(way_ns);
            self.at_home = match self.at_home {
                true => home_end_ns < log_end_ns + way_ns,
                false => home_end_ns + way_ns < log_end_ns,
            };
            self.home_ns = (home_end_ns - log_end_ns).clamp(-way_ns, way_ns);
            self.at_home
        };
        if in_place {
            self.end = self.last;
        }
        in_place
    }
}

/// The smallest size from which on a sync of overwritten data without metadata goes in place, in
/// bytes, from either position of the device.
pub(crate) fn in_place_from(
    is_run: bool,
    rewritten: f64,
    block_bytes: u64,
    costs: &Costs,
) -> Option<u64> {
    let in_place = |pages: &usize| {
        let blocks = *pages as u64;
        let near = if is_run { 0 } else { blocks - 1 };
        let (ways, cached) = (1.0, true);
        let base = SyncWork { commits: true, rewritten, ways, cached, ..SyncWork::default() };
        let work = SyncWork { blocks, near, runs: near + 1, ..base };
        Route::default().decide(&work, block_bytes, costs)
    };
    let logged = (1..=SHOWN_PAGES).rev().find(|pages| !in_place(pages));
    let from = logged.map_or(1, |pages| pages + 1);
    (from <= SHOWN_PAGES).then_some(from as u64 * block_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: u64 = 4096;
    const UFS: Costs = Costs {
        write_ns: 0.0,
        flush_ns: 4e5,
        byte_ns: 5.0,
        back_ns: 0.0,
        near_ns: 0.0,
        run_ns: 0.0,
        ..Costs::ASSUMED
    };
    /// A card that merges 4 MiB for each address far away.
    const CARD: Costs = Costs {
        write_ns: 0.0,
        flush_ns: 3e6,
        byte_ns: 150.0,
        back_ns: 1e8,
        near_ns: 1e6,
        run_ns: 2e8,
        ..Costs::ASSUMED
    };

    /// Syncs of one page each that lie together, without metadata.
    fn page(at: u64) -> SyncWork {
        let mut work = SyncWork { rewritten: 1.0, ways: 0.25, cached: true, ..SyncWork::default() };
        work.add(at, 1, BLOCK);
        work
    }

    fn scattered(pages: u64) -> SyncWork {
        let mut work = page(1);
        (1..pages).for_each(|n| work.add(1 + n * 5000, 1, BLOCK));
        work
    }

    #[test]
    fn where_an_address_costs_nothing_overwrites_go_in_place_at_once() {
        for pages in [1, 4, 8, 32] {
            assert!(Route::default().decide(&scattered(pages), BLOCK, &UFS), "{pages}");
            let commits = SyncWork { commits: true, ..scattered(pages) };
            assert!(Route::default().decide(&commits, BLOCK, &UFS), "{pages}");
        }
        // Data that is overwritten again in the log is written once; the record costs nothing more.
        let again = SyncWork { commits: true, rewritten: 0.0, ..scattered(4) };
        assert!(!Route::default().decide(&again, BLOCK, &UFS));
    }

    #[test]
    fn new_blocks_cost_a_flush_in_place_and_their_copy_in_the_log() {
        let new = |blocks, rewritten| {
            let base = SyncWork { commits: true, grows: true, ways: 0.25, ..SyncWork::default() };
            SyncWork { blocks, runs: 1, rewritten, cached: true, ..base }
        };
        let place = |work| Route::default().decide(&work, BLOCK, &UFS);
        assert!(!place(new(3, 1.0)) && place(new(64, 1.0)));
        // A journal that is deleted before write-back.
        assert!(!place(new(64, 0.0)));
        // Copies that the log has cannot be left out.
        assert!(!place(SyncWork { live: 4, ..scattered(4) }));
    }

    #[test]
    fn copies_in_the_log_are_revoked_once_that_has_been_saved() {
        let mut route = Route::default();
        let live = SyncWork { revoked: 4, rewritten: 0.0, ..scattered(4) };
        let placed: Vec<bool> = (0..40).map(|_| route.decide(&live, BLOCK, &UFS)).collect();
        let first = placed.iter().position(|placed| *placed).expect("it goes");
        assert!(first > 0 && placed[first..].iter().all(|placed| *placed), "{first}");
    }

    #[test]
    fn a_card_goes_to_the_files_once_syncs_have_paid_for_the_way() {
        let mut route = Route::default();
        let placed: Vec<bool> =
            (0..2000).map(|n| route.decide(&page(1000 + n), BLOCK, &CARD)).collect();
        let first = placed.iter().position(|placed| *placed).expect("it goes");
        assert!(first > 50 && placed[first..].iter().all(|placed| *placed), "{first}");
        // Far from each other they go back to the log.
        let far: Vec<bool> =
            (0..100).map(|n| route.decide(&page(n * 5000), BLOCK, &CARD)).collect();
        assert!(far[10..].iter().all(|placed| !*placed), "{far:?}");
    }

    #[test]
    fn the_sizes_that_are_shown_are_those_that_decide() {
        assert_eq!(in_place_from(false, 1.0, BLOCK, &UFS), Some(BLOCK));
        assert_eq!(in_place_from(true, 1.0, BLOCK, &CARD), None);
        // No time passes: to the log.
        let nothing = Costs { flush_ns: 0.0, byte_ns: 0.0, ..UFS };
        assert_eq!(in_place_from(true, 1.0, BLOCK, &nothing), None);
    }
}
