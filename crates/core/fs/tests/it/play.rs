//! Files whose every block says which file, block and version it is, and what a crash may leave.
//!
//! A model runs beside the volume. After each acknowledged sync it notes, for each name and block,
//! what must be there at least. What is found after a crash must be that or newer, never another
//! file's data, never older data.

use std::collections::BTreeMap;
use std::sync::Arc;
use syncline_device::{BlockDevice, Clock, MemoryDevice, VirtualClock};
use syncline_fs::{Create, FsError, InodeRef, MountOptions, Volume};
use syncline_testkit::crash::CrashDevice;
use syncline_testkit::{ImageSpec, Random, TempImage, debugfs, mkfs};

pub const BLOCK: usize = 4096;
const SECTOR: usize = 512;
const MAGIC: u64 = 0x5379_6e63_6c69_6e65;

/// Contents of one block: 32 bytes over and over.
pub fn signed(instance: u64, index: u64, version: u64) -> Vec<u8> {
    let mut unit = Vec::with_capacity(32);
    for word in [MAGIC, instance, index, version] {
        unit.extend_from_slice(&word.to_le_bytes());
    }
    unit.repeat(BLOCK / 32)
}

fn word(bytes: &[u8], at: usize) -> u64 {
    let bytes = bytes.get(at..at + 8).and_then(|b| b.try_into().ok());
    bytes.map_or(0, u64::from_le_bytes)
}

/// Oldest legal content of one block.
#[derive(Clone, Copy, Debug, Default)]
struct Floor {
    version: u64,
    zero_ok: bool,
}

#[derive(Clone, Debug, Default)]
struct File {
    /// Versions of the blocks now; 0 is a hole.
    now: Vec<u64>,
    /// Versions below this were cut off.
    cut: u64,
    floors: Vec<Floor>,
    /// Blocks that must be there.
    len_min: usize,
}

#[derive(Clone, Debug, Default)]
struct Name {
    /// Instance the name has now.
    now: Option<u64>,
    /// The instance acknowledged, or a newer one, must be found.
    acked: u64,
    absent_ok: bool,
}

/// Contents known to be durable at one moment.
#[derive(Clone, Debug, Default)]
pub struct Model {
    names: BTreeMap<String, Name>,
    files: BTreeMap<u64, File>,
    clock: u64,
}

