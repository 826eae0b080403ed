//! Effects of each system call on files.

use std::cell::Cell;
use std::rc::Rc;

use super::parse::{Call, descriptor, field, string};
use super::state::{Known, Opened, Process, State};
use crate::trace::import::{Line, Out};
use crate::trace::model::{Flags, NameId, Op, Record};

/// A call on its way.
struct Take<'a, 'o> {
    state: &'a mut State,
    process: Rc<Process>,
    call: &'a Call<'a>,
    base: Record,
    out: &'a mut Out<'o>,
}

pub(super) fn take(
    state: &mut State,
    thread: u32,
    time_ns: u64,
    call: &Call<'_>,
    out: &mut Out<'_>,
) -> Line {
    let process = state.process(thread);
    let base = Record {
        process: process.id,
        thread,
        process_name: process.name.get(),
        result: call.result,
        latency_ns: call.latency_ns,
        ..Record::new(time_ns, Op::Stat)
    };
    Take { state, process, call, base, out }.run()
}

impl Take<'_, '_> {
    fn run(mut self) -> Line {
        match self.call.name {
            "open" | "creat" | "openat" | "openat2" => self.open(),
            "close" => self.close(),
            "read" | "readv" | "pread64" | "preadv" | "preadv2" => self.transfer(Op::Read),
            "write" | "writev" | "pwrite64" | "pwritev" | "pwritev2" => self.transfer(Op::Write),
            "sendfile" | "copy_file_range" => self.copy(),
            "lseek" | "_llseek" => self.seek(),
            "fsync" => self.on_descriptor(Op::Fsync),
            "fdatasync" => self.on_descriptor(Op::Fdatasync),
            "syncfs" | "sync" => self.emit(Op::Sync, NameId::NONE),
            "sync_file_range" => self.range(Op::SyncRange, 1, 2),
            "fallocate" => self.range(Op::Fallocate, 2, 3),
            "truncate" | "ftruncate" => self.truncate(),
            "unlink" | "unlinkat" | "rmdir" | "mkdir" | "mkdirat" => self.name(),
            "rename" | "renameat" | "renameat2" | "link" | "linkat" => self.two_names(),
            "symlink" | "symlinkat" => self.symlink(),
            "stat" | "lstat" | "stat64" | "lstat64" | "fstat" | "fstat64" | "newfstatat"
            | "statx" | "access" | "faccessat" | "faccessat2" => self.stat(),
            "dup" | "dup2" | "dup3" | "fcntl" | "fcntl64" => self.duplicate(),
            "clone" | "clone3" | "fork" | "vfork" => self.fork(),
            "chdir" | "fchdir" => self.chdir(),
            "execve" | "execveat" => self.exec(),
            _ => self.pass(),
        }
    }

    fn pass(&mut self) -> Line {
        self.out.pass_over();
        Ok(())
    }

    fn arg(&self, at: usize) -> &str {
        self.call.args.get(at).copied().unwrap_or_default()
    }

    fn number(&self, at: usize) -> Option<u64> {
        self.arg(at).trim_matches(['[', ']']).parse().ok()
    }

    fn ok(&self) -> bool {
        self.call.result.is_some_and(|result| result >= 0)
    }

    fn emit(&mut self, op: Op, file: NameId) -> Line {
        self.out.push(Record { op, file, ..self.base })
    }

    /// A path of a file, or none for what is no file.
    fn path(&mut self, path: &str) -> Option<NameId> {
        let special = ["/dev/", "/proc/", "/sys/"].iter().any(|prefix| path.starts_with(prefix));
        // A file system in memory, for programs.
        let outside = special && !path.starts_with("/dev/shm/");
        (path.starts_with('/') && !outside).then(|| self.out.names.intern(path))
    }

    /// The path in argument `at`, below the directory in the argument before if `relative`.
    fn path_at(&mut self, at: usize, relative: bool) -> Option<NameId> {
        let name = string(self.arg(at))?;
        if name.starts_with('/') {
            return self.path(&name);
        }
        let dir = match relative.then(|| descriptor(self.arg(at.wrapping_sub(1)))).flatten() {
            Some((-100, dir)) => {
                if !dir.is_empty() {
                    self.process.dir.replace(dir);
                }
                self.process.dir.borrow().clone()
            }
            Some((_, dir)) => dir,
            None => self.process.dir.borrow().clone(),
        };
        let full = join(&dir, &name);
        self.path(&full)
    }

