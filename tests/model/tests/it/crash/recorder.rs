//! Runs a workload on a volume over a crash device and writes its history.

use std::collections::BTreeMap;
use std::sync::Arc;

use syncline_device::{BlockDevice, Clock, MemoryDevice, VirtualClock};
use syncline_fs::{
    Create, FallocateMode, InodeRef, MountOptions, RenameFlags, SyncMode, Volume, XattrFlags,
};
use syncline_model::VolumeTree;
use syncline_testkit::crash::{CrashDevice, CrashLog, CrashOptions};

use crate::crash::history::{
    Content, History, Name, Recovered, SECTOR, signed_sector, signed_value,
};
use crate::crash::names::Order;

const PLAIN: Create = Create { mode: 0o644, uid: 0, gid: 0 };

/// A volume under a workload.
pub struct Recorder {
    volume: Volume,
    device: Arc<CrashDevice>,
    clock: Arc<VirtualClock>,
    history: History,
    /// Handles of files, named or not.
    open: BTreeMap<u32, InodeRef>,
    /// The last name operation of each file, its creation, and the last one in each directory.
    named: BTreeMap<u32, usize>,
    created: BTreeMap<u32, usize>,
    changed_dirs: BTreeMap<String, usize>,
    /// The history has what the volume shows after each operation: `sync=periodic`.
    by_sync_points: bool,
    /// Sync points taken so far, and the last one known to be durable.
    taken: u64,
    durable: usize,
}

pub fn parent_of(path: &str) -> (&str, &str) {
    path.rsplit_once('/').unwrap_or(("", path))
}

/// Returns the order that a crash must keep under these options.
pub fn order(mount: &MountOptions) -> Order {
    match mount.sync {
        SyncMode::Eager => Order::Linked,
        _ => Order::All,
    }
}

impl Recorder {
    pub fn new(base: &MemoryDevice, mount: &MountOptions, options: CrashOptions) -> Recorder {
        Recorder::resume(base, mount, options, History::new(order(mount)))
    }

    /// Goes on with an image that has a history.
    pub fn resume(
        base: &MemoryDevice,
        mount: &MountOptions,
        options: CrashOptions,
        history: History,
    ) -> Recorder {
        let device = Arc::new(CrashDevice::new(base, options));
        let clock = Arc::new(VirtualClock::default());
        let volume = Volume::mount(device.clone(), clock.clone(), mount.clone()).unwrap();
        let mut recorder = Recorder {
            volume,
            device,
            clock,
            history,
            open: BTreeMap::new(),
            named: BTreeMap::new(),
            created: BTreeMap::new(),
            changed_dirs: BTreeMap::new(),
            by_sync_points: mount.sync == SyncMode::Periodic,
            taken: 0,
            durable: 0,
        };
        recorder.observe();
        recorder
    }

    /// As [`Recorder::new`], judged by sync points whatever the mode is.
    pub fn by_sync_points(base: &MemoryDevice, mount: &MountOptions) -> Recorder {
        let mut recorder = Recorder::new(base, mount, CrashOptions::default());
        recorder.by_sync_points = true;
        recorder.observe();
        recorder
    }

    /// An operation is over: the history gets what the volume shows now.
    fn observe(&mut self) {
        if !self.by_sync_points {
            return;
        }
        let tree = Recovered::read(&mut VolumeTree::new(self.volume.clone())).unwrap();
        self.observed(tree);
    }

    fn observed(&mut self, tree: Recovered) {
        let stats = self.volume.sync_points().unwrap_or_default();
        let now = self.history.push_sync_point(tree);
        let durable = match std::mem::replace(&mut self.taken, stats.count) < stats.count {
            true if stats.is_behind => now.saturating_sub(1),
            true => now,
            false => self.durable,
        };
        self.durable = self.durable.max(durable);
        let mark = self.history.ack_sync_point(self.durable);
        self.device.mark(mark);
    }

    /// The power goes: the log, and what a judge has to know.
    pub fn stop(self) -> (CrashLog, History) {
        for (_, inode) in self.open {
            // A machine that stops does not free its open files.
            std::mem::forget(inode);
        }
        (self.device.log(), self.history)
    }

    /// A clean end, which is part of the log.
    pub fn unmount(mut self) -> (CrashLog, History) {
        self.open.clear();
        self.volume.unmount().unwrap();
        let mark = self.history.ack_all();
        self.device.mark(mark);
        if self.by_sync_points {
            let mark = self.history.ack_last_sync_point();
            self.device.mark(mark);
        }
        (self.device.log(), self.history)
    }