impl Model {
    fn next(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    fn ack_data(&mut self, instance: u64) {
        let Some(file) = self.files.get_mut(&instance) else { return };
        let cut = file.cut;
        file.floors = (file.now.iter())
            .map(|&version| Floor {
                version: if version == 0 { cut } else { version },
                zero_ok: version == 0,
            })
            .collect();
        file.len_min = file.now.len();
    }

    fn ack_name(&mut self, name: &str) {
        if let Some(entry) = self.names.get_mut(name) {
            entry.absent_ok = entry.now.is_none();
            entry.acked = entry.now.unwrap_or(entry.acked);
        }
    }

    fn ack_all(&mut self) {
        let instances: Vec<u64> = self.files.keys().copied().collect();
        instances.into_iter().for_each(|instance| self.ack_data(instance));
        let names: Vec<String> = self.names.keys().cloned().collect();
        names.iter().for_each(|name| self.ack_name(name));
    }

    /// Checks that the volume holds at least the model's contents.
    pub fn check(&self, volume: &Volume) -> Result<(), String> {
        for (path, name) in &self.names {
            let inode = match volume.resolve(path.as_bytes()) {
                Ok(inode) => inode,
                Err(FsError::NotFound) if name.absent_ok => continue,
                Err(err) => return Err(format!("{path}: {err}, {name:?}")),
            };
            let size = volume.getattr(&inode).size as usize;
            let mut bytes = vec![0; size];
            let n = volume.read(&inode, 0, &mut bytes).map_err(|e| format!("{path}: {e}"))?;
            if n != size {
                return Err(format!("{path}: read {n} of {size}"));
            }
            self.check_file(path, name, &bytes)?;
        }
        Ok(())
    }

    fn check_file(&self, path: &str, name: &Name, bytes: &[u8]) -> Result<(), String> {
        // An overwrite in place may be torn, so each sector counts for itself.
        let mut found = None;
        for (at, sector) in bytes.chunks(SECTOR).enumerate() {
            if sector.iter().all(|byte| *byte == 0) {
                continue;
            }
            let index = at * SECTOR / BLOCK;
            let (instance, version) = (word(sector, 8), word(sector, 24));
            let whole = signed(instance, index as u64, version);
            if sector != &whole[..sector.len()] {
                return Err(format!("{path}: block {index} is foreign: {:x?}", &sector[..32]));
            }
            if *found.get_or_insert(instance) != instance {
                return Err(format!("{path}: block {index} is of file {instance}, not {found:?}"));
            }
        }
        let Some(instance) = found else {
            // Nothing but zeros: allowed if some instance may be so.
            let file = self.files.get(&name.acked);
            let strict = file.is_some_and(|f| f.floors.iter().any(|f| !f.zero_ok));
            let replaced = name.now != Some(name.acked);
            return match strict && !replaced {
                true => Err(format!("{path}: only zeros, {} bytes; {name:?}", bytes.len())),
                false => Ok(()),
            };
        };
        if instance < name.acked {
            return Err(format!("{path}: file {instance}, acknowledged is {}", name.acked));
        }
        let Some(file) = self.files.get(&instance) else {
            return Err(format!("{path}: unknown file {instance}"));
        };
        let blocks = bytes.len().div_ceil(BLOCK);
        if blocks < file.len_min {
            return Err(format!("{path}: {blocks} blocks, at least {} expected", file.len_min));
        }
        for (index, floor) in file.floors.iter().enumerate().take(blocks) {
            let block = &bytes[index * BLOCK..bytes.len().min((index + 1) * BLOCK)];
            for sector in block.chunks(SECTOR) {
                if sector.iter().all(|byte| *byte == 0) {
                    if !floor.zero_ok {
                        return Err(format!("{path}: block {index} lost, {floor:?}"));
                    }
                } else if word(sector, 24) < floor.version {
                    let version = word(sector, 24);
                    return Err(format!("{path}: block {index} is version {version}, {floor:?}"));
                }
            }
        }
        Ok(())
    }
}

/// A stock image whose log is short, so that it wraps, and mounted before.
pub fn short_log(spec: &ImageSpec, ring: u32) -> (TempImage, MemoryDevice) {
    let image = mkfs(spec);
    let block = journal_block(image.path());
    let device = MemoryDevice::load(image.path()).unwrap();
    let mut sb = vec![0; BLOCK];
    device.read_at(block * BLOCK as u64, &mut sb).expect("memory reads");
    let len = u32::from_be_bytes(sb[16..20].try_into().expect("4 bytes"));
    if ring < len {
        sb[20..24].copy_from_slice(&(len - ring).to_be_bytes());
        device.write_at(block * BLOCK as u64, &sb).expect("memory writes");
    }
    (image, device)
}

/// Returns the block of the journal superblock.
pub fn journal_block(image: &std::path::Path) -> u64 {
    let said = debugfs(image, "bmap <8> 0\n");
    let number = said.lines().find_map(|line| line.trim().parse().ok());
    number.unwrap_or_else(|| panic!("debugfs bmap said {said}"))
}

/// A volume, its model and a source of random operations.
pub struct Play {
    pub volume: Volume,
    pub model: Model,
    pub clock: Arc<VirtualClock>,
    random: Random,
    names: Vec<String>,
    dev: Option<Arc<CrashDevice>>,
    /// Mark `n` of the device was set when `models[n]` held.
    pub models: Vec<Model>,
}

impl Play {
    pub fn new(dev: Arc<dyn BlockDevice>, options: &str, seed: u64) -> Play {
        let clock = Arc::new(VirtualClock::default());
        let options = MountOptions::parse(options).expect("known options");
        let volume = Volume::mount(dev, Arc::clone(&clock) as Arc<dyn Clock>, options)
            .expect("a fresh image mounts");
        let dirs = 3;
        let root = volume.root().expect("root");
        for n in 0..dirs {
            let name = format!("d{n}");
            let create = Create { mode: 0o755, uid: 0, gid: 0 };
            match volume.mkdir(&root, name.as_bytes(), &create) {
                Ok(_) | Err(FsError::Exists) => {}
                Err(err) => panic!("mkdir: {err}"),
            }
        }
        volume.syncfs().expect("syncfs");
        let names = (0..9).map(|n| format!("/d{}/f{n}", n % dirs)).collect();
        let random = Random::new(seed);
        let model = Model::default();
        Play { volume, model, clock, random, names, dev: None, models: Vec::new() }
    }

