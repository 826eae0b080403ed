//! The device over imago, and the packing of a raw image.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use imago::file::File as Storage;
use imago::qcow2::Qcow2;
use imago::{
    DenyImplicitOpenGate, FormatAccess, FormatCreateBuilder, FormatDriverBuilder,
    StorageOpenOptions,
};
use syncline_device::{
    BlockDevice, DeviceError, FileDevice, Geometry, Kind, MAX_REQUEST_BYTES, Op, Origin, Request,
    SECTOR_BYTES,
};

use super::header::{Header, mark_dirty};
use super::lock;
use super::overlay::Overlay;
use super::reader::Reader;
use crate::container::Locked;
use crate::files::disk_below;
use crate::{ImageError, Result};

/// Bytes copied at once into a new file: one cluster of qemu-img's default size.
const CHUNK_BYTES: usize = 64 << 10;

/// A qcow2 file as a device.
pub(crate) struct Qcow2Device {
    disk: FormatAccess<Storage>,
    /// The disk below, if there is one.
    overlay: Option<Overlay>,
    file: File,
    geometry: Geometry,
    failed: AtomicBool,
    /// It has the locks, also those of QEMU.
    _locked: FileDevice,
}

/// The file for qemu-img: one that is over another is opened without it.
fn named(path: &Path, is_over: bool) -> Result<OsString> {
    if !is_over {
        return Ok(path.into());
    }
    let name = path.to_str().ok_or_else(|| {
        let text =
            "the qcow2 was not closed, and qemu-img takes no name that is not UTF-8; rename it";
        ImageError::Failed(text.to_owned())
    })?;
    let file = serde_json::json!({ "driver": "file", "filename": name });
    let whole = serde_json::json!({ "driver": "qcow2", "file": file, "backing": null });
    Ok(format!("json:{whole}").into())
}

/// Repairs the refcounts of a file that was not closed.
fn repair(path: &Path, is_over: bool) -> Result<()> {
    let program = crate::mkfs::find("qemu-img").ok_or_else(|| {
        let text = "the qcow2 was not closed, so its refcounts have to be repaired before it is \
                    written to; install qemu-utils, which has qemu-img, and run this again";
        ImageError::Failed(text.to_owned())
    })?;
    let mut command = Command::new(&program);
    command.args(["check", "-q"]).args((!is_over).then_some(["-f", "qcow2"]).into_iter().flatten());
    command.args(["-r", "all"]).arg(named(path, is_over)?);
    let ran = command.output().map_err(|err| ImageError::host(&program, &err))?;
    if ran.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&ran.stderr);
    let said = said.lines().next().unwrap_or("no reason given").trim().to_owned();
    let text = format!("qemu-img cannot repair the qcow2: {said}; take another copy of the file");
    Err(ImageError::Corrupt(text))
}

impl Qcow2Device {
    /// Repairs a file that is about to be written to, if it was not closed.
    ///
    /// # Errors
    /// A damaged header; qemu-img is missing or fails.
    pub(crate) fn repair(device: &FileDevice, path: &Path) -> Result<()> {
        let host = |err: io::Error| ImageError::host(path, &err);
        let file = device.try_clone_file().map_err(host)?;
        let bytes = file.metadata().map_err(host)?.len();
        let header = Header::read(&file, bytes)?;
        if header.dirty { repair(path, header.backing.is_some()) } else { Ok(()) }
    }

    /// Opens what a file device has opened and locked; `below` are the files that it is over, the
    /// next one first.
    ///
    /// # Errors
    /// A damaged file, one with what is not supported, one that QEMU has open.
    pub(crate) fn open(
        device: FileDevice,
        path: &Path,
        below: Vec<(FileDevice, PathBuf)>,
    ) -> Result<Arc<dyn BlockDevice>> {
        let writable = !device.geometry().read_only;
        let file = device.try_clone_file().map_err(|err| ImageError::host(path, &err))?;
        let bytes =
            || file.metadata().map(|meta| meta.len()).map_err(|e| ImageError::host(path, &e));
        let header = Header::read(&file, bytes()?)?;
        header.expects(!below.is_empty())?;
        if header.dirty {
            let text = "the qcow2 was not closed; `syncline recover` or `qemu-img check -r all` \
                        repairs it";
            return Err(ImageError::Failed(text.to_owned()));
        }
        if writable && !header.has_features {
            let text = "the qcow2 is of version 2, which is only read; \
                        `qemu-img amend -f qcow2 -o compat=1.1` makes it version 3";
            return Err(ImageError::Unsupported(text.to_owned()));
        }
        if writable && header.is_zstd {
            let text = "the qcow2 is compressed with zstd, which is only read; \
                        `qemu-img convert -O qcow2` writes a copy without that";
            return Err(ImageError::Unsupported(text.to_owned()));
        }
        lock::take(&file, writable)?;
        let next = disk_below(below)?;
        if header.is_zstd || next.is_some() && !writable {
            let (bytes, locked) = (bytes()?, Box::new(Locked::new(file, device)));
            return Ok(Arc::new(Reader::open(locked, bytes, next)?));
        }
        let failed = |err: io::Error| {
            let why = crate::plain(&err);
            ImageError::Corrupt(format!("the qcow2 cannot be read: {why}; take another copy of it"))
        };
        let options = StorageOpenOptions::new().write(writable);
        let opened = |file: &File| {
            let storage = Storage::from_open_file(file.try_clone()?, options)?;
            let disk = Qcow2::<Storage>::builder(storage).write(writable).backing(None);
            disk.data_file(None).open(DenyImplicitOpenGate::default())
        };
        let disk = FormatAccess::new(opened(&file).map_err(failed)?);
        if writable {
            mark_dirty(&file, true).map_err(|err| ImageError::host(path, &err))?;
        }
        let geometry = Geometry {
            size_bytes: disk.size() / SECTOR_BYTES * SECTOR_BYTES,
            max_request_bytes: MAX_REQUEST_BYTES,
            volatile_cache: true,
            fua: false,
            barrier: false,
            discard: false,
            read_only: !writable,
            zones: None,
            write_hints: false,
        };
        let failed = AtomicBool::new(false);
        let overlay = next.map(|below| Overlay::new(below, header.cluster_bits));
        Ok(Arc::new(Qcow2Device { disk, overlay, file, geometry, failed, _locked: device }))
    }