    /// The open file in argument `at`; one that was opened before the trace is made up.
    fn opened(&mut self, at: usize) -> Option<Rc<Opened>> {
        let (fd, path) = descriptor(self.arg(at))?;
        let known = self.process.files.borrow().get(&fd).cloned();
        if let Some(known) = known {
            if path.is_empty() || self.out.names.get(known.file) == path {
                return Some(known);
            }
            // After a rename the same file has another path.
            let file = self.path(&path)?;
            let offset = Cell::new(known.offset.get());
            let (append, sync) = (known.append, known.sync);
            return Some(self.keep(fd, Opened { file, offset, append, sync }));
        }
        let file = self.path(&path)?;
        self.state.known.entry(file).or_insert(Known::Seen);
        Some(self.keep(fd, Opened { file, offset: Cell::new(0), append: false, sync: false }))
    }

    fn keep(&self, fd: i64, opened: Opened) -> Rc<Opened> {
        let opened = Rc::new(opened);
        self.process.files.borrow_mut().insert(fd, Rc::clone(&opened));
        opened
    }

    fn open(&mut self) -> Line {
        let at = usize::from(self.call.name.starts_with("openat"));
        let Some(file) = self.path_at(at, at == 1) else { return self.pass() };
        let flags = if self.call.name == "creat" { "O_CREAT|O_TRUNC" } else { self.arg(at + 1) };
        let has = |flag: &str| flags.contains(flag);
        let (creates, truncates, append) = (has("O_CREAT"), has("O_TRUNC"), has("O_APPEND"));
        let (excl, sync, dir) = (has("O_EXCL"), has("SYNC"), has("O_DIRECTORY"));
        if !self.ok() {
            if self.call.result == Some(-2) {
                self.state.known.insert(file, Known::Missing);
            }
            return self.emit(Op::Open, file);
        }
        let known = self.state.known.get(&file).copied();
        let there = matches!(known, Some(Known::Settled(_) | Known::Seen));
        let new = creates && (excl || !there);
        if let Some(fd) = self.call.result.filter(|_| !dir) {
            self.keep(fd, Opened { file, offset: Cell::new(0), append, sync });
        }
        self.emit(if new { Op::Create } else { Op::Open }, file)?;
        if new {
            self.state.known.insert(file, Known::Settled(0));
        } else if truncates {
            self.state.known.insert(file, Known::Settled(0));
            self.out.push(Record {
                op: Op::Truncate,
                file,
                size_bytes: Some(0),
                result: Some(0),
                latency_ns: None,
                ..self.base
            })?;
        } else {
            self.state.known.entry(file).or_insert(Known::Seen);
        }
        Ok(())
    }

    fn close(&mut self) -> Line {
        let Some((fd, _)) = descriptor(self.arg(0)) else { return self.pass() };
        let opened = self.opened(0);
        self.process.files.borrow_mut().remove(&fd);
        match opened {
            Some(opened) => self.emit(Op::Close, opened.file),
            None => self.pass(),
        }
    }

    /// read, write and their kin.
    fn transfer(&mut self, op: Op) -> Line {
        let Some(opened) = self.opened(0) else { return self.pass() };
        let placed = self.call.name.starts_with('p');
        let offset = match placed.then(|| self.number(3)).flatten() {
            Some(offset) => offset,
            None if op == Op::Write && opened.append => {
                self.state.size(opened.file).unwrap_or(opened.offset.get())
            }
            None => opened.offset.get(),
        };
        self.moved(op, &opened, offset)?;
        if !placed && let Some(len) = self.call.result.and_then(|n| u64::try_from(n).ok()) {
            opened.offset.set(offset.saturating_add(len));
        }
        Ok(())
    }

