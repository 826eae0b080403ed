//! `syncline-swarm`: the swarm, and the client that it starts as processes. See the library.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::{Parser, Subcommand};
use serde_json::json;
use syncline_swarm::{FinishArgs, LeechArgs, Outcome, RunArgs, SCHEMA};
use syncline_lab::report::{About, SequencePlot, sequence_report};

/// Download from a swarm on this machine through librqbit's storage and through FlashLite.
///
/// Each client is killed half way and started again; both files must be the one that the peers
/// serve. Nothing but 127.0.0.1 is talked to. The mounts need /dev/fuse and mke2fs, and the memory
/// for log and file.
#[derive(Parser)]
#[command(name = "syncline-swarm", version)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run both downloads and print one table.
    Run(RunArgs),
    /// One client.
    #[command(hide = true)]
    Leech(LeechArgs),
    /// The normal file of what a client has downloaded.
    #[command(hide = true)]
    Finish(FinishArgs),
}

fn main() -> ExitCode {
    let done = match Args::parse().command {
        Command::Run(args) => run(&args),
        Command::Leech(args) => syncline_swarm::leech(&args),
        Command::Finish(args) => syncline_swarm::finish(&args),
    };
    if let Err(error) = done {
        eprintln!("syncline-swarm: {error:#}");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

fn run(args: &RunArgs) -> Result<()> {
    let program = std::env::current_exe().context("finding this program")?;
    let outcomes = syncline_swarm::run(args, &program)?;
    let tables = syncline_swarm::tables(&outcomes);
    let tables: Vec<String> = tables.iter().map(|lines| syncline_swarm::aligned(lines)).collect();
    let text = tables.join("\n");
    if args.json.as_deref() == Some(Path::new("-")) {
        println!("{:#}", document(args, &outcomes));
    } else {
        print!("{text}");
        if let Some(path) = &args.json {
            write(path, &format!("{:#}\n", document(args, &outcomes)))?;
        }
    }
    if let Some(path) = &args.html {
        write(path, &page(&text, &outcomes))?;
    }
    if outcomes.iter().any(|outcome| !outcome.identical) {
        bail!("a file differs from what the peers served; this is a bug, report the table");
    }
    Ok(())
}

fn document(args: &RunArgs, outcomes: &[Outcome]) -> serde_json::Value {
    json!({
        "schema": SCHEMA,
        "config": {
            "size_bytes": args.size << 20,
            "piece_bytes": args.piece << 10,
            "peers": args.peers,
            "seeders": args.seeders,
            "kill_at_percent": args.kill_at,
            "dirty_bytes": args.dirty << 20,
            "plain": args.plain,
            "seed": args.seed,
        },
        "runs": outcomes,
    })
}

fn page(text: &str, outcomes: &[Outcome]) -> String {
    let plots: Vec<SequencePlot<'_>> = outcomes
        .iter()
        .map(|outcome| SequencePlot {
            title: match outcome.storage.as_str() {
                "flashlite" => "FlashLite, then rearranged (the paper's Figure 10)",
                _ => "default storage (the paper's Figure 7)",
            },
            events: &outcome.events,
            events_lost: outcome.events_lost,
        })
        .collect();
    let words: Vec<String> =
        std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
    let about = About {
        version: format!("syncline-swarm {}", env!("CARGO_PKG_VERSION")),
        command: format!("syncline-swarm {}", words.join(" ")),
        ..About::default()
    };
    sequence_report("syncline swarm", text, &plots, &about)
}

/// The whole file or none.
fn write(path: &Path, text: &str) -> Result<()> {
    let name = || format!("{}; choose another place", path.display());
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // The system takes off what the user's mask has.
    let mode = std::fs::Permissions::from_mode(0o666);
    let mut file =
        tempfile::Builder::new().permissions(mode).tempfile_in(dir).with_context(name)?;
    file.write_all(text.as_bytes()).with_context(name)?;
    file.persist(path).with_context(name)?;
    Ok(())
}
