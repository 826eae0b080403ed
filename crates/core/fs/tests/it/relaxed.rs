//! Relaxed files: what their fsync costs, what becomes strict, and power cuts through the write
//! buffer with strict and relaxed files mixed; the image that knows its log; Postmark's requests
//! classified.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::Duration;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use sha2::{Digest, Sha256};
use syncline_buffer::{BufferOptions, LogArea};
use syncline_device::{
    BlockDevice, Clock, DeviceError, Durability, Geometry, Kind, MemoryDevice, OffsetDevice, Op,
    Origin, RecordingDevice, Request, TraceOp, VirtualClock,
};
use syncline_fs::{
    Buffered, Create, FsError, InodeRef, LiveLimits, MountOptions, Volume, XattrFlags,
};
use syncline_testkit::crash::{Budget, CrashDevice, CrashOptions, Explorer, run};
use syncline_testkit::{ImageSpec, Need, TempImage, e2fsck_clean, e2fsck_preen, mkfs, require};

const HOME: u64 = 12 << 20;
const LOG: u64 = 130 * 4096;
const ATTRIBUTE: &[u8] = b"user.syncline.durability";

fn image() -> MemoryDevice {
    let spec = ImageSpec { journal_size_mib: Some(4), ..ImageSpec::with_size(HOME) };
    MemoryDevice::load(mkfs(&spec).path()).unwrap()
}

fn mount(device: Arc<dyn BlockDevice>, list: &str) -> Volume {
    let options = MountOptions::parse(list).unwrap();
    Volume::mount(device, Arc::new(VirtualClock::default()), options).unwrap()
}

fn create(vol: &Volume, name: &str) -> InodeRef {
    vol.create(&vol.root().unwrap(), name.as_bytes(), &Create::default()).unwrap()
}

/// The durability of every data write so far.
fn data_writes(device: &RecordingDevice<MemoryDevice>) -> Vec<Durability> {
    let is_data = |kind| matches!(kind, Kind::Data { .. });
    let events = device.take_events();
    let writes = events.iter().filter(|e| matches!(e.op, TraceOp::Write));
    writes.filter(|e| is_data(e.origin.kind)).map(|e| e.origin.durability).collect()
}

#[test]
fn fsync_of_a_relaxed_file_is_nothing_and_only_overwrites_go_down_relaxed() {
    let test = "fsync_of_a_relaxed_file_is_nothing_and_only_overwrites_go_down_relaxed";
    if !require(test, &[Need::E2fsck]) {
        return;
    }
    for mode in ["ordered", "eager"] {
        let clock = Arc::new(VirtualClock::default());
        let device = Arc::new(RecordingDevice::with_events(image(), clock, 10_000));
        let vol = mount(device.clone(), &format!("sync={mode},relaxed=*.cache,relaxed=tmp-?"));
        let files = ["a.cache", "tmp-1", "a.db"].map(|name| create(&vol, name));
        let before = device.counts();
        for file in &files[..2] {
            vol.write(file, 0, &[1; 20_000]).unwrap();
            vol.fsync(file, false).unwrap();
            vol.fsync(file, true).unwrap();
        }
        let after = device.counts();
        assert_eq!(
            (after.write_requests(), after.flushes()),
            (before.write_requests(), before.flushes())
        );
        vol.write(&files[2], 0, &[1; 20_000]).unwrap();
        vol.fsync(&files[2], false).unwrap();
        assert!(device.counts().flushes() > before.flushes(), "others are strict");
        vol.syncfs().unwrap();
        device.take_events();
        vol.write(&files[0], 0, &[2; 8192]).unwrap();
        vol.write(&files[0], 20_480, &[2; 8192]).unwrap();
        vol.writeback_range(&files[0], 0, u64::MAX).unwrap();
        let expected = match mode {
            "ordered" => vec![Durability::Relaxed, Durability::Strict],
            _ => vec![Durability::Strict; 1],
        };
        let found = data_writes(&device);
        let kinds = |list: &[Durability]| list.contains(&Durability::Relaxed);
        assert_eq!(kinds(&found), kinds(&expected), "{mode}: {found:?}");
        assert!(found.contains(&Durability::Strict), "new blocks are strict: {found:?}");
        drop(files);
        vol.unmount().unwrap();
    }
}

