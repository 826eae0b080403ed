//! `mtime_update=seen` against a reference: ext4 of Linux 6.13, which stamps every change.
//!
//! ```text
//!   random changes of files and of a directory's names, with looks, syncs and ticks anywhere
//!     alive       each look shows the times of the reference
//!     crashed     each cut: the times of a synced state are in no look at another state, are exact
//!                 if a look preceded the change, and else less than a step older
//! ```

use std::sync::Arc;

use syncline_device::{BlockDevice, Clock, MemoryDevice, VirtualClock};
use syncline_fs::{InodeRef, MountOptions, SetAttr, SetTime, Timestamp, Volume, XattrFlags};
use syncline_testkit::Random;
use syncline_testkit::crash::{Budget, CrashDevice, CrashOptions, CrashState, Explorer};

use crate::bed::{Bed, names, owner, random, spec};

const TICK_NS: u64 = 4_000_000;
const STEP_NS: u64 = 100_000_000;
const FILES: usize = 3;

fn ns(time: Timestamp) -> u64 {
    time.seconds as u64 * 1_000_000_000 + u64::from(time.nanoseconds)
}

fn time(ns: u64) -> Timestamp {
    Timestamp { seconds: (ns / 1_000_000_000) as i64, nanoseconds: (ns % 1_000_000_000) as u32 }
}

/// Version and size of a file, or first and last name of a directory; the mode; an attribute.
type Key = ([u64; 2], u16, Vec<u8>);

/// A state of a file, with the times that Linux gives it.
#[derive(Clone, Debug)]
struct State {
    key: Key,
    mtime: u64,
    ctime: u64,
    /// fsync must keep the times exactly: the state before was seen, or it is no change by a write.
    exact: bool,
}

#[derive(Clone, Default, Debug)]
struct Subject {
    states: Vec<State>,
    /// A program may know the times of the last state.
    queried: bool,
    /// Looks: which state, with which times.
    looks: Vec<(usize, u64, u64)>,
    /// Newest state that a sync has made durable.
    synced: usize,
}

impl Subject {
    fn last(&self) -> State {
        self.states.last().expect("a state").clone()
    }
}

/// State that a crash must keep: of each subject the number of looks, and the synced state.
type Known = Vec<[usize; 2]>;

struct World {
    volume: Volume,
    clock: Arc<VirtualClock>,
    inodes: Vec<InodeRef>,
    subjects: Vec<Subject>,
    /// The kernel's floor of coarse times.
    floor: u64,
    changes: u64,
}

/// State of a file or directory as a program reads it.
fn key(volume: &Volume, inode: &InodeRef) -> Key {
    let attr = volume.getattr_unseen(inode);
    let xattr = volume.getxattr(inode, b"user.a").unwrap_or_default();
    if inode.is_dir() {
        let number = |name: Vec<u8>| String::from_utf8(name).expect("a name").parse().ok();
        let listed: Vec<u64> = names(volume, inode).into_iter().filter_map(number).collect();
        let first = listed.iter().min().copied().unwrap_or(0);
        return ([first, listed.iter().max().copied().unwrap_or(0)], attr.mode, xattr);
    }
    let mut version = [0; 8];
    volume.read_once(inode, 0, &mut version).expect("it reads");
    ([u64::from_le_bytes(version), attr.size], attr.mode, xattr)
}

fn inodes(bed: &Bed, volume: &Volume) -> Vec<InodeRef> {
    let dir = volume.resolve("/dir").expect("the directory");
    (0..FILES).map(|n| bed.file(volume, n)).chain([dir]).collect()
}

impl World {
    fn new(bed: &Bed, volume: Volume, subjects: Option<Vec<Subject>>) -> World {
        let inodes = inodes(bed, &volume);
        let subject = |inode: &InodeRef| {
            let attr = volume.getattr_unseen(inode);
            let (mtime, ctime) = (ns(attr.mtime), ns(attr.ctime));
            let state = State { key: key(&volume, inode), mtime, ctime, exact: true };
            Subject { states: vec![state], ..Subject::default() }
        };
        let subjects = subjects.unwrap_or_else(|| inodes.iter().map(subject).collect());
        let clock = Arc::clone(&bed.clock);
        // Other numbers than those of the mount before.
        let changes = clock.now_ns() >> 10;
        let mut world = World { volume, clock, inodes, subjects, floor: 0, changes };
        world.all_seen();
        world
    }

