//! `trace join`: files and processes of system calls on the block requests of the same time.
//!
//! Both traces stream: calls are read as far as the next request's time.

use std::collections::HashMap;
use std::fs::File;
use std::io::BufWriter;
use std::path::Path;
use std::sync::Arc;

use syncline_lab::Observer;
use syncline_lab::trace::{
    CallNames, NameId, Names, Owners, Record, TraceKind, TraceReader, TraceWriter,
};

use crate::args::TraceJoin;
use crate::progress::Terminal;
use syncline_cli::error::{Failure, Result};
use syncline_cli::format::{Out, Staged};

/// Joins, then says how much has an owner.
pub(crate) fn run(args: &TraceJoin) -> Result<()> {
    let mut calls = Calls::open(&args.calls)?;
    let mut blocks = open(&args.blocks, TraceKind::Block)?;
    let staged = Staged::new(&args.output)?;
    let failed = |err| Failure::from(err).at(args.output.display());
    let out = BufWriter::new(staged.file(&args.output)?);
    let mut writer = TraceWriter::new(out, blocks.header()).map_err(failed)?;
    writer.lost(blocks.lost());
    if let Some(unix_ns) = blocks.started() {
        writer.started(unix_ns);
    }
    if let Some(duration_ns) = blocks.duration_ns() {
        writer.lasted(duration_ns);
    }
    let (mut names, mut owned) = (Names::default(), 0u64);
    let read = |err| Failure::from(err).at(args.blocks.display());
    let terminal = Terminal::default();
    while let Some((records, _)) = blocks.next_batch().map_err(read)? {
        if terminal.stopped() {
            return Err(Failure::Interrupted);
        }
        for record in records {
            calls.pass(record.time_ns)?;
            let owner = calls.owners.of(record);
            owned += u64::from(owner.file.is_some());
            let mut number = |name: &Option<Arc<str>>| {
                name.as_deref().map_or(NameId::NONE, |name| names.intern(name))
            };
            let (file, process_name) = (number(&owner.file), number(&owner.process_name));
            let (inode, process) = (owner.inode, owner.process);
            let record = Record { file, process_name, inode, process, ..*record };
            syncline_lab::trace::Sink::record(&mut writer, &names, &record).map_err(failed)?;
        }
    }
    let records = writer.records();
    drop(writer.finish(&names).map_err(failed)?);
    staged.commit(&args.output)?;
    let mut out = Out::new();
    out.text(format!("{owned} of {records} block requests have a file\n"))?;
    out.flush()
}

/// A trace of ours of that kind.
fn open(path: &Path, kind: TraceKind) -> Result<TraceReader<File>> {
    let file = File::open(path).map_err(|err| Failure::host(path, &err))?;
    let reader = TraceReader::open(file).map_err(|err| Failure::from(err).at(path.display()))?;
    let found = reader.header().kind;
    if found != kind {
        return Err(Failure::Usage(format!(
            "{} is a {} trace; give the {} trace first, then the {} trace",
            path.display(),
            found.name(),
            TraceKind::Syscall.name(),
            TraceKind::Block.name()
        )));
    }
    Ok(reader)
}

/// Calls on their way to the owners.
struct Calls<'a> {
    path: &'a Path,
    reader: TraceReader<File>,
    batch: Vec<Record>,
    /// The next one of the batch.
    next: usize,
    shared: HashMap<NameId, Arc<str>>,
    owners: Owners,
}

impl<'a> Calls<'a> {
    fn open(path: &'a Path) -> Result<Calls<'a>> {
        let reader = open(path, TraceKind::Syscall)?;
        let (batch, shared) = (Vec::new(), HashMap::new());
        Ok(Calls { path, reader, batch, next: 0, shared, owners: Owners::default() })
    }

    /// Takes the calls that began up to that time.
    fn pass(&mut self, time_ns: u64) -> Result<()> {
        loop {
            while let Some(call) = self.batch.get(self.next) {
                if call.time_ns > time_ns {
                    return Ok(());
                }
                let call = *call;
                self.next += 1;
                let [file, target, process_name] =
                    [call.file, call.target, call.process_name].map(|id| self.shared(id));
                let names = CallNames {
                    file: file.as_ref(),
                    target: target.as_ref(),
                    process_name: process_name.as_ref(),
                };
                self.owners.call(&call, names);
            }
            (self.next, self.batch) = (0, Vec::new());
            let failed = |err| Failure::from(err).at(self.path.display());
            match self.reader.next_batch().map_err(failed)? {
                Some((records, _)) => self.batch.extend_from_slice(records),
                None => return Ok(()),
            }
        }
    }

    fn shared(&mut self, id: NameId) -> Option<Arc<str>> {
        if !id.is_some() {
            return None;
        }
        let name = self.reader.names().get(id);
        Some(self.shared.entry(id).or_insert_with(|| name.into()).clone())
    }
}