#[test]
fn the_attribute_goes_before_names_and_is_inherited() {
    if !require("the_attribute_goes_before_names_and_is_inherited", &[Need::E2fsck]) {
        return;
    }
    let device = Arc::new(RecordingDevice::new(image()));
    let vol = mount(device.clone(), "relaxed=*.cache");
    let root = vol.root().unwrap();
    let set =
        |inode: &InodeRef, value: &[u8]| vol.setxattr(inode, ATTRIBUTE, value, XattrFlags::Any);
    let is_relaxed = |inode: &InodeRef| {
        vol.write(inode, 0, b"x").unwrap();
        let before = device.counts().write_requests();
        vol.fsync(inode, false).unwrap();
        device.counts().write_requests() == before
    };
    let (cache, data) = (create(&vol, "a.cache"), create(&vol, "data"));
    assert!(is_relaxed(&cache) && !is_relaxed(&data));
    set(&cache, b"strict").unwrap();
    set(&data, b"relaxed").unwrap();
    assert!(!is_relaxed(&cache) && is_relaxed(&data));
    assert!(set(&data, b"maybe").is_err());
    assert!(is_relaxed(&data));
    vol.removexattr(&data, ATTRIBUTE).unwrap();
    assert!(!is_relaxed(&data));
    let dir = vol.mkdir(&root, b"dir", &Create { mode: 0o755, ..Create::default() }).unwrap();
    set(&dir, b"relaxed").unwrap();
    let inside = vol.create(&dir, b"inside", &Create::default()).unwrap();
    assert!(is_relaxed(&inside));
    assert_eq!(vol.getxattr(&inside, ATTRIBUTE).unwrap(), b"relaxed");
    // A hard link under a strict name makes it strict.
    let other = create(&vol, "b.cache");
    assert!(is_relaxed(&other));
    vol.link(&other, &root, b"important").unwrap();
    assert!(!is_relaxed(&other));
}

/// Relaxed files are switched off and on while mounted, and limits of unwritten data change.
#[test]
fn relaxed_files_and_limits_change_while_mounted() {
    if !require("relaxed_files_and_limits_change_while_mounted", &[Need::E2fsck]) {
        return;
    }
    for mode in ["ordered", "eager"] {
        let device = Arc::new(RecordingDevice::new(image().with_geometry(|g| g.fua = false)));
        let clock = Arc::new(VirtualClock::default());
        let list = format!("sync={mode},relaxed=*.cache,cache=8M,writeback=file");
        let options = MountOptions::parse(&list).unwrap();
        let vol = Volume::mount(device.clone(), clock.clone(), options).unwrap();
        let file = create(&vol, "a.cache");
        vol.write(&file, 0, &[1; 8192]).unwrap();
        let flushes = device.counts().flushes();
        vol.fsync(&file, false).unwrap();
        assert_eq!(device.counts().flushes(), flushes);
        // What waited is durable when it is off, and so is what comes.
        vol.set_relaxed_enabled(false).unwrap();
        assert!(!vol.relaxed_enabled() && device.counts().flushes() > flushes, "{mode}");
        assert_eq!(vol.cache_stats().dirty_pages, 0, "{mode}");
        let flushes = device.counts().flushes();
        vol.write(&file, 0, &[2; 8192]).unwrap();
        vol.fsync(&file, false).unwrap();
        assert!(device.counts().flushes() > flushes, "{mode}");
        vol.set_relaxed_enabled(true).unwrap();
        let flushes = device.counts().flushes();
        vol.write(&file, 0, &[3; 8192]).unwrap();
        vol.fsync(&file, false).unwrap();
        assert_eq!(device.counts().flushes(), flushes, "{mode}");

        // Data expires after the new time, and a writer above the new ratio writes back.
        let limits = vol.live_limits();
        assert_eq!((limits.dirty_expire_centisecs, limits.dirty_ratio), (3000, 20));
        vol.set_live_limits(LiveLimits { dirty_expire_centisecs: 100, ..limits }).unwrap();
        for _ in 0..20 {
            clock.sleep_until(clock.now_ns() + 1_000_000_000);
            vol.tick(clock.now_ns()).unwrap();
        }
        assert_eq!(vol.cache_stats().dirty_pages, 0, "{mode}: expired within 20 s");
        let tight = LiveLimits { dirty_background_ratio: 1, dirty_ratio: 1, ..limits };
        vol.set_live_limits(tight).unwrap();
        vol.write(&file, 0, &[4; 1 << 20]).unwrap();
        vol.write(&file, 0, &[5; 1 << 20]).unwrap();
        assert!(vol.cache_stats().dirty_pages < 256, "{mode}: it wrote back");
        for bad in [
            LiveLimits { dirty_expire_centisecs: 0, ..limits },
            LiveLimits { dirty_ratio: 0, ..limits },
            LiveLimits { dirty_background_ratio: 101, ..limits },
        ] {
            assert!(matches!(vol.set_live_limits(bad), Err(FsError::Invalid(_))));
        }
        assert_eq!(vol.live_limits(), tight);
        drop(file);
        vol.unmount().unwrap();
    }
}

