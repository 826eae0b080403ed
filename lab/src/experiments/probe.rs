//! Figures of a path, a block device or a profile, and a profile that reproduces them.

use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::observer::Observer;
use crate::probe::{
    DEVICE_FACTOR, DeviceTarget, Plan, ProbeDocument, ProbeTarget, Simulated, fit, probe,
};
use serde::Deserialize;
use syncline_device::{BlockDevice, FileDevice, FileOptions, WallClock};

use crate::error::{LabError, Result};
use crate::experiments::profile;
use syncline_image::write_file;

const MIB: u64 = 1 << 20;

/// Request of `syncline-lab probe`; fields are its options.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Probe {
    /// A directory, a file, a block device; or a profile with overrides.
    pub target: String,
    /// Space that is used, from the begin, bytes.
    pub size: u64,
    /// Most requests of a test.
    pub requests: u32,
    /// Most bytes of a test.
    pub bytes: u64,
    /// Most seconds of a test, of its device's time.
    pub seconds: u64,
    /// Bytes of each of the two long tests; 0 leaves them out.
    pub sustain: u64,
    /// Fill so much of a profile's device and overwrite it at random first, percent.
    pub precondition: u32,
    /// Seed of random places.
    pub seed: u64,
    /// Overwrite what the file or block device holds, if it is 2.
    pub destroy: u8,
    /// File for a profile that reproduces the figures.
    pub fit: Option<PathBuf>,
    /// Most profiles that the fit tries.
    pub tries: u32,
}

impl Default for Probe {
    fn default() -> Probe {
        Probe {
            target: String::new(),
            size: 256 * MIB,
            requests: 1024,
            bytes: 64 * MIB,
            seconds: 5,
            sustain: 512 * MIB,
            precondition: 0,
            seed: 1,
            destroy: 0,
            fit: None,
            tries: 600,
        }
    }
}

impl Probe {
    /// Measures and fits. A run that is stopped returns what it has, without a fit.
    pub fn run(&self, observer: &dyn Observer) -> Result<ProbeDocument> {
        let mut plan = Plan {
            region_bytes: self.size / MIB * MIB,
            requests: self.requests,
            test_bytes: self.bytes,
            test_ns: self.seconds.saturating_mul(1_000_000_000),
            sustained_bytes: self.sustain,
            seed: self.seed,
        };
        if let Some(path) = &self.fit {
            check_fit(path)?;
        }
        let mut remarks = Vec::new();
        let (mut target, clock) = match place(&self.target) {
            Some(path) => (self.real(&path, &mut plan, &mut remarks)?, "wall"),
            None => (self.simulated(&plan)?, "virtual"),
        };
        observer.begin("tests", 0);
        let measured = probe(target.as_mut(), &plan, observer);
        observer.end();
        let mut document = measured?;
        document.target.clone_from(&self.target);
        document.clock = clock;
        document.remarks.append(&mut remarks);
        if let Some(path) = self.fit.as_ref().filter(|_| !observer.stopped()) {
            observer.begin("profiles", u64::from(self.tries));
            let align = target.align_bytes();
            let found = fit(&document, &plan, align, self.tries, observer);
            observer.end();
            match found {
                Ok(found) => {
                    document.set_fit(&found);
                    write_file(path, found.profile.to_toml()?.as_bytes())?;
                }
                // The figures are whole; no profile follows from them.
                Err(LabError::Interrupted) => document.interrupted = true,
                Err(err) => return Err(err),
            }
        }
        Ok(document)
    }

    fn simulated(&self, plan: &Plan) -> Result<Box<dyn ProbeTarget>> {
        if self.destroy > 0 {
            let text = "a profile holds nothing to destroy; leave --destroy out".to_owned();
            return Err(LabError::Usage(text));
        }
        let profile = profile(&self.target)?;
        let size = plan.region_bytes.saturating_mul(DEVICE_FACTOR);
        Ok(Box::new(Simulated::new(&profile, size, self.precondition, self.seed)?))
    }

    /// A path: a file of our own in a directory, or what is there.
    fn real(
        &self,
        path: &Path,
        plan: &mut Plan,
        remarks: &mut Vec<String>,
    ) -> Result<Box<dyn ProbeTarget>> {
        let usage = |text: &str| Err(LabError::Usage(text.to_owned()));
        if self.precondition > 0 {
            return usage("only a profile is preconditioned; leave --precondition out");
        }
        let kind = std::fs::metadata(path).map_err(|err| LabError::host(path, &err))?.file_type();
        let (device, writable) = if kind.is_dir() {
            if self.destroy > 0 {
                return usage("a directory gets a file of its own; leave --destroy out");
            }
            (own_file(path, plan.region_bytes)?, true)
        } else if kind.is_file() || kind.is_block_device() {
            if self.destroy == 1 {
                let text = format!(
                    "{}: all that is in its first {} MiB would be lost; give --destroy twice, or \
                     not at all to read only",
                    path.display(),
                    plan.region_bytes / MIB
                );
                return Err(LabError::Usage(text));
            }
            let writable = self.destroy > 1;
            if self.fit.is_some() && !writable {
                return usage(
                    "a fit needs reads and writes; probe a directory, or give --destroy twice",
                );
            }
            let options = FileOptions { read_only: !writable, ..FileOptions::default() };
            let device = FileDevice::open(path, options)?;
            plan.region_bytes = plan.region_bytes.min(device.geometry().size_bytes / MIB * MIB);
            (device, writable)
        } else {
            let text = format!("{}: give a directory, a file or a block device", path.display());
            return Err(LabError::Usage(text));
        };
        if !writable {
            let text = "only read; --destroy twice overwrites it for the other tests";
            remarks.push(text.to_owned());
        }
        if !device.is_direct() {
            remarks.push(
                "no direct I/O here: reads and writes are those of the page cache; choose another \
                 file system for figures of the device"
                    .to_owned(),
            );
        }
        let clock = Arc::new(WallClock::new());
        Ok(Box::new(DeviceTarget::new(Arc::new(device), clock, writable)))
    }
}

/// A fit is a file that `--device` takes for one.
fn check_fit(path: &Path) -> Result<()> {
    if path.extension().is_some_and(|extension| extension == "toml") {
        return Ok(());
    }
    let text = format!("{}: a profile's name ends in .toml; rename it", path.display());
    Err(LabError::Usage(text))
}

/// The path of a target that is no profile.
fn place(target: &str) -> Option<PathBuf> {
    let profile = target.ends_with(".toml") || target.contains(".toml:");
    let path = PathBuf::from(target);
    (!profile && (target.contains('/') || path.exists())).then_some(path)
}

/// A file that has no name as soon as it is open, so that nothing is left whatever happens.
fn own_file(dir: &Path, size_bytes: u64) -> Result<FileDevice> {
    let path = dir.join(format!(".syncline-probe-{}", std::process::id()));
    let device = FileDevice::create(&path, size_bytes, FileOptions::default());
    let removed = std::fs::remove_file(&path);
    let device = device?;
    removed.map_err(|err| LabError::host(&path, &err))?;
    Ok(device)
}
