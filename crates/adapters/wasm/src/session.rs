//! One image: what it is, its mount, its check and repair.

use std::cell::RefCell;
use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;

use sha2::{Digest, Sha256};
use syncline_device::{BlockDevice, Clock, Kind, OffsetDevice, Origin, SECTOR_BYTES};
use syncline_fs::mkfs::{self, FsType, Options};
use syncline_fs::repair::Plan;
use syncline_fs::{CheckProgress, CheckReport, Rescue, Volume, check_device};
use syncline_image::partition::partitions;
use syncline_image::{
    Image, ImageError, Watch, archive, disk_of, named, stream, superblock, unpack,
};

use crate::failure::{Failure, Result};
use crate::host::{Host, HostClock, HostDevice, Stream};
use crate::json::Json;
use crate::tar::Archive;

/// Bytes read at once for a digest or an archive.
pub(crate) const CHUNK_BYTES: usize = 1 << 20;
/// Remarks of a call that are kept.
const REMARKS_MAX: usize = 1000;
/// Bytes that tell a compression.
const START_BYTES: usize = 16;
/// Identity of a new file system, and the seed of its hashes.
const IDENTITY_BYTES: usize = 16;

/// The state of an instance.
pub struct Session {
    pub(crate) host: Arc<dyn Host>,
    clock: Arc<dyn Clock>,
    /// The file, with its bytes.
    file: Option<(HostDevice, u64)>,
    /// The disk in it.
    disk: Option<Arc<dyn BlockDevice>>,
    /// The part with the file system.
    part: Option<Arc<dyn BlockDevice>>,
    image: Option<Image>,
    plan: Option<Plan>,
    digest: Sha256,
}

/// Work that the host watches.
pub(crate) struct Watched<'a> {
    pub(crate) host: &'a dyn Host,
    /// Notes of files that were left out, at most [`REMARKS_MAX`].
    pub(crate) remarks: RefCell<Vec<String>>,
}

impl Watch for Watched<'_> {
    fn stopped(&self) -> bool {
        !self.host.progress("", 0, 0)
    }

    fn remark(&self, text: &str) {
        let mut remarks = self.remarks.borrow_mut();
        if remarks.len() < REMARKS_MAX {
            remarks.push(text.to_owned());
        }
    }
}

fn no_path() -> &'static Path {
    Path::new("image")
}

/// Text of an error without the name that stands for the path.
pub(crate) fn unnamed(err: ImageError) -> Failure {
    let mut failure = Failure::from(err);
    if let Some(rest) = failure.message.strip_prefix("image: ") {
        failure.message = rest.to_owned();
    }
    failure
}

fn is_ext4(dev: &dyn BlockDevice) -> bool {
    superblock(dev, no_path()).is_ok()
}

impl Session {
    /// A session of a host.
    pub fn new(host: Arc<dyn Host>) -> Session {
        let clock = Arc::new(HostClock(Arc::clone(&host)));
        let digest = Sha256::new();
        Session { host, clock, file: None, disk: None, part: None, image: None, plan: None, digest }
    }

    fn part(&self) -> Result<&Arc<dyn BlockDevice>> {
        self.part.as_ref().ok_or_else(|| Failure::new("EINVAL", "no part of the image is chosen"))
    }

    pub(crate) fn image(&self) -> Result<&Image> {
        self.image.as_ref().ok_or_else(|| Failure::new("EINVAL", "the image is not mounted"))
    }

    pub(crate) fn vol(&self) -> Result<&Volume> {
        Ok(&self.image()?.vol)
    }

    pub(crate) fn now_ns(&self) -> u64 {
        self.clock.now_ns()
    }