    /// Sets a mark after every step from now on.
    pub fn mark_on(&mut self, dev: Arc<CrashDevice>) {
        self.dev = Some(dev);
        self.note();
    }

    fn note(&mut self) {
        if let Some(dev) = &self.dev {
            dev.mark(self.models.len() as u64);
            self.models.push(self.model.clone());
        }
    }

    fn dir(&self, path: &str) -> InodeRef {
        let dir = &path[..path.rfind('/').expect("a path")];
        self.volume.resolve(dir.as_bytes()).expect("the directory is there")
    }

    fn leaf(path: &str) -> &[u8] {
        &path.as_bytes()[path.rfind('/').expect("a path") + 1..]
    }

    fn open(&mut self, path: &str) -> (InodeRef, u64) {
        if let Some(instance) = self.model.names.get(path).and_then(|name| name.now) {
            return (self.volume.resolve(path.as_bytes()).expect("the file is there"), instance);
        }
        let instance = self.model.next();
        let create = Create { mode: 0o644, uid: 0, gid: 0 };
        let dir = self.dir(path);
        let name = self
            .model
            .names
            .entry(path.to_owned())
            .or_insert(Name { absent_ok: true, ..Name::default() });
        name.now = Some(instance);
        self.model.files.insert(instance, File::default());
        self.note();
        let file = self.volume.create(&dir, Play::leaf(path), &create).expect("create");
        (file, instance)
    }

    fn write(&mut self, path: &str, first: usize, count: usize) {
        let (inode, instance) = self.open(path);
        let mut data = Vec::new();
        for index in first..first + count {
            let version = self.model.next();
            data.extend(signed(instance, index as u64, version));
            let file = self.model.files.get_mut(&instance).expect("known file");
            if file.now.len() <= index {
                file.now.resize(index + 1, 0);
            }
            file.now[index] = version;
        }
        let n = self.volume.write(&inode, (first * BLOCK) as u64, &data).expect("write");
        assert_eq!(n, data.len());
    }

    fn sync(&mut self, path: &str, datasync: bool) {
        let (inode, instance) = self.open(path);
        self.volume.fsync(&inode, datasync).expect("fsync");
        self.model.ack_data(instance);
        if !datasync {
            self.model.ack_name(path);
        }
    }

    fn truncate(&mut self, path: &str, blocks: usize) {
        let (inode, instance) = self.open(path);
        let cut = self.model.next();
        let file = self.model.files.get_mut(&instance).expect("known file");
        if blocks < file.now.len() {
            file.cut = cut;
            file.len_min = file.len_min.min(blocks);
            for floor in file.floors.iter_mut().skip(blocks) {
                floor.zero_ok = true;
            }
        }
        file.now.resize(blocks, 0);
        self.note();
        self.volume.truncate(&inode, (blocks * BLOCK) as u64).expect("truncate");
    }

    fn unlink(&mut self, path: &str) {
        let Some(name) = self.model.names.get_mut(path).filter(|name| name.now.is_some()) else {
            return;
        };
        name.now = None;
        name.absent_ok = true;
        self.note();
        let dir = self.dir(path);
        self.volume.unlink(&dir, Play::leaf(path)).expect("unlink");
    }

