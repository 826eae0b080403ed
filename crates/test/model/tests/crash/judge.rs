//! Judges one crash state: stock recovery, the history, our recovery, a kernel.

use std::sync::Arc;

use syncline_crash::CrashState;
use syncline_device::{BlockDevice, FileMirror, MemoryDevice, VirtualClock};
use syncline_fs::{MountOptions, Volume};
use syncline_model::{
    DirTree, LoopDevice, Need, TempImage, VolumeTree, e2fsck_clean, e2fsck_preen,
};

use crate::history::{History, Recovered};

const MODES: [&str; 2] = ["sync=ordered", "sync=eager"];

/// What was looked at.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    pub states: u64,
    pub kernel: u64,
    pub twice: u64,
}

pub struct Judge<'a> {
    history: &'a History,
    stock: FileMirror,
    ours: FileMirror,
    /// The files above, which go with them.
    _files: [TempImage; 2],
    kernel: Option<Arc<LoopDevice>>,
    /// Every so-manieth state is also mounted by the kernel; recovered twice by us.
    kernel_every: u64,
    twice_every: u64,
    pub counts: Counts,
}

/// Mounts as the next boot would.
pub fn recover(device: Arc<dyn BlockDevice>, mount: &str) -> Result<Volume, String> {
    let clock = Arc::new(VirtualClock::default());
    let options = MountOptions::parse(mount).map_err(|e| e.to_string())?;
    Volume::mount(device, clock, options).map_err(|e| format!("our mount, {mount}: {e}"))
}

fn read_only(image: MemoryDevice) -> Result<Recovered, String> {
    let options = MountOptions { read_only: true, ..MountOptions::default() };
    let clock = Arc::new(VirtualClock::default());
    let volume = Volume::mount(Arc::new(image), clock, options)
        .map_err(|e| format!("our read-only mount after stock recovery: {e}"))?;
    Recovered::read(&mut VolumeTree::new(volume)).map_err(|e| format!("after e2fsck: {e}"))
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
        let counts = Counts::default();
        Judge { history, stock, ours, _files: files, kernel, kernel_every, twice_every, counts }
    }

    pub fn judge(&mut self, state: &CrashState) -> Result<(), String> {
        self.counts.states += 1;
        let tree = self.stock(state)?;
        self.history.check(&tree, state.marks()).map_err(|e| format!("after e2fsck: {e}"))?;
        self.our_recovery(state, &tree)?;
        if self.counts.states.is_multiple_of(self.kernel_every) {
            self.by_kernel(state, &tree)?;
        }
        Ok(())
    }

    /// The tree after stock recovery.
    pub fn tree(&mut self, state: &CrashState) -> Result<Recovered, String> {
        self.stock(state)
    }

    /// `e2fsck -p` and `-fn` end with 0; the tree as it then is.
    fn stock(&mut self, state: &CrashState) -> Result<Recovered, String> {
        self.stock.restore(&state.image).map_err(|e| e.to_string())?;
        e2fsck_preen(self.stock.path())?;
        read_only(MemoryDevice::load(self.stock.path()).map_err(|e| e.to_string())?)
    }

    fn our_recovery(&mut self, state: &CrashState, stock: &Recovered) -> Result<(), String> {
        let image = Arc::new(state.image.snapshot());
        // The next mount may be of the other mode.
        let first = (self.counts.states % 2) as usize;
        let [one, two] = [MODES[first], MODES[1 - first]];
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

    fn by_kernel(&mut self, state: &CrashState, stock: &Recovered) -> Result<(), String> {
        let Some(kernel) = self.kernel.clone() else { return Ok(()) };
        self.counts.kernel += 1;
        self.ours.restore(&state.image).map_err(|e| e.to_string())?;
        let mount = kernel.mount("").map_err(|e| format!("the kernel: {e}"))?;
        let tree = Recovered::read(&mut DirTree::new(mount.path()));
        // And goes on working.
        let more = mount.path().join("of-the-kernel");
        std::fs::write(&more, [7; 5000]).map_err(|e| format!("writing by the kernel: {e}"))?;
        mount.unmount().map_err(|e| format!("the kernel: {e}"))?;
        let tree = tree.map_err(|e| format!("on the kernel's mount: {e}"))?;
        if let Some(difference) = stock.difference(&tree) {
            return Err(format!("e2fsck and the kernel's recovery differ: {difference}"));
        }
        e2fsck_clean(self.ours.path()).map_err(|e| format!("after the kernel: {e}"))
    }
}