    /// Takes a file: which format it has, its partitions, whether there is an ext4.
    ///
    /// # Errors
    /// A damaged or unsupported format.
    pub fn scan(&mut self, device: u32, len: u64, writable: bool) -> Result<String> {
        let file = HostDevice::new(&self.host, device, len, writable);
        self.file = Some((file.clone(), len));
        let mut start = [0; START_BYTES];
        let known = usize::try_from(len).unwrap_or(START_BYTES).min(START_BYTES);
        let (known, _) = start.split_at_mut(known);
        if !self.host.read(device, 0, known) {
            return Err(Failure::new("EIO", "the file cannot be read"));
        }
        if stream::is_compressed(known) {
            return Ok(Json::object(|json| json.flag("compressed", true)).0);
        }
        let raw: Arc<dyn BlockDevice> = Arc::new(file.clone());
        let disk = disk_of(Arc::clone(&raw), Box::new(file), len)?;
        let table = partitions(&*disk).map_err(|err| err.to_string());
        let json = Json::object(|json| {
            json.flag("compressed", false);
            json.number("size", disk.geometry().size_bytes);
            json.flag("raw", Arc::ptr_eq(&raw, &disk));
            json.flag("writable", !disk.geometry().read_only);
            json.flag("ext4", is_ext4(&*disk));
            if let Some(text) = named(&*disk) {
                json.text("other", &text);
            }
            if let Err(text) = &table {
                json.text("tableError", text);
            }
            json.list("partitions", |json| {
                for part in table.iter().flatten() {
                    json.member(None, |json| {
                        json.number("number", part.number);
                        json.number("offset", part.start_bytes);
                        json.number("size", part.size_bytes);
                        json.text("label", &part.label);
                        let dev = OffsetDevice::new(&*disk, part.start_bytes, part.size_bytes);
                        json.flag("ext4", dev.is_ok_and(|dev| is_ext4(&dev)));
                    });
                }
            });
        });
        self.disk = Some(disk);
        Ok(json.0)
    }

    /// Unpacks the compressed file into another device of the host; returns the bytes there.
    ///
    /// # Errors
    /// Bytes that do not verify; a failed write.
    pub fn unpack(&mut self, scratch: u32) -> Result<String> {
        let (device, len) =
            self.file.clone().ok_or_else(|| Failure::new("EINVAL", "no file was scanned"))?;
        let host = Arc::clone(&self.host);
        let from = Stream { device, at: 0, len };
        let size = unpack(Box::new(from), no_path(), &mut |bytes, at| match host
            .write(scratch, at, bytes)
        {
            true => Ok(()),
            false => {
                let text = "there is no room for the unpacked image; unpack it first";
                Err(ImageError::Final(text.to_owned()))
            }
        });
        let size = size.map_err(unnamed)?;
        Ok(Json::object(|json| json.number("size", size)).0)
    }

    /// Chooses the part of the disk that is worked on; all of it if `size` is 0.
    ///
    /// # Errors
    /// It leaves the disk.
    pub fn choose(&mut self, offset: u64, size: u64) -> Result<String> {
        let disk = self.disk.as_ref().ok_or_else(|| Failure::new("EINVAL", "no file is open"))?;
        self.plan = None;
        self.part = Some(match size {
            0 => Arc::clone(disk),
            size => {
                let size = size / SECTOR_BYTES * SECTOR_BYTES;
                Arc::new(OffsetDevice::new(Arc::clone(disk), offset, size)?)
            }
        });
        Ok(String::new())
    }

    /// Mounts the part, and says what the mount did. `rescue`: 1 reads go past damage, 2 deleted
    /// files are shown, too.
    ///
    /// # Errors
    /// No ext4; a feature that is not supported.
    pub fn mount(&mut self, writable: bool, rescue: u32) -> Result<String> {
        self.unmount()?;
        let part = Arc::clone(self.part()?);
        let mounted = match writable {
            true => Image::write_device(part, &self.clock, no_path()),
            false => {
                let rescue = match rescue {
                    0 => None,
                    1 => Some(Rescue::Named),
                    _ => Some(Rescue::All),
                };
                Image::read_device(part, &self.clock, rescue, no_path())
            }
        };
        let image = mounted.map_err(unnamed)?;
        let report = &image.report;
        let json = Json::object(|json| {
            json.flag("writable", !image.vol.is_read_only());
            json.flag("replayedInMemory", image.in_memory);
            json.number("transactionsReplayed", report.transactions_replayed);
            json.number("orphans", report.orphans);
            json.list("missing", |json| {
                image.vol.take_missing().iter().for_each(|what| json.item(what.as_bytes()));
            });
        });
        self.image = Some(image);
        Ok(json.0)
    }

