//! Legal contents of a file of the ledger: the changes since the last acknowledged sync that covers
//! them, and the state which that sync promised.

use std::ops::Range;
use std::path::PathBuf;

use crate::fill;

/// The unit of contents, bytes: what a device writes whole or not at all.
pub(super) const SECTOR: u64 = 512;
/// Bytes of a replaced file, at most.
const REPLACED_BYTES: u64 = 60_000;

/// A state that a sector may be found in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct State {
    /// Counts the changes of the file.
    pub(super) version: u64,
    /// Zeros instead of that version's bytes: a hole, or cut off.
    pub(super) zero: bool,
}

/// A file that is changed in place.
pub(super) struct Changed {
    pub(super) path: PathBuf,
    pub(super) seed: u64,
    /// Its syncs promise nothing.
    pub(super) relaxed: bool,
    /// Version of the newest change that was begun; of the newest that was made.
    pub(super) begun: u64,
    pub(super) made: u64,
    /// Version that a sync of the whole file covered.
    pub(super) synced: u64,
    /// By version, oldest first; the last one is what programs see.
    pub(super) sectors: Vec<Vec<State>>,
    /// Sectors by version, oldest first; the last one is what programs see.
    pub(super) lens: Vec<(u64, u64)>,
}

/// A file that is replaced as a whole.
pub(super) struct Replaced {
    pub(super) path: PathBuf,
    pub(super) aside: PathBuf,
    pub(super) seed: u64,
    pub(super) newest: u64,
    /// Contents that it may have, oldest first.
    pub(super) allowed: Vec<Whole>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Whole {
    Missing,
    Version(u64),
    /// It was made in place, or of relaxed data, and is not synced yet.
    Anything,
}

impl Changed {
    pub(super) fn len(&self) -> u64 {
        self.lens.last().map_or(0, |(_, len)| *len)
    }

    /// Notes a change of the sectors `from..to` before it is made; its version and bytes.
    pub(super) fn begin(&mut self, from: u64, to: u64) -> (u64, Vec<u8>) {
        self.begun += 1;
        let (version, old) = (self.begun, self.len());
        // What a write behind the end skips reads as zeros.
        self.note(old..from, State { version, zero: true });
        self.note(from..to, State { version, zero: false });
        if to > old {
            self.lens.push((version, to));
        }
        let mut bytes = vec![0; ((to - from) * SECTOR) as usize];
        fill(self.stream(version), from * SECTOR, &mut bytes);
        (version, bytes)
    }

    /// Notes a cut before it is made; its version. The size becomes durable with any commit, as in
    /// Linux, while what was appended before and never synced may still be a hole.
    pub(super) fn begin_cut(&mut self, to: u64) -> u64 {
        self.begun += 1;
        let version = self.begun;
        for states in &mut self.sectors {
            allow_hole(states, self.synced);
        }
        self.note(to..self.len(), State { version, zero: true });
        self.lens.push((version, to));
        version
    }

    pub(super) fn note(&mut self, range: Range<u64>, state: State) {
        let end = range.end.max(self.sectors.len() as u64);
        self.sectors.resize(end as usize, Vec::new());
        for sector in range {
            self.sectors[sector as usize].push(state);
        }
    }

    /// A sync that began when `version` was made was acknowledged.
    pub(super) fn acknowledge(&mut self, version: u64) {
        if self.relaxed {
            return;
        }
        for states in &mut self.sectors {
            let last = states.iter().rposition(|state| state.version <= version);
            states.drain(..last.unwrap_or(0));
        }
        let last = self.lens.iter().rposition(|(of, _)| *of <= version);
        self.lens.drain(..last.unwrap_or(0));
        self.synced = self.synced.max(version);
    }

    /// A write that is its own sync was acknowledged: it is there, and with it the size, while what
    /// was appended before it may still be a hole.
    pub(super) fn acknowledge_write(&mut self, version: u64, written: Range<u64>) {
        if self.relaxed {
            return;
        }
        for (nr, states) in (0..).zip(&mut self.sectors) {
            if written.contains(&nr) {
                states.retain(|state| state.version >= version);
            } else {
                allow_hole(states, self.synced);
            }
        }
        self.lens.retain(|(of, len)| *of >= version || *len >= written.end);
    }

    pub(super) fn stream(&self, version: u64) -> u64 {
        self.seed ^ (version << 1)
    }

