//! The transport of Linux 6.14 and later, where root allows it: io_uring.
//!
//! ```text
//!   program on CPU n -> the kernel's queue n -> an entry of it -> its worker, bound to CPU n
//!                                                  ^  one system call sends an answer
//!                                                  +--------- and waits for the next request
//! ```
//!
//! Each worker has a ring of its own and an entry in one of the kernel's queues, which are as many
//! as there are processors. The kernel gives a request to the entry that was given back last, so
//! the worker whose memory is in the caches gets it, and no worker has to be parked. A worker waits
//! for the device as long as it likes: the other workers of its queue have entries of their own.
//!
//! Promises
//! - A ring can send commands to devices that are open, and do nothing else.
//! - Every request that a worker gets is answered. An entry that the kernel loses is registered
//!   again once; a queue without entries ends the process, as an internal error does, since the
//!   programs on its processor would wait for ever.
//!
//! Rejected: rings with IORING_SETUP_DEFER_TASKRUN. On Linux 6.18 a request took 9.2 us with it and
//! without. Bound workers with the ordinary policy: with a processor that has nothing to do beside
//! it, each answer woke the program there, and untar took twice as long.
//!
//! Assumptions: as in fs/fuse/dev_uring.c, the kernel uses the queues once each has an entry, and
//! never goes back; it stops waiting for them if one cannot be registered.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Sender};
use std::thread::{self, JoinHandle};

use rustix::io::Errno;

use super::device::answer_header;
use super::sys::{Entries, Parts, Ring};
use super::{Body, Device, Header, Out, Turn};
use crate::adapter::{Adapter, REQUEST_BYTES_MAX};
use crate::affinity::{self, QueuePolicy};
use crate::options::{FuseOptions, Uring};

/// Bytes of the longest answer to a request with names or data: an extended attribute.
const ANSWER_BYTES_MAX: usize = 1 << 16;

/// Most workers of a queue, and of a mount unless more are asked for.
const QUEUE_WORKERS_MAX: usize = 8;
const WORKERS_MAX: usize = 128;

/// Says whether the kernel offers it.
const OFFERED: &str = "/sys/module/fuse/parameters/enable_uring";
/// Processors that the kernel has queues for, and those that run.
const POSSIBLE: &str = "/sys/devices/system/cpu/possible";
const ONLINE: &str = "/sys/devices/system/cpu/online";

/// Rings for the workers of one mount, made before the process gives up the right to make them.
pub struct Rings {
    /// Of each worker: its ring, and the queues in which it has an entry.
    workers: Vec<(Ring, Vec<u16>)>,
    /// The kernel's queues.
    queues: u16,
}

impl Rings {
    /// Rings for a mount with these options. `None`: it has none, since the kernel offers no FUSE
    /// over io_uring to new mounts, or the options want none.
    ///
    /// # Errors
    /// The kernel or its policy allows no ring, or none that is restricted; files of /sys are not
    /// to be read.
    pub fn of(options: &FuseOptions) -> io::Result<Option<Rings>> {
        let offered = || std::fs::read(OFFERED).is_ok_and(|text| text.starts_with(b"Y"));
        if options.uring == Uring::Off || !offered() {
            return Ok(None);
        }
        let (possible, online) = (processors(POSSIBLE)?, processors(ONLINE)?);
        let plan = planned(workers(options, online.len()), &possible, &online);
        let ring = |queues: Vec<u16>| Ok((Ring::new(queues.len() as u32)?, queues));
        let workers = plan.into_iter().map(ring).collect::<io::Result<_>>()?;
        // Where numbers are left out the kernel refuses the last queues.
        let queues = possible.iter().max().map_or(0, |last| last + 1);
        Ok(Some(Rings { workers, queues }))
    }
}

/// Workers: as many for each queue as the options say for all of /dev/fuse, within bounds.
fn workers(options: &FuseOptions, queues: usize) -> usize {
    let wanted = options.workers();
    (wanted.min(QUEUE_WORKERS_MAX) * queues).clamp(wanted, WORKERS_MAX.max(wanted))
}

