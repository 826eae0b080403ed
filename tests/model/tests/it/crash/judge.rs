//! Judges one crash state: stock recovery, the history, our recovery, a kernel.
//!
//! With packed records in the log stock tools have to refuse the image. Our recovery makes a plain
//! ext4 of it, with a journal that was left in the middle, which they then judge.

use std::io::ErrorKind;
use std::sync::Arc;

use syncline_device::{BlockDevice, FileMirror, MemoryDevice, VirtualClock};
use syncline_fs::{MountOptions, Volume};
use syncline_model::{
    DirTree, LoopDevice, Need, TempImage, VolumeTree, e2fsck_clean, e2fsck_preen,
};
use syncline_testkit::crash::CrashState;

use crate::crash::history::{History, Recovered};

const MODES: [&str; 4] =
    ["sync=ordered", "sync=eager,log=packed", "sync=eager", "sync=periodic,strict=*"];
/// `s_feature_incompat` of an image with packed records, and its place.
const PACKED_LOG: u32 = 0x2000_0000;
const INCOMPAT_AT: u64 = 1024 + 0x60;
/// One in this many such states is shown to stock tools.
const REFUSED_EVERY: u64 = 8;

/// Message of e2fsck where it fails to cut an orphan whose extent tree has two leaves: it frees the
/// second one with its last extent, and then again. e2fsck 1.47.0 does so on images of its own
/// tools; `e2fsck_frees_the_second_leaf_of_an_orphan_twice` shows it.
pub const E2FSCK_TWO_LEAVES: &str = "Already cleared indirect block";

/// Finding of `e2fsck -fn` after `e2fsck -p` has deleted orphans of a volume of clusters: 1.47.0
/// counts what they free wrong, also on images that only the kernel has written.
const E2FSCK_MISCOUNTS: &str = "Free blocks count wrong";
const RO_COMPAT_AT: u64 = 1024 + 0x64;
const BIGALLOC: u32 = 0x200;

/// Counters of judged states.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    pub states: u64,
    pub stock: u64,
    pub kernel: u64,
    pub twice: u64,
    pub refused: u64,
    pub two_leaves: u64,
    pub miscounts: u64,
}

impl Counts {
    pub fn add(&mut self, other: &Counts) {
        self.states += other.states;
        self.stock += other.stock;
        self.kernel += other.kernel;
        self.twice += other.twice;
        self.refused += other.refused;
        self.two_leaves += other.two_leaves;
        self.miscounts += other.miscounts;
    }
}

pub struct Judge<'a> {
    history: &'a History,
    stock: FileMirror,
    ours: FileMirror,
    /// The files above, which go with them.
    _files: [TempImage; 2],
    kernel: Option<Arc<LoopDevice>>,
    /// One in this many states is also mounted by the kernel, and recovered twice by us.
    kernel_every: u64,
    twice_every: u64,
    /// One in this many states is also judged by stock tools, the others by our recovery alone.
    stock_every: u64,
    pub counts: Counts,
}

/// Mounts as the next boot would.
pub fn recover(device: Arc<dyn BlockDevice>, mount: &str) -> Result<Volume, String> {
    let clock = Arc::new(VirtualClock::default());
    let options = MountOptions::parse(mount).map_err(|e| e.to_string())?;
    Volume::mount(device, clock, options).map_err(|e| format!("our mount, {mount}: {e}"))
}

fn read_only(image: MemoryDevice) -> Result<Recovered, String> {
    let options = MountOptions::default().with(|options| options.read_only = true);
    let clock = Arc::new(VirtualClock::default());
    let volume = Volume::mount(Arc::new(image), clock, options)
        .map_err(|e| format!("our read-only mount after stock recovery: {e}"))?;
    Recovered::read(&mut VolumeTree::new(volume)).map_err(|e| format!("after e2fsck: {e}"))
}

/// Returns true if two images have the same bytes.
fn same(a: &MemoryDevice, b: &MemoryDevice) -> Result<bool, String> {
    let (mut x, mut y) = (vec![0; 1 << 20], vec![0; 1 << 20]);
    let len = a.geometry().size_bytes;
    for at in (0..len).step_by(1 << 20) {
        let part = (len - at).min(1 << 20) as usize;
        a.read_at(at, &mut x[..part]).map_err(|e| e.to_string())?;
        b.read_at(at, &mut y[..part]).map_err(|e| e.to_string())?;
        if x[..part] != y[..part] {
            return Ok(false);
        }
    }
    Ok(true)
}