    pub(super) fn holds(&self, sector: u64, state: State, bytes: &[u8]) -> bool {
        let mut wanted = [0; SECTOR as usize];
        if !state.zero {
            fill(self.stream(state.version), sector * SECTOR, &mut wanted);
        }
        bytes == wanted
    }

    /// The state of each sector of `bytes`, the whole file after a crash.
    pub(super) fn recognise(&self, bytes: &[u8]) -> Result<Vec<State>, String> {
        let (sectors, rest) = bytes.as_chunks::<{ SECTOR as usize }>();
        let len = sectors.len() as u64;
        let lens = self.lens.iter().map(|(_, len)| *len);
        let (least, most) = (lens.clone().min().unwrap_or(0), lens.max().unwrap_or(0));
        if !rest.is_empty() || len < least || len > most {
            let wanted = (least * SECTOR)..=(most * SECTOR);
            return Err(format!("{} bytes, allowed are {wanted:?}", bytes.len()));
        }
        let recognise = |(nr, bytes): (usize, &[u8; SECTOR as usize])| {
            let allowed = &self.sectors[nr];
            let of = |state: &State| self.holds(nr as u64, *state, bytes);
            // A relaxed file may have zeros wherever it was not on the device yet.
            let zeros = State { version: 0, zero: true };
            let relaxed = self.relaxed.then_some(&zeros);
            allowed.iter().rev().chain(relaxed).find(|state| of(state)).copied().ok_or_else(|| {
                let found = (0..=self.begun)
                    .flat_map(|version| [false, true].map(|zero| State { version, zero }))
                    .find(of);
                format!("sector {nr} of {len} is {found:?}, allowed are {allowed:?}")
            })
        };
        sectors.iter().enumerate().map(recognise).collect()
    }

    /// Takes over the contents found after a crash: the next crash must not lose them.
    pub(super) fn adopt(&mut self, states: Vec<State>) {
        (self.made, self.synced) = (self.begun, self.begun);
        if self.relaxed {
            self.lens.push((self.begun, states.len() as u64));
            for (sector, state) in self.sectors.iter_mut().zip(states) {
                sector.push(state);
            }
            return;
        }
        self.lens = vec![(self.begun, states.len() as u64)];
        self.sectors = states.into_iter().map(|state| vec![state]).collect();
    }

    /// A part of the file as programs see it now.
    pub(super) fn check_now(&self, from: u64, bytes: &[u8]) -> Result<(), String> {
        let sectors = bytes.as_chunks::<{ SECTOR as usize }>().0;
        for (nr, bytes) in (from..).zip(sectors) {
            let newest = self.sectors[nr as usize].last();
            if !newest.is_some_and(|state| self.holds(nr, *state, bytes)) {
                return Err(format!("sector {nr} is not the one of {newest:?}"));
            }
        }
        Ok(())
    }
}

impl Replaced {
    pub(super) fn bytes(&self, version: u64) -> Vec<u8> {
        let stream = self.seed ^ (version << 1);
        let mut bytes =
            vec![0; (stream.wrapping_mul(0x9e37_79b9_7f4a_7c15) % REPLACED_BYTES) as usize];
        fill(stream, 0, &mut bytes);
        bytes
    }

    /// Acknowledges `newest`: later contents are still allowed, earlier ones are not.
    pub(super) fn acknowledge(&mut self, newest: Whole) {
        self.allowed = vec![newest];
    }

    pub(super) fn recognise(&self, found: Option<&[u8]>) -> Result<Whole, String> {
        let fits = |whole: &Whole| match (*whole, found) {
            (Whole::Anything, _) | (Whole::Missing, None) => true,
            (Whole::Version(version), Some(bytes)) => bytes == self.bytes(version),
            _ => false,
        };
        self.allowed.iter().rev().find(|whole| fits(whole)).copied().ok_or_else(|| {
            let found = match found {
                None => "is missing".to_owned(),
                Some(bytes) => {
                    let version = (0..=self.newest).find(|of| bytes == self.bytes(*of));
                    format!("has {} bytes, version {version:?}", bytes.len())
                }
            };
            format!("{found}, allowed are {:?}", self.allowed)
        })
    }
}

/// Allows zeros in a sector whose data no sync has covered, although the size is durable.
fn allow_hole(states: &mut Vec<State>, synced: u64) {
    if let Some(&State { version, zero: false }) = states.first()
        && version > synced
    {
        states.insert(0, State { version, zero: true });
    }
}