    /// The record of a transfer that moved what the call returned.
    fn moved(&mut self, op: Op, opened: &Opened, offset: u64) -> Line {
        let len = self.call.result.and_then(|n| u64::try_from(n).ok()).unwrap_or(0);
        let size_bytes = self.state.size(opened.file);
        let flags = Flags::when(op == Op::Write && opened.sync, Flags::SYNC)
            .with(Flags::when(op == Op::Write && opened.append, Flags::APPEND));
        if op == Op::Write
            && let Some(size) = size_bytes
        {
            let size = size.max(offset.saturating_add(len));
            self.state.known.insert(opened.file, Known::Settled(size));
        }
        let record = Record { op, file: opened.file, flags, size_bytes, ..self.base };
        self.out.push(record.range(offset, len))
    }

    /// sendfile(out, in, offset), copy_file_range(in, offset, out, offset).
    fn copy(&mut self) -> Line {
        let whole = self.call.name == "copy_file_range";
        let (from, to) = if whole { (0, 2) } else { (1, 0) };
        let offsets = if whole { [Some(1), Some(3)] } else { [Some(2), None] };
        let len = self.call.result.and_then(|n| u64::try_from(n).ok()).unwrap_or(0);
        let sides = [(Op::Read, from, offsets[0]), (Op::Write, to, offsets[1])];
        for (op, arg, offset) in sides {
            let Some(opened) = self.opened(arg) else { continue };
            match offset.and_then(|at| self.number(at)) {
                Some(offset) => self.moved(op, &opened, offset)?,
                None => {
                    self.moved(op, &opened, opened.offset.get())?;
                    opened.offset.set(opened.offset.get().saturating_add(len));
                }
            }
        }
        Ok(())
    }

    fn seek(&mut self) -> Line {
        let place = self.call.result.and_then(|n| u64::try_from(n).ok());
        if let (Some(opened), Some(place)) = (self.opened(0), place) {
            opened.offset.set(place);
        }
        self.pass()
    }

    fn on_descriptor(&mut self, op: Op) -> Line {
        match self.opened(0) {
            Some(opened) => self.emit(op, opened.file),
            None => match descriptor(self.arg(0)) {
                Some((_, path)) if path.starts_with('/') => {
                    let file = self.out.names.intern(&path);
                    self.emit(op, file)
                }
                _ => self.pass(),
            },
        }
    }

    fn range(&mut self, op: Op, offset: usize, len: usize) -> Line {
        let Some(opened) = self.opened(0) else { return self.pass() };
        let (offset, len) = (self.number(offset).unwrap_or(0), self.number(len).unwrap_or(0));
        if offset.checked_add(len).is_none() {
            return Err("the range is too large".into());
        }
        let record = Record { op, file: opened.file, ..self.base };
        self.out.push(record.range(offset, len))
    }

    fn truncate(&mut self) -> Line {
        let file = match self.call.name {
            "truncate" => self.path_at(0, false),
            _ => self.opened(0).map(|opened| opened.file),
        };
        let (Some(file), Some(size)) = (file, self.number(1)) else { return self.pass() };
        if self.ok() {
            self.state.known.insert(file, Known::Settled(size));
        }
        self.out.push(Record { op: Op::Truncate, file, size_bytes: Some(size), ..self.base })
    }

    fn name(&mut self) -> Line {
        let at = usize::from(self.call.name.ends_with("at"));
        let Some(file) = self.path_at(at, at == 1) else { return self.pass() };
        let dir = self.call.name.starts_with("rmdir") || self.arg(2).contains("AT_REMOVEDIR");
        let op = match (self.call.name.starts_with("mkdir"), dir) {
            (true, _) => Op::Mkdir,
            (_, true) => Op::Rmdir,
            _ => Op::Unlink,
        };
        if self.ok() && op != Op::Mkdir {
            self.state.known.insert(file, Known::Missing);
        }
        self.emit(op, file)
    }

    fn two_names(&mut self) -> Line {
        let relative = self.call.name.contains("at");
        let (from, to) = if relative { (1, 3) } else { (0, 1) };
        let (from, to) = (self.path_at(from, relative), self.path_at(to, relative));
        let (Some(file), Some(target)) = (from, to) else { return self.pass() };
        let op = if self.call.name.starts_with("rename") { Op::Rename } else { Op::Link };
        if self.ok() {
            let known = self.state.known.get(&file).copied().unwrap_or(Known::Seen);
            self.state.known.insert(target, known);
            if op == Op::Rename {
                self.state.known.insert(file, Known::Missing);
            }
        }
        self.out.push(Record { op, file, target, ..self.base })
    }

