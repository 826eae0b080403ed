//! `trace mix`: a workload of the informed-storage paper, mixed from the captured programs.

use std::io::BufWriter;

use syncline_lab::reproduce::Mix;
use syncline_lab::trace::{Header, Names, Sink, TraceKind, TraceWriter};

use crate::args::TraceMix;
use crate::progress::Terminal;
use syncline_cli::error::{Failure, Result};
use syncline_cli::format::{Out, Staged};
use syncline_lab::Observer;

/// Mixes, writes, and says what it has.
pub(crate) fn run(args: &TraceMix) -> Result<()> {
    let mix = Mix::by_name(&args.workload)?;
    let staged = Staged::new(&args.output)?;
    let failed = |err| Failure::from(err).at(args.output.display());
    let header = Header { kind: TraceKind::Block, source: format!("mix of {}", mix.name) };
    let out = BufWriter::new(staged.file(&args.output)?);
    let mut writer = TraceWriter::new(out, &header).map_err(failed)?;
    let (names, terminal) = (Names::default(), Terminal::default());
    for record in mix.records(args.seed)? {
        if terminal.stopped() {
            return Err(Failure::Interrupted);
        }
        writer.record(&names, &record).map_err(failed)?;
    }
    drop(writer.finish(&names).map_err(failed)?);
    staged.commit(&args.output)?;
    let mut out = Out::new();
    out.text(format!("{} page reads and {} page writes\n", mix.reads, mix.writes))?;
    out.flush()
}