    /// Makes everything durable.
    ///
    /// # Errors
    /// I/O; the volume has latched.
    pub fn sync(&self) -> Result<String> {
        if !self.vol()?.is_read_only() {
            self.vol()?.sync()?;
        }
        Ok(String::new())
    }

    /// Unmounts: a written image is clean then.
    ///
    /// # Errors
    /// As of [`Session::sync`].
    pub fn unmount(&mut self) -> Result<String> {
        if let Some(image) = self.image.take() {
            image.close(Ok::<_, ImageError>(()))?;
        }
        Ok(String::new())
    }

    /// Checks the mounted volume, or the part if it cannot be mounted.
    ///
    /// # Errors
    /// As of [`check_device`].
    pub fn check(&self) -> Result<String> {
        let host = Arc::clone(&self.host);
        let mut follow = |at: CheckProgress| host.progress(at.stage, at.done, at.total);
        let report = match &self.image {
            Some(image) => {
                if !image.vol.is_read_only() {
                    image.vol.sync()?;
                }
                image.vol.check(&mut follow)?
            }
            None => check_device(self.part()?, &mut follow)?,
        };
        Ok(Json::object(|json| report_of(json, &report)).0)
    }

    /// Plans a repair of the part, which must not be mounted.
    ///
    /// # Errors
    /// As of [`Plan::new`].
    pub fn plan_repair(&mut self) -> Result<String> {
        if self.image.is_some() {
            return Err(Failure::new("EBUSY", "the image is mounted; unmount it first"));
        }
        let host = Arc::clone(&self.host);
        let mut follow = |at: CheckProgress| host.progress(at.stage, at.done, at.total);
        let plan = Plan::new(self.part()?, &mut follow)?;
        let json = Json::object(|json| {
            json.number("changes", plan.changes.len());
            json.member(Some("before"), |json| report_of(json, &plan.before));
            json.member(Some("after"), |json| report_of(json, &plan.after));
        });
        self.plan = Some(plan);
        Ok(json.0)
    }

    /// Emits the undo file of the planned repair, then writes the repair.
    ///
    /// # Errors
    /// No plan; I/O.
    pub fn repair(&mut self) -> Result<String> {
        let plan = self.plan.take();
        let plan = plan.ok_or_else(|| Failure::new("EINVAL", "no repair is planned"))?;
        let part = self.part()?;
        if !self.host.emit(&plan.undo(&**part)) {
            return Err(Failure::new("ECANCELED", "the undo file was not taken"));
        }
        plan.apply(&**part)?;
        Ok(String::new())
    }

    /// Makes a file system on a device. `input` is an identity, a seed and a label; `kind` 2, 3 or
    /// 4; `block` bytes of a block, 0 for the usual.
    ///
    /// # Errors
    /// Options that are refused; I/O.
    pub fn mkfs(
        &self,
        input: &[u8],
        device: u32,
        len: u64,
        kind: u32,
        block: u32,
    ) -> Result<String> {
        let device = HostDevice::new(&self.host, device, len, true);
        let (uuid, rest) = input.split_first_chunk::<IDENTITY_BYTES>().unzip();
        let (seed, label) = rest.and_then(<[u8]>::split_first_chunk::<IDENTITY_BYTES>).unzip();
        let (Some(uuid), Some(seed)) = (uuid, seed) else {
            return Err(Failure::new("EINVAL", "the identity is missing"));
        };
        let options = Options {
            fs_type: match kind {
                2 => FsType::Ext2,
                3 => FsType::Ext3,
                4 => FsType::Ext4,
                _ => return Err(Failure::new("EINVAL", "the type is ext2, ext3 or ext4")),
            },
            block_bytes: (block != 0).then_some(block),
            label: label.map(<[u8]>::to_vec).unwrap_or_default(),
            uuid: *uuid,
            hash_seed: *seed,
            time_s: self.now_ns() / 1_000_000_000,
            zeroed: false,
            discard: false,
            ..Options::default()
        };
        mkfs::Plan::new(&options, device.geometry.size_bytes)?.write(&device)?;
        Ok(String::new())
    }