    pub fn has(&self, path: &str) -> bool {
        self.history.names().contains_key(path)
    }

    pub fn size(&self, path: &str) -> u64 {
        self.history.size(self.file(path))
    }

    fn file(&self, path: &str) -> u32 {
        self.history.names()[path].file.expect("a regular file")
    }

    fn dir(&self, path: &str) -> InodeRef {
        self.volume.resolve(path).unwrap()
    }

    fn inode(&self, path: &str) -> InodeRef {
        self.volume.resolve_nofollow(path).unwrap()
    }

    fn name_op(&mut self, files: &[Option<u32>], dirs: &[&str]) {
        self.observe();
        let ops = self.history.name_ops();
        for file in files.iter().flatten() {
            self.named.insert(*file, ops);
        }
        for dir in dirs {
            self.changed_dirs.insert((*dir).to_owned(), ops);
        }
    }

    pub fn create(&mut self, path: &str) {
        let (dir, name) = parent_of(path);
        let inode = self.volume.create(&self.dir(dir), name.as_bytes(), &PLAIN).unwrap();
        let file = self.history.new_file();
        let entry = Name { ino: inode.ino, file: Some(file), ..Name::default() };
        self.history.push_names(|names| {
            names.insert(path.to_owned(), entry);
        });
        self.name_op(&[Some(file)], &[dir]);
        self.created.insert(file, self.history.name_ops());
    }

    /// Writes so many sectors to a file that has no name yet, and syncs it if `synced`; its number.
    pub fn write_nameless(&mut self, dir: &str, sectors: u64, synced: bool) -> u32 {
        let inode = self.volume.tmpfile(&self.dir(dir), &PLAIN, true).unwrap();
        let (file, seq) = (self.history.new_file(), self.history.next_seq());
        let bytes: Vec<u8> = (0..sectors).flat_map(|s| signed_sector(file, s, seq)).collect();
        self.volume.write(&inode, 0, &bytes).unwrap();
        self.history.record(file, seq, 0, sectors, Content::Written(seq));
        self.history.record_size(file, seq, sectors * SECTOR);
        if synced {
            self.volume.fsync(&inode, false).unwrap();
        }
        self.open.insert(file, inode);
        self.observe();
        if synced && !self.by_sync_points {
            let mark = self.history.ack_file(file, 0);
            self.device.mark(mark);
        }
        file
    }

    /// Gives a file its first name.
    pub fn publish(&mut self, file: u32, path: &str) {
        let (dir, name) = parent_of(path);
        let inode = self.open[&file].clone();
        self.volume.link(&inode, &self.dir(dir), name.as_bytes()).unwrap();
        let entry = Name { ino: inode.ino, file: Some(file), ..Name::default() };
        self.history.push_names(|names| {
            names.insert(path.to_owned(), entry);
        });
        self.name_op(&[Some(file)], &[dir]);
        self.created.insert(file, self.history.name_ops());
    }

    pub fn mkdir(&mut self, path: &str) {
        let (dir, name) = parent_of(path);
        let inode = self.volume.mkdir(&self.dir(dir), name.as_bytes(), &PLAIN).unwrap();
        let entry = Name { ino: inode.ino, is_dir: true, ..Name::default() };
        self.history.push_names(|names| {
            names.insert(path.to_owned(), entry);
        });
        self.name_op(&[], &[dir, path]);
    }

    pub fn symlink(&mut self, path: &str, target: &str) {
        let (dir, name) = parent_of(path);
        let at = self.dir(dir);
        let inode = self.volume.symlink(&at, name.as_bytes(), target.as_bytes(), &PLAIN).unwrap();
        let target = target.as_bytes().to_vec();
        let entry = Name { ino: inode.ino, target, ..Name::default() };
        self.history.push_names(|names| {
            names.insert(path.to_owned(), entry);
        });
        self.name_op(&[], &[dir]);
    }

    pub fn link(&mut self, existing: &str, path: &str) {
        let (dir, name) = parent_of(path);
        let inode = self.inode(existing);
        self.volume.link(&inode, &self.dir(dir), name.as_bytes()).unwrap();
        let entry = self.history.names()[existing].clone();
        let file = entry.file;
        self.history.push_names(|names| {
            names.insert(path.to_owned(), entry);
        });
        self.name_op(&[file], &[dir]);
    }

