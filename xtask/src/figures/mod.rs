//! Figures of the documents: runs, their stored results, and the tables filled from them.
//!
//! ```text
//!   docs/figures/*.toml   runs (command, kind) and tables (rows, columns)      [`spec`]
//!        | figures ID...  runs commands
//!        v
//!   docs/figures/ID.json  results, cut to the metrics that tables use          [`store`]
//!        | figures --fill
//!        v
//!   README.md, docs/**    between `<!-- figures: NAME -->` and `<!-- end -->`  [`fill`]
//! ```
//!
//! `--check` fails when a document differs from the stored results, and when an exact run that is
//! marked `check` gives other results than the stored ones. Wall-clock runs are never repeated by a
//! check: their results carry host, kernel, commit and date instead.

mod fill;
mod picture;
mod render;
mod run;
mod spec;
mod store;

use std::path::Path;
use std::process::ExitCode;

pub use run::built_by_tests;
use spec::Spec;

/// Directory of run lists, results and pictures, relative to the workspace.
const DIR: &str = "docs/figures";

/// Runs `figures` with its arguments.
pub fn main(root: &Path, arguments: &[&str]) -> ExitCode {
    let result = match arguments {
        [] => list(root),
        ["--fill"] => fill_documents(root),
        ["--check"] => check(root),
        ["--check", program] => check_with(root, Path::new(program)),
        ["--with", program, ids @ ..] if !ids.is_empty() => measure(root, ids, Some(*program)),
        ids if ids.iter().all(|id| !id.starts_with('-')) => measure(root, ids, None),
        _ => {
            eprintln!(
                "usage: cargo xtask figures [--fill | --check [PROGRAM] | [--with PROGRAM] ID...]"
            );
            return ExitCode::from(2);
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("figures: {error}");
            ExitCode::FAILURE
        }
    }
}

fn list(root: &Path) -> Result<(), String> {
    let spec = Spec::load(root)?;
    for run in &spec.runs {
        let command = run.shown_commands().join("; ");
        println!("{:24} {:9} {command}", run.id, run.kind.name());
    }
    println!("run some with: cargo xtask figures ID...");
    Ok(())
}

/// Runs the named runs, stores their results, refills the documents. They run with a release build,
/// or with `program`, which is enough for exact runs.
fn measure(root: &Path, ids: &[&str], program: Option<&str>) -> Result<(), String> {
    let spec = Spec::load(root)?;
    for id in ids {
        let run = spec.run(id)?;
        let program = match program {
            Some(program) if run.kind == spec::Kind::Exact => program.into(),
            Some(_) => return Err(format!("{id} is not exact: it needs a release build")),
            None => run::build_release(root)?,
        };
        println!("{id}: {}", run.shown_commands().join("; "));
        let results = run::execute(root, run, &program, &spec.metrics_of(id))?;
        store::write(root, id, &results)?;
    }
    fill_documents(root)
}

fn fill_documents(root: &Path) -> Result<(), String> {
    let spec = Spec::load(root)?;
    for (path, text) in fill::documents(root, &spec)? {
        if std::fs::read_to_string(root.join(&path)).ok().as_deref() != Some(&text) {
            let write = std::fs::write(root.join(&path), text);
            write.map_err(|error| format!("{path} cannot be written: {error}"))?;
            println!("{path}: filled");
        }
    }
    Ok(())
}

/// The check with a release build.
fn check(root: &Path) -> Result<(), String> {
    let program = run::build_release(root)?;
    check_with(root, &program)
}

/// Compares documents with stored results, and the runs marked `check` with a repetition.
fn check_with(root: &Path, program: &Path) -> Result<(), String> {
    let spec = Spec::load(root)?;
    let mut wrong = 0;
    for (path, text) in fill::documents(root, &spec)? {
        let there = std::fs::read_to_string(root.join(&path)).unwrap_or_default();
        if there != text {
            let same = there.lines().zip(text.lines()).take_while(|(a, b)| a == b).count();
            println!("{path}:{}: differs from {DIR}: run cargo xtask figures --fill", same + 1);
            wrong += 1;
        }
    }
    for name in fill::unused(root, &spec)? {
        println!("{DIR}: no document shows {name}: show it or remove it");
        wrong += 1;
    }
    let mut repeated = 0;
    for run in spec.runs.iter().filter(|run| run.check) {
        let fresh = run::execute(root, run, program, &spec.metrics_of(&run.id))?;
        let stored = store::read(root, &run.id)?;
        for difference in store::differences(&stored, &fresh) {
            println!("{DIR}/{}.json: {difference}: run cargo xtask figures {}", run.id, run.id);
            wrong += 1;
        }
        repeated += 1;
    }
    if wrong > 0 {
        return Err(format!("{wrong} differences"));
    }
    println!("figures: documents agree with stored results, {repeated} runs repeated exactly");
    Ok(())
}