    /// Data, then tables, then the disk below. Data goes first, so that no table on the disk points
    /// to data that is not.
    fn flush_all(&self) -> io::Result<()> {
        let flush = || {
            self.disk.sync()?;
            self.disk.flush()?;
            self.disk.sync()
        };
        self.overlay.as_ref().map_or_else(flush, |overlay| overlay.alone(flush))
    }

    fn write(&self, from: &[&[u8]], mut at: u64) -> io::Result<()> {
        if let Some(overlay) = &self.overlay {
            // A cluster is copied once, not for each part of it.
            return overlay.write(&self.disk, at, &from.concat());
        }
        for part in from {
            self.disk.write(*part, at)?;
            at += part.len() as u64;
        }
        Ok(())
    }

    fn run(&self, request: &mut Request<'_>) -> io::Result<()> {
        let mut at = request.offset_bytes;
        match &mut request.op {
            Op::Read { into } => {
                for part in into.iter_mut() {
                    match &self.overlay {
                        Some(overlay) => overlay.read(&self.disk, at, part)?,
                        None => self.disk.read(&mut **part, at)?,
                    }
                    at += part.len() as u64;
                }
            }
            Op::Write { from, fua } => {
                self.write(from, at)?;
                if *fua {
                    return self.flush_all();
                }
            }
            Op::Flush => return self.flush_all(),
            Op::Discard { .. } => {}
        }
        Ok(())
    }
}

impl BlockDevice for Qcow2Device {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn submit(&self, batch: &mut [Request<'_>]) -> std::result::Result<(), DeviceError> {
        for request in batch {
            self.geometry.check(request)?;
            if matches!(request.op, Op::Flush) && self.geometry.read_only {
                continue;
            }
            self.run(request).map_err(|err| {
                let reads = matches!(request.op, Op::Read { .. });
                self.failed.fetch_or(!reads, Ordering::Relaxed);
                DeviceError::Io {
                    op: request.name(),
                    offset_bytes: request.offset_bytes,
                    len_bytes: request.len_bytes(),
                    reason: err.to_string(),
                    errno: err.raw_os_error().unwrap_or(5),
                }
            })?;
        }
        Ok(())
    }
}

impl Drop for Qcow2Device {
    /// Takes the mark away if all tables are on the disk; else the next writer repairs them.
    fn drop(&mut self) {
        if self.geometry.read_only || self.failed.load(Ordering::Relaxed) {
            return;
        }
        if self.flush_all().is_ok() {
            // A mark that stays costs one repair.
            let _ = mark_dirty(&self.file, false);
        }
    }
}

/// Writes the data of a raw image into a new qcow2; runs of zeros take no room.
///
/// # Errors
/// As of open(2) and write(2); `target` is there already.
pub(crate) fn pack(raw: &Path, target: &Path, mode: Option<u32>) -> Result<()> {
    let at = |err: io::Error| ImageError::host(target, &err);
    let raw_device = crate::files::raw(raw, true)?;
    let size_bytes = raw_device.geometry().size_bytes;
    let file = crate::platform::create_private(target, mode, true).map_err(at)?;
    let written = || -> io::Result<()> {
        let options = StorageOpenOptions::new().write(true);
        let storage = Storage::from_open_file(file.try_clone()?, options)?;
        let made = Qcow2::<Storage>::create_builder(storage).size(size_bytes);
        let disk =
            FormatAccess::new(made.create_open(DenyImplicitOpenGate::default(), |image| {
                Ok(Qcow2::<Storage>::builder(image).backing(None).write(true))
            })?);
        let mut chunk = vec![0; CHUNK_BYTES];
        let mut from = 0;
        while from < size_bytes {
            let len = (size_bytes - from).min(CHUNK_BYTES as u64);
            let part = chunk.get_mut(..len as usize).unwrap_or_default();
            let origin = Origin::new(Kind::Other, true);
            raw_device.read(from, part, origin).map_err(io::Error::other)?;
            if part.iter().any(|byte| *byte != 0) {
                disk.write(&*part, from)?;
            }
            from += len;
        }
        disk.flush()?;
        disk.sync()
    };
    written().map_err(at)
}
