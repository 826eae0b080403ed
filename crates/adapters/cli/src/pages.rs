//! For build scripts: shell completions and man pages from a program's definition.
//!
//! They are put into `OUT_DIR` and from there, compressed as one text, into the program, which
//! prints them: `completions SHELL`, `man [COMMAND]`. So they always fit the program, and a package
//! needs nothing else to install them.

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

/// Texts one behind the other, and the table of their names and places as Rust.
struct Texts {
    table: String,
    bytes: Vec<u8>,
}

impl Texts {
    fn add(&mut self, name: &str, text: &[u8]) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(text);
        self.table += &format!("    ({name:?}, {start}..{}),\n", self.bytes.len());
    }
}

/// Writes `generated.rs` with the completions and pages of a program.
pub fn generate(command: &clap::Command) -> std::io::Result<()> {
    let out = PathBuf::from(std::env::var_os("OUT_DIR").ok_or(std::io::ErrorKind::NotFound)?);
    let mut command = without_help(command.clone());
    let program = command.get_name().to_owned();
    let places = "&[(&str, std::ops::Range<usize>)]";
    let mut texts =
        Texts { table: format!("const COMPLETIONS: {places} = &[\n"), bytes: Vec::new() };
    for (shell, script) in DYNAMIC {
        let text =
            script.replace("@PROGRAM@", &program).replace("@ID@", &program.replace('-', "_"));
        texts.add(shell, text.as_bytes());
    }
    for shell in [Shell::Elvish, Shell::PowerShell] {
        let path = clap_complete::generate_to(shell, &mut command, &program, &out)?;
        texts.add(&shell.to_string(), &std::fs::read(&path)?);
    }
    texts.table += &format!("];\nconst MAN_PAGES: {places} = &[\n");
    command.build();
    page(&command, &program, "", &mut texts)?;
    let path = compressed(&out.join("texts"), &texts.bytes)?;
    texts.table += &format!("];\nconst TEXTS: &[u8] = include_bytes!({path:?});\n");
    std::fs::write(out.join("generated.rs"), texts.table)
}

/// The command without the subcommand `help`, which has no page.
fn without_help(command: clap::Command) -> clap::Command {
    command.disable_help_subcommand(true).mut_subcommands(without_help)
}

/// Adds the page of a command, and those of its subcommands, each named as `buffer-attach`.
fn page(
    command: &clap::Command,
    program: &str,
    name: &str,
    texts: &mut Texts,
) -> std::io::Result<()> {
    let title = if name.is_empty() { program.to_owned() } else { format!("{program}-{name}") };
    let mut text = Vec::new();
    let source = format!("{program} {}", env!("CARGO_PKG_VERSION"));
    clap_mangen::Man::new(command.clone()).title(title).source(source).render(&mut text)?;
    texts.add(name, with_sections(&String::from_utf8_lossy(&text), command).as_bytes());
    for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
        let name = format!("{name}-{}", sub.get_name());
        page(sub, program, name.trim_start_matches('-'), texts)?;
    }
    Ok(())
}

/// Begin of a section, and the name under which clap_mangen puts text behind all others.
const SECTION: &str = "\n.SH ";
const BEHIND: &str = "EXTRA";

/// The page with a synopsis that names values, and with its examples under that heading. It ends
/// with a whole line.
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
    let page = sections.collect::<Vec<_>>().join(SECTION);
    // More may follow.
    format!("{}\n", page.trim_end())
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