fn home(device: &Arc<dyn BlockDevice>) -> Arc<dyn BlockDevice> {
    Arc::new(OffsetDevice::new(device.clone(), 0, HOME).unwrap())
}

fn area(device: &Arc<dyn BlockDevice>) -> LogArea {
    let log = OffsetDevice::new(device.clone(), HOME, LOG).unwrap();
    LogArea { device: Arc::new(log), same_medium: true }
}

fn options() -> BufferOptions {
    BufferOptions {
        ram_bytes: 1 << 20,
        relaxed_bytes_max: 1 << 19,
        threshold_bytes: 16 << 10,
        ..BufferOptions::default()
    }
}

fn buffered(device: &Arc<dyn BlockDevice>) -> Buffered {
    Buffered::attach(home(device), area(device), [7; 16], options(), None).unwrap()
}

/// An image with room for a log behind it.
fn with_log() -> MemoryDevice {
    let (base, whole) = (image(), MemoryDevice::new(HOME + LOG));
    let mut bytes = vec![0; HOME as usize];
    base.read_at(0, &mut bytes).unwrap();
    whole.write_at(0, &bytes).unwrap();
    whole
}

fn bytes_of(device: &Arc<dyn BlockDevice>) -> Vec<u8> {
    let mut bytes = vec![0; HOME as usize];
    home(device).read(0, &mut bytes, Origin::new(Kind::Other, true)).unwrap();
    bytes
}

/// The image without its log, as others see it.
fn alone(device: &Arc<dyn BlockDevice>, file: &TempImage) {
    std::fs::write(file.path(), bytes_of(device)).unwrap();
}

const SECTORS: u64 = 160;

/// File, sector of it, version.
fn signed(file: u64, sector: u64, version: u64) -> [u8; 512] {
    let mut bytes = [0; 512];
    for (index, word) in bytes.chunks_exact_mut(8).enumerate() {
        let value = [file + 1, sector, version][index % 3];
        word.copy_from_slice(&value.to_le_bytes());
    }
    bytes
}

/// Versions of a file's sectors when it was last synced before a mark.
type Synced = BTreeMap<u64, Vec<u64>>;

struct Files {
    vol: Volume,
    device: Arc<CrashDevice>,
    open: Vec<InodeRef>,
    strict: Vec<bool>,
    now: Vec<Vec<u64>>,
    synced: Synced,
    marks: Vec<Synced>,
    version: u64,
}

impl Files {
    fn write(&mut self, file: usize, at: u64, sectors: u64) {
        self.version += 1;
        let range = at..(at + sectors).min(SECTORS);
        let bytes: Vec<u8> =
            range.clone().flat_map(|sector| signed(file as u64, sector, self.version)).collect();
        self.vol.write(&self.open[file], at * 512, &bytes).unwrap();
        let now = &mut self.now[file];
        now.resize(now.len().max(range.end as usize), 0);
        range.for_each(|sector| now[sector as usize] = self.version);
    }

    fn acknowledge(&mut self) {
        self.device.mark(self.marks.len() as u64);
        self.marks.push(self.synced.clone());
    }

    fn sync(&mut self, file: usize) {
        self.vol.fsync(&self.open[file], false).unwrap();
        if self.strict[file] {
            self.synced.insert(file as u64, self.now[file].clone());
            self.acknowledge();
        }
    }

    /// From now on strict or relaxed, whatever its name says.
    fn mark_file(&mut self, file: usize, strict: bool) {
        let value: &[u8] = if strict { b"strict" } else { b"relaxed" };
        self.vol.setxattr(&self.open[file], ATTRIBUTE, value, XattrFlags::Any).unwrap();
        self.strict[file] = strict;
    }

