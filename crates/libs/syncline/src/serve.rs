//! The helper's side of `isolate`: a volume whose calls come from another process (`helper.rs`).
//!
//! It does no more for that process than [`Disk`] does for its own, with the rights that opened
//! files and sockets give. It ends with that process, as if it had been killed.

use std::collections::BTreeMap;
use std::fs::File as HostFile;
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg, sockopt::socket_peercred,
};
use rustix::process::{PidfdFlags, pidfd_open};
use syncline_device::{FileDevice, OpenFiles};

use crate::directory::{Directory, Entry};
use crate::disk::Disk;
use crate::error::{EBADF, EIO, Error, Result};
use crate::file::File;
use crate::options::OpenOptions;
use crate::wire::{
    ANSWER_BYTES_MAX, CALL_BYTES_MAX, CONNECTIONS_MAX, Call, DONE, FAILED, Hello, Opened,
    PART_BYTES, Wire, receive_all, send_all, whole,
};

/// Longest packet.
const PACKET_BYTES: usize = 64 << 10;
/// Descriptors of a packet: a connection, and the files of the image.
const DESCRIPTORS_MAX: usize = 3;
/// Entries of a directory in an answer: about as many bytes, at most 300 an entry.
const ENTRIES_BYTES: usize = 32 << 10;

enum Handle {
    File(Arc<File>),
    Directory(Arc<Mutex<Directory>>),
}

pub(crate) struct Served {
    pub(crate) disk: Disk,
    handles: Mutex<BTreeMap<u64, Handle>>,
    next: AtomicU64,
    connections: AtomicUsize,
}

fn closed() -> Error {
    Error::new(EBADF, "the file is closed; open it again")
}

impl Disk {
    /// The life of a helper process: takes the image from the library at the other end of
    /// `control`, has `contain` give up the rights of this process (told the bytes of the image
    /// and of the cache), mounts and serves, until the library is gone. The caller ends the
    /// process then, without a clean-up: what is not synced is not to be written.
    ///
    /// # Errors
    /// No first message, or one without sense. What is wrong with the image is the library's to
    /// hear.
    #[doc(hidden)]
    pub fn isolated(control: &OwnedFd, contain: impl FnOnce(u64, u64)) -> Result<()> {
        let senseless = || Error::invalid("no library is at the other end; this is for libraries");
        let (packet, descriptors) = receive(control).ok().flatten().ok_or_else(senseless)?;
        let hello: Hello = whole(&packet).ok_or_else(senseless)?;
        let mut descriptors = descriptors.into_iter();
        let (first, image) = descriptors.next().zip(descriptors.next()).ok_or_else(senseless)?;
        // A process that was forked from the library's may have copies of its sockets.
        let library = socket_peercred(control).ok();
        let library = library.and_then(|peer| pidfd_open(peer.pid, PidfdFlags::empty()).ok());
        let options = options_of(&hello);
        let cache_bytes = options.as_ref().map_or(0, |options| options.mount.cache_bytes);
        contain(hello.size_bytes, cache_bytes);
        let opened = options.and_then(|options| {
            let aligned = hello.align_bytes.filter(|bytes| bytes.is_power_of_two());
            let direct = aligned.zip(descriptors.next());
            let device = FileDevice::from_files(OpenFiles {
                buffered: HostFile::from(image),
                direct: direct.map(|(align_bytes, file)| (HostFile::from(file), align_bytes)),
                size_bytes: hello.size_bytes,
                block_device: hello.block_device,
                read_only: options.mount.read_only,
            });
            Disk::on(Arc::new(device), &options)
        });
        let answer = opened.as_ref().map_err(Error::clone).map(|disk| Opened {
            read_only: disk.is_read_only(),
            in_memory: disk.is_replayed_in_memory(),
            report: disk.opened().clone(),
        });
        let mut out = Vec::new();
        let told = send_all(&first, message(&mut out, &answer), &[]);
        let (Ok(disk), Ok(())) = (opened, told) else { return Ok(()) };
        let served = Arc::new(Served::of(disk));
        served.start(first);
        while let Some(connection) = next_connection(control, library.as_ref()) {
            served.start(connection);
        }
        Ok(())
    }
}

fn options_of(hello: &Hello) -> Result<OpenOptions> {
    let own = env!("CARGO_PKG_VERSION");
    if hello.version != own {
        let text = format!(
            "the library is version {} and the program syncline is {own}; install the same version \
             of both",
            hello.version
        );
        return Err(Error::invalid(text));
    }
    let mut options = OpenOptions { background: hello.background, ..OpenOptions::default() };
    hello.options.iter().try_for_each(|item| options.mount.apply(item))?;
    Ok(options)
}