    fn sync_dir(&mut self, path: &str) {
        let dir = self.dir(path);
        self.volume.fsync(&dir, false).expect("fsync of a directory");
        let prefix = &path[..path.rfind('/').expect("a path") + 1];
        let names: Vec<String> =
            self.model.names.keys().filter(|n| n.starts_with(prefix)).cloned().collect();
        names.iter().for_each(|name| self.model.ack_name(name));
    }

    fn replace(&mut self, path: &str) {
        // Write to a temporary name, sync, rename over.
        let temporary = format!("{}/tmp", &path[..path.rfind('/').expect("a path")]);
        self.unlink(&temporary);
        let count = 1 + self.random.index(3);
        self.write(&temporary, 0, count);
        self.sync(&temporary, false);
        let instance = self.model.names[&temporary].now;
        let name = self.model.names.get_mut(&temporary).expect("just made");
        (name.now, name.absent_ok) = (None, true);
        let target = self
            .model
            .names
            .entry(path.to_owned())
            .or_insert(Name { absent_ok: true, ..Name::default() });
        target.now = instance;
        self.note();
        let dir = self.dir(path);
        let flags = Default::default();
        self.volume.rename(&dir, b"tmp", &dir, Play::leaf(path), flags).expect("rename");
    }

    /// One random operation.
    pub fn step(&mut self) {
        let path = self.names[self.random.index(self.names.len())].clone();
        let len = |play: &Play, path: &str| {
            let now = play.model.names.get(path).and_then(|name| name.now);
            now.and_then(|i| play.model.files.get(&i)).map_or(0, |file| file.now.len())
        };
        match self.random.below(100) {
            0..30 => {
                let end = len(self, &path);
                let first = self.random.index(end + 1);
                let count = 1 + self.random.index(3);
                self.write(&path, first, count);
                let datasync = self.random.one_in(2);
                self.sync(&path, datasync);
            }
            30..45 => {
                let end = len(self, &path);
                let first = self.random.index(end + 2);
                let count = 1 + self.random.index(4);
                self.write(&path, first, count);
            }
            45..55 => {
                let datasync = self.random.one_in(2);
                self.sync(&path, datasync);
            }
            55..60 => {
                // Above the threshold.
                let end = len(self, &path).min(20);
                self.write(&path, end, 14);
                self.sync(&path, true);
            }
            60..70 => {
                self.unlink(&path);
                if self.random.one_in(2) {
                    self.sync_dir(&path);
                }
            }
            70..77 => {
                let blocks = self.random.index(len(self, &path) + 3);
                self.truncate(&path, blocks);
                if self.random.one_in(2) {
                    self.sync(&path, false);
                }
            }
            77..82 => {
                self.replace(&path);
                if self.random.one_in(2) {
                    self.sync_dir(&path);
                }
            }
            82..85 => self.sync_dir(&path),
            85..87 => {
                self.volume.syncfs().expect("syncfs");
                self.model.ack_all();
            }
            87.. => self.step_space(&path),
        }
        self.note();
        self.wait_ms(3);
    }

    /// The rest of [`Play::step`]: write-back, preallocation, waiting.
    fn step_space(&mut self, path: &str) {
        match self.random.below(13) {
            0..3 => {
                let (inode, _) = self.open(path);
                self.volume.writeback_range(&inode, 0, u64::MAX).expect("write-back");
            }
            3..5 => {
                let (inode, _) = self.open(path);
                let mode = syncline_fs::FallocateMode::KeepSize;
                let at = self.random.below(20) * BLOCK as u64;
                self.volume.fallocate(&inode, mode, at, 5 * BLOCK as u64).expect("fallocate");
            }
            5..9 => self.wait_ms(3000),
            _ => self.wait_ms(31_000),
        }
    }

    fn wait_ms(&self, ms: u64) {
        self.clock.sleep_until(self.clock.now_ns() + ms * 1_000_000);
        self.volume.tick(self.clock.now_ns()).expect("tick");
    }
}
