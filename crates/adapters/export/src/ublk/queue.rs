//! Requests of the queue and their answers.

use std::io::ErrorKind::{Interrupted, WouldBlock};
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use parking_lot::Mutex;

use super::abi::{COMMIT_AND_FETCH, DESCRIPTOR_BYTES, FETCH, QUEUE_DEPTH};
use super::requests::UblkRequests;
use super::sys::{Descriptors, QueueRing, UblkRing, WAKE};

/// Requests at the device at once.
const WORKERS: usize = 4;

/// A tag and its descriptor.
type Fetched = (u16, [u8; DESCRIPTOR_BYTES]);

/// State shared by the queue thread and the workers.
struct Shared<'a> {
    requests: &'a UblkRequests,
    results: Mutex<Vec<(u16, i32)>>,
    /// Workers write to the first; the second is readable while there are results.
    wake: (UnixStream, UnixStream),
}

/// Serves until the device is stopped. When requests are being fetched it calls `fetching`, before
/// it starts a thread or sees a request.
///
/// # Errors
/// No mapping, no thread. The kernel answers requests with an error then.
pub(super) fn serve(
    requests: &UblkRequests,
    ring: UblkRing,
    fetching: impl FnOnce(),
) -> io::Result<()> {
    let wake = UnixStream::pair()?;
    wake.0.set_nonblocking(true)?;
    wake.1.set_nonblocking(true)?;
    let shared = Shared { requests, results: Mutex::default(), wake };
    let mut ring = QueueRing::new(ring, requests.file(), &shared.wake.1);
    let descriptors = Descriptors::map(requests.file())?;
    shared.begin(&mut ring)?;
    fetching();
    let (send, receive) = channel();
    let receive = Mutex::new(receive);
    thread::scope(|scope| {
        for number in 0..WORKERS {
            let name = format!("ublk-worker-{number}");
            thread::Builder::new().name(name).spawn_scoped(scope, || shared.work(&receive))?;
        }
        // Its end drops `send`, which tells the workers.
        shared.fetch(&mut ring, &descriptors, send)
    })
}

impl Shared<'_> {
    /// Fetches a request for each tag. None can come yet: the device has not started.
    fn begin(&self, ring: &mut QueueRing<'_>) -> io::Result<()> {
        ring.push_wake()?;
        for tag in 0..QUEUE_DEPTH {
            ring.push_io(FETCH, tag, 0)?;
        }
        let mut done = Vec::new();
        ring.wait(0, &mut done)?;
        match done.first() {
            Some((_, refused)) => Err(io::Error::from_raw_os_error(refused.saturating_neg())),
            None => Ok(()),
        }
    }

    fn fetch(
        &self,
        ring: &mut QueueRing<'_>,
        descriptors: &Descriptors,
        send: Sender<Fetched>,
    ) -> io::Result<()> {
        let mut done = Vec::new();
        let mut served = QUEUE_DEPTH;
        while served > 0 {
            ring.wait(1, &mut done)?;
            for (user_data, result) in done.drain(..) {
                let tag = match u16::try_from(user_data) {
                    Ok(tag) => tag,
                    Err(_) => {
                        debug_assert_eq!(user_data, WAKE);
                        self.answer(ring)?;
                        continue;
                    }
                };
                let descriptor = descriptors.get(tag).filter(|_| result == 0);
                match descriptor {
                    // Stopped: no request comes for this tag any more.
                    None => served = served.saturating_sub(1),
                    Some(descriptor) => {
                        if send.send((tag, descriptor)).is_err() {
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

    fn work(&self, receive: &Mutex<Receiver<Fetched>>) {
        loop {
            let fetched = receive.lock().recv();
            let Ok((tag, descriptor)) = fetched else { return };
            let result = self.requests.answer(tag, &descriptor);
            self.results.lock().push((tag, result));
            // It fails only if the socket is full: then it is readable all the same.
            let _ = (&self.wake.0).write(&[1]);
        }
    }
}