/// The next packet with its descriptors; `None`: the other end is closed.
fn receive(control: &OwnedFd) -> rustix::io::Result<Option<(Vec<u8>, Vec<OwnedFd>)>> {
    let mut bytes = vec![0; PACKET_BYTES];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut rights = RecvAncillaryBuffer::new(&mut space);
    let got = loop {
        let mut parts = [IoSliceMut::new(&mut bytes)];
        match recvmsg(control, &mut parts, &mut rights, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => {}
            done => break done?.bytes,
        }
    };
    let mut descriptors = Vec::new();
    for message in rights.drain() {
        if let RecvAncillaryMessage::ScmRights(sent) = message {
            descriptors.extend(sent);
        }
    }
    bytes.truncate(got);
    Ok((got > 0).then_some((bytes, descriptors)))
}

/// Waits for one more connection; `None`: the library is gone.
fn next_connection(control: &OwnedFd, library: Option<&OwnedFd>) -> Option<OwnedFd> {
    loop {
        let mut waits = vec![PollFd::new(control, PollFlags::IN)];
        waits.extend(library.map(|process| PollFd::new(process, PollFlags::IN)));
        match poll(&mut waits, None) {
            Ok(_) if waits.get(1).is_some_and(|process| !process.revents().is_empty()) => {
                return None;
            }
            Ok(_) => {}
            Err(Errno::INTR) => continue,
            Err(_) => return None,
        }
        let (_, descriptors) = receive(control).ok().flatten()?;
        if let Some(connection) = descriptors.into_iter().next() {
            return Some(connection);
        }
    }
}

/// An answer as it is sent.
fn message<'o, T: for<'a> Wire<'a>>(out: &'o mut Vec<u8>, answer: &Result<T>) -> &'o [u8] {
    out.clear();
    out.extend_from_slice(&[0; 4]);
    match answer {
        Ok(value) => {
            out.push(DONE);
            value.put(out);
        }
        Err(err) => {
            out.push(FAILED);
            err.put(out);
        }
    }
    if out.len() - 4 > ANSWER_BYTES_MAX {
        let text = "the answer is too long for a helper process; open without `isolate`";
        return message::<()>(out, &Err(Error::new(EIO, text)));
    }
    let len = (out.len() - 4) as u32;
    out[..4].copy_from_slice(&len.to_le_bytes());
    out
}

impl Served {
    pub(crate) fn of(disk: Disk) -> Served {
        let (next, connections) = (0.into(), 0.into());
        Served { disk, handles: Mutex::default(), next, connections }
    }

    fn start(self: &Arc<Self>, connection: OwnedFd) {
        if self.connections.fetch_add(1, Ordering::Relaxed) >= CONNECTIONS_MAX {
            return;
        }
        let served = Arc::clone(self);
        // Without a thread nobody answers: the connection closes.
        let _ = std::thread::Builder::new().name("isolate".into()).spawn(move || {
            let _ = served.serve(&connection);
            served.connections.fetch_sub(1, Ordering::Relaxed);
        });
    }

    /// Answers until the other end is closed, or sends what is no call.
    pub(crate) fn serve(&self, connection: &OwnedFd) -> Option<()> {
        let (mut call, mut data, mut out) = (Vec::new(), Vec::new(), Vec::new());
        loop {
            let mut head = [0; 8];
            let came = |got: std::io::Result<bool>| got.ok().filter(|all| *all).map(drop);
            came(receive_all(connection, &mut head))?;
            let (call_len, data_len) = whole::<(u32, u32)>(&head)?;
            let (call_len, data_len) = (call_len as usize, data_len as usize);
            if call_len > CALL_BYTES_MAX || data_len > PART_BYTES {
                return None;
            }
            call.resize(call_len, 0);
            came(receive_all(connection, &mut call))?;
            if let Call::Read { file, offset, len } = whole(&call)? {
                let len = usize::try_from(len).ok().filter(|len| *len <= PART_BYTES)?;
                data.resize(len.max(data.len()), 0);
                let read = self.file(file).and_then(|f| f.read_at(offset, &mut data[..len]));
                let (head, data) = match read {
                    Ok(got) => {
                        out.clear();
                        (got as u32 + 1).put(&mut out);
                        out.push(DONE);
                        (&out[..], &data[..got])
                    }
                    Err(err) => (message::<()>(&mut out, &Err(err)), &data[..0]),
                };
                send_all(connection, head, data).ok()?;
                continue;
            }
            data.resize(data_len.max(data.len()), 0);
            came(receive_all(connection, &mut data[..data_len]))?;
            let answer = self.answer(whole(&call)?, &data[..data_len], &mut out);
            send_all(connection, answer, &[]).ok()?;
        }
    }