    /// `inode_set_ctime_current`.
    fn stamp(&mut self, n: usize) -> u64 {
        let now = self.clock.now_ns();
        let coarse = (now - now % TICK_NS).max(self.floor);
        if !self.subjects[n].queried || coarse > self.subjects[n].last().ctime {
            return coarse;
        }
        self.floor = now;
        now
    }

    /// A program looks: at what Linux shows.
    fn look(&mut self, n: usize) {
        let attr = self.volume.getattr(&self.inodes[n]);
        let subject = &mut self.subjects[n];
        let (state, shown) = (subject.last(), (ns(attr.mtime), ns(attr.ctime)));
        assert_eq!(shown, (state.mtime, state.ctime), "{n}: the times of Linux");
        subject.queried = true;
        subject.looks.push((subject.states.len() - 1, shown.0, shown.1));
    }

    /// The state changes. `mtime`: it is not that of the change. `is_write`: nothing but contents
    /// or names change, so that fsync need not keep a time that nobody saw.
    fn changed(&mut self, n: usize, mtime: Option<u64>, is_write: bool) {
        let now = self.stamp(n);
        let key = key(&self.volume, &self.inodes[n]);
        let subject = &mut self.subjects[n];
        let exact = subject.queried || !is_write;
        subject.states.push(State { key, mtime: mtime.unwrap_or(now), ctime: now, exact });
        // Setattr counts as a look, and a new mtime is new to everybody.
        subject.queried = !is_write && (mtime.is_some() || subject.queried);
    }

    fn write(&mut self, n: usize, random: &mut Random) {
        self.changes += 1;
        let mut data = vec![self.changes as u8; 8 + random.below(9000) as usize];
        data[..8].copy_from_slice(&self.changes.to_le_bytes());
        self.volume.write(&self.inodes[n], 0, &data).expect("write");
        self.changed(n, None, true);
    }

    fn truncate(&mut self, n: usize) {
        self.changes += 1;
        let size = 10_000 + self.changes * 7919 % 10_007;
        self.volume.truncate(&self.inodes[n], size).expect("truncate");
        let now = self.stamp(n);
        self.changed(n, Some(now), false);
        self.subjects[n].queried = false;
    }

    fn chmod(&mut self, n: usize) {
        self.changes += 1;
        let mode = Some((self.changes % 0o400) as u16 + 0o400);
        let set = SetAttr { mode, ..SetAttr::default() };
        self.volume.setattr(&self.inodes[n], &set).expect("chmod");
        let mtime = self.subjects[n].last().mtime;
        self.changed(n, Some(mtime), false);
    }

    /// Moves ctime alone, as a rename does, and shows nothing.
    fn setxattr(&mut self, n: usize) {
        self.changes += 1;
        let value = self.changes.to_le_bytes();
        self.volume.setxattr(&self.inodes[n], b"user.a", &value, XattrFlags::Any).expect("xattr");
        let Subject { queried, .. } = self.subjects[n];
        let mtime = self.subjects[n].last().mtime;
        self.changed(n, Some(mtime), false);
        self.subjects[n].queried = queried;
    }

    fn utimensat(&mut self, n: usize) {
        self.changes += 1;
        let at = 1_000_000_000 + self.changes;
        let mtime = Some(SetTime::At(time(at)));
        let set = SetAttr { mtime, ..SetAttr::default() };
        self.volume.setattr(&self.inodes[n], &set).expect("utimensat");
        self.changed(n, Some(at), false);
    }

    /// Adds the next name, or removes the first one.
    fn rename(&mut self, random: &mut Random) {
        let dir = &self.inodes[FILES];
        let [first, last] = self.subjects[FILES].last().key.0;
        if first == last || random.below(2) == 0 {
            let name = (last + 1).to_string();
            self.volume.create(dir, name.as_bytes(), &owner()).map(drop).expect("create");
        } else {
            self.volume.unlink(dir, first.to_string().as_bytes()).expect("unlink");
        }
        self.changed(FILES, None, true);
    }

    fn sync_all(&mut self) {
        self.volume.sync().expect("sync");
        self.all_seen();
    }

    /// All states are on the device: a program that read it before, or a copy of it, has seen them.
    fn all_seen(&mut self) {
        for subject in &mut self.subjects {
            let state = subject.last();
            subject.synced = subject.states.len() - 1;
            subject.looks.push((subject.synced, state.mtime, state.ctime));
            subject.queried = true;
        }
    }

