//! `reproduce`: tables and figures of the source papers beside ours.
//!
//! Ctrl-C ends the run under way; rows that are complete are reported.

use std::process::Command;

use syncline_lab::reproduce::{
    Catalog, Document, Finished, Paper, Planned, Program, Reproduced, Row, Session, Time, page,
};

use crate::about;
use crate::args::Reproduce;
use crate::progress::Terminal;
use syncline_cli::error::{Failure, Result};
use syncline_cli::format::{self, Forms};
use syncline_cli::{complain, progress, version};

/// Runs the rows, then prints.
pub(crate) fn run(args: &Reproduce) -> Result<()> {
    format::check_outputs(&[args.json.as_deref(), args.html.as_deref()])?;
    let catalog = Catalog::shipped()?;
    let rows = catalog.find(&args.rows)?;
    let mut document = Document { full: args.full, interrupted: false, rows: Vec::new() };
    if args.list {
        document.rows.extend(rows.iter().map(|(paper, row)| Reproduced::not_run(paper, row)));
        let json = args.json.as_deref();
        return format::show(&|| document.list(), &|| document.to_json(), json);
    }
    let done = reproduce(args, &rows, &mut document);
    document.interrupted = done.is_err();
    // After an error the finished rows are still reported.
    let forms = Forms {
        table: &|| document.to_text(),
        json: &|| document.to_json(),
        page: &|| page(&document, &catalog, &about()),
    };
    let printed = match document.rows.is_empty() {
        true => Ok(()),
        false => format::publish(&forms, args.json.as_deref(), args.html.as_deref()),
    };
    done.and(printed)
}

fn reproduce(args: &Reproduce, rows: &[(&Paper, &Row)], document: &mut Document) -> Result<()> {
    let program = args.real_time.then(|| Box::new(run_again) as Box<Program>);
    let resume = args.resume.as_deref();
    let finished = resume.map(|path| Finished::open(path, &version::build(), args.full));
    let mut session = Session::new(args.full, args.html.is_some(), program)
        .with_uncertainty(args.uncertainty)
        .with_finished(finished.transpose()?);
    let total = rows.iter().map(|(_, row)| session.runs(row).len() as u64).sum();
    let bar = progress::bar("runs", total);
    let mut begun = 0;
    for (paper, row) in rows {
        let name = format!("{}/{}", paper.id, row.id);
        let left_out = session.runs(row).is_empty();
        if left_out {
            if row.time == Time::Real {
                complain(&format!("{name} needs real time; --real-time runs it"));
            }
            document.rows.push(Reproduced::not_run(paper, row));
            continue;
        }
        let mut started = |run: &Planned| {
            bar.set_what(format!("{name}: {}", run.name));
            bar.set_done(begun);
            begun += 1;
        };
        let reproduced = session.row(paper, row, &Terminal::default(), &mut started);
        match reproduced {
            Ok(reproduced) => document.rows.push(reproduced),
            Err(err) => {
                bar.clear();
                return Err(Failure::from(err).at(name));
            }
        }
    }
    bar.clear();
    Ok(())
}

/// Runs this program with other arguments, for a row in real time.
fn run_again(arguments: &[String]) -> std::result::Result<Vec<u8>, String> {
    let program = std::env::current_exe().map_err(|err| format!("{err}; reinstall syncline"))?;
    let output = Command::new(program).args(arguments).output();
    let output = output.map_err(|err| format!("{err}; reinstall syncline"))?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    Err(String::from_utf8_lossy(&output.stderr).trim().to_owned())
}
