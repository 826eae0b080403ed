//! Steps of an application on a volume: network and processor time pass, files and databases are
//! written and read.

use crate::observer::Observer;
use rand_chacha::ChaCha8Rng;
use rusqlite::{Connection, params};

use super::shapes::{Shape, Step};
use super::{Network, numbers};
use crate::bench::target::{Open, Target, VolumeTarget};
use crate::bench::workloads::{Parameters, close, connect_to, noise};
use crate::error::Result;

/// Longest wait between two looks at what is due in the background, ns.
const WAIT_NS: u64 = 100_000_000;
/// Bytes of a read or write call.
const CALL_BYTES: u64 = 16 << 10;
/// Statements of an application's database.
const TABLE: &str = "CREATE TABLE IF NOT EXISTS t(_id INTEGER PRIMARY KEY, url TEXT, content TEXT);
    CREATE INDEX IF NOT EXISTS i ON t(url);";

/// One application that runs.
pub(super) struct Work<'a> {
    shape: &'a Shape,
    parameters: &'a Parameters,
    network: Network,
    rng: ChaCha8Rng,
    databases: Vec<Connection>,
    rows: i64,
    files: u64,
    read_at: u64,
    cpu_ns: u64,
    network_ns: u64,
}

impl<'a> Work<'a> {
    pub(super) fn new(shape: &'a Shape, parameters: &'a Parameters, network: Network) -> Work<'a> {
        let rng = numbers(parameters.seed);
        Work {
            shape,
            parameters,
            network,
            rng,
            databases: Vec::new(),
            rows: 0,
            files: 0,
            read_at: 0,
            cpu_ns: 0,
            network_ns: 0,
        }
    }

    /// Processor time so far, without that of system calls.
    pub(super) fn cpu_ns(&self) -> u64 {
        self.cpu_ns
    }

    /// Waits for the network so far.
    pub(super) fn network_ns(&self) -> u64 {
        self.network_ns
    }

    /// Times that a step is done, at the scale of the run.
    fn times(&self, step: &Step) -> u64 {
        (step.times * self.parameters.scale_percent).div_ceil(100)
    }

    /// On the first mount: the file that steps read, and directories.
    pub(super) fn prepare(&mut self, target: &VolumeTarget) -> Result<()> {
        target.mkdir("/cache")?;
        target.mkdir("/app")?;
        let all = self.shape.steps.iter().map(|step| self.times(step) * step.read_bytes);
        let bytes: u64 = all.sum();
        if bytes > 0 {
            self.write_file(target, "/app/code", bytes, false)?;
        }
        Ok(())
    }

    /// On the second mount.
    pub(super) fn open(&mut self, target: &VolumeTarget) -> Result<()> {
        for n in 0..self.shape.databases {
            let db = connect_to(target, &format!("/app/{n}.db"), self.parameters)?;
            db.execute_batch(TABLE)?;
            self.databases.push(db);
        }
        Ok(())
    }

    /// Every step, until the observer says no.
    pub(super) fn run(&mut self, target: &VolumeTarget, observer: &dyn Observer) -> Result<()> {
        let total: u64 = self.shape.steps.iter().map(|step| self.times(step)).sum();
        let mut done = 0_u64;
        for step in self.shape.steps {
            for _ in 0..self.times(step) {
                if observer.stopped() {
                    return Ok(());
                }
                self.step(target, step)?;
                done += 1;
                observer.position(done, total);
            }
        }
        Ok(())
    }

    pub(super) fn close(&mut self) -> Result<()> {
        self.databases.drain(..).try_for_each(close)
    }

    fn step(&mut self, target: &VolumeTarget, step: &Step) -> Result<()> {
        // A file or row is kept when its part has come, not at the end of all.
        let parts = step.files.max(1);
        for part in 0..parts {
            self.transfer(target, step.received_bytes / parts, step.sent_bytes / parts);
            self.compute(target, step.cpu_ms * 1_000_000 / parts);
            self.read(target, step.read_bytes / parts)?;
            if part == 0 && step.installed_bytes > 0 {
                self.install(target, step.installed_bytes)?;
            }
            if step.files > 0 {
                self.files += 1;
                let path = format!("/cache/{:05}", self.files);
                self.write_file(target, &path, step.file_bytes / parts, false)?;
            }
            let before = step.transactions * part / parts;
            for _ in before..step.transactions * (part + 1) / parts {
                self.transaction(step.row_bytes)?;
            }
        }
        Ok(())
    }

    /// Lets time pass, and what is due in the background happen.
    fn wait(target: &VolumeTarget, ns: u64) {
        let clock = target.fs().clock();
        let end_ns = clock.now_ns() + ns;
        while clock.now_ns() < end_ns {
            clock.sleep_until(end_ns.min(clock.now_ns() + WAIT_NS));
            target.fs().charge_syscall();
        }
    }

    fn transfer(&mut self, target: &VolumeTarget, received: u64, sent: u64) {
        if received + sent == 0 {
            return;
        }
        let ns = |bytes: u64, per_s: u64| bytes * 1_000_000_000 / per_s;
        let Network { receive_bytes_per_s, send_bytes_per_s, round_trip_ns, .. } = self.network;
        let ns = ns(received, receive_bytes_per_s) + ns(sent, send_bytes_per_s) + round_trip_ns;
        self.network_ns += ns;
        Self::wait(target, ns);
    }

    fn compute(&mut self, target: &VolumeTarget, ns: u64) {
        self.cpu_ns += ns;
        Self::wait(target, ns);
    }

    /// Reads on in the application's file, which is not cached at first.
    fn read(&mut self, target: &VolumeTarget, bytes: u64) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        let mut file = target.open("/app/code", Open::Existing)?;
        let mut piece = vec![0; CALL_BYTES as usize];
        let end = self.read_at + bytes;
        while self.read_at < end {
            let len = CALL_BYTES.min(end - self.read_at);
            file.read_at(self.read_at, piece.get_mut(..len as usize).unwrap_or_default())?;
            self.read_at += len;
        }
        Ok(())
    }

    /// Sends a package, which is then copied to its place; both are synced.
    fn install(&mut self, target: &VolumeTarget, bytes: u64) -> Result<()> {
        self.files += 1;
        let (from, to) = (format!("/cache/{}.tmp", self.files), format!("/app/{}.apk", self.files));
        self.write_file(target, &from, bytes, true)?;
        self.write_file(target, &to, bytes, true)?;
        target.remove(&from)
    }

    fn write_file(
        &mut self,
        target: &VolumeTarget,
        path: &str,
        bytes: u64,
        synced: bool,
    ) -> Result<()> {
        let mut file = target.open(path, Open::New)?;
        let piece = noise(&mut self.rng, CALL_BYTES as usize);
        for at in (0..bytes).step_by(CALL_BYTES as usize) {
            let len = CALL_BYTES.min(bytes - at);
            file.write_at(at, piece.get(..len as usize).unwrap_or_default())?;
        }
        if synced { file.sync(false) } else { Ok(()) }
    }

    fn transaction(&mut self, row_bytes: u64) -> Result<()> {
        let count = self.databases.len().max(1) as i64;
        let at = usize::try_from(self.rows % count).unwrap_or(0);
        let Some(db) = self.databases.get(at) else { return Ok(()) };
        self.rows += 1;
        let text: String = noise(&mut self.rng, row_bytes as usize / 2)
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        // Every third one changes what is there, as counters and states do.
        let id = self.rows / count;
        if self.rows % 3 == 0 && id > 1 {
            db.prepare_cached("UPDATE t SET content=? WHERE _id=?")?
                .execute(params![text, id / 2])?;
        } else {
            let url = format!("http://{:x}.example/{}", self.rows * 7919 % 10_007, self.rows);
            db.prepare_cached("INSERT INTO t VALUES(NULL,?,?)")?.execute(params![url, text])?;
        }
        Ok(())
    }
}