    /// Made again: blocks change their owner, and the name decides again.
    fn remake(&mut self, file: usize) {
        let root = self.vol.root().unwrap();
        self.vol.unlink(&root, name(file).as_bytes()).unwrap();
        self.synced.remove(&(file as u64));
        self.acknowledge();
        self.open[file] = create(&self.vol, &name(file));
        self.now[file].clear();
        self.strict[file] = file % 2 == 0;
    }
}

/// Even files are strict, odd ones relaxed; they share directory, inode table block and bitmaps.
fn name(file: usize) -> String {
    format!("{file}.{}", if file % 2 == 0 { "db" } else { "cache" })
}

/// Events of runs that a cut is to fall into.
#[derive(Debug, Default)]
struct Events {
    ram_sizes: u64,
    log_switches: u64,
    durabilities: u64,
    logged_pages: u64,
    sweeps: u64,
}

impl Events {
    fn add(&mut self, more: &Events) {
        self.ram_sizes += more.ram_sizes;
        self.log_switches += more.log_switches;
        self.durabilities += more.durabilities;
        self.logged_pages += more.logged_pages;
        self.sweeps += more.sweeps;
    }
}

/// Operations of a run: the ring wraps.
const ROUNDS: u64 = 400;

/// One recorded run. The seed decides on all of it.
fn workload(mode: &str, base: &MemoryDevice, seed: u64) -> (Explorer, Vec<Synced>, Events) {
    let device = Arc::new(CrashDevice::new(base, CrashOptions::default()));
    let below: Arc<dyn BlockDevice> = device.clone();
    let attached = buffered(&below);
    let buffer = attached.buffer().clone();
    let vol = mount(buffer.clone(), &format!("sync={mode},relaxed=*.cache"));
    let open = (0..6).map(|file| create(&vol, &name(file))).collect();
    let mut files = Files {
        vol,
        device: device.clone(),
        open,
        strict: (0..6).map(|file: usize| file % 2 == 0).collect(),
        now: vec![Vec::new(); 6],
        synced: Synced::new(),
        marks: Vec::new(),
        version: 0,
    };
    let (mut rng, mut events) = (ChaCha8Rng::seed_from_u64(seed), Events::default());
    let (mut ram_before, mut log_before) = (options().ram_bytes, true);
    for round in 0..ROUNDS {
        if rng.random_range(0..6) == 0 {
            let ram_bytes = [0, 64 << 10, 1 << 20][rng.random_range(0..3)];
            let log_writes = rng.random_range(0..4) > 0;
            buffer.configure(BufferOptions { ram_bytes, log_writes, ..options() }).unwrap();
            events.ram_sizes += u64::from(ram_bytes != ram_before);
            events.log_switches += u64::from(log_writes != log_before);
            (ram_before, log_before) = (ram_bytes, log_writes);
        }
        let file = rng.random_range(0..6);
        if rng.random_range(0..20) == 0 {
            let strict = !files.strict[file];
            files.mark_file(file, strict);
            events.durabilities += 1;
        }
        files.write(file, rng.random_range(0..SECTORS), rng.random_range(1..24));
        match rng.random_range(0..8) {
            0..5 => files.sync(file),
            5 => drop(files.vol.writeback_range(&files.open[file], 0, u64::MAX).unwrap()),
            6 => files.remake(file),
            _ => {
                let now = Duration::from_secs(round * 10);
                files.vol.tick(now.as_nanos() as u64).unwrap();
                buffer.tick(now).unwrap();
            }
        }
    }
    let status = buffer.status();
    (events.logged_pages, events.sweeps) = (status.logged_pages, status.sweeps);
    assert!(status.cleaned_pages > 20 && status.home_bytes > 0, "{status:?}");
    for inode in files.open {
        // A machine that stops does not close its files.
        std::mem::forget(inode);
    }
    (Explorer::new(device.log()), files.marks, events)
}

/// The versions of each file's sectors in a volume; `None`: there is no such file.
type Seen = Vec<Option<Vec<u64>>>;

/// A sector of zeros, which no version has.
const HOLE: u64 = 0;