    fn answer<'o>(&self, call: Call<'_>, data: &[u8], out: &'o mut Vec<u8>) -> &'o [u8] {
        let disk = &self.disk;
        match call {
            Call::Sync {} => message(out, &disk.sync()),
            Call::StatFs {} => message(out, &disk.statfs()),
            Call::Tick {} => message(out, &disk.tick()),
            Call::Close {} => {
                let done = disk.close();
                self.handles.lock().clear();
                message(out, &done)
            }
            Call::OpenFile { path, access, mode } => {
                let opened = disk.open_file(path, access, mode);
                message(out, &opened.map(|file| self.keep(Handle::File(Arc::new(file)))))
            }
            Call::OpenDirectory { path } => {
                let opened = disk.open_directory(path);
                let keep = |found| self.keep(Handle::Directory(Arc::new(Mutex::new(found))));
                message(out, &opened.map(keep))
            }
            Call::Stat { path, follow } => message(out, &disk.stat(path, follow)),
            Call::SetAttr { path, follow, set } => message(out, &disk.setattr(path, follow, &set)),
            Call::Mkdir { path, mode } => message(out, &disk.mkdir(path, mode)),
            Call::Unlink { path } => message(out, &disk.unlink(path)),
            Call::Rmdir { path } => message(out, &disk.rmdir(path)),
            Call::Rename { from, to, flags } => message(out, &disk.rename(from, to, flags)),
            Call::Link { from, to } => message(out, &disk.link(from, to)),
            Call::Symlink { target, path } => message(out, &disk.symlink(target, path)),
            Call::Readlink { path } => message(out, &disk.readlink(path)),
            Call::Getxattr { path, follow, name } => {
                message(out, &disk.getxattr(path, follow, name))
            }
            Call::Setxattr { path, follow, name, value, flags } => {
                message(out, &disk.setxattr(path, follow, (name, value), flags))
            }
            Call::Listxattr { path, follow } => message(out, &disk.listxattr(path, follow)),
            Call::Removexattr { path, follow, name } => {
                message(out, &disk.removexattr(path, follow, name))
            }
            Call::Forget { handle } => {
                let gone = self.handles.lock().remove(&handle);
                drop(gone);
                message(out, &Ok(()))
            }
            Call::Entries { directory } => message(out, &self.entries(directory)),
            Call::Read { file, .. }
            | Call::Write { file, .. }
            | Call::FileStat { file }
            | Call::Truncate { file, .. }
            | Call::Allocate { file, .. }
            | Call::FileSync { file, .. }
            | Call::Barrier { file }
            | Call::SeekExtent { file, .. }
            | Call::CloseFile { file } => match self.file(file) {
                Ok(open) => self.of_file(&open, call, data, out),
                Err(err) => message::<()>(out, &Err(err)),
            },
        }
    }

    fn of_file<'o>(
        &self,
        file: &File,
        call: Call<'_>,
        data: &[u8],
        out: &'o mut Vec<u8>,
    ) -> &'o [u8] {
        match call {
            Call::Write { offset, .. } => {
                let done = file.put(offset, data);
                message(out, &done.map(|(at, done)| (at, done as u64)))
            }
            Call::FileStat { .. } => message(out, &file.stat()),
            Call::Truncate { size, .. } => message(out, &file.truncate(size)),
            Call::Allocate { mode, offset, len, .. } => {
                message(out, &file.allocate(mode, offset, len))
            }
            Call::FileSync { data_only, .. } => message(out, &file.sync(data_only)),
            Call::Barrier { .. } => message(out, &file.barrier()),
            Call::SeekExtent { offset, data, .. } => message(out, &file.seek_extent(offset, data)),
            Call::CloseFile { file: handle } => {
                let done = file.close();
                self.handles.lock().remove(&handle);
                message(out, &done)
            }
            _ => message::<()>(out, &Err(closed())),
        }
    }

    fn keep(&self, handle: Handle) -> u64 {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.handles.lock().insert(number, handle);
        number
    }

    fn file(&self, handle: u64) -> Result<Arc<File>> {
        match self.handles.lock().get(&handle) {
            Some(Handle::File(file)) => Ok(Arc::clone(file)),
            _ => Err(closed()),
        }
    }

    /// The next entries of a directory; none at its end.
    fn entries(&self, handle: u64) -> Result<Vec<Entry>> {
        let directory = match self.handles.lock().get(&handle) {
            Some(Handle::Directory(directory)) => Arc::clone(directory),
            _ => return Err(closed()),
        };
        let (mut entries, mut bytes) = (Vec::new(), 0);
        let mut directory = directory.lock();
        while bytes < ENTRIES_BYTES {
            match directory.next_entry() {
                Ok(Some(entry)) => {
                    bytes += entry.name.len() + 16;
                    entries.push(entry);
                }
                // The next call finds it again.
                Err(err) if entries.is_empty() => return Err(err),
                _ => break,
            }
        }
        Ok(entries)
    }
}
