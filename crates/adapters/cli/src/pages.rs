//! For build scripts: shell completions and man pages from a program's definition.
//!
//! They are put into `OUT_DIR` and from there, compressed, into the program, which prints them:
//! `completions SHELL`, `man [COMMAND]`. So they always fit the program, and a package needs
//! nothing else to install them.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap_complete::Shell;
use flate2::Compression;
use flate2::write::DeflateEncoder;

/// Scripts of shells that ask the program (`complete.rs`).
const DYNAMIC: [(&str, &str); 3] = [
    ("bash", include_str!("complete.bash")),
    ("fish", include_str!("complete.fish")),
    ("zsh", include_str!("complete.zsh")),
];

/// Writes `generated.rs` with the completions and pages of a program.
pub fn generate(command: &clap::Command) -> std::io::Result<()> {
    let out = PathBuf::from(std::env::var_os("OUT_DIR").ok_or(std::io::ErrorKind::NotFound)?);
    let mut command = without_help(command.clone());
    let program = command.get_name().to_owned();
    let mut table = Vec::new();
    writeln!(table, "const COMPLETIONS: &[(&str, &[u8])] = &[")?;
    for (shell, script) in DYNAMIC {
        let path = out.join(format!("{program}.{shell}"));
        let text =
            script.replace("@PROGRAM@", &program).replace("@ID@", &program.replace('-', "_"));
        let path = compressed(&path, text.as_bytes())?;
        writeln!(table, "    ({shell:?}, include_bytes!({path:?})),")?;
    }
    for shell in [Shell::Elvish, Shell::PowerShell] {
        let path = clap_complete::generate_to(shell, &mut command, &program, &out)?;
        let path = compressed(&path, &std::fs::read(&path)?)?;
        writeln!(table, "    ({:?}, include_bytes!({path:?})),", shell.to_string())?;
    }
    writeln!(table, "];\nconst MAN_PAGES: &[(&str, &[u8])] = &[")?;
    command.build();
    page(&command, &program, "", &out, &mut table)?;
    writeln!(table, "];")?;
    std::fs::write(out.join("generated.rs"), table)
}

/// The command without the subcommand `help`, which has no page.
fn without_help(command: clap::Command) -> clap::Command {
    command.disable_help_subcommand(true).mut_subcommands(without_help)
}

/// Writes the page of a command, and those of its subcommands, each named as `buffer-attach`.
fn page(
    command: &clap::Command,
    program: &str,
    name: &str,
    out: &Path,
    table: &mut Vec<u8>,
) -> std::io::Result<()> {
    let title = if name.is_empty() { program.to_owned() } else { format!("{program}-{name}") };
    let path = out.join(format!("{title}.1"));
    let mut text = Vec::new();
    clap_mangen::Man::new(command.clone()).title(title.as_str()).render(&mut text)?;
    let text = with_sections(&String::from_utf8_lossy(&text), command);
    let path = compressed(&path, text.as_bytes())?;
    writeln!(table, "    ({name:?}, include_bytes!({path:?})),")?;
    for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
        let name = format!("{name}-{}", sub.get_name());
        page(sub, program, name.trim_start_matches('-'), out, table)?;
    }
    Ok(())
}

/// Begin of a section, and the name under which clap_mangen puts text behind all others.
const SECTION: &str = "\n.SH ";
const BEHIND: &str = "EXTRA";

/// The page with a synopsis that names values, and with its examples under that heading.
fn with_sections(page: &str, command: &clap::Command) -> String {
    let sections = page.split(SECTION).map(|section| {
        let name = section.lines().next().unwrap_or_default();
        if name == "SYNOPSIS" {
            let usage = command.clone().render_usage().to_string();
            return format!("{name}\n{}", escaped(usage.trim_start_matches("Usage: ")));
        }
        let help = command.get_after_long_help().map(ToString::to_string).unwrap_or_default();
        match help.strip_prefix("Examples:\n") {
            Some(examples) if name == BEHIND => {
                format!("EXAMPLES\n.nf\n{}\n.fi", escaped(examples))
            }
            _ => section.to_owned(),
        }
    });
    sections.collect::<Vec<_>>().join(SECTION)
}

/// Lines as they stand on a page.
fn escaped(text: &str) -> String {
    let line = |line: &str| {
        let line = line.replace('\\', "\\e").replace('-', "\\-").replace('\'', "\\(aq");
        if line.starts_with('.') { format!("\\&{line}") } else { line }
    };
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}

/// Writes a file beside `path`; returns its path.
fn compressed(path: &Path, text: &[u8]) -> std::io::Result<PathBuf> {
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(text)?;
    let mut name = path.as_os_str().to_owned();
    name.push(".deflate");
    std::fs::write(&name, encoder.finish()?)?;
    Ok(name.into())
}