fn see_file(vol: &Volume, file: usize) -> Result<Option<Vec<u64>>, String> {
    let root = vol.root().unwrap();
    let inode = match vol.lookup(&root, name(file).as_bytes()) {
        Ok(inode) => inode,
        Err(FsError::NotFound) => return Ok(None),
        Err(error) => return Err(format!("{}: {error}", name(file))),
    };
    let mut bytes = vec![0; SECTORS as usize * 512];
    let len = vol.read(&inode, 0, &mut bytes).map_err(|e| e.to_string())?;
    let sectors = (0..).zip(bytes[..len].chunks_exact(512));
    let version = |(sector, piece): (u64, &[u8])| {
        let version = u64::from_le_bytes(piece[16..24].try_into().unwrap());
        if piece.iter().all(|&byte| byte == 0) {
            return Ok(HOLE);
        }
        let own = piece == signed(file as u64, sector, version);
        own.then_some(version).ok_or_else(|| format!("{} sector {sector}: not its own", name(file)))
    };
    sectors.map(version).collect::<Result<_, _>>().map(Some)
}

fn judge_file(file: usize, seen: Option<&Vec<u64>>, synced: &Vec<u64>) -> Result<(), String> {
    let Some(seen) = seen else { return Err(format!("{} is not there", name(file))) };
    if seen.len() < synced.len() {
        let (found, least) = (seen.len(), synced.len());
        return Err(format!("{} has {found} sectors, {least} were synced", name(file)));
    }
    for (sector, (version, low)) in seen.iter().zip(synced).enumerate() {
        if version < low {
            return Err(format!("{} sector {sector}: too old, {version} < {low}", name(file)));
        }
    }
    Ok(())
}

/// Images that recovery left, by where and how they differ from the base (SHA-256), with what was
/// found in them. e2fsck and the volume say the same of the same bytes, so they judge each once.
struct Recovered {
    base: Vec<u8>,
    file: TempImage,
    /// Contents of the file.
    on_file: Vec<u8>,
    known: HashMap<[u8; 32], Result<Arc<Seen>, String>>,
}

impl Recovered {
    fn see(&mut self, device: &Arc<dyn BlockDevice>) -> Result<Arc<Seen>, String> {
        let bytes = bytes_of(device);
        let mut key = Sha256::new();
        let pages = bytes.chunks(4096).zip(self.base.chunks(4096)).enumerate();
        for (at, (page, _)) in pages.filter(|(_, (page, base))| page != base) {
            key.update((at as u64).to_le_bytes());
            key.update(page);
        }
        let key = key.finalize().into();
        if let Some(seen) = self.known.get(&key) {
            return seen.clone();
        }
        let seen = self.look(&bytes).map(Arc::new);
        self.known.insert(key, seen.clone());
        seen
    }

    fn look(&mut self, bytes: &[u8]) -> Result<Seen, String> {
        let file = File::options().write(true).open(self.file.path()).unwrap();
        let pages = bytes.chunks(4096).zip(self.on_file.chunks(4096)).enumerate();
        for (at, (page, _)) in pages.filter(|(_, (page, there))| page != there) {
            file.write_all_at(page, at as u64 * 4096).unwrap();
        }
        drop(file);
        let verdict = e2fsck_preen(self.file.path()).and_then(|()| e2fsck_clean(self.file.path()));
        self.on_file = self.file.bytes();
        verdict?;
        let vol = mount(Arc::new(MemoryDevice::from_bytes(&self.on_file)), "ro");
        (0..6).map(|file| see_file(&vol, file)).collect()
    }

    fn judge(&mut self, image: &MemoryDevice, synced: &Synced) -> Result<(), String> {
        let device: Arc<dyn BlockDevice> = Arc::new(image.snapshot());
        let attached = Buffered::attach(home(&device), area(&device), [8; 16], options(), None);
        attached.and_then(Buffered::detach).map_err(|e| e.to_string())?;
        let seen = self.see(&device)?;
        let file = |(&file, synced): (&u64, &Vec<u64>)| {
            judge_file(file as usize, seen[file as usize].as_ref(), synced)
        };
        synced.iter().try_for_each(file)
    }
}

/// The first of the seeds; a failure's is in `SYNCLINE_CRASH_SEED`.
const FIRST_SEED: u64 = 5;
/// States built from one run at most.
const SEED_STATES_MAX: u64 = 10_000;

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.trim().parse().ok()
}

