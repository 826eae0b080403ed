//! Completions and man pages, which the build script made.

use clap::{Arg, Command, CommandFactory};
use syncline_cli::generated::Pages;
use syncline_fs::VOLUME_OPTIONS;
use syncline_lab::bench::{JournalMode, NETWORKS, Solution, WORKLOADS};
use syncline_lab::reproduce::Catalog;
use syncline_lab::trace::FORMATS;

use crate::args::Cli;

include!(concat!(env!("OUT_DIR"), "/generated.rs"));

/// Those of this program.
pub(crate) const PAGES: Pages = Pages {
    program: "syncline-lab",
    texts: TEXTS,
    completions: COMPLETIONS,
    pages: MAN_PAGES,
    more: |_| None,
};

/// Values of the arguments, for `complete`.
pub(crate) fn values(_: &Command, arg: &Arg, tail: &str) -> Vec<String> {
    let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    match arg.get_id().as_str() {
        "device" | "in_process" | "profile" | "name" | "target" => {
            syncline_nand::profiles().map(|(name, _)| name.to_owned()).collect()
        }
        "sync" | "log" | "alloc" => words(arg.get_id().as_str()),
        "policy" => syncline_cache::POLICIES.iter().map(|entry| entry.name.to_owned()).collect(),
        "options" => VOLUME_OPTIONS.iter().flat_map(|row| row.candidates(tail)).collect(),
        "workloads" => {
            let names = WORKLOADS.iter().flat_map(|entry| {
                [Some(entry.name), entry.name.split_once('/').map(|(group, _)| group)]
            });
            let mut names: Vec<&str> = names.flatten().collect();
            names.sort_unstable();
            names.dedup();
            owned(&names)
        }
        "journal_mode" => owned(&JournalMode::ALL.map(JournalMode::name)),
        "synchronous" => owned(&["off", "normal", "full", "extra"]),
        "network" => NETWORKS.iter().map(|network| network.name.to_owned()).collect(),
        "solution" => owned(&Solution::ALL.map(Solution::name)),
        "format" => FORMATS.iter().map(|format| format.name.to_owned()).collect(),
        "rows" => {
            let rows = Catalog::shipped().and_then(|catalog| {
                let found = catalog.find(&[])?;
                Ok(found.iter().map(|(paper, row)| format!("{}/{}", paper.id, row.id)).collect())
            });
            // What is shipped is read by every test of `reproduce`.
            rows.unwrap_or_default()
        }
        "command" => {
            Cli::command().get_subcommands().map(|sub| sub.get_name().to_owned()).collect()
        }
        _ => Vec::new(),
    }
}

/// The words of a mount option.
fn words(name: &str) -> Vec<String> {
    let begun = format!("{name}=");
    let rows = VOLUME_OPTIONS.iter().filter(|row| row.name == name);
    let words = rows.flat_map(|row| row.candidates(&begun));
    words.filter_map(|word| word.strip_prefix(&begun).map(str::to_owned)).collect()
}
