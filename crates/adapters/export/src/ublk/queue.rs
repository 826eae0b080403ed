//! Requests of the queue and their answers.

use std::fs::File;
use std::io::ErrorKind::{Interrupted, WouldBlock};
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use parking_lot::Mutex;
use rustix::io::Errno;

use super::abi::{self, COMMIT_AND_FETCH, Command, FETCH, Job, QUEUE_DEPTH};
use super::sys::{Descriptors, QueueRing, WAKE};
use crate::bytes::{ByteError, Bytes};

/// Requests at the device at once.
const WORKERS: usize = 4;

/// State shared by the queue thread and the workers.
struct Shared<'a> {
    bytes: &'a Bytes,
    file: &'a File,
    results: Mutex<Vec<(u16, i32)>>,
    /// Workers write to the first; the second is readable while there are results.
    wake: (UnixStream, UnixStream),
}

/// Serves until the device is stopped. Says on `ready` that requests are being fetched.
///
/// # Errors
/// No ring, no mapping, no thread. The kernel answers requests with an error then.
pub(super) fn serve(bytes: &Bytes, file: &File, ready: Sender<()>) -> io::Result<()> {
    let wake = UnixStream::pair()?;
    wake.0.set_nonblocking(true)?;
    wake.1.set_nonblocking(true)?;
    let shared = Shared { bytes, file, results: Mutex::default(), wake };
    let (send, receive) = channel();
    let receive = Mutex::new(receive);
    thread::scope(|scope| {
        for number in 0..WORKERS {
            let name = format!("ublk-worker-{number}");
            thread::Builder::new().name(name).spawn_scoped(scope, || shared.work(&receive))?;
        }
        // Its end drops `send`, which tells the workers.
        shared.fetch(send, &ready)
    })
}

impl Shared<'_> {
    fn fetch(&self, send: Sender<(u16, Option<Job>)>, ready: &Sender<()>) -> io::Result<()> {
        let descriptors = Descriptors::map(self.file)?;
        let mut ring = QueueRing::new(self.file, &self.wake.1)?;
        ring.push_wake()?;
        for tag in 0..QUEUE_DEPTH {
            ring.push_io(FETCH, tag, 0)?;
        }
        let mut done = Vec::new();
        ring.wait(0, &mut done)?;
        // Nothing can be done yet: the device has not started.
        if let Some((_, refused)) = done.first() {
            return Err(io::Error::from_raw_os_error(refused.saturating_neg()));
        }
        // Who asked may have given up.
        let _ = ready.send(());
        let mut served = QUEUE_DEPTH;
        while served > 0 {
            ring.wait(1, &mut done)?;
            for (user_data, result) in done.drain(..) {
                let tag = match u16::try_from(user_data) {
                    Ok(tag) => tag,
                    Err(_) => {
                        debug_assert_eq!(user_data, WAKE);
                        self.answer(&mut ring)?;
                        continue;
                    }
                };
                let descriptor = descriptors.get(tag).filter(|_| result == 0);
                match descriptor {
                    // Stopped: no request comes for this tag any more.
                    None => served = served.saturating_sub(1),
                    Some(descriptor) => {
                        if send.send((tag, abi::job(&descriptor))).is_err() {
                            return Err(io::ErrorKind::BrokenPipe.into());
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// Queues the results of the workers.
    fn answer(&self, ring: &mut QueueRing<'_>) -> io::Result<()> {
        // Before the results are taken: who adds one afterwards wakes this thread again.
        match (&self.wake.1).read(&mut [0; QUEUE_DEPTH as usize]) {
            Ok(_) => {}
            Err(err) if [WouldBlock, Interrupted].contains(&err.kind()) => {}
            Err(err) => return Err(err),
        }
        ring.push_wake()?;
        for (tag, result) in std::mem::take(&mut *self.results.lock()) {
            ring.push_io(COMMIT_AND_FETCH, tag, result)?;
        }
        Ok(())
    }

    fn work(&self, receive: &Mutex<Receiver<(u16, Option<Job>)>>) {
        loop {
            let job = receive.lock().recv();
            let Ok((tag, job)) = job else { return };
            let result = match job {
                None => -Errno::OPNOTSUPP.raw_os_error(),
                Some(job) => self.execute(tag, job).unwrap_or_else(|errno| -errno.raw_os_error()),
            };
            self.results.lock().push((tag, result));
            // It fails only if the socket is full: then it is readable all the same.
            let _ = (&self.wake.0).write(&[1]);
        }
    }

    /// Does what was asked; the bytes that were read or written.
    fn execute(&self, tag: u16, job: Job) -> Result<i32, Errno> {
        let (Ok(length), Ok(result)) = (u32::try_from(job.length), i32::try_from(job.length))
        else {
            return Err(Errno::INVAL);
        };
        let failed = |err: io::Error| Errno::from_io_error(&err).unwrap_or(Errno::IO);
        let place = abi::data_offset(tag);
        match job.command {
            Command::Read => {
                let data = self.bytes.read(job.offset, length).map_err(number)?;
                if data.len() as u64 != job.length {
                    return Err(Errno::IO);
                }
                self.file.write_all_at(&data, place).map_err(failed)?;
            }
            Command::Write { fua } => {
                if length > abi::IO_BYTES_MAX {
                    return Err(Errno::INVAL);
                }
                let mut data = vec![0; length as usize];
                self.file.read_exact_at(&mut data, place).map_err(failed)?;
                self.bytes.write(job.offset, &data, fua).map_err(number)?;
            }
            Command::Flush => self.bytes.flush().map_err(number)?,
            Command::Discard => self.bytes.discard(job.offset, job.length).map_err(number)?,
        }
        Ok(match job.command {
            Command::Read | Command::Write { .. } => result,
            Command::Flush | Command::Discard => 0,
        })
    }
}

fn number(error: ByteError) -> Errno {
    match error {
        ByteError::TooBig | ByteError::BehindEnd => Errno::INVAL,
        ByteError::Device => Errno::IO,
    }
}