/// Runs of one seed after the other until enough different states were judged.
fn strict_and_relaxed(test: &str, mode: &str) {
    if !require(test, &[Need::E2fsck]) {
        return;
    }
    let states = number("SYNCLINE_CRASH_STATES").unwrap_or(100);
    let only = std::env::var("SYNCLINE_CRASH_STATE").ok();
    let only = only.map(|id| id.parse().expect("an id from a failure report"));
    let first = number("SYNCLINE_CRASH_SEED").unwrap_or(FIRST_SEED);
    let base = with_log();
    let whole: Arc<dyn BlockDevice> = Arc::new(base.snapshot());
    let bytes = bytes_of(&whole);
    let (mut judged, mut images, mut all) = (0, 0, Events::default());
    for seed in first.. {
        let (explorer, marks, events) = workload(mode, &base, seed);
        let (file, on_file) = (TempImage::zeroed(HOME), vec![0; HOME as usize]);
        let (base, known) = (bytes.clone(), HashMap::new());
        let mut recovered = Recovered { base, file, on_file, known };
        // About half of what is built is equal to something before.
        let budget = Budget::new((2 * (states - judged)).min(SEED_STATES_MAX), 2);
        let budget = budget.with_only(only.clone());
        let command = format!(
            "SYNCLINE_CRASH_SEED={seed} cargo test -p syncline-fs --test it relaxed::{test}"
        );
        let summary = run(&explorer, &budget, &command, |state| {
            let none = Synced::new();
            let synced = state.marks().last().map_or(&none, |&mark| &marks[mark as usize]);
            recovered.judge(&state.image, synced)
        });
        println!("{mode}, seed {seed}: {summary}");
        println!("  {} recovered images; {events:?}", recovered.known.len());
        let summary = summary.into_result().unwrap_or_else(|text| panic!("sync={mode}: {text}"));
        judged += summary.judged;
        images += recovered.known.len();
        all.add(&events);
        if judged >= states || only.is_some() {
            break;
        }
    }
    assert!(all.ram_sizes > 5 && all.log_switches > 2 && all.durabilities > 2, "{all:?}");
    let ring_pages = LOG / 4096 - 2;
    assert!(all.logged_pages > ring_pages && all.sweeps > 1, "the ring wraps: {all:?}");
    println!("{mode}: {judged} different states, {images} recovered images by e2fsck");
}

#[test]
fn strict_and_relaxed_files_through_a_write_buffer() {
    strict_and_relaxed("strict_and_relaxed_files_through_a_write_buffer", "ordered");
}

#[test]
fn eager_strict_and_relaxed_files_through_a_write_buffer() {
    strict_and_relaxed("eager_strict_and_relaxed_files_through_a_write_buffer", "eager");
}

#[test]
fn a_file_that_becomes_strict_is_durable_with_its_next_fsync() {
    let test = "a_file_that_becomes_strict_is_durable_with_its_next_fsync";
    if !require(test, &[Need::E2fsck]) {
        return;
    }
    let base = with_log();
    for way in ["rename", "attribute", "syncfs"] {
        let device = Arc::new(CrashDevice::new(&base, CrashOptions::default()));
        let below: Arc<dyn BlockDevice> = device.clone();
        let attached = buffered(&below);
        let buffer = attached.buffer().clone();
        let vol = mount(buffer.clone(), "sync=ordered,relaxed=*.cache");
        let (root, inode) = (vol.root().unwrap(), create(&vol, "x.cache"));
        vol.write(&inode, 0, &[1; 8192]).unwrap();
        vol.syncfs().unwrap();
        vol.write(&inode, 0, &[2; 8192]).unwrap();
        vol.writeback_range(&inode, 0, u64::MAX).unwrap();
        vol.fsync(&inode, false).unwrap();
        assert_eq!(buffer.status().relaxed_pages, 2, "{way}: it waits in RAM");
        match way {
            "rename" => {
                let flags = syncline_fs::RenameFlags::NONE;
                vol.rename(&root, b"x.cache", &root, b"x.db", flags).unwrap();
                vol.fsync(&inode, false).unwrap();
            }
            "attribute" => {
                vol.setxattr(&inode, ATTRIBUTE, b"strict", XattrFlags::Any).unwrap();
                vol.fsync(&inode, false).unwrap();
            }
            _ => vol.syncfs().unwrap(),
        }
        assert_eq!(buffer.status().relaxed_pages, 0, "{way}");
        std::mem::forget(inode);
        // The last state of the log: everything that a cut now leaves at least.
        let image = Arc::new(device.live_image());
        let after: Arc<dyn BlockDevice> = image;
        let vol = mount(buffered(&after).buffer().clone(), "sync=ordered");
        let name: &[u8] = if way == "rename" { b"x.db" } else { b"x.cache" };
        let inode = vol.lookup(&vol.root().unwrap(), name).unwrap();
        let mut bytes = [0; 8192];
        vol.read(&inode, 0, &mut bytes).unwrap();
        assert!(bytes == [2; 8192], "{way}");
    }
}

