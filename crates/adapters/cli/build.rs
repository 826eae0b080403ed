//! Generates shell completions and man pages from the command line's definition.
//!
//! They are put into `OUT_DIR` and from there into the binary, which prints them: `syncline
//! completions SHELL`, `syncline man [COMMAND]`. So they always fit the binary, and a package needs
//! nothing else to install them.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use clap_complete::Shell;

#[allow(dead_code)]
#[path = "src/args.rs"]
mod args;

fn main() -> std::io::Result<()> {
    println!("cargo:rerun-if-changed=src/args.rs");
    println!("cargo:rerun-if-changed=src/args");
    println!("cargo:rerun-if-changed=build.rs");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").ok_or(std::io::ErrorKind::NotFound)?);
    let mut command = args::examples::command();
    let mut table = Vec::new();
    writeln!(table, "const COMPLETIONS: &[(&str, &[u8])] = &[")?;
    for shell in Shell::value_variants() {
        let path = clap_complete::generate_to(*shell, &mut command, "syncline", &out)?;
        writeln!(table, "    ({:?}, include_bytes!({path:?})),", shell.to_string())?;
    }
    writeln!(table, "];\nconst PAGES: &[(&str, &[u8])] = &[")?;
    command.build();
    page(&command, "", &out, &mut table)?;
    for sub in command.get_subcommands().filter(|sub| sub.get_name() != "help") {
        page(sub, sub.get_name(), &out, &mut table)?;
    }
    writeln!(table, "];")?;
    std::fs::write(out.join("generated.rs"), table)
}

fn page(
    command: &clap::Command,
    name: &str,
    out: &Path,
    table: &mut Vec<u8>,
) -> std::io::Result<()> {
    let title = if name.is_empty() { "syncline".to_owned() } else { format!("syncline-{name}") };
    let path = out.join(format!("{title}.1"));
    let mut text = Vec::new();
    clap_mangen::Man::new(command.clone()).title(title.as_str()).render(&mut text)?;
    std::fs::write(&path, text)?;
    writeln!(table, "    ({name:?}, include_bytes!({path:?})),")
}