    pub fn unlink(&mut self, path: &str) {
        let (dir, name) = parent_of(path);
        let file = self.history.names()[path].file;
        self.volume.unlink(&self.dir(dir), name.as_bytes()).unwrap();
        self.history.push_names(|names| {
            names.remove(path);
        });
        self.name_op(&[file], &[dir]);
    }

    pub fn rmdir(&mut self, path: &str) {
        let (dir, name) = parent_of(path);
        self.volume.rmdir(&self.dir(dir), name.as_bytes()).unwrap();
        self.history.push_names(|names| {
            names.remove(path);
        });
        self.name_op(&[], &[dir]);
    }

    /// Of files; of directories only while they are empty.
    pub fn rename(&mut self, from: &str, to: &str, exchange: bool) {
        let ((from_dir, from_name), (to_dir, to_name)) = (parent_of(from), parent_of(to));
        let flags = if exchange { RenameFlags::EXCHANGE } else { RenameFlags::NONE };
        let (od, nd) = (self.dir(from_dir), self.dir(to_dir));
        self.volume.rename(&od, from_name.as_bytes(), &nd, to_name.as_bytes(), flags).unwrap();
        let moved = self.history.names()[from].clone();
        let hit = self.history.names().get(to).cloned();
        let files = [moved.file, hit.as_ref().and_then(|n| n.file)];
        if files[0].is_some() && files[0] == files[1] {
            return;
        }
        self.history.push_names(|names| {
            names.remove(from);
            if let (true, Some(hit)) = (exchange, hit) {
                names.insert(from.to_owned(), hit);
            }
            names.insert(to.to_owned(), moved);
        });
        self.name_op(&files, &[from_dir, to_dir]);
    }

    /// Writes so many sectors to a new file and renames it over `path`, without a sync.
    pub fn replace(&mut self, path: &str, sectors: u64) {
        let beside = format!("{path}.new");
        self.create(&beside);
        self.write(&beside, 0, sectors);
        self.rename(&beside, path, false);
        self.history.settle(path, self.file(path));
    }

    /// Cuts a file to nothing, writes so many sectors and closes it, without a sync. After the next
    /// commit they are there.
    pub fn rewrite(&mut self, path: &str, sectors: u64) {
        self.truncate(path, 0);
        self.write(path, 0, sectors);
        self.volume.close(&self.inode(path)).unwrap();
        self.pass(6000);
        if self.by_sync_points {
            return;
        }
        let mark = self.history.ack_file(self.file(path), 0);
        self.device.mark(mark);
    }

    /// Keeps a handle, so that the file outlives its name.
    pub fn hold(&mut self, path: &str) {
        self.open.insert(self.file(path), self.inode(path));
    }

    pub fn release(&mut self) {
        self.open.clear();
        self.observe();
    }

    /// Writes signed sectors; offset and length in sectors.
    pub fn write(&mut self, path: &str, sector: u64, sectors: u64) {
        let (file, inode) = (self.file(path), self.inode(path));
        let seq = self.history.next_seq();
        let bytes: Vec<u8> =
            (sector..sector + sectors).flat_map(|s| signed_sector(file, s, seq)).collect();
        let n = self.volume.write(&inode, sector * SECTOR, &bytes).unwrap();
        assert_eq!(n, bytes.len(), "the image is large enough");
        self.history.record(file, seq, sector, sector + sectors, Content::Written(seq));
        let end = (sector + sectors) * SECTOR;
        if end > self.history.size(file) {
            self.history.record_size(file, seq, end);
        }
        self.observe();
    }

    /// Sets an attribute to `len` bytes that say which change of the file it is; removes it for 0.
    pub fn set_value(&mut self, path: &str, name: &str, len: usize) {
        let (file, inode) = (self.file(path), self.inode(path));
        let seq = self.history.next_seq();
        let value = signed_value(seq, len);
        let done = match len {
            0 => self.volume.removexattr(&inode, name.as_bytes()),
            _ => self.volume.setxattr(&inode, name.as_bytes(), &value, XattrFlags::Any),
        };
        done.unwrap();
        self.history.record_value(file, seq, name, value);
        self.observe();
    }

    pub fn append(&mut self, path: &str, sectors: u64) {
        self.write(path, self.size(path) / SECTOR, sectors);
    }

    /// Any operations of `sync=periodic`'s workloads, each of which is one, and which may fail.
    pub fn act(&mut self, op: impl FnOnce(&Volume)) {
        op(&self.volume);
        self.observe();
    }