    /// Emits a tree as a tar archive. Returns remarks on what was left out.
    ///
    /// # Errors
    /// That of a read; a tree that is none.
    pub fn tar(&self, path: &[u8]) -> Result<String> {
        let (host, vol) = (&*self.host, self.vol()?);
        let mut out = Archive { host, vol, bytes: Vec::with_capacity(CHUNK_BYTES) };
        let watch = Watched { host, remarks: RefCell::default() };
        archive::export_to(self.image()?, path, &mut out, &watch).map_err(unnamed)?;
        out.flush().map_err(|_| Failure::new("ECANCELED", "nobody took the archive"))?;
        let remarks = watch.remarks.into_inner();
        let json = Json::object(|json| {
            json.list("remarks", |json| remarks.iter().for_each(|text| json.item(text.as_bytes())));
        });
        Ok(json.0)
    }

    /// Begins a SHA-256.
    ///
    /// # Errors
    /// None.
    pub fn digest_start(&mut self) -> Result<String> {
        self.digest = Sha256::new();
        Ok(String::new())
    }

    /// Adds bytes of the disk to it.
    ///
    /// # Errors
    /// I/O; bytes beyond the disk.
    pub fn digest_disk(&mut self, at: u64, len: u32) -> Result<String> {
        let disk = self.disk.as_ref().ok_or_else(|| Failure::new("EINVAL", "no file is open"))?;
        let mut bytes = vec![0; len as usize];
        disk.read(at, &mut bytes, Origin::new(Kind::Other, true))?;
        self.digest.update(&bytes);
        Ok(String::new())
    }

    /// Adds bytes of a file to it.
    ///
    /// # Errors
    /// As of [`Session::read`]; the file is shorter.
    pub fn digest_file(&mut self, path: &[u8], at: u64, len: u32) -> Result<String> {
        let mut bytes = Vec::new();
        if self.read(path, at, len, &mut bytes)? < len as usize {
            return Err(Failure::new("EUCLEAN", "the file is shorter than its size"));
        }
        self.digest.update(&bytes);
        Ok(String::new())
    }

    /// The SHA-256 of what was added.
    ///
    /// # Errors
    /// None.
    pub fn digest_end(&mut self) -> Result<String> {
        let digest = std::mem::take(&mut self.digest).finalize();
        let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Json::object(|json| json.text("sha256", &hex)).0)
    }

    pub(crate) fn disk_part(&self) -> Result<&dyn BlockDevice> {
        Ok(&**self.part()?)
    }
}

fn report_of(json: &mut Json, report: &CheckReport) {
    json.flag("clean", report.is_clean());
    json.number("errors", report.errors);
    json.flag("stopped", report.stopped);
    json.flag("journalReplayed", !report.unreplayed);
    json.number("files", report.files);
    json.number("directories", report.directories);
    json.number("blocksUsed", report.blocks_used);
    json.number("orphans", report.orphans);
    json.number("more", report.more);
    json.list("findings", |json| {
        for found in &report.findings {
            json.member(None, |json| {
                json.text("name", found.name);
                json.flag("error", found.is_error);
                json.some_number("inode", found.inode);
                json.some_number("block", found.block);
                json.some_number("group", found.group);
                json.text("text", &found.what);
                json.text("repair", found.repair);
            });
        }
    });
}