    fn symlink(&mut self) -> Line {
        let relative = self.call.name.ends_with("at");
        let Some(text) = string(self.arg(0)) else { return self.pass() };
        let place = if relative { 2 } else { 1 };
        let Some(file) = self.path_at(place, relative) else { return self.pass() };
        let target = self.out.names.intern(&text);
        self.out.push(Record { op: Op::Symlink, file, target, ..self.base })
    }

    fn stat(&mut self) -> Line {
        let name = self.call.name;
        let relative = matches!(name, "newfstatat" | "statx" | "faccessat" | "faccessat2");
        let by_fd = name.starts_with("fstat");
        let at = usize::from(relative);
        // newfstatat(3</path>, "", ...) is fstat.
        let empty = relative && string(self.arg(1)).is_some_and(|path| path.is_empty());
        let file = match by_fd || empty {
            true => self.opened(0).map(|opened| opened.file),
            false => self.path_at(at, relative),
        };
        let Some(file) = file else { return self.pass() };
        if self.call.result == Some(-2) {
            self.state.known.insert(file, Known::Missing);
        }
        let printed = self.call.args.iter().find(|arg| arg.starts_with('{'));
        let size = printed.filter(|arg| arg.contains("S_IFREG")).and_then(|arg| {
            let size = field(arg, "st_size=").or_else(|| field(arg, "stx_size="));
            size.and_then(|size| size.parse::<u64>().ok())
        });
        let unsettled = !matches!(self.state.known.get(&file), Some(Known::Settled(_)));
        if let Some(size) = size.filter(|_| self.ok() && unsettled) {
            self.state.known.insert(file, Known::Settled(size));
            let there = Record { op: Op::Present, file, size_bytes: Some(size), ..self.base };
            self.out.push(Record { result: None, latency_ns: None, ..there })?;
        }
        self.emit(Op::Stat, file)
    }

    fn duplicate(&mut self) -> Line {
        let fcntl = self.call.name.starts_with("fcntl");
        if fcntl && !self.arg(1).starts_with("F_DUPFD") {
            return self.pass();
        }
        if let (Some(opened), Some(new)) = (self.opened(0), self.call.result.filter(|fd| *fd >= 0))
        {
            self.process.files.borrow_mut().insert(new, opened);
        }
        self.pass()
    }

    fn fork(&mut self) -> Line {
        if let Some(child) = self.call.result.and_then(|n| u32::try_from(n).ok()).filter(|n| *n > 0)
        {
            let shares = self
                .call
                .args
                .iter()
                .any(|arg| arg.contains("CLONE_THREAD") || arg.contains("CLONE_FILES"));
            let parent = Rc::clone(&self.process);
            self.state.cloned(&parent, child, shares);
        }
        self.pass()
    }

    fn chdir(&mut self) -> Line {
        let dir = match self.call.name {
            "fchdir" => descriptor(self.arg(0)).map(|(_, path)| path),
            _ => string(self.arg(0)),
        };
        if let Some(dir) = dir.filter(|_| self.ok()) {
            let full = join(&self.process.dir.borrow(), &dir);
            self.process.dir.replace(full);
        }
        self.pass()
    }

    fn exec(&mut self) -> Line {
        let at = usize::from(self.call.name == "execveat");
        if let Some(path) = string(self.arg(at)).filter(|_| self.ok()) {
            let name = path.rsplit('/').next().unwrap_or_default();
            self.process.name.set(self.out.names.intern(name));
        }
        self.pass()
    }
}

/// `name` below `dir`, without `.` and `..`.
fn join(dir: &str, name: &str) -> String {
    let all = if name.starts_with('/') { name.to_owned() } else { format!("{dir}/{name}") };
    let mut parts: Vec<&str> = Vec::new();
    for part in all.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    format!("/{}", parts.join("/"))
}