    /// Only reads.
    pub fn look(&self, look: impl FnOnce(&Volume)) {
        look(&self.volume);
    }

    /// Overwrites or extends a file in steps, each an operation, until there is no room.
    /// Offset and step in bytes; false: there was no room.
    pub fn fill(&mut self, path: &str, at: u64, bytes: &[u8], step: usize) -> bool {
        let inode = self.inode(path);
        let mut at = at;
        for part in bytes.chunks(step) {
            if self.volume.write(&inode, at, part).is_err() {
                return false;
            }
            at += part.len() as u64;
            self.observe_file(inode.ino);
        }
        true
    }

    /// As [`Recorder::observe`] after a change of one file's contents.
    fn observe_file(&mut self, ino: u32) {
        let mut tree = self.history.last_sync_point().clone();
        let mut source = VolumeTree::new(self.volume.clone());
        tree.read_again(ino, &mut source).unwrap();
        self.observed(tree);
    }

    /// In sectors.
    pub fn truncate(&mut self, path: &str, sectors: u64) {
        let (file, inode) = (self.file(path), self.inode(path));
        let seq = self.history.next_seq();
        self.volume.truncate(&inode, sectors * SECTOR).unwrap();
        self.history.record_size(file, seq, sectors * SECTOR);
        self.observe();
    }

    pub fn fallocate(&mut self, path: &str, mode: FallocateMode, sector: u64, sectors: u64) {
        let (file, inode) = (self.file(path), self.inode(path));
        let seq = self.history.next_seq();
        self.volume.fallocate(&inode, mode, sector * SECTOR, sectors * SECTOR).unwrap();
        let (end, size) = (sector + sectors, self.history.size(file));
        if !matches!(mode, FallocateMode::Allocate | FallocateMode::KeepSize) {
            self.history.record(file, seq, sector, end.min(size / SECTOR), Content::Zero);
        }
        let grows = matches!(mode, FallocateMode::Allocate | FallocateMode::ZeroRange);
        if grows && end * SECTOR > size {
            self.history.record_size(file, seq, end * SECTOR);
        }
        self.observe();
    }

    pub fn fsync(&mut self, path: &str) {
        self.sync_file(path, false);
    }

    pub fn fdatasync(&mut self, path: &str) {
        self.sync_file(path, true);
    }

    pub fn fdatabarrier(&mut self, path: &str) {
        let (file, inode) = (self.file(path), self.inode(path));
        self.volume.fdatabarrier(&inode).unwrap();
        if self.by_sync_points {
            return self.observe();
        }
        let names = self.created.get(&file).copied().unwrap_or(0);
        let mark = match self.device.geometry().barrier {
            true => self.history.ack_barrier(file, names),
            false => self.history.ack_file(file, names),
        };
        self.device.mark(mark);
    }

    fn sync_file(&mut self, path: &str, datasync: bool) {
        let (file, inode) = (self.file(path), self.inode(path));
        self.volume.fsync(&inode, datasync).unwrap();
        // fdatasync owes the data and what is needed to find it: a rename is not.
        if self.by_sync_points {
            return self.observe();
        }
        let names = if datasync { &self.created } else { &self.named };
        let mark = self.history.ack_file(file, names.get(&file).copied().unwrap_or(0));
        self.device.mark(mark);
    }

    pub fn fsync_dir(&mut self, path: &str) {
        self.volume.fsync(&self.dir(path), false).unwrap();
        if self.by_sync_points {
            return self.observe();
        }
        let names = self.changed_dirs.get(path).copied().unwrap_or(0);
        let mark = self.history.ack_names(names);
        self.device.mark(mark);
    }

    pub fn syncfs(&mut self) {
        self.volume.sync().unwrap();
        if self.by_sync_points {
            return self.observe();
        }
        let mark = self.history.ack_all();
        self.device.mark(mark);
    }

    /// Time passes, in the steps that the volume asks for.
    pub fn pass(&mut self, ms: u64) {
        let end = self.clock.now_ns() + ms * 1_000_000;
        for _ in 0..1000 {
            match self.volume.next_deadline_ns() {
                Some(at) if at < end => {
                    self.clock.sleep_until(at);
                    self.volume.tick(self.clock.now_ns().max(at)).unwrap();
                }
                _ => break,
            }
        }
        self.clock.sleep_until(end);
        self.volume.tick(end).unwrap();
        self.observe();
    }
}
