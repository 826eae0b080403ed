//! Features that can only be read, one by one: read right, checked without a false alarm, refused
//! by name for writing. `inline_data` and `ea_inode` have files of their own.

use std::sync::Arc;

use crate::bed::{Bed, MIB, contents};
use syncline_device::BlockDevice;
use syncline_fs::{MountOptions, Volume};
use syncline_testkit::{ImageSpec, Need, debugfs, e2fsck_clean, fill, require, scratch_dir};

/// The first block of a file, as debugfs says.
fn first_block(bed: &Bed, file: &str) -> u64 {
    let said = debugfs(bed.image.path(), &format!("blocks {file}"));
    let number = said.split_whitespace().find_map(|word| word.parse().ok());
    number.unwrap_or_else(|| panic!("no block of {file}: {said}"))
}

#[test]
fn features_that_can_only_be_read_are_read_and_named() {
    if !require("features_that_can_only_be_read_are_read_and_named", &[Need::E2fsck]) {
        return;
    }
    let mut data = vec![0; 20_000];
    fill(1, 0, &mut data);
    let source = scratch_dir().join(format!("features-{}", std::process::id()));
    std::fs::create_dir_all(source.join("d")).unwrap();
    std::fs::write(source.join("f"), &data).unwrap();
    std::fs::write(source.join("g"), &data).unwrap();
    for (made, set) in [
        ("mmp", ""),
        ("quota", ""),
        ("project", ""),
        ("quota,project", ""),
        ("^extent,^64bit,^metadata_csum", "shared_blocks"),
        ("^extent,^64bit,^metadata_csum", "read-only"),
    ] {
        let what = format!("{made} {set}");
        let spec = ImageSpec {
            features: made.into(),
            contents: Some(source.clone()),
            ..ImageSpec::with_size(32 * MIB)
        };
        let mut bed = Bed::new(&spec, 0);
        if set == "shared_blocks" {
            let block = first_block(&bed, "f");
            let share = format!(
                "write /dev/null h\nsif h block[0] {block}\nsif h size 4096\nsif h blocks 8\n"
            );
            let _ = debugfs(bed.image.path(), &share);
        }
        if !set.is_empty() {
            let _ = debugfs(bed.image.path(), &format!("feature {set}\n"));
        }
        // mke2fs does not count files for quotas; with MMP e2fsck waits for seconds.
        if !made.contains("quota") && made != "mmp" {
            e2fsck_clean(bed.image.path()).unwrap_or_else(|said| panic!("{what}: {said}"));
        }
        bed.load();
        let vol = bed.mount("ro");
        for name in ["f", "g"] {
            assert!(contents(&vol, &vol.resolve(name).unwrap()) == data, "{what}: {name}");
        }
        if set == "shared_blocks" {
            let shared = contents(&vol, &vol.resolve("h").unwrap());
            assert!(shared == data[..4096], "{what}");
        }
        let report = vol.check(&mut |_| true).unwrap();
        let uncounted = |name| made.contains("quota") && name == "quota-usage";
        let rest = report.findings.iter().filter(|finding| !uncounted(finding.name));
        assert!(rest.count() == 0 && !report.stopped, "{what}: {:#?}", report.findings);
        let device: Arc<dyn BlockDevice> = bed.dev.clone();
        let refused = Volume::mount(device, bed.clock.clone(), MountOptions::default());
        let said = refused.err().unwrap().to_string();
        let name = if set.is_empty() { made.split(',').next().unwrap() } else { set };
        assert!(said.contains(name), "{what}: {said}");
    }
    std::fs::remove_dir_all(source).unwrap();
}