fn processors(file: &str) -> io::Result<Vec<u16>> {
    let text = std::fs::read_to_string(file)?;
    listed(text.trim()).filter(|all| !all.is_empty()).ok_or(io::ErrorKind::InvalidData.into())
}

/// The numbers of a list such as `0-3,7`.
fn listed(text: &str) -> Option<Vec<u16>> {
    let mut all = Vec::new();
    for part in text.split(',') {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        all.extend(from.parse().ok()?..=to.parse::<u16>().ok()?);
    }
    Some(all)
}

/// The queues of each worker: one, or several where there are fewer workers than processors. One
/// more worker has those of processors that are not online.
fn planned(workers: usize, possible: &[u16], online: &[u16]) -> Vec<Vec<u16>> {
    let mut plan = vec![Vec::new(); workers];
    for nr in 0..workers.max(online.len()) {
        plan[nr % workers].push(online[nr % online.len()]);
    }
    let offline: Vec<u16> = possible.iter().copied().filter(|cpu| !online.contains(cpu)).collect();
    plan.extend((!offline.is_empty()).then_some(offline));
    plan
}

/// State that the workers of a mount share.
struct Shared {
    adapter: Arc<Adapter>,
    /// Entries of each queue.
    alive: Vec<AtomicUsize>,
    /// Workers are bound to processors.
    binds: bool,
    /// The policies of bound workers, by queue; none where they are ordinary threads.
    policies: Vec<Option<Arc<QueuePolicy>>>,
}

/// Starts the workers; true if every queue has an entry, so that requests come through them.
///
/// # Errors
/// A thread cannot be started, or a ring does not work. The kernel may wait for its queues then:
/// the mount is of no use. The other workers end with it.
pub(crate) fn start(
    rings: Rings,
    device: &Device,
    adapter: &Arc<Adapter>,
    binds: bool,
    threads: &mut Vec<JoinHandle<()>>,
) -> io::Result<bool> {
    let alive = (0..rings.queues).map(|_| AtomicUsize::new(0)).collect();
    let idles = binds && affinity::may_be_idle();
    let policy = |queue: u16| {
        let bound = rings.workers.iter().filter(|(_, queues)| **queues == [queue]).count();
        (idles && bound > 0).then(|| QueuePolicy::start(queue, bound)).transpose()
    };
    let policies = (0..rings.queues).map(policy).collect::<io::Result<_>>()?;
    let shared = Arc::new(Shared { adapter: Arc::clone(adapter), alive, binds, policies });
    let (registered, all) = mpsc::channel();
    for (nr, (ring, queues)) in rings.workers.into_iter().enumerate() {
        let (device, shared, registered) =
            (device.clone(), Arc::clone(&shared), registered.clone());
        let worker = thread::Builder::new().name(format!("ring-{nr}"));
        threads.push(worker.spawn(move || {
            let entries = Entries::new(ring, device, &queues, REQUEST_BYTES_MAX as usize);
            shared.work(entries, registered);
        })?);
    }
    drop(registered);
    all.iter().collect::<io::Result<()>>()?;
    Ok(shared.alive.iter().all(|entries| entries.load(Ordering::Acquire) > 0))
}

impl Shared {
    /// Serves what comes through the entries until the mount is gone.
    fn work(&self, mut entries: Entries, registered: Sender<io::Result<()>>) {
        let policy = self.policies[usize::from(entries.queue(0))].as_deref();
        let policy = policy.filter(|_| entries.len() == 1);
        let _leaving = policy.map(Leaving);
        if self.binds && entries.len() == 1 && affinity::bind_to(entries.queue(0)) {
            policy.into_iter().for_each(QueuePolicy::join);
        }
        for index in 0..entries.len() {
            self.alive[usize::from(entries.queue(index))].fetch_add(1, Ordering::AcqRel);
            entries.register(index);
        }
        let sent = entries.submit();
        let works = sent.is_ok();
        let mut ready = self.completed(&mut entries);
        // Another worker's failure may have ended the wait for it.
        let _ = registered.send(sent);
        drop(registered);
        if !works {
            return;
        }
        let mut answer = vec![0; ANSWER_BYTES_MAX];
        while !ready.is_empty() || entries.is_lent() {
            let (index, done) = match ready.pop() {
                Some(index) => (index, Ok(())),
                None => entries.wait().expect("a ring that worked goes on to"),
            };
            match done {
                Ok(()) => {
                    if let Some(policy) = policy {
                        policy.count();
                    }
                    let len = self.serve(entries.parts(index), &mut answer);
                    entries.commit(index, len);
                }
                Err(err) if is_over(&err) => {}
                Err(_) => {
                    entries.register(index);
                    entries.submit().expect("a ring that worked goes on to");
                    ready.append(&mut self.completed(&mut entries));
                    let queue = entries.queue(index);
                    let left = self.alive[usize::from(queue)].load(Ordering::Acquire);
                    assert!(left > 0, "queue {queue} of io_uring has no entry left");
                }
            }
        }
    }

