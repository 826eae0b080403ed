//! Shared parts of this crate's tests: one image, made once, and runs on it.

use std::sync::OnceLock;

use syncline_fs::{MountOptions, SyncMode};
use syncline_lab::Unobserved;
use syncline_lab::bench::{Image, ImageSource, JournalMode, Parameters, Run, Simulation, find};
use syncline_nand::Profile;
use syncline_testkit::{Need, require};

/// The image of the stored figures (2 GiB), or nothing after a skip was recorded.
pub fn image(test: &str) -> Option<&'static Image> {
    static IMAGE: OnceLock<Image> = OnceLock::new();
    if !require(test, &[Need::E2fsck]) {
        return None;
    }
    Some(IMAGE.get_or_init(|| Image::load(&ImageSource::default()).unwrap()))
}

/// Parameters for a journal mode and a number of operations.
pub fn parameters(journal_mode: JournalMode, operations: Option<u64>) -> Parameters {
    Parameters { journal_mode, operations, ..Parameters::default() }
}

/// Mount options with `sync=ordered`, whose figures a kernel was measured for.
pub fn ordered() -> MountOptions {
    MountOptions::default().with(|options| options.sync = SyncMode::Ordered)
}

/// Runs one workload on a profile with `sync=ordered`.
pub fn run(image: &Image, device: &str, workload: &str, parameters: &Parameters) -> Run {
    run_as(&ordered(), image, device, workload, parameters)
}

/// As [`run`] with other mount options.
pub fn run_as(
    mount: &MountOptions,
    image: &Image,
    device: &str,
    workload: &str,
    parameters: &Parameters,
) -> Run {
    let profile = Profile::parse_built_in(device).unwrap();
    let simulation = Simulation { profile: &profile, image, mount, parameters };
    let entry = find(workload).unwrap()[0];
    simulation.run(entry, &Unobserved).unwrap()
}
