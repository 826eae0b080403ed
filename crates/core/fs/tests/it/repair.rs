//! The repair of a device: e2fsck finds nothing after it, a second repair changes nothing, a sound
//! image keeps every byte, and an interrupted repair is rolled back.

use std::sync::Arc;

use syncline_device::{BlockDevice, MemoryDevice, SplitMix64};
use syncline_fs::repair::Plan;
use syncline_fs::repair::undo::{self, State};
use syncline_testkit::{ImageSpec, Need, TempImage, debugfs, e2fsck_clean, mkfs, require};

const TREE: &str = "mkdir d\nmkdir d/e\nwrite /etc/passwd f\nwrite /etc/passwd d/g\nln f d/h\n\
                    symlink l target\nmknod p p\nsif f links_count 2\n";
const FEATURES: [&str; 3] =
    ["metadata_csum,64bit", "^metadata_csum,^64bit", "^metadata_csum,uninit_bg,^flex_bg"];
/// Damage that is mended, as commands of debugfs.
const MENDED: [&str; 8] = [
    "sif /f links_count 7\n",
    "sif /d links_count 9\n",
    "sif /f blocks 98\n",
    "sif /f dtime 1700000000\n",
    "freeb 1000 20\nsetb 5000 30\n",
    "freei <12>\nseti <40>\n",
    "ssv free_blocks_count 17\nset_bg 0 free_blocks_count 5\nset_bg 0 used_dirs_count 77\n",
    "set_bg 0 free_inodes_count 3\nset_bg 0 checksum 77\n",
];

fn image(features: &str) -> TempImage {
    let spec = ImageSpec {
        block_size_bytes: 1024,
        features: features.into(),
        inode_count: Some(128),
        ..ImageSpec::with_size(12 << 20)
    };
    let image = mkfs(&spec);
    let _ = debugfs(image.path(), TREE);
    e2fsck_clean(image.path()).expect("the tree is sound");
    image
}

fn device(bytes: &[u8]) -> Arc<dyn BlockDevice> {
    Arc::new(MemoryDevice::from_bytes(bytes))
}

fn bytes_of(dev: &dyn BlockDevice, len: usize) -> Vec<u8> {
    let origin = syncline_device::Origin::new(syncline_device::Kind::Metadata, true);
    let mut bytes = vec![0; len];
    dev.read(0, &mut bytes, origin).expect("memory");
    bytes
}

fn plan(dev: &Arc<dyn BlockDevice>) -> Plan {
    Plan::new(dev, &mut |_| true).expect("the plan is made")
}

/// Repairs an image; what e2fsck must say of it is returned.
fn repaired(image: &TempImage, what: &str) -> bool {
    let dev = device(&image.bytes());
    let mended = plan(&dev);
    mended.apply(&*dev).expect("memory");
    let again = plan(&dev);
    assert!(again.changes.is_empty(), "{what}: a second repair changes something");
    assert_eq!(again.before.errors, mended.after.errors, "{what}");
    std::fs::write(image.path(), bytes_of(&*dev, image.bytes().len())).expect("scratch space");
    if mended.after.is_clean() {
        e2fsck_clean(image.path()).unwrap_or_else(|said| panic!("{what}: {said}"));
    }
    mended.after.is_clean()
}

#[test]
fn what_is_mended_is_clean_for_e2fsck() {
    if !require("what_is_mended_is_clean_for_e2fsck", &[Need::E2fsck]) {
        return;
    }
    for features in FEATURES {
        let sound = image(features);
        assert!(plan(&device(&sound.bytes())).changes.is_empty(), "{features}: sound");
        for damage in MENDED {
            let image = sound.duplicate();
            let _ = debugfs(image.path(), damage);
            let errors = plan(&device(&image.bytes())).before.errors;
            assert!(errors > 0, "{features}: {damage}: no damage");
            assert!(repaired(&image, damage), "{features}: {damage}: errors are left");
        }
    }
}

#[test]
fn an_interrupted_repair_is_rolled_back() {
    if !require("an_interrupted_repair_is_rolled_back", &[Need::E2fsck]) {
        return;
    }
    let image = image(FEATURES[0]);
    let _ = debugfs(image.path(), &MENDED.concat());
    let before = image.bytes();
    let dev = device(&before);
    let plan = plan(&dev);
    assert!(plan.changes.len() > 1, "too little to interrupt");
    let file = plan.undo(&*dev);
    let origin = syncline_device::Origin::new(syncline_device::Kind::Metadata, true);
    for seed in 0..64 {
        // Each sector was written, or not: a device may write them in any order.
        let dev = device(&before);
        let mut rng = SplitMix64::new(seed);
        for change in &plan.changes {
            for (nr, sector) in change.new.chunks(512).enumerate() {
                if rng.below(2) == 0 {
                    let at = change.offset_bytes + 512 * nr as u64;
                    dev.write(at, sector, origin).expect("memory");
                }
            }
        }
        let changes = undo::decode(&file, &*dev).expect("the undo file is sound");
        undo::state(&changes, &*dev).expect("nobody else has written");
        undo::roll_back(&changes, &*dev).expect("memory");
        assert_eq!(undo::state(&changes, &*dev), Ok(State::Before));
        assert!(bytes_of(&*dev, before.len()) == before, "seed {seed}: bytes differ");
    }
    plan.apply(&*dev).expect("memory");
    assert_eq!(undo::state(&plan.changes, &*dev), Ok(State::After));
    let mut torn = file.clone();
    torn[40] ^= 1;
    assert!(undo::decode(&torn, &*dev).is_err(), "a damaged undo file is taken");
    assert!(undo::decode(&file[..file.len() - 1], &*dev).is_err(), "a cut undo file is taken");
    dev.write(plan.changes[0].offset_bytes, &[0x5a; 512], origin).expect("memory");
    assert!(undo::state(&plan.changes, &*dev).is_err(), "another program's bytes are taken");
}