    /// The entries that have a request already. One that the kernel refused is lost.
    fn completed(&self, entries: &mut Entries) -> Vec<usize> {
        let mut ready = Vec::new();
        while let Some((index, done)) = entries.completed() {
            match done {
                Ok(()) => ready.push(index),
                Err(err) if is_over(&err) => {}
                Err(_) => {
                    let queue = usize::from(entries.queue(index));
                    self.alive[queue].fetch_sub(1, Ordering::AcqRel);
                }
            }
        }
        ready
    }

    /// Serves the request of an entry; returns the bytes of the answer behind its header.
    fn serve(&self, parts: Parts<'_>, answer: &mut [u8]) -> usize {
        let Parts { header: head, fixed, payload, payload_len } = parts;
        let header = Header::parse(head).expect("the kernel's memory for a header");
        let turn = &mut Turn::default();
        let (done, len) = if payload_len == 0 {
            // Without names and data the answer is made in its place.
            let (mut body, mut out) = (Body::split(fixed, &[]), Out::new(payload));
            (self.adapter.answer(&header, &mut body, &mut out, turn), out.len())
        } else {
            let (names_and_data, mut out) = (&payload[..payload_len], Out::new(answer));
            let mut body = Body::split(fixed, names_and_data);
            let done = self.adapter.answer(&header, &mut body, &mut out, turn);
            let len = out.len();
            payload[..len].copy_from_slice(&answer[..len]);
            (done, len)
        };
        let done = done.map(|()| len);
        let head_of_answer = answer_header(header.unique, done);
        head[..head_of_answer.len()].copy_from_slice(&head_of_answer);
        done.unwrap_or(0)
    }
}

/// A worker of a policy, until its thread ends.
struct Leaving<'a>(&'a QueuePolicy);

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        self.0.leave();
    }
}

/// The mount is gone.
fn is_over(err: &io::Error) -> bool {
    let over = [Errno::NOTCONN, Errno::CONNABORTED].map(Errno::raw_os_error);
    err.raw_os_error().is_some_and(|errno| over.contains(&errno))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_processors() {
        assert_eq!(listed("0-3,7"), Some(vec![0, 1, 2, 3, 7]));
        assert_eq!(listed("0"), Some(vec![0]));
        assert_eq!((listed(""), listed("0-"), listed("0,x")), (None, None, None));
    }

    #[test]
    fn a_queue_has_up_to_eight_workers() {
        let with = |threads| FuseOptions { threads, ..FuseOptions::default() };
        let of = |threads, queues| workers(&with(threads), queues);
        assert_eq!([of(1, 2), of(3, 2), of(8, 2), of(20, 2)], [2, 6, 16, 20]);
        assert_eq!([of(8, 64), of(128, 64)], [128, 128]);
    }

    #[test]
    fn every_queue_has_an_entry() {
        assert_eq!(planned(4, &[0, 1], &[0, 1]), [[0], [1], [0], [1]]);
        assert_eq!(planned(2, &[0, 1, 2], &[0, 1, 2]), [vec![0, 2], vec![1]]);
        assert_eq!(planned(1, &[0, 1], &[0, 1]), [[0, 1]]);
        assert_eq!(planned(2, &[0, 1, 2, 3], &[0, 2]), [vec![0], vec![2], vec![1, 3]]);
    }
}