    fn pass(&self, random: &mut Random) {
        let most = [TICK_NS / 2, 3 * TICK_NS, 30_000_000, 150_000_000][random.index(4)];
        self.clock.sleep_until(self.clock.now_ns() + 1 + random.below(most));
    }

    /// One call. True if a crash has to keep more than before.
    fn step(&mut self, random: &mut Random) -> bool {
        self.pass(random);
        let n = random.index(FILES);
        match random.below(25) {
            0..8 => self.write(n, random),
            8 => self.truncate(n),
            9 => self.chmod(n),
            10 => self.utimensat(n),
            11..15 => self.rename(random),
            24 => self.setxattr(n),
            15..17 => {
                self.volume.tick(self.clock.now_ns()).expect("tick");
            }
            17 if random.one_in(4) => {
                self.sync_all();
                return true;
            }
            17..21 => {
                let n = random.index(FILES + 1);
                self.volume.fsync(&self.inodes[n], false).expect("fsync");
                self.subjects[n].synced = self.subjects[n].states.len() - 1;
                return true;
            }
            _ => {
                self.look(random.index(FILES + 1));
                return true;
            }
        }
        false
    }

    fn known(&self) -> Known {
        self.subjects.iter().map(|subject| [subject.looks.len(), subject.synced]).collect()
    }

    fn end(self) -> Vec<Subject> {
        drop(self.inodes);
        self.volume.unmount().expect("unmount");
        self.subjects
    }
}

/// Judges one subject as a crash has left it.
fn judge_one(
    (volume, inode): (&Volume, &InodeRef),
    subject: &Subject,
    [looks, synced]: [usize; 2],
) -> Result<(), String> {
    let (key, attr) = (key(volume, inode), volume.getattr(inode));
    // What was not synced may be there too, with times that are older, as in Linux. Names come with
    // the times of their directory.
    let Some(at) = subject.states.iter().rposition(|state| state.key == key) else {
        return Ok(());
    };
    if at < synced {
        return Err(format!("state {at} is older than the synced {synced}"));
    }
    if at > synced && !inode.is_dir() {
        return Ok(());
    }
    let (state, found) = (&subject.states[at], (ns(attr.mtime), ns(attr.ctime)));
    let of_later = |later: &State| later.ctime > state.ctime && later.ctime == found.1;
    if subject.states[at + 1..].iter().any(of_later) {
        // The inode of a later change without its data, which was not synced.
        return Ok(());
    }
    let said = |what: &str| Err(format!("{state:?} has {found:?}: {what}"));
    for (seen, mtime, ctime) in &subject.looks[..looks] {
        let other = &subject.states[*seen];
        let differs = other.key.0 != state.key.0 && other.mtime != state.mtime;
        if differs && *mtime == found.0 {
            return said(&format!("the mtime that {other:?} was seen with"));
        }
        if other.key != state.key && other.ctime != state.ctime && *ctime == found.1 {
            return said(&format!("the ctime that {other:?} was seen with"));
        }
    }
    let late = |found: u64, exact: u64| found > exact || exact - found >= STEP_NS;
    if state.exact && found != (state.mtime, state.ctime) {
        return said("the time after a look is not kept");
    }
    if late(found.0, state.mtime) || late(found.1, state.ctime) {
        return said("the times are too far from those of Linux");
    }
    Ok(())
}

fn judge(
    (bed, dev): (&Bed, Arc<dyn BlockDevice>),
    subjects: &[Subject],
    known: &Known,
) -> Result<(), String> {
    let clock = Arc::clone(&bed.clock) as Arc<dyn Clock>;
    let volume = Volume::mount(dev, clock, MountOptions::default()).map_err(|e| e.to_string())?;
    let all = inodes(bed, &volume);
    for (n, ((inode, subject), known)) in all.iter().zip(subjects).zip(known).enumerate() {
        judge_one((&volume, inode), subject, *known).map_err(|text| format!("{n}: {text}"))?;
    }
    drop(all);
    volume.unmount().map_err(|err| err.to_string())
}

/// An image with the files and the directory, none of them seen.
fn bed() -> Bed {
    let bed = Bed::new(&spec(4096), FILES);
    let volume = bed.mount("");
    let root = volume.root().expect("root");
    volume.mkdir(&root, b"dir", &owner()).map(drop).expect("mkdir");
    drop(root);
    bed.unmount_and_judge(volume, "the setup");
    bed
}