impl<'a> Judge<'a> {
    pub fn new(
        history: &'a History,
        image: &MemoryDevice,
        kernel_every: u64,
        twice_every: u64,
    ) -> Judge<'a> {
        let files = [TempImage::zeroed(0), TempImage::zeroed(0)];
        let mirror = |file: &TempImage| FileMirror::create(file.path(), image).unwrap();
        let (stock, ours) = (mirror(&files[0]), mirror(&files[1]));
        let can = [Need::Root, Need::Loop].iter().all(|need| need.missing().is_none());
        let kernel =
            (can && kernel_every < u64::MAX).then(|| LoopDevice::attach(files[1].path()).unwrap());
        Judge {
            history,
            stock,
            ours,
            _files: files,
            kernel,
            kernel_every,
            twice_every,
            stock_every: 1,
            counts: Counts::default(),
        }
    }

    /// Shows one of so many states to stock tools; all are recovered by us.
    pub fn with_stock_every(self, stock_every: u64) -> Judge<'a> {
        Judge { stock_every, ..self }
    }

    pub fn judge(&mut self, state: &CrashState) -> Result<(), String> {
        self.counts.states += 1;
        if !self.counts.states.is_multiple_of(self.stock_every) {
            return self.our_recovery_alone(state);
        }
        self.counts.stock += 1;
        let plain = self.plain(state)?;
        let tree = self.stock(&plain)?;
        self.history.check(&tree, state.marks()).map_err(|e| format!("after e2fsck: {e}"))?;
        self.our_recovery(state, &tree)?;
        if self.counts.states.is_multiple_of(self.kernel_every) {
            self.by_kernel(&plain, &tree)?;
        }
        Ok(())
    }

    /// The tree after stock recovery.
    pub fn tree(&mut self, state: &CrashState) -> Result<Recovered, String> {
        let plain = self.plain(state)?;
        self.stock(&plain)
    }

    /// Neither e2fsck nor the kernel takes an image with packed records; they change nothing.
    fn refused(&mut self, image: &MemoryDevice) -> Result<(), String> {
        self.ours.restore(image).map_err(|e| e.to_string())?;
        if e2fsck_preen(self.ours.path()).is_ok() {
            return Err("e2fsck took an image with packed records".to_owned());
        }
        if self.kernel.as_ref().is_some_and(|kernel| kernel.mount("").is_ok()) {
            return Err("the kernel mounted an image with packed records".to_owned());
        }
        let after = MemoryDevice::load(self.ours.path()).map_err(|e| e.to_string())?;
        if !same(image, &after)? {
            return Err("packed records were refused, and the image was changed".to_owned());
        }
        Ok(())
    }

    /// The state as stock tools may see it.
    fn plain(&mut self, state: &CrashState) -> Result<MemoryDevice, String> {
        let image = state.image.snapshot();
        let mut incompat = [0; 4];
        image.read_at(INCOMPAT_AT, &mut incompat).map_err(|e| e.to_string())?;
        if u32::from_le_bytes(incompat) & PACKED_LOG == 0 {
            return Ok(image);
        }
        if self.counts.states.is_multiple_of(REFUSED_EVERY) {
            self.counts.refused += 1;
            self.refused(&image)?;
        }
        let dev = Arc::new(image.snapshot());
        drop(recover(dev.clone(), "sync=ordered")?);
        Ok(dev.snapshot())
    }

    /// `e2fsck -p` and `-fn` end with 0; the tree as it then is.
    ///
    /// A state that [`E2FSCK_TWO_LEAVES`] or [`E2FSCK_MISCOUNTS`] concerns is recovered by the
    /// kernel, or by us, instead.
    fn stock(&mut self, image: &MemoryDevice) -> Result<Recovered, String> {
        self.stock.restore(image).map_err(|e| e.to_string())?;
        match e2fsck_preen(self.stock.path()) {
            Ok(()) => {}
            Err(said) if said.contains(E2FSCK_TWO_LEAVES) => {
                self.counts.two_leaves += 1;
                self.without_e2fsck(image)?;
            }
            Err(said) if said.contains(E2FSCK_MISCOUNTS) && has_clusters(image)? => {
                self.counts.miscounts += 1;
                self.without_e2fsck(image)?;
            }
            Err(said) => return Err(said),
        }
        read_only(MemoryDevice::load(self.stock.path()).map_err(|e| e.to_string())?)
    }

    /// Recovery of `image` into the file of [`Judge::stock`] by a kernel mount, or by ours.
    fn without_e2fsck(&mut self, image: &MemoryDevice) -> Result<(), String> {
        if let Some(kernel) = self.kernel.clone() {
            self.ours.restore(image).map_err(|e| e.to_string())?;
            let mount = kernel.mount("").map_err(|e| format!("the kernel: {e}"))?;
            mount.unmount().map_err(|e| format!("the kernel: {e}"))?;
            let recovered = MemoryDevice::load(self.ours.path()).map_err(|e| e.to_string())?;
            self.stock.restore(&recovered).map_err(|e| e.to_string())?;
        } else {
            let device = Arc::new(image.snapshot());
            recover(device.clone(), "sync=ordered")?.unmount().map_err(|e| e.to_string())?;
            self.stock.restore(&device).map_err(|e| e.to_string())?;
        }
        e2fsck_clean(self.stock.path())
    }

    fn our_recovery(&mut self, state: &CrashState, stock: &Recovered) -> Result<(), String> {
        let image = Arc::new(state.image.snapshot());
        // The next mount may be of the other mode.
        let first = (self.counts.states % 4) as usize;
        let [one, two] = [MODES[first], MODES[(first + 1) % 4]];
        let mut volume = recover(image.clone(), one)?;
        let read = |volume: &Volume| {
            Recovered::read(&mut VolumeTree::new(volume.clone()))
                .map_err(|e| format!("after our recovery: {e}"))
        };
        let tree = read(&volume)?;
        if let Some(difference) = stock.difference(&tree) {
            return Err(format!("e2fsck and our recovery differ: {difference}"));
        }
        if self.counts.states.is_multiple_of(self.twice_every) {
            self.counts.twice += 1;
            drop(volume);
            volume = recover(image.clone(), two)?;
            if let Some(difference) = tree.difference(&read(&volume)?) {
                return Err(format!("recovering twice differs: {difference}"));
            }
        }
        volume.unmount().map_err(|e| format!("unmount after our recovery: {e}"))?;
        self.ours.restore(&image).map_err(|e| e.to_string())?;
        e2fsck_clean(self.ours.path()).map_err(|e| format!("after our recovery: {e}"))
    }

    /// Without stock tools: a legal outcome, and the same again after another mount.
    fn our_recovery_alone(&mut self, state: &CrashState) -> Result<(), String> {
        let image = Arc::new(state.image.snapshot());
        let first = (self.counts.states % 4) as usize;
        let volume = recover(image.clone(), MODES[first])?;
        let read = |volume: Volume| {
            Recovered::read(&mut VolumeTree::new(volume))
                .map_err(|e| format!("after our recovery: {e}"))
        };
        let tree = read(volume)?;
        self.history.check(&tree, state.marks()).map_err(|e| format!("after our recovery: {e}"))?;
        if self.counts.states.is_multiple_of(self.twice_every) {
            self.counts.twice += 1;
            let again = read(recover(image, MODES[(first + 1) % 4])?)?;
            if let Some(difference) = tree.difference(&again) {
                return Err(format!("recovering twice differs: {difference}"));
            }
        }
        Ok(())
    }

    fn by_kernel(&mut self, image: &MemoryDevice, stock: &Recovered) -> Result<(), String> {
        let Some(kernel) = self.kernel.clone() else { return Ok(()) };
        self.counts.kernel += 1;
        self.ours.restore(image).map_err(|e| e.to_string())?;
        let mount = kernel.mount("").map_err(|e| format!("the kernel: {e}"))?;
        let tree = Recovered::read(&mut DirTree::new(mount.path()));
        // And goes on working.
        let more = mount.path().join("of-the-kernel");
        match std::fs::write(&more, [7; 5000]) {
            // A volume may be full.
            Err(e) if e.kind() != ErrorKind::StorageFull => {
                return Err(format!("writing by the kernel: {e}"));
            }
            _ => {}
        }
        mount.unmount().map_err(|e| format!("the kernel: {e}"))?;
        let tree = tree.map_err(|e| format!("on the kernel's mount: {e}"))?;
        if let Some(difference) = stock.difference(&tree) {
            return Err(format!("e2fsck and the kernel's recovery differ: {difference}"));
        }
        e2fsck_clean(self.ours.path()).map_err(|e| format!("after the kernel: {e}"))
    }
}

fn has_clusters(image: &MemoryDevice) -> Result<bool, String> {
    let mut ro_compat = [0; 4];
    image.read_at(RO_COMPAT_AT, &mut ro_compat).map_err(|e| e.to_string())?;
    Ok(u32::from_le_bytes(ro_compat) & BIGALLOC != 0)
}