#[test]
fn an_image_and_its_log_belong_together() {
    if !require("an_image_and_its_log_belong_together", &[Need::E2fsck]) {
        return;
    }
    let whole = Arc::new(with_log());
    let device: Arc<dyn BlockDevice> = whole.clone();
    let before = whole.snapshot();
    let attach = |device: &Arc<dyn BlockDevice>, log: &Arc<dyn BlockDevice>| {
        Buffered::attach(home(device), area(log), [9; 16], options(), None)
    };
    let says = |result: Result<Buffered, FsError>, text: &str| {
        let err = result.err().expect("refused").to_string();
        assert!(err.contains(text), "{err}");
    };
    let attached = attach(&device, &device).unwrap();
    assert!(!attached.recovered());
    let vol = mount(attached.buffer().clone(), "sync=eager");
    let inode = create(&vol, "a");
    vol.write(&inode, 0, &[5; 9000]).unwrap();
    vol.fsync(&inode, false).unwrap();
    std::mem::forget(inode);
    drop((vol, attached));

    // Killed: neither ours nor stock programs use the image alone, or change it.
    let file = TempImage::zeroed(HOME);
    alone(&device, &file);
    let marked = std::fs::read(file.path()).unwrap();
    let clock = Arc::new(VirtualClock::default());
    let plain = Volume::mount(home(&device), clock, MountOptions::default());
    let err = plain.err().expect("refused").to_string();
    assert!(err.contains("write_log") && err.contains("-o buffer_log=LOG"), "{err}");
    assert!(e2fsck_preen(file.path()).is_err(), "an unknown feature");
    assert!(std::fs::read(file.path()).unwrap() == marked, "e2fsck leaves it alone");

    // Another log, none, and the log with an image that does not need it.
    let other: Arc<dyn BlockDevice> = Arc::new(before.snapshot());
    says(attach(&device, &other), "there is none in this area");
    says(attach(&other, &device), "the log holds data of an image that was left mounted");
    let third: Arc<dyn BlockDevice> = Arc::new(before.snapshot());
    drop(Buffered::attach(home(&third), area(&third), [1; 16], options(), None).unwrap());
    says(attach(&device, &third), "in another log");

    // With its own log everything is there; afterwards it is a plain ext4.
    let attached = attach(&device, &device).unwrap();
    assert!(attached.recovered());
    let vol = mount(attached.buffer().clone(), "sync=eager");
    let mut bytes = [0; 9000];
    let inode = vol.lookup(&vol.root().unwrap(), b"a").unwrap();
    vol.read(&inode, 0, &mut bytes).unwrap();
    assert!(bytes == [5; 9000]);
    drop(inode);
    vol.unmount().unwrap();
    attached.detach().unwrap();
    alone(&device, &file);
    e2fsck_clean(file.path()).unwrap();
    // The same log serves again.
    assert!(!attach(&device, &device).unwrap().recovered());
}

/// Words that files are made of; a relaxed file has its own.
const STRICT_WORD: [u8; 8] = *b"STRICT#!";
const RELAXED_WORD: [u8; 8] = *b"RELAXED!";

/// Counts of each kind.
#[derive(Default, Debug, PartialEq, Eq)]
struct Classified {
    metadata: u64,
    strict: u64,
    relaxed: u64,
    wrong: Vec<String>,
}

/// Looks into every write request, as the paper's driver did (6.7.2).
struct Judge {
    below: MemoryDevice,
    found: parking_lot::Mutex<Classified>,
}

impl BlockDevice for Judge {
    fn geometry(&self) -> Geometry {
        self.below.geometry()
    }