/// A read that moves atime takes the newest times to the slot.
const MODES: [&str; 5] = [
    "mtime_update=seen,sync=eager,noatime",
    "mtime_update=seen,sync=ordered,noatime",
    "mtime_update=seen,sync=eager,noatime,lazytime",
    "mtime_update=seen,sync=eager,noatime,log=packed",
    "mtime_update=seen,sync=eager",
];

#[test]
fn programs_see_the_times_of_linux() {
    for seed in 0..8u64 {
        let bed = bed();
        let mut random = random(seed);
        let mut subjects = None;
        for mode in MODES.into_iter().chain(["sync=periodic,noatime,mtime_update=seen"]) {
            let mut world = World::new(&bed, bed.mount(mode), subjects.take());
            for _ in 0..300 {
                world.step(&mut random);
            }
            bed.wait_ms(5);
            subjects = Some(world.end());
        }
        bed.judge("the test");
    }
}

#[test]
fn no_crash_shows_two_states_with_one_time() {
    let mut judged = 0;
    for (seed, mode) in (0..15u64).map(|seed| (seed, MODES[seed as usize % MODES.len()])) {
        let bed = bed();
        let mut random = random(seed);
        let device = Arc::new(CrashDevice::new(&bed.dev, CrashOptions::default()));
        let dev = Arc::clone(&device) as Arc<dyn BlockDevice>;
        let mut world = World::new(&bed, bed.mount_on(dev, mode), None);
        let mut known = vec![world.known()];
        device.mark(0);
        for _ in 0..150 {
            if world.step(&mut random) {
                device.mark(known.len() as u64);
                known.push(world.known());
            }
        }
        let explorer = Explorer::new(device.log());
        let subjects = world.end();
        let command = "cargo test -p syncline-fs --test it seen::";
        let budget = Budget::new(250, seed);
        let summary = syncline_testkit::crash::run(&explorer, &budget, command, |state| {
            judge_state(&bed, state, &subjects, &known)
        });
        judged += summary.judged;
        if let Err(text) = summary.into_result() {
            panic!("seed {seed}, {mode}: {text}");
        }
    }
    assert!(judged > 1000, "{judged} states");
}

fn judge_state(
    bed: &Bed,
    state: &CrashState,
    subjects: &[Subject],
    known: &[Known],
) -> Result<(), String> {
    let Some(mark) = state.marks().last() else { return Ok(()) };
    let dev = Arc::new(state.image.snapshot()) as Arc<dyn BlockDevice>;
    judge((bed, dev), subjects, &known[*mark as usize])
}

/// Crash after crash, each on what the one before has left: what was seen before any of them
/// counts.
#[test]
fn a_time_that_was_seen_before_a_crash_never_comes_back() {
    for seed in 0..8u64 {
        let mut bed = bed();
        let mut random = random(seed);
        let mode = MODES[seed as usize % MODES.len()];
        let mut looks: Vec<Vec<(Key, u64)>> = vec![Vec::new(); FILES + 1];
        for _ in 0..12 {
            let mut world = World::new(&bed, bed.mount(mode), None);
            for _ in 0..=random.below(40) {
                world.step(&mut random);
            }
            // Files are synced: what was not may have old times, in Linux too.
            for n in 0..=FILES {
                world.volume.fsync(&world.inodes[n], false).expect("fsync");
                world.subjects[n].synced = world.subjects[n].states.len() - 1;
            }
            let cut = bed.dev.snapshot();
            judge((&bed, Arc::new(cut.snapshot())), &world.subjects, &world.known())
                .unwrap_or_else(|text| panic!("seed {seed}, {mode}: {text}"));
            for (all, subject) in looks.iter_mut().zip(world.end()) {
                for (at, mtime, _) in &subject.looks {
                    let key = &subject.states[*at].key;
                    let other = all.iter().find(|(k, time)| time == mtime && k.0 != key.0);
                    assert_eq!(other, None, "seed {seed}, {mode}: {key:?} at {mtime}");
                    all.push((key.clone(), *mtime));
                }
            }
            bed.dev = Arc::new(MemoryDevice::from_bytes(&bytes_of(&cut)));
            bed.wait_ms(1);
        }
    }
}

fn bytes_of(device: &MemoryDevice) -> Vec<u8> {
    let mut bytes = vec![0; device.geometry().size_bytes as usize];
    device.read_at(0, &mut bytes).expect("memory reads");
    bytes
}