    fn submit(&self, batch: &mut [Request<'_>]) -> Result<(), DeviceError> {
        for request in batch.iter() {
            let Op::Write { from, .. } = &request.op else { continue };
            let bytes = from.concat();
            let has = |word: [u8; 8]| bytes.chunks(8).any(|piece| piece == word);
            // Every page of a file begins with its word; the last one ends in zeros.
            let all = |word: [u8; 8]| bytes.chunks(4096).all(|page| page[..8] == word);
            let known = |page: &[u8]| page[..8] == STRICT_WORD || page[..8] == RELAXED_WORD;
            let mut found = self.found.lock();
            let right = match request.origin.kind {
                Kind::Data { .. } if all(STRICT_WORD) => {
                    found.strict += 1;
                    request.origin.durability == Durability::Strict && !has(RELAXED_WORD)
                }
                Kind::Data { .. } if all(RELAXED_WORD) => {
                    found.relaxed += u64::from(request.origin.durability == Durability::Relaxed);
                    !has(STRICT_WORD)
                }
                // New blocks of several files side by side: as strict as the strictest.
                Kind::Data { .. } if bytes.chunks(4096).all(known) => {
                    found.strict += 1;
                    request.origin.durability == Durability::Strict
                }
                Kind::Journal | Kind::Metadata => {
                    found.metadata += 1;
                    let strict = request.origin.durability == Durability::Strict;
                    strict && !has(STRICT_WORD) && !has(RELAXED_WORD)
                }
                _ => false,
            };
            if !right {
                let text = format!("{:?} at {}", request.origin, request.offset_bytes);
                found.wrong.push(text);
            }
        }
        self.below.submit(batch)
    }
}

/// Postmark's shape: files made, overwritten, appended to and deleted at random, all sizes of 4 to
/// 400 KiB, half of the files relaxed; of each request that reaches the device the content tells
/// what it is.
#[test]
fn every_request_of_postmark_is_classified_right() {
    if !require("every_request_of_postmark_is_classified_right", &[Need::E2fsck]) {
        return;
    }
    let spec = ImageSpec { journal_size_mib: Some(4), ..ImageSpec::with_size(96 << 20) };
    let below = MemoryDevice::load(mkfs(&spec).path()).unwrap();
    let judge = Arc::new(Judge { below, found: Default::default() });
    let vol = mount(judge.clone(), "sync=ordered,relaxed=*.cache");
    let mut rng = ChaCha8Rng::seed_from_u64(11);
    let name = |nr: usize| format!("pm{nr}.{}", if nr % 2 == 0 { "mail" } else { "cache" });
    let content = |nr: usize, len: usize| -> Vec<u8> {
        let word = if nr % 2 == 0 { STRICT_WORD } else { RELAXED_WORD };
        word.into_iter().cycle().take(len).collect()
    };
    let kib = |rng: &mut ChaCha8Rng| rng.random_range(1..=100usize) * 4096;
    let root = vol.root().unwrap();
    for nr in 0..100 {
        let len = kib(&mut rng);
        vol.write(&create(&vol, &name(nr)), 0, &content(nr, len)).unwrap();
    }
    vol.syncfs().unwrap();
    for _ in 0..1000 {
        let nr = rng.random_range(0..100);
        let inode = vol.lookup(&root, name(nr).as_bytes()).unwrap();
        let size = vol.getattr(&inode).size;
        match rng.random_range(0..4) {
            0 => {
                drop(inode);
                vol.unlink(&root, name(nr).as_bytes()).unwrap();
                let len = kib(&mut rng);
                vol.write(&create(&vol, &name(nr)), 0, &content(nr, len)).unwrap();
            }
            1 => {
                let at = rng.random_range(0..size / 4096) * 4096;
                vol.write(&inode, at, &content(nr, 4096)).unwrap();
                vol.fsync(&inode, false).unwrap();
                // What the timer does later: fsync of a relaxed file writes nothing.
                vol.writeback_range(&inode, 0, u64::MAX).unwrap();
            }
            2 if size < 400 << 10 => {
                vol.write(&inode, size, &content(nr, 4096)).unwrap();
            }
            _ => vol.fsync(&inode, false).unwrap(),
        }
    }
    vol.unmount().unwrap();
    let found = judge.found.lock();
    println!("{} metadata, {} strict, {} relaxed", found.metadata, found.strict, found.relaxed);
    assert_eq!(found.wrong, Vec::<String>::new());
    assert!(found.metadata > 200 && found.strict > 150 && found.relaxed > 30, "{found:?}");
}
